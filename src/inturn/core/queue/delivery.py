"""Delivery rules: the next message to receive, the rights of a lease, and messages that are nacked.

The memory store runs these rules; every other store is tested against it:

1. A receive takes the first group of the ready queue (ready_groups.py). It returns that group's first message and as
   many of the following ones as fit, then continues with the next ready group.
2. A message is hidden while it is leased or delayed. A lease blocks its whole group, since its holder may be processing
   a message after the one that was nacked. A delay blocks only the messages after it.
3. A lease ends when its time passes, when the message is acknowledged, or when it is nacked. Later requests of its
   holder are refused by their fencing token, whether or not another receiver has the message by then.
4. A nacked message keeps its old place. It has used up an attempt only if it was the first of its group: a message that
   was received in a batch after one that failed has not.
5. A deferred message does not block the messages after it. It is received by its number only, by one receiver at a
   time, and blocks nothing then either. Nacked, it is deferred again. Deferring uses up no attempt.
6. A scheduled message is a delayed one that was never received. It can be cancelled until its delivery time.
7. Read-only queries never end a lease, whatever their clock says; see clock_skew.py.
8. Dead letters leave first: before a receive takes a message that has used up its attempts, the message is moved to the
   dead-letter queue, if that exists. In a group only the first message that the receive would take can be moved, then
   the next one.
9. A message is past its retention once that time has passed since its send, acknowledged or not. A receive removes it
   before it selects messages; other operations may still see it.
10. A moved message that returns to the queue of its first send gets its old place. Within its queue it keeps its place.
    In any other queue it is placed last.
11. A message whose lease ended by time is *lapsed*: it may have killed its receiver, or another message that the
    receiver had at the time may have. It stays lapsed until a receiver that had begun it nacks it. To find out which
    message it was, lapsed messages are received one at a time. The requests with ``LapsedRule.ALONE`` in one call
    belong to one receiver, which gets nothing else together with a lapsed message. A busy receiver gets none
    (``NONE``); a lapsed message then ends its receive, so that the message waits until the receiver is free, and not
    until the ready queue is empty. For any other receiver the rule applies only at the last receive that
    ``max_receives`` allows: that message is received alone, so that no message becomes a dead letter because of
    another.

The exclusive lock of a whole group is in sessions.py.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Self

from inturn.core.queue.lapsed import LapsedRule
from inturn.core.queue.messages import GroupAvailability, QueueInfo, QueueSettings, ReceiveRequest, StoredMessage


class DeliveryState(NamedTuple):
    """The delivery state of a message that was received or delayed.

    Attributes:
        until_ms: time until which it is hidden; None: not hidden.
        token: fencing token of the lease that hides it; None: no lease, but a delay.
        attempts: number of receives as the first message of its group.
        since_ms: when it was hidden.
        first_ms: when it was first received.
        deferred: whether it is deferred, to be received by its number only.
        lapsed: whether a lease of it ended by time, and none has ended otherwise since it was begun again.
    """

    until_ms: int | None
    token: int | None = None
    attempts: int = 0
    since_ms: int = 0
    first_ms: int | None = None
    deferred: bool = False
    lapsed: bool = False


_NEVER_RECEIVED: Final = DeliveryState(None)


class SettleAction(IntEnum):
    """The kinds of change to a message."""

    ACK = 0
    """Acknowledge it."""
    EXTEND = 1
    """Change when its lease ends."""
    NACK = 2
    """Nack it, to be received again after a delay."""
    MOVE = 3
    """Move it to another queue."""
    DEFER = 4
    """Defer it, to be received by its number only."""
    CANCEL = 5
    """Cancel it before its scheduled time."""
    ERASE = 6
    """Remove it for good, from the log too."""


class Settlement(NamedTuple):
    """A change to one message.

    Attributes:
        sequence_number: sequence number of the message.
        token: fencing token of the lease; None: an operator's change, without a lease.
        act: kind of change.
        ms: time from now, for ``EXTEND`` and ``NACK``; None: the queue's setting, for ``NACK``.
        to: target queue, for ``MOVE``.
        note: reason, for ``MOVE``.
        any_holder: without a lease: also change a message that a receiver holds, and its lease with it.
        attempts: number of attempts that the message has used up, for ``NACK`` at the head of its group by a receiver
            that has not begun it; None: those counted, with the one that ends.
    """

    sequence_number: int
    token: int | None
    act: SettleAction
    ms: int | None = 0
    to: str | None = None
    note: str | None = None
    any_holder: bool = False
    attempts: int | None = None


class SettleResult(Enum):
    """The result of a change."""

    DONE = "done"
    EXPIRED = "expired"
    """The lease has ended, or belongs to another receiver."""
    GONE = "gone"
    """The message no longer exists: acknowledged, purged, or past its retention."""
    HELD = "held"
    """A receiver holds the message, so no other caller may change it."""
    LATE = "late"
    """The message is no longer scheduled: its delivery time has passed."""


_DONE: Final = SettleResult.DONE  # until Python 3.12 each access to an enumeration's member takes 0.15 µs


def is_hidden(hold: DeliveryState | None, now_ms: int) -> bool:
    """Return whether a message is leased or delayed."""
    return hold is not None and hold.until_ms is not None and hold.until_ms > now_ms


def is_leased(hold: DeliveryState | None, now_ms: int) -> bool:
    """Return whether a receiver holds a message."""
    return hold is not None and hold.token is not None and is_hidden(hold, now_ms)


def is_scheduled(hold: DeliveryState | None, now_ms: int) -> bool:
    """Return whether a message was sent for a later time that has not been reached."""
    return hold is not None and hold.token is None and hold.first_ms is None and is_hidden(hold, now_ms)


def is_deferred(hold: DeliveryState | None) -> bool:
    """Return whether a message is deferred, so that it does not block its group."""
    return hold is not None and hold.deferred


def blocks_all(hold: DeliveryState | None, now_ms: int) -> bool:
    """Return whether a message blocks its whole group."""
    return hold is not None and not hold.deferred and is_leased(hold, now_ms)


def delayed(delay_ms: int, now_ms: int) -> DeliveryState:
    """Return the state of a message that was just sent with a delay."""
    return DeliveryState(now_ms + delay_ms, since_ms=now_ms)


class ReceiveSelection:
    """The share of each request of one call in the free groups, which a store finds in the order of the ready queue.

    Attributes:
        left: the number of messages that the present request can still take; 0: it has ended.
        now_ms: the current time.
    """

    __slots__ = ("_has_lapsed", "_rule", "_settings", "_taken", "left", "now_ms")

    def __init__(self, settings: QueueSettings, now_ms: int) -> None:
        self._settings, self.now_ms = settings, now_ms
        self._taken, self._has_lapsed = 0, False

    def begin(self, request: ReceiveRequest) -> Self:
        """Continue with the next request, and return this object."""
        self._rule, self.left = request.lapsed, request.limit
        if self._rule is not LapsedRule.ALONE:
            self._taken = 0
        elif self._has_lapsed:
            self.left = 0
        return self

    def add(self, count: int) -> int:
        """Take messages that have no state, and return how many."""
        count = min(count, self.left)
        self._taken += count
        self.left -= count
        return count

    def take(self, holds: Iterable[DeliveryState | None]) -> int:
        """Take messages of a free group, and return how many; ``holds`` are their states, from the first on.

        If it is 0 and the request has ended, the group keeps its place in the ready queue.
        """
        count, is_over = 0, False
        for hold in holds:
            if count == self.left or is_hidden(hold, self.now_ms):
                break
            if self._must_be_alone(hold):
                is_over = True
                if not (count or self._taken) and self._rule is not LapsedRule.NONE:
                    count, self._has_lapsed = 1, True
                break
            count += 1
        self.add(count)
        self.left = 0 if is_over else self.left
        return count

    def _must_be_alone(self, hold: DeliveryState | None) -> bool:
        """Return whether a message is returned alone, or not at all."""
        if hold is None or not hold.lapsed:
            return False
        if self._rule is not LapsedRule.LAST_ALONE:
            return True
        return self._settings.max_receives is not None and hold.attempts + 1 >= self._settings.max_receives


def leased(hold: DeliveryState | None, token: int, visibility_ms: int, now_ms: int) -> DeliveryState:
    """Return the state of a message that was just received."""
    before = hold or _NEVER_RECEIVED
    return DeliveryState(
        now_ms + visibility_ms,
        token,
        before.attempts + 1,
        since_ms=now_ms,
        first_ms=now_ms if before.first_ms is None else before.first_ms,
        deferred=before.deferred,
        lapsed=before.lapsed,
    )


def deferred(hold: DeliveryState | None) -> DeliveryState:
    """Return the state of a message that was just deferred."""
    hold = hold or _NEVER_RECEIVED
    return DeliveryState(None, None, hold.attempts - (hold.token is not None), first_ms=hold.first_ms, deferred=True)


def verdict(hold: DeliveryState | None, change: Settlement, now_ms: int) -> SettleResult:
    """Return whether a change is allowed: to the lease's holder, or to an operator if no receiver holds the message."""
    held = is_leased(hold, now_ms)
    if change.token is None:
        if held and not change.any_holder:
            return SettleResult.HELD
        is_late = change.act is SettleAction.CANCEL and not is_scheduled(hold, now_ms)
        return SettleResult.LATE if is_late else SettleResult.DONE
    is_holder = held and hold is not None and hold.token == change.token
    return _DONE if is_holder else SettleResult.EXPIRED


