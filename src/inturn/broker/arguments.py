"""Validation of a broker's arguments, before anything is queued."""

from math import isnan

from inturn.core import limits
from inturn.core.errors import InputError


def checked_bound(name: str, value: int) -> int:
    """Return a bound of a broker.

    Raises:
        InputError: if it is not a whole number, or less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}; it is a whole number and must be at least 1")
    return value


def seconds_to_wait(timeout_s: float | None) -> float | None:
    """Return how long to wait in seconds; None, for ever, also if it is longer than an event loop's timer allows.

    Raises:
        InputError: if it is not a number of seconds.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or isnan(timeout_s):
        raise InputError(f"timeout_s is {timeout_s!r}; it is a number of seconds, an int or a float, or None for ever")
    return None if timeout_s > limits.BROKER_WAIT_S else timeout_s
