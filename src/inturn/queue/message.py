"""Received and peeked messages, and the verbs that settle a lease."""

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type, refusal
from inturn.core.errors import InputError, LeaseExpired
from inturn.core.identity import group_text
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Content, Delivery, ReceiveRequest, StoredMessage
from inturn.core.texts import checked
from inturn.core.texts import note as kept_note
from inturn.queue.operation import operation
from inturn.store.commands import Command, Read, Receive, Settle, StoreCall, Transaction, queue_of
from inturn.store.protocols import Store
from inturn.store.writer.group_commit import Writer


class MessageProperties:
    """Properties that received and peeked messages share."""

    def __init__(self, entry: StoredMessage) -> None:
        self._entry = entry

    @property
    def sequence_number(self) -> int:
        """The message's place in the queue."""
        return self._entry.sequence_number

    @property
    def id(self) -> int:
        """The message's id in the whole database: the sequence number of its first send."""
        return self._entry.origin or self._entry.sequence_number

    @property
    def group(self) -> str | None:
        """The message's group."""
        return self._entry.group

    @property
    def revision(self) -> int | None:
        """The message's place in its group, as assigned by the producer or the queue."""
        return self._entry.revision

    @property
    def dedup_id(self) -> str | None:
        """The deduplication id, as given by the producer."""
        return self._entry.dedup_id

    @cached_property
    def body(self) -> Any:
        """The content as it was sent, JSON decoded."""
        return msgspec.json.decode(self._entry.body) if self._entry.content == Content.JSON else self._entry.body

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The metadata sent with the message."""
        return (
            {} if self._entry.attributes is None else msgspec.json.decode(self._entry.attributes, type=dict[str, Any])
        )

    @property
    def attributes_json(self) -> str | None:
        """The metadata as it is stored, a JSON object; None if there is none."""
        return self._entry.attributes

    @property
    def sent_at(self) -> dt.datetime:
        """The time of the send."""
        return time_of(self._entry.sent_ms)

    @property
    def came_from(self) -> str | None:
        """The queue from which the message was moved to this one."""
        return self._entry.came_from

    @property
    def note(self) -> str | None:
        """The reason for which the message was moved to this queue."""
        return self._entry.note


def time_of(ms: int) -> dt.datetime:
    """Return a time of the store as a datetime."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


class Peeked(MessageProperties):
    """A message that was read without a lease."""

    def __repr__(self) -> str:
        return f"Peeked({self.sequence_number}, group={self.group!r})"


class NamedQueue(Protocol):
    """The queue that has the verbs below."""

    @property
    def writer(self) -> Writer:
        """The runner of its operations."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...


class LeaseNumbers(Protocol):
    """The two numbers that name a lease; a received message or a :class:`Receipt`."""

    @property
    def sequence_number(self) -> int:
        """The leased message."""
        ...

    @property
    def fencing_token(self) -> int:
        """The token of the lease."""
        ...


class Receipt(NamedTuple):
    """A lease by its two numbers, for use without the message itself: in another process, or from a shell.

    Attributes:
        sequence_number: the leased message.
        fencing_token: the token of the lease.
    """

    sequence_number: int
    fencing_token: int


class Message(MessageProperties):
    """A received message: settle it before its lease ends, such as with ``ack`` or ``nack``."""

    def __init__(self, delivery: Delivery, writer: Writer, queue: str) -> None:
        super().__init__(delivery.message)
        self._delivery = delivery
        self.writer = writer
        self.queue = queue

    def __repr__(self) -> str:
        return f"Message({self.sequence_number}, group={self.group!r}, attempts={self.attempts})"

    @property
    def attempts(self) -> int:
        """The number of times the message was received at the head of its group, including this one."""
        return self._delivery.attempts

    @property
    def first_received_at(self) -> dt.datetime | None:
        """The time of the first receive."""
        first_ms = self._delivery.first_ms
        return None if first_ms is None else time_of(first_ms)

    @property
    def fencing_token(self) -> int:
        """A number that grows with every lease of the queue; side effects that carry it expose a stale holder."""
        return self._delivery.token

    @property
    def leased_until(self) -> dt.datetime:
        """The end of the lease, unless it is extended."""
        return time_of(self._delivery.until_ms)

    @operation
    def ack(self, tx: Transaction | None = None) -> Command[None]:
        """Acknowledge the message: it is never delivered again.

        Raises:
            LeaseExpired: if the lease has expired; nothing is changed then.
        """
        return settling(self.queue, [self], SettleAction.ACK).within(tx)

    @operation
    def nack(self, tx: Transaction | None = None, *, delay_s: float | None = None) -> Command[None]:
        """Return the message to its old place in the group; the group moves to the end of the ready queue.

        Args:
            tx: the caller's transaction.
            delay_s: the time until it can be received again, in seconds; None: by the queue's ``retry_delay_s``.

        Raises:
            LeaseExpired: if the lease has expired.
        """
        return settling(self.queue, [self], SettleAction.NACK, delay_s).within(tx)

    @operation
    def extend(self, timeout_s: float, tx: Transaction | None = None) -> Command[None]:
        """Extend the lease to ``timeout_s`` seconds from now; a message of a session extends the whole session.

        Raises:
            LeaseExpired: if the lease has expired.
        """
        return settling(self.queue, [self], SettleAction.EXTEND, timeout_s).within(tx)

    @operation
    def defer(self, tx: Transaction | None = None) -> Command[None]:
        """Set the message aside, so that later messages of its group can be received.

        It can be received only with ``fetch``, by its sequence number. A deferral uses up no attempt.

        Raises:
            LeaseExpired: if the lease has expired.
        """
        return settling(self.queue, [self], SettleAction.DEFER).within(tx)

    @operation
    def reject(self, note: str, tx: Transaction | None = None, *, to: str | None = None) -> Command[None]:
        """Move the message to another queue with a note; later messages of its group can be received.

        Args:
            note: the reason, cut to ``limits.ERROR_LENGTH`` characters.
            tx: the caller's transaction.
            to: the target queue; None: the dead-letter queue of the message's queue.

        Raises:
            LeaseExpired: if the lease has expired.
            InputError: if no target is named and the queue has no dead-letter queue, or the note is not text.
            NoSuchQueue: if the target does not exist.
        """
        reason = kept_note("the note", note)

        def move(store: Store, now_ms: int) -> None:
            info = queue_of(store, self.queue)
            target = to or info.settings.dead_letter
            if target is None:
                raise InputError(f"queue {self.queue!r} has no dead_letter queue; name the target: reject(…, to=…)")
            queue_of(store, target)
            change = Settlement(self.sequence_number, self.fencing_token, SettleAction.MOVE, to=target, note=reason)
            _all_done([change], store.settle(info, [change], now_ms))

        return StoreCall(self.queue, move).within(tx)


def own_leases(messages: Iterable[LeaseNumbers], writer: Writer) -> list[LeaseNumbers]:
    """Return the leases of messages, after checking them.

    Raises:
        InputError: if one is of another database: here its numbers name another message; or if it is not a lease.
    """
    expected = "a list of messages or receipts, such as [message]"
    check_type("messages", messages, Iterable, expected)
    leases = list(messages)
    for message in leases:
        if not isinstance(message, Message):
            if not (hasattr(message, "sequence_number") and hasattr(message, "fencing_token")):
                raise refusal("messages", messages, expected)
        elif message.writer is not writer and not writer.is_own(message.writer.identity()):
            raise InputError(
                f"{message!r} was received from queue {message.queue!r} of another database; settle it there"
            )
    return leases


def settling(
    queue: str, messages: Sequence[LeaseNumbers], act: SettleAction, seconds: float | None = 0
) -> Command[None]:
    """Return a command that applies one act to messages of a queue; ``seconds=None``: after the queue's own delay."""
    if act is SettleAction.EXTEND:
        ms: int | None = milliseconds("timeout_s", seconds)
    else:
        ms = None if seconds is None else milliseconds("delay_s", seconds)
    changes = [Settlement(message.sequence_number, message.fencing_token, act, ms) for message in messages]
    return Settle(queue, lambda verdicts: _all_done(changes, verdicts), changes)


