"""Who may be received next, what a lease allows, what becomes of a message that is given back.

The rules, as the memory store runs them and every other store is tested against:

1. A receive returns the first message of the group that is first in the line of ready groups (line.py), then as many
   of the same group as fit, then goes on with the next such group.
2. A message is hidden while it is leased or delayed. A hidden message is in the way of those behind it in its group,
   not of those before it; but a lease that was not extended by itself is in the way of all of its group, since who
   holds part of a batch may be at work on the rest.
3. A lease ends when its time passes, when the message is acknowledged, or when it is given back. What its holder asks
   for afterwards is refused, whether or not somebody else has the message by then: the token tells.
4. A message that is given back is in its old place. It has used up an attempt only if it was its turn: one that came
   in a batch behind a message that failed has not.
5. A deferred message is out of the way: what is behind it goes on. It is given out by its number only, to one at a
   time, and in nobody's way then either. Given back, it is deferred again. To defer uses up no attempt.
6. A scheduled message is one that is delayed and that nobody has had yet. It can be cancelled until its time has come.
7. Who only looks shortens nothing, whatever its clock says; see behind.py.

Who has a whole group for itself is in session.py.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from inturn.core.envelope import Why


class Hold(NamedTuple):
    """What is known of a message that was received or delayed.

    Attributes:
        until_ms: hidden until then; None: not hidden.
        token: the lease that hides it; None: no lease, a delay.
        attempts: how often it was received when it was its turn.
        extended: whether the lease was prolonged or shortened by itself.
        since_ms: when it was hidden.
        first_ms: when it was received for the first time.
        deferred: whether the message is out of the way, to be received by its number only.
    """

    until_ms: int | None
    token: int | None = None
    attempts: int = 0
    extended: bool = False
    since_ms: int = 0
    first_ms: int | None = None
    deferred: bool = False


class Act(IntEnum):
    """What is done with a message."""

    ACK = 0
    """It is done."""
    EXTEND = 1
    """Its lease ends at another time."""
    NACK = 2
    """It is given back, to be received again after a delay."""
    MOVE = 3
    """It goes into another queue."""
    DEFER = 4
    """It is out of the way, to be received by its number only."""
    CANCEL = 5
    """It was scheduled, and is not to come."""


class Change(NamedTuple):
    """Something to be done with one message.

    Attributes:
        sequence_number: which.
        token: under which lease; None: without one, by an operator.
        act: what.
        ms: from now, for ``EXTEND`` and ``NACK``; None: as the queue says, for ``NACK``.
        to: the queue, for ``MOVE``.
        note: why, for ``MOVE``.
        any_holder: without a lease: also if somebody has the message, whose lease then changes with it.
    """

    sequence_number: int
    token: int | None
    act: Act
    ms: int | None = 0
    to: str | None = None
    note: str | None = None
    any_holder: bool = False


class Verdict(Enum):
    """Whether a change was made."""

    DONE = "done"
    EXPIRED = "expired"
    """The lease is over, or is another's."""
    GONE = "gone"
    """There is no such message any more: acknowledged, purged, or past its retention."""
    HELD = "held"
    """A receiver has it, so nobody else may change it."""
    LATE = "late"
    """It is not scheduled any more: its time has come."""


_DONE: Final = Verdict.DONE  # until Python 3.12 each look at a member of an enumeration takes 0.15 µs


def is_hidden(hold: Hold | None, now_ms: int) -> bool:
    """Whether a message is leased or delayed."""
    return hold is not None and hold.until_ms is not None and hold.until_ms > now_ms


def is_leased(hold: Hold | None, now_ms: int) -> bool:
    """Whether somebody has a message."""
    return hold is not None and hold.token is not None and is_hidden(hold, now_ms)


def is_scheduled(hold: Hold | None, now_ms: int) -> bool:
    """Whether a message was sent for a later time that has not come."""
    return hold is not None and hold.token is None and hold.first_ms is None and is_hidden(hold, now_ms)


