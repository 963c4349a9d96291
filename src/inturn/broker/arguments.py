"""Check what a broker is given, before anything of it is queued."""

from math import isnan

from inturn.core import limits
from inturn.core.errors import InputError


def checked_bound(name: str, value: int) -> int:
    """Return a bound of a broker.

    Raises:
        InputError: It is no whole number, or less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}; it is a whole number and must be at least 1")
    return value


def seconds_to_wait(timeout_s: float | None) -> float | None:
    """Return how long to wait; None, for ever, also where it is longer than any timer of an event loop.

    Raises:
        InputError: It is no number of seconds.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or isnan(timeout_s):
        raise InputError(f"timeout_s is {timeout_s!r}; it is a number of seconds, an int or a float, or None for ever")
    return None if timeout_s > limits.BROKER_WAIT_S else timeout_s