def milliseconds(label: str, seconds: float | None) -> int:
    """Return a time-out in milliseconds, after checking it."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= limits.VISIBILITY_S:
        raise InputError(f"{label} is {seconds!r}; expected a number of seconds from 0 to {limits.VISIBILITY_S}")
    return round(seconds * 1000)


def group_name(group: object) -> str:
    """Return the name of a group, after checking it."""
    return checked("group", group_text(group))


def check_limit(limit: int) -> None:
    """Check the number of messages to read at once."""
    if not isinstance(limit, int) or not 1 <= limit <= limits.READ_MESSAGES:
        raise InputError(f"limit is {limit!r}; expected a whole number from 1 to {limits.READ_MESSAGES}")


def check_messages(number: int) -> None:
    """Check the number of messages to receive at once."""
    if not isinstance(number, int) or not 1 <= number <= limits.RECEIVE_MESSAGES:
        raise InputError(f"max_messages is {number!r}; expected a whole number from 1 to {limits.RECEIVE_MESSAGES}")


def check_number(name: str, number: int) -> None:
    """Check a sequence number."""
    check_type(name, number, int, "the sequence number of a message")


def check_wait(wait_s: float) -> None:
    """Check the time to wait, in seconds."""
    if wait_s:
        check_type("wait_s", wait_s, (int, float), "a number of seconds")


def visibility(timeout_s: float | None) -> int | None:
    """Return a visibility timeout in milliseconds, after checking it; None: the queue's default."""
    return None if timeout_s is None else milliseconds("visibility_timeout_s", timeout_s)


def fetching(writer: Writer, queue: str, request: ReceiveRequest, tx: Transaction | None) -> Command[Message | None]:
    """Return a command that leases a deferred message."""

    def given(deliveries: Sequence[Delivery]) -> Message | None:
        return Message(deliveries[0], writer, queue) if deliveries else None

    return Receive(queue, given, request).within(tx)


def peeking(queue: str, limit: int, after: int, group: str | None, *, deferred: bool = False) -> Command[list[Peeked]]:
    """Return a command that reads unacknowledged messages without leasing them."""
    check_limit(limit)
    check_number("after", after)
    named = None if group is None else group_name(group)

    def look(store: Store, _now_ms: int) -> list[Peeked]:
        info = queue_of(store, queue)
        return [Peeked(entry) for entry in store.read(info, after, limit, pending=True, deferred=deferred, group=named)]

    return Read(queue, look)


def _all_done(changes: Sequence[Settlement], verdicts: Sequence[SettleResult]) -> None:
    failed = [
        (change, verdict) for change, verdict in zip(changes, verdicts, strict=True) if verdict is not SettleResult.DONE
    ]
    if failed:
        change, verdict = failed[0]
        reason = "it is not in the queue (acknowledged, moved or removed)"
        if verdict is SettleResult.EXPIRED:
            reason = "its lease has expired, and another consumer may hold it or have processed it"
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise LeaseExpired(f"message {change.sequence_number} was not changed: {reason}{more}")
