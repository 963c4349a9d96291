"""The producer's side of a queue: numbered groups, the writer of a group, and priorities.

    writer = orders.single_writer("order-7", name="shop-1")    # no other producer sends to the group now
    with writer:                                                # gives the lease up at the end
        writer.send({"paid": 5})
        writer.renew()

core/queue/numbering.py, writers.py and ready_groups.py define the rules.
"""

import datetime as dt
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.queue import writers
from inturn.core.queue.messages import Draft, Sent, checked_name
from inturn.core.queue.writers import WriterAnswer, WriterLease, WriterRequest, WriterVerb
from inturn.queue.drafts import draft, drafts_of
from inturn.queue.message import NamedQueue, group_name, milliseconds, time_of
from inturn.queue.operation import operation
from inturn.store.commands import Command, Read, Send, StoreCall, Transaction, queue_of
from inturn.store.writer.group_commit import Writer

if TYPE_CHECKING:
    from inturn.store.producers import ProducerStore

T = TypeVar("T")


class GroupWriter:
    """The lease of a group's only producer, from ``queue.single_writer(group)``. For ``with`` and ``async with``.

    Its messages are refused with WriterHeld once another producer has taken over. Until then it may continue, even
    after the lease has expired.

    Attributes:
        queue: the name of the queue.
        group: the group.
        name: the producer's name.
        epoch: a number that grows with every lease of the group; a message of an earlier one is refused.
    """

    def __init__(self, writer: Writer, queue: str, group: str, lease: WriterLease, lease_ms: int) -> None:
        self.writer = writer
        self.queue = queue
        self.group = group
        self.name = lease.name
        self.epoch = lease.epoch
        self._lease_ms = lease_ms
        self._until_ms = lease.until_ms

    def __repr__(self) -> str:
        return f"GroupWriter({self.group!r}, name={self.name!r}, epoch={self.epoch})"

    @property
    def leased_until(self) -> dt.datetime:
        """The end of the lease as of the last renewal outside a transaction; then another producer may take over."""
        return time_of(self._until_ms)

    @operation
    def send(
        self,
        body: Any,
        *,
        revision: int | Literal["next"] | None = None,
        expected_revision: int | None = None,
        dedup_id: str | None = None,
        delay_s: float | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: Transaction | None = None,
    ) -> Command[Sent]:
        """Append a message to the group; see :meth:`Queue.send`.

        Raises:
            WriterHeld: if another producer has taken over; the error names it.
        """
        message = draft(
            body,
            group=self.group,
            revision=revision,
            expected_revision=expected_revision,
            dedup_id=dedup_id,
            delay_s=delay_s,
            attributes=attributes,
        )
        return Send(self.queue, lambda sent: sent[0], [message._replace(epoch=self.epoch)]).within(tx)

    @operation
    def send_many(self, drafts: Iterable[Draft], tx: Transaction | None = None) -> Command[list[Sent]]:
        """Append messages made by :func:`draft` to the group, all or none; their group may be omitted.

        Raises:
            WriterHeld: if another producer has taken over; the error names it.
            InputError: if one is of another group.
        """
        own = [
            message._replace(group=self.group, epoch=self.epoch) for message in map(self._of_group, drafts_of(drafts))
        ]
        return Send(self.queue, list, own).within(tx)

    def _of_group(self, message: Draft) -> Draft:
        if message.group not in {None, self.group}:
            raise InputError(f"a message has group {message.group!r}; this writer sends only to group {self.group!r}")
        return message

    @operation
    def renew(self, lease_s: float | None = None, tx: Transaction | None = None) -> Command[dt.datetime]:
        """Extend the lease from now on.

        Args:
            lease_s: the new length, in seconds; None: the original length.
            tx: the caller's transaction.

        Returns:
            The new end.

        Raises:
            WriterHeld: if another producer has taken over; the error names it.
        """
        ms = self._lease_ms if lease_s is None else _lease_ms(lease_s)

        def until(answer: WriterAnswer) -> dt.datetime:
            until_ms = self._held(answer).until_ms
            if tx is None:
                self._until_ms = until_ms
            return time_of(until_ms)

        return _asking(self.queue, self.group, WriterRequest(WriterVerb.RENEW, epoch=self.epoch, ms=ms), until, tx)

    @operation
    def release(self, tx: Transaction | None = None) -> Command[None]:
        """Give the lease up, so that any producer can take it at once; without effect if another one has taken over."""
        request = WriterRequest(WriterVerb.RELEASE, epoch=self.epoch)
        return _asking(self.queue, self.group, request, lambda _answer: None, tx)

    def _held(self, answer: WriterAnswer) -> WriterLease:
        if not answer.done or answer.lease is None:
            raise writers.held(self.queue, self.group, answer.lease, self.epoch)
        return answer.lease

    def __enter__(self) -> Self:
        """Return the writer, which gives its lease up at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease up."""
        self.release()

    async def __aenter__(self) -> Self:
        """Return the writer, which gives its lease up at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease up."""
        await self.release.aio()


