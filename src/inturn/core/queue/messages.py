"""The records of a queue: settings, messages sent and delivered, groups and readers.

Plain values without behaviour beyond their own checks. Times are in milliseconds since 1970.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple

from inturn.core import limits
from inturn.core.errors import InputError, PipelineError
from inturn.core.queue.lapsed import LapsedRule
from inturn.core.values.duration import duration_us


class Content(IntEnum):
    """The kinds of message body."""

    TEXT = 0
    """Text, given as a ``str``."""
    JSON = 1
    """JSON text, written from a value."""
    BYTES = 2
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """The settings of a queue.

    Attributes:
        visibility_timeout_s: length of a lease, unless the receive specifies another.
        delay_s: how long a sent message is hidden at first, unless the send specifies another delay.
        retention_s: how long a message is kept, acknowledged or not; None: until it is acknowledged.
        dedup_window_s: how long a deduplication id is remembered; None: forever.
        dedup_scope: ``queue`` if an id is the same message in every group, ``group`` if only within its group.
        content_dedup: whether the SHA-256 of the body identifies a message without an id.
        dead_letter: queue to which messages are moved that were received too often.
        max_receives: number of receives before a message is moved there.
        retry_delay_s: how long a message is hidden after its first attempt, if it is nacked without a delay or its
            lease expires; 0: not at all.
        retry_growth: factor by which the delay grows with each further attempt.
        retry_max_s: longest such delay.
        retry_jitter: largest part of a delay, from 0 to 1, by which it is shortened at random, so that messages that
            failed together are not retried together.
        max_depth: maximum number of messages in the queue; None: any number. See back_pressure.py.
        single_writer: whether the messages of a group come from one producer at a time, which has the group's lease;
            see writers.py.
        priority_lead: number of messages by which one level of priority moves a group forward; None: no priorities.
            See ready_groups.py.
        keep_for: how long an acknowledged message stays in the log, counted from its send: a duration such as
            ``"30 days"``, or seconds; None: no limit by time. See kept_log.py.
        keep_bytes: how many bytes of bodies of its newest messages the log keeps; None: no limit by size. If neither is
            set, an acknowledged message is removed once every reader has passed it.
        extra: plain values stored with the queue for other components, such as the tags of the SQS endpoint, as JSON.
    """

    visibility_timeout_s: float = 30
    delay_s: float = 0
    retention_s: float | None = None
    dedup_window_s: float | None = 300
    dedup_scope: Literal["queue", "group"] = "queue"
    content_dedup: bool = False
    dead_letter: str | None = None
    max_receives: int | None = None
    retry_delay_s: float = 0
    retry_growth: float = 2
    retry_max_s: float = 60
    retry_jitter: float = 0.2
    max_depth: int | None = None
    single_writer: bool = False
    priority_lead: int | None = None
    keep_for: float | str | None = None  # in seconds once it is checked
    keep_bytes: int | None = None
    extra: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check each value."""
        _in_range("visibility_timeout_s", self.visibility_timeout_s, 0, limits.VISIBILITY_S)
        _in_range("delay_s", self.delay_s, 0, limits.DELAY_S)
        for name in ("retention_s", "dedup_window_s"):
            _in_range(name, getattr(self, name) or 0, 0, limits.KEPT_S)
        if self.dedup_scope not in ("queue", "group"):
            raise InputError(f"dedup_scope is {self.dedup_scope!r}; expected 'queue' or 'group'")
        if (self.dead_letter is None) != (self.max_receives is None):
            msg = f"dead_letter is {self.dead_letter!r} and max_receives is {self.max_receives!r}; set both or neither"
            raise InputError(msg)
        if self.max_receives is not None:
            _in_range("max_receives", self.max_receives, 1, limits.MAX_RECEIVES)
        _in_range("retry_delay_s", self.retry_delay_s, 0, limits.DELAY_S)
        _in_range("retry_growth", self.retry_growth, 1, limits.RETRY_GROWTH)
        _in_range("retry_max_s", self.retry_max_s, 0, limits.DELAY_S)
        _in_range("retry_jitter", self.retry_jitter, 0, 1)
        if self.max_depth is not None:
            _in_range("max_depth", self.max_depth, 1, limits.MAX_DEPTH, is_whole=True)
        if not isinstance(self.single_writer, bool):
            raise InputError(f"single_writer is {self.single_writer!r}; expected True or False")
        if self.priority_lead is not None:
            _in_range("priority_lead", self.priority_lead, 1, limits.PRIORITY_LEAD, is_whole=True)
        if self.keep_for is not None:
            object.__setattr__(self, "keep_for", _seconds("keep_for", self.keep_for))
        if self.keep_bytes is not None:
            _in_range("keep_bytes", self.keep_bytes, 1, limits.KEPT_BYTES, is_whole=True)

    @cached_property
    def visibility_ms(self) -> int:
        """Length of a lease, in milliseconds."""
        return round(self.visibility_timeout_s * 1000)

    @cached_property
    def delay_ms(self) -> int:
        """Delay of a sent message, in milliseconds."""
        return round(self.delay_s * 1000)

    @property
    def dedup_window_ms(self) -> int | None:
        """Time for which a deduplication id is remembered, in milliseconds; None: forever."""
        return None if self.dedup_window_s is None else round(self.dedup_window_s * 1000)

    @property
    def keeps_log(self) -> bool:
        """True if acknowledged messages stay in the log even after every reader has read them."""
        return self.keep_for is not None or self.keep_bytes is not None

    @cached_property
    def keep_ms(self) -> int | None:
        """Time for which an acknowledged message stays in the log, in milliseconds; None: no limit by time."""
        return None if self.keep_for is None else round(_seconds("keep_for", self.keep_for) * 1000)


