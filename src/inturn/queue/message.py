"""A message that was received, or only read: what is known of it, and what its receiver can do."""

import datetime as dt
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from inturn.core import limits
from inturn.core.delivery import Act, Change, Verdict
from inturn.core.envelope import Content, Delivery, Entry, Want
from inturn.core.errors import InputError, LeaseExpired
from inturn.core.message import group_text
from inturn.core.texts import checked
from inturn.core.texts import note as kept_note
from inturn.queue.operation import operation
from inturn.store.base import Store
from inturn.store.commands import Ask, Command, Receive, Settle, Transaction, queue_of
from inturn.store.writer import Writer


class About:
    """What is known of a message: shared by those that were received and those that were only read."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def sequence_number(self) -> int:
        """Its place in the queue."""
        return self._entry.sequence_number

    @property
    def id(self) -> int:
        """What it is known by in the whole database: the sequence number of its first send."""
        return self._entry.origin or self._entry.sequence_number

    @property
    def group(self) -> str | None:
        """Whose timeline it is in."""
        return self._entry.group

    @property
    def revision(self) -> int | None:
        """Its place in the timeline, as the producer gave it."""
        return self._entry.revision

    @property
    def dedup_id(self) -> str | None:
        """What it is known by, as the producer gave it."""
        return self._entry.dedup_id

    @cached_property
    def body(self) -> Any:
        """What was sent."""
        return msgspec.json.decode(self._entry.body) if self._entry.content == Content.JSON else self._entry.body

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """More about it."""
        return (
            {} if self._entry.attributes is None else msgspec.json.decode(self._entry.attributes, type=dict[str, Any])
        )

    @property
    def sent_at(self) -> dt.datetime:
        """When it was sent."""
        return time_of(self._entry.sent_ms)

    @property
    def came_from(self) -> str | None:
        """The queue from which it was moved here."""
        return self._entry.came_from

    @property
    def note(self) -> str | None:
        """Why it was moved here."""
        return self._entry.note


def time_of(ms: int) -> dt.datetime:
    """A time of the store."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


class Peeked(About):
    """A message that was looked at; nobody's lease was touched."""

    def __repr__(self) -> str:
        return f"Peeked({self.sequence_number}, group={self.group!r})"


class Lease(Protocol):
    """What names a lease: a message that was received, or a :class:`Receipt` of one."""

    @property
    def sequence_number(self) -> int:
        """Of which message."""
        ...

    @property
    def fencing_token(self) -> int:
        """Which lease of it."""
        ...


class Receipt(NamedTuple):
    """A lease by its two numbers, for who has not the message itself: another process, or a shell.

    Attributes:
        sequence_number: of which message.
        fencing_token: which lease of it.
    """

    sequence_number: int
    fencing_token: int


class Message(About):
    """A message that was received: acknowledge it, or give it back, before its lease ends."""

    def __init__(self, delivery: Delivery, writer: Writer, queue: str) -> None:
        super().__init__(delivery.entry)
        self._delivery = delivery
        self.writer = writer
        self.queue = queue

    def __repr__(self) -> str:
        return f"Message({self.sequence_number}, group={self.group!r}, attempts={self.attempts})"

    @property
    def attempts(self) -> int:
        """How often it was received when it was its turn, this time included."""
        return self._delivery.attempts

    @property
    def first_received_at(self) -> dt.datetime | None:
        """When it was received for the first time."""
        first_ms = self._delivery.first_ms
        return None if first_ms is None else time_of(first_ms)

    @property
    def fencing_token(self) -> int:
        """Grows with every lease of the queue: a side effect that carries it can be told from one of an older lease."""
        return self._delivery.token

    @property
    def leased_until(self) -> dt.datetime:
        """When the lease ends, unless it is extended."""
        return time_of(self._delivery.until_ms)

    @operation
    def ack(self, tx: Transaction | None = None) -> Command[None]:
        """It is done: it is never delivered again.

        Raises:
            LeaseExpired: if the lease is over; nothing is changed then.
        """
        return settling(self.queue, [self], Act.ACK).within(tx)

    @operation
    def nack(self, tx: Transaction | None = None, *, delay_s: float | None = None) -> Command[None]:
        """Give it back, to be received again in its old place in the group, which goes to the end of the line.

        Args:
            tx: a transaction of the caller's.
            delay_s: how long it stays hidden; None: as the queue's ``retry_delay_s`` says.

        Raises:
            LeaseExpired: if the lease is over.
        """
        return settling(self.queue, [self], Act.NACK, delay_s).within(tx)

    @operation
    def extend(self, timeout_s: float, tx: Transaction | None = None) -> Command[None]:
        """Keep it for ``timeout_s`` seconds from now on; with one of a session the whole session is kept.

        Raises:
            LeaseExpired: if the lease is over.
        """
        return settling(self.queue, [self], Act.EXTEND, timeout_s).within(tx)

    @operation
    def defer(self, tx: Transaction | None = None) -> Command[None]:
        """Put it out of the way: what is behind it in its group goes on.

        From now on it is given out by ``fetch`` only, by its sequence number. It has used up no attempt.

        Raises:
            LeaseExpired: if the lease is over.
        """
        return settling(self.queue, [self], Act.DEFER).within(tx)

    @operation
    def reject(self, note: str, tx: Transaction | None = None, *, to: str | None = None) -> Command[None]:
        """Put it into another queue, with a note why; what is behind it in its group goes on.

        Args:
            note: why; of a long one the first ``limits.ERROR_LENGTH`` characters are kept.
            tx: a transaction of the caller's.
            to: the queue; None: the dead-letter queue of its own.

        Raises:
            LeaseExpired: if the lease is over.
            InputError: if its queue has no dead-letter queue and none is named, or the note is no text.
            NoSuchQueue: if there is no queue of that name.
        """
        why = kept_note("the note", note)

        def move(store: Store, now_ms: int) -> None:
            info = queue_of(store, self.queue)
            target = to or info.settings.dead_letter
            if target is None:
                msg = f"the queue {self.queue!r} has no dead_letter queue; name one: reject(…, to=…)"
                raise InputError(msg)
            queue_of(store, target)
            change = Change(self.sequence_number, self.fencing_token, Act.MOVE, to=target, note=why)
            _all_done([change], store.settle(info, [change], now_ms))

        return Ask(self.queue, move).within(tx)


