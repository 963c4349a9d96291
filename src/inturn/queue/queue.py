"""Queues: send, receive, acknowledge; look at them, read them from the beginning, take back what went wrong.

Every verb is an operation: ``queue.send(body)`` in a thread, ``await queue.send.aio(body)`` in a task, and with
``tx=`` within a transaction of the caller's own.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from inturn.core import limits
from inturn.core.delivery import Act, Change, Verdict
from inturn.core.envelope import (
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    QueueSettings,
    Sent,
    Want,
    checked_name,
)
from inturn.core.errors import InputError, NoSuchQueue
from inturn.queue.drafts import draft
from inturn.queue.message import (
    Lease,
    Message,
    Peeked,
    check_limit,
    check_messages,
    check_own,
    fetching,
    group_name,
    peeking,
    settling,
    visibility,
)
from inturn.queue.operation import operation
from inturn.queue.reader import Reader
from inturn.queue.session import Sessions
from inturn.store.base import Store
from inturn.store.commands import Ask, Command, Receive, Send, Settle, Transaction, queue_of


class Queue(Sessions):
    """One queue of a database; got by ``db.queue(name)``. Its verbs about whole groups are in session.py."""

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # --- sending and receiving ---

    @operation
    def send(
        self,
        body: Any,
        *,
        group: object = None,
        revision: int | None = None,
        dedup_id: str | None = None,
        delay_s: float | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Command[Sent]:
        """Put a message at the end; it is durable when this returns. The arguments are those of :func:`draft`.

        Returns:
            Its sequence number; of the first message, if it is a duplicate.

        Raises:
            InputError: if something does not fit.
            NoSuchQueue: if the queue was deleted.
        """
        one = draft(body, group=group, revision=revision, dedup_id=dedup_id, delay_s=delay_s, attributes=attributes)
        return Send(self.name, _first, [one]).within(tx)

    @operation
    def send_many(self, drafts: Iterable[Draft], tx: Transaction | None = None) -> Command[list[Sent]]:
        """Put messages at the end, all or none; made by :func:`draft`."""
        return Send(self.name, list, list(drafts)).within(tx)

    @operation
    def schedule(
        self,
        body: Any,
        *,
        at: dt.datetime,
        group: object = None,
        revision: int | None = None,
        dedup_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Command[Sent]:
        """Put a message at the end that is hidden until a time; at once, if that has passed.

        What is sent to its group meanwhile waits behind it, as with a delay.

        Raises:
            InputError: if something does not fit: a time without a zone, or one that is too far away.
            NoSuchQueue: if the queue was deleted.
        """
        if not isinstance(at, dt.datetime) or at.tzinfo is None:
            msg = f"at is {at!r}; it is a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
            raise InputError(msg)
        at_ms = round(at.timestamp() * 1000)
        one = draft(body, group=group, revision=revision, dedup_id=dedup_id, attributes=attributes)

        def put(store: Store, now_ms: int) -> Sent:
            delay_ms = max(0, at_ms - now_ms)
            if delay_ms > limits.DELAY_S * 1000:
                msg = f"at is {at}; a message is hidden for {limits.DELAY_S // 86_400} days at most"
                raise InputError(msg)
            return store.send(queue_of(store, self.name), [one._replace(delay_ms=delay_ms)], now_ms)[0]

        return Ask(self.name, put).within(tx)

    @operation
    def cancel(self, sequence_number: int, tx: Transaction | None = None) -> Command[bool]:
        """Remove a message that is scheduled, or delayed since its send, before its time comes; readers lose it too.

        Its deduplication id stays known.

        Returns:
            Whether it was removed; False: too late, its time has come, or it is not there.
        """
        change = Change(sequence_number, None, Act.CANCEL)
        return Settle(self.name, lambda verdicts: verdicts[0] is Verdict.DONE, [change]).within(tx)

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
        """Lease the next messages: the oldest whose group is free, more of the same group, then the next such group.

        Args:
            max_messages: how many at most.
            wait_s: how long to wait if there is none.
            visibility_timeout_s: how long the lease is; None: as the queue says.
            group: of this group only.
            tx: a transaction of the caller's, in which nothing is waited for.
        """
        check_messages(max_messages)
        return Receive(
            self.name,
            lambda deliveries: [Message(each, self.writer, self.name) for each in deliveries],
            Want(max_messages, visibility(visibility_timeout_s), None if group is None else group_name(group)),
            wait_s=wait_s,
        ).within(tx)

    @operation
    def fetch(
        self, sequence_number: int, *, visibility_timeout_s: float | None = None, tx: Transaction | None = None
    ) -> Command[Message | None]:
        """Lease a deferred message; given back, it is deferred again.

        Returns:
            None, if there is no such deferred message, somebody has it, or its group is locked or parked.
        """
        return fetching(self.writer, self.name, Want(1, visibility(visibility_timeout_s), number=sequence_number), tx)

    @operation
    def ack(self, messages: Sequence[Lease], tx: Transaction | None = None) -> Command[None]:
        """Several at once, each for itself; by their receipts, where the messages themselves are elsewhere.

        Raises:
            LeaseExpired: naming those whose lease is over; the others are done.
        """
        check_own(messages, self.writer)
        return settling(self.name, messages, Act.ACK).within(tx)

    @operation
    def nack(
        self, messages: Sequence[Lease], *, delay_s: float | None = None, tx: Transaction | None = None
    ) -> Command[None]:
        """Give several back at once."""
        check_own(messages, self.writer)
        return settling(self.name, messages, Act.NACK, delay_s).within(tx)

    @operation
    def extend(self, messages: Sequence[Lease], timeout_s: float, *, tx: Transaction | None = None) -> Command[None]:
        """Keep several for longer."""
        check_own(messages, self.writer)
        return settling(self.name, messages, Act.EXTEND, timeout_s).within(tx)

    # --- looking ---

    @operation
    def peek(
        self, limit: int = 10, *, after: int = 0, group: str | None = None, tx: Transaction | None = None
    ) -> Command[list[Peeked]]:
        """Messages that are not acknowledged, in order, after a sequence number; nobody's lease is touched."""
        return peeking(self.name, limit, after, group).within(tx)

    @operation
    def deferred(
        self, limit: int = 10, *, after: int = 0, group: str | None = None, tx: Transaction | None = None
    ) -> Command[list[Peeked]]:
        """Those of them that are deferred, whether or not somebody has fetched them."""
        return peeking(self.name, limit, after, group, deferred=True).within(tx)

    @operation
    def depth(self, tx: Transaction | None = None) -> Command[Depth]:
        """How much is in it."""
        return Ask(self.name, lambda store, now_ms: store.depth(queue_of(store, self.name), now_ms)).within(tx)

    @operation
    def groups(self, *names: str, limit: int = 100, tx: Transaction | None = None) -> Command[list[GroupView]]:
        """Where groups stand: those with the oldest heads, or those that are named."""
        check_limit(limit)
        wanted = [group_name(each) for each in names]

        def look(store: Store, now_ms: int) -> list[GroupView]:
            return store.groups(queue_of(store, self.name), limit, now_ms, wanted)

        return Ask(self.name, look).within(tx)

    @operation
    def info(self, tx: Transaction | None = None) -> Command[QueueInfo]:
        """Its settings, its readers, its counts."""
        return Ask(self.name, lambda store, _now_ms: deepcopy(queue_of(store, self.name))).within(tx)

    # --- changing the queue itself ---

    @operation
    def configure(self, /, **settings: Any) -> Command[QueueSettings]:
        """Change some settings; those that are not named stay.

        Raises:
            InputError: if a value does not fit, or there is no such setting.
            NoSuchQueue: if its dead_letter queue is not there.
        """
        unknown = sorted(settings.keys() - QueueSettings.__dataclass_fields__.keys())
        if unknown:
            msg = f"there is no setting {unknown[0]!r}; there are {', '.join(QueueSettings.__dataclass_fields__)}"
            raise InputError(msg)

        def change(store: Store, _now_ms: int) -> QueueSettings:
            info = queue_of(store, self.name)
            changed = replace(info.settings, **settings)
            check_dead_letter(store, self.name, changed)
            info.settings = changed
            store.save(self.name, info)
            return info.settings

        return Ask(self.name, change)

    @operation
    def purge(self, tx: Transaction | None = None) -> Command[int]:
        """Remove all messages, received and deferred ones too, and forget their deduplication ids; how many there were.

        Locks, states and parks of groups stay: they are not about these messages.
        """

        def clear(store: Store, _now_ms: int) -> int:
            info = queue_of(store, self.name)
            there = info.depth
            store.save(self.name, info, purge=True)
            return there

        return Ask(self.name, clear).within(tx)

    @operation
    def delete(self, tx: Transaction | None = None) -> Command[None]:
        """Remove the queue with all that is in it."""

        def remove(store: Store, _now_ms: int) -> None:
            queue_of(store, self.name)
            store.save(self.name, None)

        return Ask(self.name, remove).within(tx)

    @operation
    def redrive(
        self, limit: int = limits.READ_MESSAGES, *, to: str | None = None, tx: Transaction | None = None
    ) -> Command[int]:
        """Move messages out of this dead-letter queue: each back to where it came from, or all to one queue.

        One that goes back to the queue that it was first sent to is in its old place there, in front of all that was
        sent after it. Messages that are being looked at, received and not acknowledged, stay.

        Args:
            limit: how many at most, the oldest first.
            to: the queue; None: each to where it came from.
            tx: a transaction of the caller's.

        Returns:
            How many were moved; those that came from nowhere else stay.

        Raises:
            InputError: if ``to`` is this queue.
            NoSuchQueue: if there is no queue of that name.
        """
        check_limit(limit)
        if to == self.name:
            msg = f"the messages of {to!r} are in it already; name another queue, or none: each back to its own"
            raise InputError(msg)

        def move(store: Store, now_ms: int) -> int:
            info = queue_of(store, self.name)
            if to is not None:
                queue_of(store, to)
            moved = after = 0
            while moved < limit and (entries := store.read(info, after, limit - moved, pending=True)):
                after = entries[-1].sequence_number
                changes = [
                    Change(entry.sequence_number, None, Act.MOVE, to=target)
                    for entry in entries
                    if (target := to or entry.came_from) in store.queues and target != self.name
                ]
                moved += sum(verdict is Verdict.DONE for verdict in store.settle(info, changes, now_ms))
            return moved

        return Ask(self.name, move).within(tx)

    def reader(self, name: str) -> Reader:
        """A named reader over all that is sent to the queue, whoever receives it."""
        return Reader(self.writer, self.name, checked_name(name))


def check_dead_letter(store: Store, name: str, settings: QueueSettings) -> None:
    """Whether messages of a queue can go where its settings say; a slip in the name would keep them for ever.

    Raises:
        NoSuchQueue: if that queue is not there.
    """
    if settings.dead_letter is None or settings.dead_letter == name:
        return
    if settings.dead_letter not in store.queues:
        known = ", ".join(sorted(store.queues)) or "none"
        msg = f"make the dead_letter queue {settings.dead_letter!r} before {name!r}; there are: {known}"
        raise NoSuchQueue(msg)


def _first(sent: list[Sent]) -> Sent:
    return sent[0]
