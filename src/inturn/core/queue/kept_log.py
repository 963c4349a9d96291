"""Rules of a kept log: which acknowledged messages may be removed, and where a time is in the log.

1. Every message of a queue is in its log, acknowledged or not, in the order of the sequence numbers. An acknowledged
   one stays until it is removable. Without ``keep_for`` and ``keep_bytes`` that is once every reader has passed it.
2. With ``keep_for`` it is also older than that, counted from its send. With ``keep_bytes`` it may instead lie before
   that many bytes of newer bodies. With both, the limit that is reached first counts.
3. A message that a reader has not read yet is not removable.
4. The log is removed from its beginning. A receive removes at most ``limits.EXPIRE_AT_ONCE`` messages, before it
   selects messages, and stops at the first acknowledged message that is not removable.
5. Bodies are measured in blocks of ``limits.LOG_BLOCK`` sequence numbers, one block in a receive, once the block is
   full. So the log keeps up to two blocks more than ``keep_bytes``, never less.
6. A message that is moved to another queue stays in the log of the first one, like an acknowledged message. If it
   returns to its old place, the log contains it once. A purge, a cancellation and the end of ``retention_s`` remove
   messages from the log.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo, StoredMessage


class LogSpan(NamedTuple):
    """A part of a log.

    Attributes:
        after: the sequence number before the first message.
        up_to: the last sequence number; None: the end of the log.
        group: messages of this group only.
        first_revision: messages of the group that have at least this revision; those without one are left out.
        last_revision: messages of the group that have at most this revision; those without one are left out.
    """

    after: int = 0
    up_to: int | None = None
    group: str | None = None
    first_revision: int | None = None
    last_revision: int | None = None

    def has(self, entry: StoredMessage) -> bool:
        """Return whether a message is in this part."""
        number, revision = entry.sequence_number, entry.revision
        return (
            number > self.after
            and (self.up_to is None or number <= self.up_to)
            and self.group in {None, entry.group}
            and (self.first_revision is None or (revision is not None and revision >= self.first_revision))
            and (self.last_revision is None or (revision is not None and revision <= self.last_revision))
        )


class LogEntry(NamedTuple):
    """A message of a log.

    Attributes:
        message: the stored message.
        is_done: whether it has left the queue: acknowledged, or moved to another one.
    """

    message: StoredMessage
    is_done: bool


class LogBlock(NamedTuple):
    """A full block of a log: its last sequence number, and the bytes of its bodies when it was measured."""

    last: int
    bytes: int


class Removable(NamedTuple):
    """The acknowledged messages of a log that may be removed.

    Attributes:
        read_to: no message after this number.
        sent_ms: those sent until then; None: no limit by time.
        last: those up to this number; None: no limit by size.
    """

    read_to: int
    sent_ms: int | None = None
    last: int | None = None

    def has(self, number: int, sent_ms: int) -> bool:
        """Return whether an acknowledged message may be removed."""
        if number > self.read_to:
            return False
        if self.sent_ms is None and self.last is None:
            return True
        return (self.sent_ms is not None and sent_ms <= self.sent_ms) or (self.last is not None and number <= self.last)


def removable(queue: QueueInfo, blocks: Sequence[LogBlock], now_ms: int) -> Removable:
    """Return the acknowledged messages of a queue that may be removed now; ``blocks`` are measured, in order."""
    read_to = min(queue.readers.values(), default=queue.number_range[1])
    keep_ms, keep_bytes = queue.settings.keep_ms, queue.settings.keep_bytes
    return Removable(
        read_to,
        None if keep_ms is None else now_ms - keep_ms,
        None if keep_bytes is None else before_bytes(blocks, keep_bytes),
    )


def before_bytes(blocks: Sequence[LogBlock], keep_bytes: int) -> int:
    """Return the last number of the newest block after which there are so many bytes; 0: no such block exists."""
    later_bytes = 0
    for last, size in reversed(blocks):
        if later_bytes >= keep_bytes:
            return last
        later_bytes += size
    return 0


def next_block(queue: QueueInfo, measured: int | None, first: int | None) -> tuple[int, int] | None:
    """Return the number before the next block to measure, and its last number; None: there is no message.

    Args:
        queue: the queue.
        measured: last number of the newest measured block; None: none was measured.
        first: the first sequence number in the log; None: it is empty.
    """
    if measured is None:
        if first is None:
            return None
        measured = first - 1 - (first - 1 - queue.number_range[0]) % limits.LOG_BLOCK
    return measured, measured + limits.LOG_BLOCK


def find_time(queue: QueueInfo, at_ms: int, probe: Callable[[int], tuple[int, int] | None]) -> int:
    """Return the number before the first message that was sent at a time or later; the last number if there is none.

    It is found by bisection. Where clocks were set back, or messages have returned to an old place, times do not rise
    with the numbers; the result is then one of the places where earlier and later messages meet.

    Args:
        queue: the queue.
        at_ms: the time.
        probe: returns number and time of the first message after a number; None: there is none.
    """
    before, after = (
        queue.number_range[0],
        queue.last,
    )  # what is up to `before` was sent earlier; what is behind `after`, not
    while before < after:
        middle = (before + after) // 2
        probed = probe(middle)
        if probed is None or probed[1] >= at_ms:
            after = middle
        else:
            before = probed[0]
    return before