def check_own(messages: Sequence[Lease], writer: Writer) -> None:
    """See that messages were received from this database: in another their numbers and tokens name other messages.

    Raises:
        InputError: if one was not.
    """
    for each in messages:
        if isinstance(each, Message) and each.writer is not writer and not writer.is_own(each.writer.identity()):
            msg = f"{each!r} was received from a queue {each.queue!r} of another database; settle it there"
            raise InputError(msg)


def settling(queue: str, messages: Sequence[Lease], act: Act, seconds: float | None = 0) -> Command[None]:
    """The command that does one thing with messages of a queue; with ``seconds=None`` after a time of the queue's."""
    ms = None if seconds is None else milliseconds("the time", seconds)
    changes = [Change(each.sequence_number, each.fencing_token, act, ms) for each in messages]
    return Settle(queue, lambda verdicts: _all_done(changes, verdicts), changes)


def milliseconds(what: str, seconds: float) -> int:
    """A time-out in milliseconds.

    Raises:
        InputError: if it is no number, or out of bounds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= limits.VISIBILITY_S:
        msg = f"{what} is {seconds!r}; it is a number of seconds from 0 to {limits.VISIBILITY_S}"
        raise InputError(msg)
    return round(seconds * 1000)


def group_name(group: object) -> str:
    """Return the name of a group.

    Raises:
        InputError: if it is none.
    """
    return checked("group", group_text(group))


def check_limit(limit: int) -> None:
    """Whether so many messages can be looked at together.

    Raises:
        InputError: if not.
    """
    if not isinstance(limit, int) or not 1 <= limit <= limits.READ_MESSAGES:
        msg = f"limit is {limit!r}; it is a number from 1 to {limits.READ_MESSAGES}"
        raise InputError(msg)


def check_messages(number: int) -> None:
    """Whether so many messages can be received together.

    Raises:
        InputError: if not.
    """
    if not isinstance(number, int) or not 1 <= number <= limits.RECEIVE_MESSAGES:
        msg = f"max_messages is {number!r}; it is a number from 1 to {limits.RECEIVE_MESSAGES}"
        raise InputError(msg)


def visibility(timeout_s: float | None) -> int | None:
    """How long a lease is, in milliseconds; None: as the queue says.

    Raises:
        InputError: if it is no number, or out of bounds.
    """
    return None if timeout_s is None else milliseconds("visibility_timeout_s", timeout_s)


def fetching(writer: Writer, queue: str, want: Want, tx: Transaction | None) -> Command[Message | None]:
    """The command that leases a deferred message."""

    def given(deliveries: Sequence[Delivery]) -> Message | None:
        return Message(deliveries[0], writer, queue) if deliveries else None

    return Receive(queue, given, want).within(tx)


def peeking(queue: str, limit: int, after: int, group: str | None, *, deferred: bool = False) -> Command[list[Peeked]]:
    """The command that looks at messages that are not acknowledged."""
    check_limit(limit)
    named = None if group is None else group_name(group)

    def look(store: Store, _now_ms: int) -> list[Peeked]:
        info = queue_of(store, queue)
        return [Peeked(each) for each in store.read(info, after, limit, pending=True, deferred=deferred, group=named)]

    return Ask(queue, look)


def _all_done(changes: Sequence[Change], verdicts: Sequence[Verdict]) -> None:
    failed = [
        (change, verdict) for change, verdict in zip(changes, verdicts, strict=True) if verdict is not Verdict.DONE
    ]
    if failed:
        change, verdict = failed[0]
        why = "its lease is over" if verdict is Verdict.EXPIRED else "it is not in the queue any more"
        more = f", and {len(failed) - 1} more like it" if len(failed) > 1 else ""
        msg = (
            f"message {change.sequence_number} was not changed: {why}{more}; somebody else may have it, or has done it"
        )
        raise LeaseExpired(msg)