def _seconds(name: str, value: float | str) -> float:
    """Return a duration in seconds, written as text or as seconds."""
    if not isinstance(value, int | float):
        try:
            value = duration_us(value, label=name) / 1e6
        except PipelineError as error:
            raise InputError(f"{error}; a number of seconds is allowed too") from error
    _in_range(name, value, 0, limits.KEPT_S)
    return value


def _in_range(name: str, value: float, least: float, most: float, *, is_whole: bool = False) -> None:
    kinds = int if is_whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise InputError(f"{name} is {value!r}; expected a {'whole ' if is_whole else ''}number from {least} to {most}")


def checked_name(name: str) -> str:
    """Return the name of a queue or a reader, after checking it."""
    if not isinstance(name, str) or not 0 < len(name) <= limits.NAME_LENGTH or not name.isprintable():
        raise InputError(f"invalid name {name!r}: 1 to {limits.NAME_LENGTH} printable characters are allowed")
    return name


class Numbering(NamedTuple):
    """A request that the queue assigns the next revision of its group to the message; see numbering.py.

    Attributes:
        expected: the last revision that the sender expects in the group; None: any.
    """

    expected: int | None = None


class Draft(NamedTuple):
    """A message to be sent.

    Attributes:
        body: text or bytes.
        group: message group; None: no group, so it waits for no other message.
        revision: place in the group's timeline, if the producer assigns one.
        dedup_id: deduplication id; None: never a duplicate.
        delay_ms: how long it is hidden at first; None: the queue's setting.
        attributes: message attributes, as JSON.
        numbering: request that the queue assigns the revision; None: it does not.
        epoch: epoch of the writer's lease under which it is sent; see writers.py.
    """

    body: str | bytes
    content: Content = Content.JSON
    group: str | None = None
    revision: int | None = None
    dedup_id: str | None = None
    delay_ms: int | None = None
    attributes: str | None = None
    numbering: Numbering | None = None
    epoch: int | None = None


class Sent(NamedTuple):
    """The result of a send.

    Attributes:
        sequence_number: the message's place in its queue.
        duplicate: whether an earlier message had the same deduplication id; the number is that message's, and nothing
            was added.
        revision: revision assigned by its producer or the queue; for a duplicate that of the first message.
    """

    sequence_number: int
    duplicate: bool
    revision: int | None = None


class StoredMessage(NamedTuple):
    """A message stored in a queue.

    Attributes:
        sequence_number: its place in the queue.
        body: text or bytes.
        content: kind of body: the number of a :class:`Content`.
        group: message group.
        revision: place in the group's timeline.
        dedup_id: deduplication id.
        attributes: message attributes, as JSON.
        sent_ms: when it was sent.
        origin: the sequence number it was first sent with, if it has been moved since.
        came_from: the queue it was moved from, if it was.
        note: why it was moved.
    """

    sequence_number: int
    body: str | bytes
    content: int
    group: str | None
    revision: int | None
    dedup_id: str | None
    attributes: str | None
    sent_ms: int
    origin: int | None
    came_from: str | None
    note: str | None


