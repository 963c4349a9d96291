"""Incarnations: whether a place in a queue that somebody remembers is still a place of this queue's history.

A database that is put back from an older copy, or a stale replica that is promoted, gives numbers out again that
others have seen with other messages. So each run of numbers of a queue is of an *incarnation*: a random id, and the
last number before it. Who opens a database is a new incarnation, and is written down with the first number that it
gives. A number is of the last incarnation that began before it.

A remembered place names the incarnation of its number. It is valid only if its number still is of that one: then all
histories up to it are the same, since two copies of a database that go on apart do so with other ids.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

ORIGIN: Final = ""
"""The incarnation of numbers that were given before there were any, and of no number at all."""


class Began(NamedTuple):
    """That an incarnation began.

    Attributes:
        after: the last number before it.
        incarnation: its id.
    """

    after: int
    incarnation: str


class Place(NamedTuple):
    """A place in a queue, to be remembered outside of its database.

    Attributes:
        sequence_number: the last message that is before it.
        incarnation: in which that message was sent; None if it is not known, as of places of before there were any.
    """

    sequence_number: int
    incarnation: str | None = None


def incarnation_of(history: Iterable[Began], number: int) -> str:
    """Return the incarnation in which a number was given.

    Args:
        history: in the order of their beginnings.
        number: a sequence number.
    """
    found = ORIGIN
    for after, incarnation in history:
        if after >= number:
            break
        found = incarnation
    return found


def begin(history: Sequence[Began], last: int, incarnation: str) -> list[Began]:
    """Return the history with an incarnation that is about to give its first number.

    One that has given no number leaves nothing behind.

    Args:
        history: in the order of their beginnings.
        last: the last number that was given.
        incarnation: which begins; nothing changes if it is the last one already.
    """
    if history and history[-1].incarnation == incarnation:
        return list(history)
    return [*(each for each in history if each.after < last), Began(last, incarnation)]


def trim(history: Sequence[Began], read_to: int, most: int) -> list[Began]:
    """Return the history without what nobody needs: old beginnings, before what the slowest reader has read.

    Args:
        history: in the order of their beginnings.
        read_to: no valid place is before this number.
        most: how many of the newest are kept in any case.
    """
    needed = [each for each in history if each.after < read_to][-1:]
    return [each for each in history if each in history[-most:] or not needed or each >= needed[0]]


def is_valid(place: Place, given_in: str, last: int) -> bool:
    """Say whether a remembered place is one of a queue's history.

    Args:
        place: the place.
        given_in: the incarnation of its number, as the queue says.
        last: the last number that the queue has given.
    """
    return place.sequence_number <= last and place.incarnation in (given_in, None)