def extended(hold: DeliveryState | None, ms: int, now_ms: int) -> DeliveryState:
    """Return the state of a message that stays hidden for ``ms`` from now on."""
    return (hold or _NEVER_RECEIVED)._replace(until_ms=now_ms + ms, since_ms=now_ms)


def counted(hold: DeliveryState | None, change: Settlement) -> DeliveryState:
    """Return the state of a nacked message, with the number of attempts that its holder reports."""
    hold = hold or _NEVER_RECEIVED
    return hold._replace(lapsed=False) if change.attempts is None else hold._replace(attempts=change.attempts)


def blocking(
    head: DeliveryState | None, holds: Iterable[DeliveryState | None], now_ms: int
) -> tuple[GroupAvailability, DeliveryState | None]:
    """Return why the head of a group cannot be received, and the state that hides it; ``holds`` are all states."""
    hold = next((state for state in holds if blocks_all(state, now_ms)), head)
    if hold is None or not is_hidden(hold, now_ms):
        return GroupAvailability.READY, None
    return (GroupAvailability.DELAYED if hold.token is None else GroupAvailability.IN_FLIGHT), hold


def nacked_state(hold: DeliveryState, *, is_head: bool, delay_ms: int = 0, now_ms: int = 0) -> DeliveryState | None:
    """Return the state of a message after its lease or delay, or None if nothing needs to be kept.

    Args:
        hold: lease, or expired delay.
        is_head: whether the message is the first of its group, so that the attempt counts.
        delay_ms: how long it stays hidden.
        now_ms: current time.
    """
    used = hold.token is None or is_head or hold.deferred
    attempts = hold.attempts if used else max(hold.attempts - 1, 0)
    state = DeliveryState(None, None, attempts, first_ms=hold.first_ms, deferred=hold.deferred, lapsed=hold.lapsed)
    if delay_ms:
        return state._replace(until_ms=now_ms + delay_ms, since_ms=now_ms)
    return state if state.attempts or state.deferred or state.lapsed else None