def is_deferred(hold: Hold | None) -> bool:
    """Whether a message is out of the way of its group."""
    return hold is not None and hold.deferred


def blocks_all(hold: Hold | None, now_ms: int) -> bool:
    """Whether a message is in the way of all of its group."""
    return hold is not None and not hold.extended and not hold.deferred and is_leased(hold, now_ms)


def takes(holds: Iterable[Hold | None], limit: int, now_ms: int) -> int:
    """How many messages of a free group are received together, from its first on.

    Args:
        holds: of the group's messages in their order.
        limit: how many at most.
        now_ms: the time.
    """
    taken = 0
    for hold in holds:
        if taken == limit or is_hidden(hold, now_ms):
            break
        taken += 1
    return taken


def leased(hold: Hold | None, token: int, visibility_ms: int, now_ms: int) -> Hold:
    """A message that has just been received."""
    attempts, first_ms, deferred = (hold.attempts, hold.first_ms, hold.deferred) if hold else (0, None, False)
    first_ms = now_ms if first_ms is None else first_ms
    return Hold(now_ms + visibility_ms, token, attempts + 1, since_ms=now_ms, first_ms=first_ms, deferred=deferred)


def deferred(hold: Hold | None) -> Hold:
    """A message that is put out of the way."""
    hold = hold or Hold(None)
    return Hold(None, None, hold.attempts - (hold.token is not None), first_ms=hold.first_ms, deferred=True)


def verdict(hold: Hold | None, change: Change, now_ms: int) -> Verdict:
    """Whether the holder of a lease may still change a message; an operator, who has none, may if nobody holds it."""
    held = is_leased(hold, now_ms)
    if change.token is None:
        if held and not change.any_holder:
            return Verdict.HELD
        is_late = change.act is Act.CANCEL and not is_scheduled(hold, now_ms)
        return Verdict.LATE if is_late else Verdict.DONE
    mine = held and hold is not None and hold.token == change.token
    return _DONE if mine else Verdict.EXPIRED


def extended(hold: Hold | None, ms: int, now_ms: int) -> Hold:
    """A message that stays hidden for so long from now on."""
    return (hold or Hold(None))._replace(until_ms=now_ms + ms, since_ms=now_ms, extended=True)


def blocking(head: Hold | None, holds: Iterable[Hold | None], now_ms: int) -> tuple[Why, Hold | None]:
    """Why the head of a group is not given out, and what hides it.

    Args:
        head: of the group's first message.
        holds: of all its messages.
        now_ms: the time.
    """
    hold = next((each for each in holds if blocks_all(each, now_ms)), head)
    if hold is None or not is_hidden(hold, now_ms):
        return Why.READY, None
    return (Why.DELAYED if hold.token is None else Why.IN_FLIGHT), hold


def given_back(hold: Hold, *, is_head: bool, delay_ms: int = 0, now_ms: int = 0) -> Hold | None:
    """What is left of a lease that is over; None: nothing that need be known.

    Args:
        hold: the lease, or a delay that is over.
        is_head: whether the message is the first of its group, so that it was its turn.
        delay_ms: how long it stays hidden.
        now_ms: the time.
    """
    used = hold.token is None or is_head or hold.deferred
    left = Hold(
        None, None, hold.attempts if used else hold.attempts - 1, first_ms=hold.first_ms, deferred=hold.deferred
    )
    if delay_ms:
        return left._replace(until_ms=now_ms + delay_ms, since_ms=now_ms)
    return left if left.attempts or left.deferred else None


def is_exhausted(hold: Hold | None, max_receives: int | None) -> bool:
    """Whether a message has been tried as often as its queue allows."""
    return max_receives is not None and hold is not None and hold.attempts >= max_receives


def exhausted(max_receives: int | None) -> str:
    """What is noted with a message that is moved to the dead-letter queue."""
    times = "once" if max_receives == 1 else f"{max_receives} times"
    return f"received {times} and never acknowledged"
