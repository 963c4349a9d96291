"""Incarnations: check that a remembered place in a queue still belongs to the queue's history.

A database that is restored from an older copy, or a stale replica that is promoted, assigns numbers again that clients
have already seen with other messages. So each run of numbers of a queue has an *incarnation*: a random id, and the last
number before it. Each opening of a database is a new incarnation. It is recorded with the first number that it assigns.
A number belongs to the last incarnation that began before it.

A remembered place names the incarnation of its number. It is valid only if its number still belongs to that
incarnation. Then all histories up to it are the same, since two copies of a database that continue separately do so
with different ids.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

ORIGIN: Final = ""
"""The incarnation of numbers assigned before incarnations were introduced, and of an empty history."""


class IncarnationStart(NamedTuple):
    """The beginning of an incarnation.

    Attributes:
        after: the last number before it.
        incarnation: its id.
    """

    after: int
    incarnation: str


class QueuePosition(NamedTuple):
    """A place in a queue, to be remembered outside of its database.

    Attributes:
        sequence_number: number of the last message before the place.
        incarnation: incarnation in which that message was sent; None if unknown, as for places older than incarnations.
    """

    sequence_number: int
    incarnation: str | None = None


def incarnation_of(history: Iterable[IncarnationStart], number: int) -> str:
    """Return the incarnation in which a number was assigned; the history is in the order of beginnings."""
    current = ORIGIN
    for after, incarnation in history:
        if after >= number:
            break
        current = incarnation
    return current


def begin(history: Sequence[IncarnationStart], last: int, incarnation: str) -> list[IncarnationStart]:
    """Return the history with an incarnation that is about to assign its first number, after ``last``.

    An incarnation that has assigned no number is removed. Nothing changes if the new one is already the last.
    """
    if history and history[-1].incarnation == incarnation:
        return list(history)
    return [*(start for start in history if start.after < last), IncarnationStart(last, incarnation)]


def trim(history: Sequence[IncarnationStart], read_to: int, most: int) -> list[IncarnationStart]:
    """Return the history without beginnings older than the slowest reader needs.

    Args:
        history: incarnations in the order of their beginnings.
        read_to: no valid place is before this number.
        most: number of the newest incarnations that are always kept.
    """
    needed = [start for start in history if start.after < read_to][-1:]
    return [start for start in history if start in history[-most:] or not needed or start >= needed[0]]


def is_valid(place: QueuePosition, given_in: str, last: int) -> bool:
    """Return whether a remembered place is in a queue's history: the queue assigned its number in ``given_in``."""
    return place.sequence_number <= last and place.incarnation in (given_in, None)
