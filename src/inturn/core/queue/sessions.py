"""Exclusive locks of groups (sessions), and parked groups.

The memory store runs these rules; every other store is tested against it:

1. Each group is open, locked by a session until a time, or parked by an operator or a policy with a reason. From a
   locked or parked group an ordinary receive returns nothing; other groups are not affected.
2. A group can be locked if it is open and no receiver holds a message of it: a session has its group alone. A
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
"""The lock of nearly every group: neither locked nor parked."""


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
        group_lock: the lock now, if the request was done.
        state: for ``GET_STATE``.
    """

    verdict: SettleResult
    group: str = ""
    group_lock: GroupLock = OPEN
    state: bytes | None = None


def is_locked(group_lock: GroupLock, now_ms: int) -> bool:
    """Return whether a session holds the group."""
    return group_lock.until_ms is not None and group_lock.until_ms > now_ms


def excludes_receivers(group_lock: GroupLock) -> bool:
    """Return whether receivers are excluded; an expired lock excludes them until it is removed."""
    return group_lock.token is not None or group_lock.note is not None


def is_held_by(group_lock: GroupLock, token: int | None, now_ms: int) -> bool:
    """Return whether the session of this token still holds the group."""
    return token is not None and group_lock.token == token and is_locked(group_lock, now_ms)


def unlocked(group_lock: GroupLock) -> GroupLock:
    """Return the group's lock without its session."""
    return group_lock._replace(token=None, until_ms=None, since_ms=0)


def renewed(group_lock: GroupLock, ms: int, now_ms: int) -> GroupLock:
    """Return the lock with an end ``ms`` from now on."""
    return group_lock._replace(until_ms=now_ms + ms, since_ms=now_ms)


def extended(group_lock: GroupLock, change: Settlement, now_ms: int) -> GroupLock | None:
    """Return the lock after a message is extended that was received in its session; None if it was not."""
    return renewed(group_lock, change.ms or 0, now_ms) if is_held_by(group_lock, change.token, now_ms) else None


def within(group_lock: GroupLock, hold: DeliveryState) -> DeliveryState:
    """Return the state of a message that was received in a session: its lease is the lock."""
    return hold._replace(until_ms=group_lock.until_ms, since_ms=group_lock.since_ms)


def decide(
    group_lock: GroupLock, request: SessionRequest, now_ms: int, *, is_held: bool, token: int
) -> tuple[SettleResult, GroupLock]:
    """Return the verdict on a request, and the lock after it; ``is_held``: a receiver holds a message of the group."""
    verb = request.verb
    if verb is SessionVerb.RESUME:
        if group_lock.note is None or (request.ms and group_lock.parked_ms != request.ms):
            return SettleResult.GONE, group_lock
        return SettleResult.DONE, group_lock._replace(note=None, parked_ms=None)
    by_nobody = verb is SessionVerb.LOCK or (verb is SessionVerb.PARK and request.token is None)
    if by_nobody:
        if is_locked(group_lock, now_ms) or is_held or (verb is SessionVerb.LOCK and group_lock.note is not None):
            return SettleResult.HELD, group_lock
    elif not is_held_by(group_lock, request.token, now_ms):
        return SettleResult.EXPIRED, group_lock
    if verb is SessionVerb.LOCK:
        group_lock = renewed(group_lock._replace(token=token), request.ms, now_ms)
    elif verb is SessionVerb.RENEW:
        group_lock = renewed(group_lock, request.ms, now_ms)
    elif verb is SessionVerb.CLOSE:
        group_lock = unlocked(group_lock)
    elif verb is SessionVerb.PARK:
        group_lock = unlocked(group_lock)._replace(note=request.note or "", parked_ms=now_ms)
    return SettleResult.DONE, group_lock


def may_fetch(group_lock: GroupLock, token: int | None, now_ms: int) -> bool:
    """Return whether a deferred message of the group may be fetched, by the session of a token or without one."""
    if token is not None:
        return is_held_by(group_lock, token, now_ms)
    return group_lock.note is None and not is_locked(group_lock, now_ms)


def availability(
    group_lock: GroupLock, head: DeliveryState | None, holds: Iterable[DeliveryState | None], now_ms: int
) -> tuple[GroupAvailability, int | None, int | None]:
    """Return why the head of a group cannot be received, until when, and the token that holds it."""
    if group_lock.note is not None:
        return GroupAvailability.PARKED, None, None
    if is_locked(group_lock, now_ms):
        return GroupAvailability.LOCKED, group_lock.until_ms, group_lock.token
    reason, hold = blocking(head, holds, now_ms)
    return (reason, hold.until_ms, hold.token) if hold else (reason, None, None)


def view(
    head: StoredMessage,
    depth: int,
    group_lock: GroupLock,
    own: DeliveryState | None,
    holds: Iterable[DeliveryState | None],
    now_ms: int,
) -> GroupView:
    """Return the status of a group; ``own`` is the state of its first message, ``holds`` those of all its messages."""
    reason, until_ms, token = availability(group_lock, own, holds, now_ms)
    attempts = own.attempts if own else 0
    number, sent_ms = head.sequence_number, head.sent_ms
    return GroupView(head.group, depth, number, sent_ms, reason, until_ms, token, attempts, group_lock.note)
