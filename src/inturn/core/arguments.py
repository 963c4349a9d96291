"""Checks of callers' arguments, with one text for all: ``PARAM is VALUE; expected …``."""

from typing import Any

from inturn.core.errors import InputError


def refusal(name: str, value: object, expected: str) -> InputError:
    """Return the error for a value that an argument cannot have; ``expected`` says what to pass instead."""
    return InputError(f"{name} is {value!r:.200}; expected {expected}")


def check_type(name: str, value: object, kind: Any, expected: str) -> None:
    """Check that an argument is an instance of a type, of one of several, or of an abstract class such as ``Callable``.

    Raises:
        InputError: if it is not.
    """
    if not isinstance(value, kind):
        raise refusal(name, value, expected)