@operation
def single_writer(
    queue: NamedQueue,
    group: object,
    *,
    name: str | None = None,
    lease_s: float = 30,
    take_over: bool = False,
    tx: Transaction | None = None,
) -> Command[GroupWriter]:
    """Become the only producer of a group, in a queue with ``single_writer``; messages of other producers are refused.

    Args:
        queue: the queue.
        group: the group.
        name: the name of the producer, shown to other producers; None: host, process and a random part. A producer of
            the same name takes the lease over at once, such as after a restart.
        lease_s: the length of the lease, in seconds; after it another producer may take over.
        take_over: whether to take the lease even if another producer has it.
        tx: the caller's transaction.

    Raises:
        WriterHeld: if another producer has the lease; the error names it.
        InputError: if an argument is invalid, or the queue does not have ``single_writer``.
        NoSuchQueue: if the queue was deleted.
    """
    known = group_name(group)
    own = checked_name(_own_name() if name is None else name)
    ms = _lease_ms(lease_s)
    request = WriterRequest(WriterVerb.TAKE, own, ms=ms, by_force=take_over)

    def taken(answer: WriterAnswer) -> GroupWriter:
        if not answer.done or answer.lease is None:
            raise writers.held(queue.name, known, answer.lease)
        return GroupWriter(queue.writer, queue.name, known, answer.lease, ms)

    return _asking(queue.name, known, request, taken, tx)


@operation
def last_revision(queue: NamedQueue, group: object, tx: Transaction | None = None) -> Command[int]:
    """Return the last revision that the queue assigned in a group; 0: none."""
    known = group_name(group)
    return Read(queue.name, lambda store, _now_ms: _last_revision(store, queue.name, known)).within(tx)


@operation
def number_from(queue: NamedQueue, group: object, revision: int, tx: Transaction | None = None) -> Command[None]:
    """Let the queue number a group whose producer assigned the revisions before; the next revision is this one.

    From then on, the group refuses messages with a revision of the producer's own. Nothing is changed if the queue
    numbers the group already and its next revision is this one.

    Raises:
        RevisionMismatch: if the queue numbers the group already, and its next revision is another.
        InputError: if an argument is invalid.
    """
    known = group_name(group)
    if isinstance(revision, bool) or not isinstance(revision, int) or not 1 <= revision < limits.REVISION:
        raise InputError(f"revision is {revision!r}; expected a whole number from 1 to {limits.REVISION - 1}")

    def begin(store: Any, _now_ms: int) -> None:
        producers: ProducerStore = store
        producers.begin_numbering(queue_of(store, queue.name), known, revision)

    return StoreCall(queue.name, begin).within(tx)


@operation
def prioritize(queue: NamedQueue, group: object, priority: int, tx: Transaction | None = None) -> Command[None]:
    """Set the priority of a group, in a queue with a ``priority_lead``; it applies until it is set again.

    A group of a higher priority is received first: each level puts its messages ``priority_lead`` messages ahead of
    their places. So no group waits for ever: only messages sent soon after its own can pass it.

    Args:
        queue: the queue.
        group: the group.
        priority: a whole number; every group begins with 0, and a negative number lets the group wait.
        tx: the caller's transaction.

    Raises:
        InputError: if an argument is invalid, or the queue has no ``priority_lead``.
    """
    known = group_name(group)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > limits.PRIORITY:
        expected = f"expected a whole number from {-limits.PRIORITY} to {limits.PRIORITY}"
        raise InputError(f"priority is {priority!r}; {expected}")

    def put(store: Any, now_ms: int) -> None:
        producers: ProducerStore = store
        info = queue_of(store, queue.name)
        if info.settings.priority_lead is None:
            msg = f"queue {queue.name!r} has no priorities; enable them with queue.configure(priority_lead=1000)"
            raise InputError(msg)
        producers.set_priority(info, known, priority, now_ms)

    return StoreCall(queue.name, put).within(tx)


@operation
def priority(queue: NamedQueue, group: object, tx: Transaction | None = None) -> Command[int]:
    """Return the priority of a group."""
    known = group_name(group)

    def look(store: Any, _now_ms: int) -> int:
        producers: ProducerStore = store
        return producers.priority(queue_of(store, queue.name), known)

    return Read(queue.name, look).within(tx)


def _last_revision(store: Any, queue: str, group: str) -> int:
    producers: ProducerStore = store
    return producers.last_revision(queue_of(store, queue), group) or 0


def _asking(
    queue: str, group: str, request: WriterRequest, answered: Callable[[WriterAnswer], T], tx: Transaction | None
) -> Command[T]:
    def ask(store: Any, now_ms: int) -> T:
        producers: ProducerStore = store
        info = queue_of(store, queue)
        if not info.settings.single_writer:
            msg = f"queue {queue!r} accepts any producer; change this with queue.configure(single_writer=True)"
            raise InputError(msg)
        return answered(producers.writer(info, group, request, now_ms))

    return StoreCall(queue, ask).within(tx)


def _lease_ms(seconds: float) -> int:
    ms = milliseconds("lease_s", seconds)
    if ms == 0:
        raise InputError(f"lease_s is {seconds!r}; expected a number greater than 0")
    return ms


def _own_name() -> str:
    return f"{socket.gethostname()[:100]}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
