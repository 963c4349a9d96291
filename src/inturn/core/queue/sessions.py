"""Exclusive locks of groups (sessions), and parked groups.

The memory store runs these rules; every other store is tested against it:

1. Each group has a gate. It is open, locked by a session until a time, or parked by an operator or a policy with a
   reason. From a group with a closed gate an ordinary receive returns nothing; other groups are not affected.
2. A group can be locked if its gate is open and no receiver holds a message of it: a session has its group alone. A
   group locked by name may be empty; the next free group is the one whose head a receive would return.
3. Messages received in a session have the lock's own token, and their leases end with the lock. Extending one of them
   renews the lock. Messages already received in the session do not block further ones, in order.
4. A lock ends when its time passes, when its session is closed, or when its session parks the group. Messages that were
   received in it and not settled are then in their old places, as after any lease. Later requests of its holder are
   refused by their fencing token, whether or not another receiver has the group by then.
5. A parked group keeps its messages in their order, and new ones are added after them. None of them is received,
   fetched or moved to the dead-letter queue; messages past their retention are removed. It stays parked, even if empty,
   until it is resumed. Without a lock it can be parked only if no receiver holds a message of it.
6. A session's state is stored with the group until it is set to None: it outlives the session, the messages and a
   purge, and so does a park. Only the removal of the queue removes them.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from inturn.core.queue.delivery import DeliveryState, Settlement, SettleResult, blocking
from inturn.core.queue.messages import GroupAvailability, GroupView, StoredMessage


class GroupLock(NamedTuple):
    """The lock and the park of a group.

    Attributes:
        token: token of the session that holds the lock; None: not locked.
        until_ms: when the lock ends.
        since_ms: when the lock was acquired or renewed.
        note: why the group is parked; None: it is not parked.
        parked_ms: when the group was parked.
    """

    token: int | None = None
    until_ms: int | None = None
    since_ms: int = 0
    note: str | None = None
    parked_ms: int | None = None


OPEN = GroupLock()
"""The gate of nearly every group."""


class ParkedGroup(NamedTuple):
    """A parked group.

    Attributes:
        group: its name.
        note: why it is parked.
        parked_ms: when it was parked.
    """

    group: str
    note: str
    parked_ms: int


FIRST_PARKED: Final = (-1, "")
"""The time and name that sort before every parked group."""


class SessionVerb(IntEnum):
    """The kinds of request about a group."""

    LOOK = 0
    """Check whether the lock still holds."""
    LOCK = 1
    """Begin a session."""
    RENEW = 2
    """Change when its lock ends."""
    CLOSE = 3
    """End the session."""
    PARK = 4
    """Park the group, and end the session if there is one."""
    RESUME = 5
    """Un-park the group."""
    GET_STATE = 6
    """Get the group's state."""
    SET_STATE = 7
    """Set the group's state."""


class SessionRequest(NamedTuple):
    """A request about a group.

    Attributes:
        verb: kind of request.
        token: token of the session; None: a request without a session, such as an operator's.
        ms: time from now, for ``LOCK`` and ``RENEW``; for ``RESUME`` the time at which the group was parked, so that
            a group that was parked again since then stays parked; 0: any time.
        note: reason, for ``PARK``.
        state: new state, for ``SET_STATE``; None: none.
    """

    verb: SessionVerb
    token: int | None = None
    ms: int = 0
    note: str | None = None
    state: bytes | None = None


class SessionAnswer(NamedTuple):
    """The result of a request.

    Attributes:
        verdict: whether it was done; ``HELD``: the group is not free; ``GONE``: it was not parked, or not at that time.
        group: name of the group.
        gate: the gate now, if the request was done.
        state: for ``GET_STATE``.
    """

    verdict: SettleResult
    group: str = ""
    group_lock: GroupLock = OPEN
    state: bytes | None = None


def is_locked(gate: GroupLock, now_ms: int) -> bool:
    """Return whether a session holds the group."""
    return gate.until_ms is not None and gate.until_ms > now_ms


