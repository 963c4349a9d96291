"""Make the message of a record type, whose own checks may refuse it: one rule for every engine.

What ``__post_init__``, ``__init__`` or the factory of a default raises is said of that message alone, which is
``invalid``. That the type cannot be called with its fields at all is a mistake in the program, not in a message.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Unmade(NamedTuple):
    """What stands in place of a message that cannot be made.

    Attributes:
        why: what its type says.
    """

    why: str


def attempted(record: type, make: Callable[[], T]) -> T | Unmade:
    """Make a message, or say why its type refuses it.

    Raises:
        TypeError: if the type does not take such arguments.
    """
    try:
        return make()
    except TypeError as error:
        # The call itself failed; what the type's own code raises comes from at least one call further within.
        frame = error.__traceback__ and error.__traceback__.tb_next
        if frame is None or frame.tb_next is None:
            raise
        return Unmade(refusal(record, error))
    except Exception as error:  # noqa: BLE001 - the type's own checks may raise anything
        return Unmade(refusal(record, error))


def refusal(record: type, error: BaseException) -> str:
    """Say why a message is none of its type."""
    return f"it is no {record.__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return what an error says, and its type where the text alone would tell little.

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
