"""Who has a group for itself: what a session's lock allows, and what becomes of a group that is parked.

The rules, as the memory store runs them and every other store is tested against:

1. Each group has a gate. It is open, or locked by a session until a time, or parked by a person or a policy with a
   reason. Behind a closed gate an ordinary receive finds nothing, however much there is; other groups go on.
2. A group can be locked if its gate is open and nobody has a message of it: a session is alone with its group. One
   that is named may be empty; the next free one is that whose head a receive would give out.
3. What a session receives is under the lock's own token and ends with the lock. To extend one such message is to renew
   the lock. What was received in the session already is not in the way of more, in order.
4. A lock is over when its time passes, when its session is closed, or when its session parks the group. What was
   received in it and not settled is in its old place then, as after any lease. What its holder asks for afterwards is
   refused, whether or not somebody else has the group by then: the token tells.
5. A parked group keeps its messages in their order, and new ones come behind. Nothing of it is received, fetched or
   moved to the dead-letter queue; what is past its retention goes. It stays parked, though it be empty, until it is
   resumed. Without a lock it can be parked only if nobody has a message of it.
6. A session's state stays with the group until it is set to nothing: it outlives the session, the messages and a purge,
   as a park does; only the removal of the queue ends them.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from inturn.core.delivery import Hold, Verdict, blocking
from inturn.core.envelope import Why


class Gate(NamedTuple):
    """Who may receive from a group.

    Attributes:
        token: of the session that has locked it; None: none has.
        until_ms: when the lock is over.
        since_ms: when it was taken or renewed.
        note: why it is parked; None: it is not.
        parked_ms: when it was parked.
    """

    token: int | None = None
    until_ms: int | None = None
    since_ms: int = 0
    note: str | None = None
    parked_ms: int | None = None


OPEN = Gate()
"""The gate of nearly every group."""


class Verb(IntEnum):
    """What is asked about a group."""

    LOOK = 0
    """Whether the lock still holds."""
    LOCK = 1
    """A session begins."""
    RENEW = 2
    """Its lock ends at another time."""
    CLOSE = 3
    """It ends."""
    PARK = 4
    """It ends, if it is one, and the group is parked."""
    RESUME = 5
    """The group is parked no more."""
    GET_STATE = 6
    """What its state is."""
    SET_STATE = 7
    """Its state is another."""


class Request(NamedTuple):
    """Something that is asked about a group.

    Attributes:
        verb: what.
        token: by which session; None: by nobody's, such as an operator.
        ms: from now, for ``LOCK`` and ``RENEW``.
        note: why, for ``PARK``.
        state: for ``SET_STATE``; None: none.
    """

    verb: Verb
    token: int | None = None
    ms: int = 0
    note: str | None = None
    state: bytes | None = None


class Answer(NamedTuple):
    """What came of it.

    Attributes:
        verdict: whether it was done; ``HELD``: the group is not free; ``GONE``: it was not parked.
        group: of which group.
        gate: as it is now, if it was done.
        state: for ``GET_STATE``.
    """

    verdict: Verdict
    group: str = ""
    gate: Gate = OPEN
    state: bytes | None = None


def is_locked(gate: Gate, now_ms: int) -> bool:
    """Whether a session has the group."""
    return gate.until_ms is not None and gate.until_ms > now_ms


def is_closed(gate: Gate) -> bool:
    """Whether receivers are kept out; a lock that is over keeps them out until it is taken away."""
    return gate.token is not None or gate.note is not None


def is_of(gate: Gate, token: int | None, now_ms: int) -> bool:
    """Whether a session still has the group."""
    return token is not None and gate.token == token and is_locked(gate, now_ms)


def unlocked(gate: Gate) -> Gate:
    """Without its lock."""
    return gate._replace(token=None, until_ms=None, since_ms=0)


def renewed(gate: Gate, ms: int, now_ms: int) -> Gate:
    """Locked for so long from now on."""
    return gate._replace(until_ms=now_ms + ms, since_ms=now_ms)


def within(gate: Gate, hold: Hold) -> Hold:
    """A message that was received in a session: its lease is the lock."""
    return hold._replace(until_ms=gate.until_ms, since_ms=gate.since_ms)


def decide(gate: Gate, request: Request, now_ms: int, *, is_held: bool, token: int) -> tuple[Verdict, Gate]:
    """Whether something is done, and the gate after it.

    Args:
        gate: as it is.
        request: what is asked.
        now_ms: the time.
        is_held: whether somebody has a message of the group.
        token: for a new lock.
    """
    verb = request.verb
    if verb is Verb.RESUME:
        there = gate.note is not None
        return (Verdict.DONE if there else Verdict.GONE), gate._replace(note=None, parked_ms=None)
    by_nobody = verb is Verb.LOCK or (verb is Verb.PARK and request.token is None)
    if by_nobody:
        if is_locked(gate, now_ms) or is_held or (verb is Verb.LOCK and gate.note is not None):
            return Verdict.HELD, gate
    elif not is_of(gate, request.token, now_ms):
        return Verdict.EXPIRED, gate
    if verb is Verb.LOCK:
        gate = renewed(gate._replace(token=token), request.ms, now_ms)
    elif verb is Verb.RENEW:
        gate = renewed(gate, request.ms, now_ms)
    elif verb is Verb.CLOSE:
        gate = unlocked(gate)
    elif verb is Verb.PARK:
        gate = unlocked(gate)._replace(note=request.note or "", parked_ms=now_ms)
    return Verdict.DONE, gate


def may_fetch(gate: Gate, token: int | None, now_ms: int) -> bool:
    """Whether a deferred message of the group is given to a session, or to who has none."""
    if token is not None:
        return is_of(gate, token, now_ms)
    return gate.note is None and not is_locked(gate, now_ms)


def why(gate: Gate, head: Hold | None, holds: Iterable[Hold | None], now_ms: int) -> tuple[Why, int | None, int | None]:
    """Why the head of a group is not given out, until when, and who has it.

    Args:
        gate: of the group.
        head: what is known of its first message.
        holds: of all its messages.
        now_ms: the time.
    """
    if gate.note is not None:
        return Why.PARKED, None, None
    if is_locked(gate, now_ms):
        return Why.LOCKED, gate.until_ms, gate.token
    reason, hold = blocking(head, holds, now_ms)
    return (reason, hold.until_ms, hold.token) if hold else (reason, None, None)
