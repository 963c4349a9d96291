"""Construction of messages of a record type, whose own checks may refuse one: the same rule for every engine.

An exception from ``__post_init__``, ``__init__`` or a default factory makes that one message ``invalid``. A type that
cannot be called with its fields at all is a mistake in the program, not in a message.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Unmade(NamedTuple):
    """The placeholder for a message that cannot be made.

    Attributes:
        why: error text of its type.
    """

    why: str


def attempted(record: type, make: Callable[[], T]) -> T | Unmade:
    """Make a message, or return why its type refuses it.

    Raises:
        TypeError: if the type does not take such arguments.
    """
    try:
        return make()
    except TypeError as error:
        # No frame below that of ``make``: the call itself failed. Errors of the type's own code come from a deeper one.
        frame = error.__traceback__ and error.__traceback__.tb_next
        if frame is None or frame.tb_next is None:
            raise
        return Unmade(refusal(record, error))
    except Exception as error:  # noqa: BLE001 - the type's own checks may raise anything
        return Unmade(refusal(record, error))


def refusal(record: type, error: BaseException) -> str:
    """Return why a message does not fit its type."""
    return f"it is no {record.__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return an error's text, with the error's type where the text alone says little.

    >>> error_text(ValueError("amount is below zero")), error_text(KeyError("owner")), error_text(ValueError())
    ('amount is below zero', "KeyError: 'owner'", 'ValueError')
    """
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error class of the user's
        return name
    if not text:
        return name
    return text if type(error) in (ValueError, TypeError) else f"{name}: {text}"