def dead_letter(
    hold: DeliveryState | None, settings: QueueSettings, queues: Mapping[str, QueueInfo]
) -> tuple[QueueInfo, str] | None:
    """Return the dead-letter queue of a message that has used up its attempts, and the note; None: it is received.

    The message is the next one that a receive would take. If the dead-letter queue does not exist, the message stays.
    """
    if not is_exhausted(hold, settings.max_receives):
        return None
    to = queues.get(settings.dead_letter or "")
    return None if to is None else (to, exhausted(settings.max_receives))


def is_exhausted(hold: DeliveryState | None, max_receives: int | None) -> bool:
    """Return whether a message has used up the attempts that its queue allows."""
    return max_receives is not None and hold is not None and hold.attempts >= max_receives


def exhausted(max_receives: int | None) -> str:
    """Return the note for a message that is moved to the dead-letter queue."""
    times = "once" if max_receives == 1 else f"{max_receives} times"
    return f"received {times} and never acknowledged"


def retired_ms(settings: QueueSettings, now_ms: int) -> int | None:
    """Return the time such that messages sent until then are past their retention; None: they are kept forever."""
    return None if settings.retention_s is None else round(now_ms - settings.retention_s * 1000)


def moved(entry: StoredMessage, queue: QueueInfo, to: QueueInfo, note: str | None, now_ms: int) -> StoredMessage:
    """Return a message as stored in the queue to which it is moved: in its old place there, or last if it has none."""
    origin = entry.origin or entry.sequence_number
    is_within = queue.number == to.number
    number = entry.sequence_number if is_within else origin if to.has_assigned(origin) else to.last + 1
    came_from = entry.came_from if is_within and entry.came_from else queue.name
    return StoredMessage(number, *entry[1:7], now_ms, None if number == origin else origin, came_from, note)
