"""Queues: send, receive, settle, inspect and configure.

Every verb is an operation: ``queue.send(body)`` in a thread, ``await queue.send.aio(body)`` in a task, and with ``tx=``
within the caller's transaction.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, TypeVar

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, NoSuchQueue
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import (
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    QueueSettings,
    ReceiveRequest,
    Sent,
    checked_name,
)
from inturn.queue.drafts import draft, drafts_of
from inturn.queue.log import log
from inturn.queue.message import (
    LeaseNumbers,
    Message,
    Peeked,
    check_limit,
    check_messages,
    check_number,
    check_wait,
    fetching,
    group_name,
    own_leases,
    peeking,
    settling,
    visibility,
)
from inturn.queue.operation import operation
from inturn.queue.producing import last_revision, number_from, prioritize, priority, single_writer
from inturn.queue.reader import Reader
from inturn.queue.redrive import redrive
from inturn.queue.session import park, parked, resume, resume_many, session
from inturn.store.commands import Command, Read, Receive, Send, Settle, StoreCall, Transaction, WaitingSend, queue_of
from inturn.store.protocols import Store
from inturn.store.writer.group_commit import Writer

T = TypeVar("T")


class Queue:
    """One queue of a database, as returned by ``db.queue(name)``.

    The verbs about whole groups are in session.py, verbs for producers in producing.py, verbs about the log in log.py
    and reader.py.
    """

    session = session
    park = park
    resume = resume
    resume_many = resume_many
    parked = parked
    last_revision = last_revision
    number_from = number_from
    single_writer = single_writer
    prioritize = prioritize
    priority = priority
    log = log
    redrive = redrive

    def __init__(self, writer: Writer, name: str) -> None:
        self.writer = writer
        self.name = name

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # --- sending and receiving ---

    @operation
    def send(  # noqa: PLR0913 - options by name, each with a default
        self,
        body: Any,
        *,
        group: object = None,
        revision: int | Literal["next"] | None = None,
        expected_revision: int | None = None,
        dedup_id: str | None = None,
        delay_s: float | None = None,
        attributes: Mapping[str, Any] | None = None,
        wait_s: float = 0,
        tx: Transaction | None = None,
    ) -> Command[Sent]:
        """Append a message, durably on return. See :func:`draft` for the arguments.

        In a queue that has ``max_depth`` messages it waits for room, for at most ``wait_s`` seconds; not with ``tx``.

        Returns:
            The sequence number and the revision; for a duplicate, of the first message.

        Raises:
            InputError: if an argument is invalid, or a revision is given in a group that the queue numbers.
            NoSuchQueue: if the queue was deleted.
            QueueFull: if the queue has ``max_depth`` messages.
            RevisionMismatch: if ``expected_revision`` is not the group's last one.
            WriterHeld: if the queue has ``single_writer``, and this is not the group's writer; see single_writer.
        """
        message = draft(
            body,
            group=group,
            revision=revision,
            expected_revision=expected_revision,
            dedup_id=dedup_id,
            delay_s=delay_s,
            attributes=attributes,
        )
        return _sending(self.name, _first, [message], wait_s).within(tx)

    @operation
    def send_many(
        self, drafts: Iterable[Draft], tx: Transaction | None = None, *, wait_s: float = 0
    ) -> Command[list[Sent]]:
        """Append messages made by :func:`draft`, all or none; see :meth:`send`.

        Raises:
            QueueFull: if they would take the queue beyond its ``max_depth``.
            InputError: if they are more than ``max_depth``, so that they never fit.
        """
        return _sending(self.name, list, drafts_of(drafts), wait_s).within(tx)

    @operation
    def schedule(
        self,
        body: Any,
        *,
        at: dt.datetime,
        group: object = None,
        revision: int | Literal["next"] | None = None,
        dedup_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Command[Sent]:
        """Append a message that is hidden until a time; a time in the past does not hide it.

        Later messages of its group wait for it, as with a delay.

        Raises:
            InputError: if an argument is invalid, such as a time without a zone or too far in the future.
            NoSuchQueue: if the queue was deleted.
            QueueFull: if the queue has ``max_depth`` messages.
        """
        if not isinstance(at, dt.datetime) or at.tzinfo is None:
            msg = f"at is {at!r}; expected a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
            raise InputError(msg)
        at_ms = round(at.timestamp() * 1000)
        message = draft(body, group=group, revision=revision, dedup_id=dedup_id, attributes=attributes)

        def put(store: Store, now_ms: int) -> Sent:
            delay_ms = max(0, at_ms - now_ms)
            if delay_ms > limits.DELAY_S * 1000:
                raise InputError(f"at is {at}; expected a time at most {limits.DELAY_S // 86_400} days from now")
            return store.send(queue_of(store, self.name), [message._replace(delay_ms=delay_ms)], now_ms)[0]

        return StoreCall(self.name, put).within(tx)

    @operation
    def cancel(self, sequence_number: int, tx: Transaction | None = None) -> Command[bool]:
        """Remove a message that was scheduled or delayed at its send, before its time; readers no longer see it.

        Its deduplication id stays known.

        Returns:
            Whether it was removed; False if its time has come, or it does not exist.
        """
        check_number("sequence_number", sequence_number)
        change = Settlement(sequence_number, None, SettleAction.CANCEL)
        return Settle(self.name, lambda verdicts: verdicts[0] is SettleResult.DONE, [change]).within(tx)

    @operation
    def receive(
        self,
        max_messages: int = 1,
        *,
        wait_s: float = 0,
        visibility_timeout_s: float | None = None,
        group: str | None = None,
        tx: Transaction | None = None,
    ) -> Command[list[Message]]:
        """Lease the next messages: of the oldest free group, then of the next free group.

        Args:
            max_messages: the maximum number of messages.
            wait_s: the time to wait for a message, in seconds.
            visibility_timeout_s: the length of the lease, in seconds; None: the queue's default.
            group: the only group to receive from; None: any.
            tx: the caller's transaction; in one, the receive does not wait.
        """
        check_messages(max_messages)
        check_wait(wait_s)
        return Receive(
            self.name,
            lambda deliveries: [Message(delivery, self.writer, self.name) for delivery in deliveries],
            ReceiveRequest(
                max_messages, visibility(visibility_timeout_s), None if group is None else group_name(group)
            ),
            wait_s=wait_s,
        ).within(tx)

    @operation
    def fetch(
        self, sequence_number: int, *, visibility_timeout_s: float | None = None, tx: Transaction | None = None
    ) -> Command[Message | None]:
        """Lease a deferred message; if it is nacked, it is deferred again.

        Returns:
            The message; None if there is no such deferred message, it is leased, or its group is locked or parked.
        """
        check_number("sequence_number", sequence_number)
        return fetching(
            self.writer, self.name, ReceiveRequest(1, visibility(visibility_timeout_s), number=sequence_number), tx
        )

    @operation
    def ack(self, messages: Sequence[LeaseNumbers], tx: Transaction | None = None) -> Command[None]:
        """Acknowledge several messages, each independently; a receipt can stand for a message of another process.

        Raises:
            LeaseExpired: if a lease has expired; the other messages are acknowledged.
        """
        return settling(self.name, own_leases(messages, self.writer), SettleAction.ACK).within(tx)

    @operation
    def nack(
        self, messages: Sequence[LeaseNumbers], *, delay_s: float | None = None, tx: Transaction | None = None
    ) -> Command[None]:
        """Return several messages to their places; see :meth:`Message.nack`."""
        return settling(self.name, own_leases(messages, self.writer), SettleAction.NACK, delay_s).within(tx)

    @operation
    def extend(
        self, messages: Sequence[LeaseNumbers], timeout_s: float, *, tx: Transaction | None = None
    ) -> Command[None]:
        """Extend several leases."""
        return settling(self.name, own_leases(messages, self.writer), SettleAction.EXTEND, timeout_s).within(tx)

    # --- inspecting ---

    @operation
    def peek(
        self, limit: int = 10, *, after: int = 0, group: str | None = None, tx: Transaction | None = None
    ) -> Command[list[Peeked]]:
        """Return unacknowledged messages after a sequence number, in order, without leasing them."""
        return peeking(self.name, limit, after, group).within(tx)

    @operation
    def deferred(
        self, limit: int = 10, *, after: int = 0, group: str | None = None, tx: Transaction | None = None
    ) -> Command[list[Peeked]]:
        """Return deferred messages after a sequence number, fetched or not, without leasing them."""
        return peeking(self.name, limit, after, group, deferred=True).within(tx)

    @operation
    def depth(self, tx: Transaction | None = None) -> Command[Depth]:
        """Return the queue's counts of messages."""
        return Read(self.name, lambda store, now_ms: store.depth(queue_of(store, self.name), now_ms)).within(tx)

    @operation
    def groups(self, *names: str, limit: int = 100, tx: Transaction | None = None) -> Command[list[GroupView]]:
        """Return the status of groups: of the named ones, or else of the groups with the oldest heads."""
        check_limit(limit)
        selected = [group_name(name) for name in names]

        def look(store: Store, now_ms: int) -> list[GroupView]:
            return store.groups(queue_of(store, self.name), limit, now_ms, selected)

        return Read(self.name, look).within(tx)

    @operation
    def info(self, tx: Transaction | None = None) -> Command[QueueInfo]:
        """Return the settings, readers and counts of the queue."""
        return Read(self.name, lambda store, _now_ms: deepcopy(queue_of(store, self.name))).within(tx)

    # --- changing the queue itself ---

    @operation
    def configure(self, /, **settings: Any) -> Command[QueueSettings]:
        """Change the named settings, and no others.

        Raises:
            InputError: if a value is invalid or a setting unknown.
            NoSuchQueue: if the dead_letter queue does not exist.
        """
        unknown = sorted(settings.keys() - QueueSettings.__dataclass_fields__.keys())
        if unknown:
            msg = f"no setting {unknown[0]!r}; existing settings: {', '.join(QueueSettings.__dataclass_fields__)}"
            raise InputError(msg)

        def change(store: Store, _now_ms: int) -> QueueSettings:
            info = queue_of(store, self.name)
            changed = replace(info.settings, **settings)
            check_dead_letter(store, self.name, changed)
            info.settings = changed
            store.save(self.name, info)
            return info.settings

        return StoreCall(self.name, change)

    @operation
    def purge(self, tx: Transaction | None = None) -> Command[int]:
        """Remove all messages, leased and deferred ones too, and forget their deduplication ids; return their number.

        Locks, states and parking of groups are not changed: they belong to the groups, not to these messages.
        """

        def clear(store: Store, _now_ms: int) -> int:
            info = queue_of(store, self.name)
            depth = info.depth
            store.save(self.name, info, purge=True)
            return depth

        return StoreCall(self.name, clear).within(tx)

    @operation
    def delete(self, tx: Transaction | None = None) -> Command[None]:
        """Delete the queue with all its messages."""

        def remove(store: Store, _now_ms: int) -> None:
            queue_of(store, self.name)
            store.save(self.name, None)

        return StoreCall(self.name, remove).within(tx)

    def reader(self, name: str) -> Reader:
        """Return a named reader over everything sent to the queue, independent of receives."""
        return Reader(self.writer, self.name, checked_name(name))


def check_queue(queue: object) -> None:
    """Check that an argument is a queue, or raise InputError."""
    check_type("queue", queue, Queue, "a queue, such as db.queue('payments')")


def check_dead_letter(store: Store, name: str, settings: QueueSettings) -> None:
    """Check that the dead-letter queue exists: with a misspelt name, failing messages would never leave the queue."""
    if settings.dead_letter is None or settings.dead_letter == name:
        return
    if settings.dead_letter not in store.queues:
        known = ", ".join(sorted(store.queues)) or "none"
        raise NoSuchQueue(
            f"no queue {settings.dead_letter!r}, the dead_letter queue of {name!r}; create it first; "
            f"existing queues: {known}"
        )


def _sending(queue: str, answer: Callable[[list[Sent]], T], drafts: Sequence[Draft], wait_s: float) -> Send[T]:
    if not wait_s:
        return Send(queue, answer, drafts)
    check_wait(wait_s)
    return WaitingSend(queue, answer, drafts, wait_s=wait_s)


def _first(sent: list[Sent]) -> Sent:
    return sent[0]