def excludes_receivers(gate: GroupLock) -> bool:
    """Return whether receivers are excluded; an expired lock excludes them until it is removed."""
    return gate.token is not None or gate.note is not None


def is_held_by(gate: GroupLock, token: int | None, now_ms: int) -> bool:
    """Return whether the session of this token still holds the group."""
    return token is not None and gate.token == token and is_locked(gate, now_ms)


def unlocked(gate: GroupLock) -> GroupLock:
    """Return the gate without its lock."""
    return gate._replace(token=None, until_ms=None, since_ms=0)


def renewed(gate: GroupLock, ms: int, now_ms: int) -> GroupLock:
    """Return the gate locked for ``ms`` from now on."""
    return gate._replace(until_ms=now_ms + ms, since_ms=now_ms)


def extended(gate: GroupLock, change: Settlement, now_ms: int) -> GroupLock | None:
    """Return the lock after a message is extended that was received in its session; None if it was not."""
    return renewed(gate, change.ms or 0, now_ms) if is_held_by(gate, change.token, now_ms) else None


def within(gate: GroupLock, hold: DeliveryState) -> DeliveryState:
    """Return the state of a message that was received in a session: its lease is the lock."""
    return hold._replace(until_ms=gate.until_ms, since_ms=gate.since_ms)


def decide(
    gate: GroupLock, request: SessionRequest, now_ms: int, *, is_held: bool, token: int
) -> tuple[SettleResult, GroupLock]:
    """Return the verdict on a request, and the gate after it; ``is_held``: a receiver holds a message of the group."""
    verb = request.verb
    if verb is SessionVerb.RESUME:
        if gate.note is None or (request.ms and gate.parked_ms != request.ms):
            return SettleResult.GONE, gate
        return SettleResult.DONE, gate._replace(note=None, parked_ms=None)
    by_nobody = verb is SessionVerb.LOCK or (verb is SessionVerb.PARK and request.token is None)
    if by_nobody:
        if is_locked(gate, now_ms) or is_held or (verb is SessionVerb.LOCK and gate.note is not None):
            return SettleResult.HELD, gate
    elif not is_held_by(gate, request.token, now_ms):
        return SettleResult.EXPIRED, gate
    if verb is SessionVerb.LOCK:
        gate = renewed(gate._replace(token=token), request.ms, now_ms)
    elif verb is SessionVerb.RENEW:
        gate = renewed(gate, request.ms, now_ms)
    elif verb is SessionVerb.CLOSE:
        gate = unlocked(gate)
    elif verb is SessionVerb.PARK:
        gate = unlocked(gate)._replace(note=request.note or "", parked_ms=now_ms)
    return SettleResult.DONE, gate


def may_fetch(gate: GroupLock, token: int | None, now_ms: int) -> bool:
    """Return whether a deferred message of the group may be fetched, by the session of a token or without one."""
    if token is not None:
        return is_held_by(gate, token, now_ms)
    return gate.note is None and not is_locked(gate, now_ms)


def availability(
    gate: GroupLock, head: DeliveryState | None, holds: Iterable[DeliveryState | None], now_ms: int
) -> tuple[GroupAvailability, int | None, int | None]:
    """Return why the head of a group cannot be received, until when, and the token that holds it."""
    if gate.note is not None:
        return GroupAvailability.PARKED, None, None
    if is_locked(gate, now_ms):
        return GroupAvailability.LOCKED, gate.until_ms, gate.token
    reason, hold = blocking(head, holds, now_ms)
    return (reason, hold.until_ms, hold.token) if hold else (reason, None, None)


def view(
    head: StoredMessage,
    depth: int,
    gate: GroupLock,
    own: DeliveryState | None,
    holds: Iterable[DeliveryState | None],
    now_ms: int,
) -> GroupView:
    """Return the status of a group; ``own`` is the state of its first message, ``holds`` those of all its messages."""
    reason, until_ms, token = availability(gate, own, holds, now_ms)
    attempts = own.attempts if own else 0
    number, sent_ms = head.sequence_number, head.sent_ms
    return GroupView(head.group, depth, number, sent_ms, reason, until_ms, token, attempts, gate.note)