class ReceiveRequest(NamedTuple):
    """A receiver's request.

    Attributes:
        limit: maximum number of messages to return.
        visibility_ms: length of the lease; None: the queue's setting.
        group: return messages of this group only.
        token: fencing token of the session lock, for as long as it lasts; the session's group is the group.
        number: return this deferred message only.
        lapsed: how lapsed messages are returned.
    """

    limit: int
    visibility_ms: int | None = None
    group: str | None = None
    token: int | None = None
    number: int | None = None
    lapsed: LapsedRule = LapsedRule.LAST_ALONE

    def lease_ms(self, settings: QueueSettings) -> int:
        """Return the length of the lease in a queue of these settings, in milliseconds."""
        return settings.visibility_ms if self.visibility_ms is None else self.visibility_ms


class Delivery(NamedTuple):
    """A message as a receiver gets it.

    Attributes:
        message: the stored message.
        token: the lease's fencing token; grows with every lease of a queue.
        until_ms: when the lease ends.
        attempts: number of receives as the first message of its group, including this one.
        first_ms: when it was first received.
        lapsed: whether an earlier lease of it ended by time.
    """

    message: StoredMessage
    token: int
    until_ms: int
    attempts: int
    first_ms: int | None
    lapsed: bool = False


class Depth(NamedTuple):
    """The numbers of messages, and of parked groups, in a queue.

    Attributes:
        messages: number of messages that are not acknowledged.
        in_flight: number of received messages whose lease has not ended.
        delayed: number of messages that are hidden for a time and that no receiver holds.
        last: the last sequence number that was assigned.
        deferred: number of deferred messages, received or not.
        parked: number of parked groups, including groups without messages.
    """

    messages: int
    in_flight: int
    delayed: int
    last: int
    deferred: int = 0
    parked: int = 0


class GroupAvailability(IntEnum):
    """The reasons why the head of a group cannot be received."""

    READY = 0
    IN_FLIGHT = 1
    DELAYED = 2
    LOCKED = 3
    PARKED = 4


class GroupView(NamedTuple):
    """The status of a group.

    Attributes:
        group: its name; None for one message without a group.
        depth: number of its messages that are neither acknowledged nor deferred.
        head: sequence number of its first message.
        head_sent_ms: when the head was sent.
        availability: whether it can be received, or why not.
        until_ms: when that changes automatically, if it does.
        token: fencing token of the head's lease or of the group's lock.
        attempts: how often the head has been received.
        note: why the group is parked, if it is.
    """

    group: str | None
    depth: int
    head: int
    head_sent_ms: int
    availability: GroupAvailability
    until_ms: int | None
    token: int | None
    attempts: int
    note: str | None = None


def first_number(queue: int) -> int:
    """Return the number before the first sequence number of a queue.

    A sequence number has its queue's number in its high bits. So it names one message in the whole store, and the
    messages of one queue lie together.
    """
    return queue << limits.SEQUENCE_BITS


@dataclass
class QueueInfo:
    """A store's record of a queue.

    Attributes:
        number: its number among the queues of the store.
        readers: the sequence number up to which each reader has read.
        created_ms: when it was created.
        depth: number of messages that are not acknowledged.
        last: the last sequence number that was assigned.
        last_token: the last fencing token that was assigned.
        last_requeue_place: the last place in the ready queue assigned to a requeued group; see :class:`ReadyPlace`.
        due_ms: when the next lease or delay ends, as of the last receive that found nothing; not stored.
    """

    number: int
    name: str
    settings: QueueSettings
    created_ms: int
    readers: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    last: int = 0
    last_token: int = 0
    last_requeue_place: tuple[int, int] = field(default=(0, 0), compare=False)
    due_ms: int | None = field(default=None, compare=False)

    @cached_property
    def number_range(self) -> tuple[int, int]:
        """The number before its first sequence number, and its last possible one."""
        return first_number(self.number), first_number(self.number + 1)

    @property
    def read_to(self) -> int:
        """The number up to which every reader has read; acknowledged messages are kept only beyond it."""
        return min(self.readers.values(), default=self.last)

    @property
    def removed_to(self) -> int:
        """The number up to which an acknowledged message is removed at once; 0 where the log is kept."""
        return 0 if self.settings.keeps_log else self.read_to

    def has_assigned(self, sequence_number: int) -> bool:
        """Return whether a sequence number is one of this queue's."""
        return sequence_number >> limits.SEQUENCE_BITS == self.number and sequence_number != first_number(self.number)
