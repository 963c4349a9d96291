"""The timeline of each grade of order: the place of a message, and the memory of applied messages."""

import hashlib
import heapq
import struct
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.timeline import (
    MARK_BYTES,
    STOPPED,
    Held,
    HeldFrom,
    Key,
    Relation,
    Status,
    Timeline,
    place_mark,
)

if TYPE_CHECKING:
    from inturn.core.pipeline.order import Gapless, Timestamp

ID_BYTES = 16
"""Length of a remembered id: the first 16 bytes of its SHA-256."""
RECORD = struct.Struct(f">{ID_BYTES}s{MARK_BYTES}sq")
"""One remembered message: id or number, digest, turn."""


class GaplessTimeline(Timeline):
    """A timeline of ``Gapless``.

    ``memory`` has 8 bytes for each of the last revisions up to ``reached``, zeros where one was skipped.
    """

    __slots__ = ()
    order: "Gapless"
    _BLANK: ClassVar = bytes(MARK_BYTES)

    def next(self) -> int:
        """Return the next revision to apply."""
        return self.order.least if self.reached is None else self.reached + 1

    @override
    def begin(self, entry: TimelineEntry) -> None:
        if self.order.begins_anywhere:
            self.reached = entry.position - 1

    def key(self, entry: TimelineEntry) -> Key:
        return (entry.epoch, entry.position)

    def conflict_place(self, entry: TimelineEntry) -> bytes:
        return place_mark(entry.epoch, entry.position)

    def identity(self, entry: TimelineEntry) -> Hashable:
        return self.key(entry)

    def waiting(self, entry: TimelineEntry) -> TimelineEntry | None:
        return self.held.get(self.key(entry))

    def relation(self, entry: TimelineEntry) -> Relation:
        held = self.held.get((entry.epoch, entry.position))
        if held is not None:
            return Relation.COPY if held.digest == entry.digest else Relation.OTHER
        if entry.epoch != (self.epoch or 0):
            return Relation.FORGOTTEN if entry.epoch < (self.epoch or 0) else Relation.AHEAD
        distance = entry.position - self.next()
        if distance >= 0:
            return Relation.NEXT if distance == 0 else Relation.AHEAD
        if self.skipped and self.is_skipped(entry.position):
            return Relation.SKIPPED
        start = len(self.memory) + distance * MARK_BYTES
        if start < 0:
            return Relation.FORGOTTEN
        return Relation.COPY if self.memory[start : start + MARK_BYTES] == entry.digest[:MARK_BYTES] else Relation.OTHER

    def ready(self) -> TimelineEntry | None:
        if self.parked in STOPPED or not self.held:
            return None
        return self.held.pop((self.epoch or 0, self.next()), None)

    def record_applied(self, entry: TimelineEntry) -> None:
        self.advance(1, entry.digest[:MARK_BYTES])
        if self.parked is Status.GAP:
            self.parked = self.error = None

    def advance(self, count: int, marks: bytes) -> None:
        """Record ``count`` applied revisions in a row; ``marks`` are the first bytes of the last ones' digests."""
        self.reached = self.next() - 1 + count
        if len(marks) != count * MARK_BYTES:
            self.memory = b""
        self._append(marks)

    def _append(self, marks: bytes) -> None:
        """Extend the memory in place: copying all of it for each message would cost quadratic time."""
        if not isinstance(self.memory, bytearray):
            self.memory = bytearray(self.memory)
        self.memory += marks

    def trim(self) -> None:
        self.memory = bytes(self.memory[-limits.REMEMBERED_REVISIONS * MARK_BYTES :])
        if self.conflicts or self._reported:
            oldest = self.next() - len(self.memory) // MARK_BYTES
            self.forget_conflicts(place_mark(self.epoch or 0, oldest))
            super().trim()

    @override
    def gaps(self) -> list[tuple[int, int, int]]:
        keys = sorted(self.held)
        since = [self.held[key].since_us or 0 for key in keys]
        oldest = list(accumulate(reversed(since), min))[::-1]
        gaps, missing = [], self.next()
        for key, waited in zip(keys, oldest, strict=True):
            revision = self.held[key].position
            if revision > missing:
                gaps.append((missing, revision - 1, waited))
            missing = revision + 1
        return gaps

    @override
    def skip(self, first: int, last: int) -> None:
        self.skipped.append((first, last))
        self.reached = last
        # Beyond the limit the blanks would push out all remembered revisions anyway.
        blanks = min(last - first + 1, limits.REMEMBERED_REVISIONS)
        if blanks < last - first + 1:
            self.memory = b""
        self._append(self._BLANK * blanks)

    @override
    def drop(self, entry: TimelineEntry) -> None:
        self.remove_held(entry)
        self.skip(entry.position, entry.position)

    @override
    def may_release(self, entries: Sequence[TimelineEntry]) -> bool:
        due, epoch = self.next(), self.epoch or 0
        return super().may_release(entries) and any(entry.position == due or entry.epoch != epoch for entry in entries)

    @override
    def releases_first(self, entries: Sequence[TimelineEntry]) -> bool:
        return all(entry.epoch == (self.epoch or 0) for entry in entries)

    @override
    def releasable(self, entries: Sequence[TimelineEntry], held_from: HeldFrom[Held]) -> Iterator[Held]:
        epoch, due = self.epoch or 0, self.next()
        coming = {entry.position for entry in entries}
        for held in held_from((epoch, due, "", "")):
            while due in coming and due < held.position:
                due += 1
            if held.epoch != epoch or held.position > due:
                return
            due = held.position + 1
            yield held


class KeyedTimeline(Timeline):
    """A timeline that remembers applied messages by key; ``memory`` is one :data:`RECORD` for each, oldest first."""

    __slots__ = ("_known", "_waiting")

    def __post_init__(self) -> None:
        super().__post_init__()
        # An OrderedDict finds its oldest entry at once; a dict has to pass over all entries removed before it.
        records = RECORD.iter_unpack(memoryview(self.memory)[self.records_at() :])
        self._known = OrderedDict((mark, (known, position)) for mark, known, position in records)
        self._waiting: dict[bytes, TimelineEntry] = {}

    def records_at(self) -> int:
        """Return where the records begin in ``memory``."""
        return 0

    def mark(self, entry: TimelineEntry) -> bytes:
        """Return the 16 bytes that identify the message."""
        return hashlib.sha256((entry.id or "").encode("utf-8", "surrogatepass")).digest()[:ID_BYTES]

    def identity(self, entry: TimelineEntry) -> Hashable:
        return self.mark(entry)

    def waiting(self, entry: TimelineEntry) -> TimelineEntry | None:
        return self._waiting.get(self.mark(entry))

    @override
    def report_conflict(self, entry: TimelineEntry) -> bool:
        is_new = super().report_conflict(entry)
        if self._reported is not None and len(self._reported) > limits.REMEMBERED_CONFLICTS:
            # At once, as the messages: the cut between steps must not decide which copy is reported again.
            self._reported.discard(min(self._reported))
        return is_new

    def conflict_place(self, entry: TimelineEntry) -> bytes:
        return self.mark(entry)

    def recall(self, entry: TimelineEntry) -> Relation | None:
        """Return whether an applied or held message of this identity has the same content, or None if there is none."""
        mark = self.mark(entry)
        if mark in self._known:
            same = self._known[mark][0] == entry.digest[:MARK_BYTES]
        elif mark in self._waiting:
            same = self._waiting[mark].digest == entry.digest
        else:
            return None
        return Relation.COPY if same else Relation.OTHER

    def restore(self, entry: TimelineEntry) -> None:
        super().restore(entry)
        self._waiting[self.mark(entry)] = entry

    def remove_held(self, entry: TimelineEntry) -> None:
        super().remove_held(entry)
        del self._waiting[self.mark(entry)]

    def give_up(self, error: str) -> list[TimelineEntry]:
        self._waiting = {}
        return super().give_up(error)

    def record_applied(self, entry: TimelineEntry) -> None:
        self._known[self.mark(entry)] = (entry.digest[:MARK_BYTES], entry.position)

    def forget_oldest(self) -> None:
        """Forget the message that was applied first, and its conflicts where their place is its mark."""
        mark, _ = self._known.popitem(last=False)
        if self._reported:
            self._reported = {place for place in self._reported if not place.startswith(mark)}

    def begin_epoch(self, epoch: int) -> list[TimelineEntry]:
        lost = super().begin_epoch(epoch)
        self._known.clear()
        for entry in lost:
            del self._waiting[self.mark(entry)]
        return lost

    def trim(self) -> None:
        super().trim()
        self.memory = b"".join(RECORD.pack(mark, known, position) for mark, (known, position) in self._known.items())

    def pop(self) -> TimelineEntry:
        """Remove and return the held message whose key ``first`` returned last."""
        entry = self.held.pop(heapq.heappop(self._heap))
        del self._waiting[self.mark(entry)]
        return entry


class RisingTimeline(KeyedTimeline):
    """A timeline in which any place above the greatest one, applied or held, is next; lower ones are old."""

    __slots__ = ()

    def is_above(self, entry: TimelineEntry) -> bool:
        """Return whether a message of the current epoch is above the greatest place seen."""
        raise NotImplementedError

    def relation(self, entry: TimelineEntry) -> Relation:
        if entry.epoch < (self.epoch or 0):
            return Relation.FORGOTTEN
        if entry.epoch > (self.epoch or 0):
            held = self.held.get(self.key(entry))
            return Relation.AHEAD if held is None else Relation.COPY if held.digest == entry.digest else Relation.OTHER
        return Relation.NEXT if self.is_above(entry) else self.recall(entry) or Relation.FORGOTTEN

    def record_applied(self, entry: TimelineEntry) -> None:
        super().record_applied(entry)
        self._forget()

    def _forget(self) -> None:
        """Forget the oldest at once: the cut between steps must not decide what is a conflict."""
        if len(self._known) > limits.REMEMBERED_REVISIONS:
            self.forget_oldest()

    def ready(self) -> TimelineEntry | None:
        # Messages of a later epoch, held by a failed group, wait until that epoch begins.
        key = None if self.parked else self.first()
        return None if key is None or key[0] != (self.epoch or 0) else self.pop()


class MonotoneTimeline(RisingTimeline):
    """A timeline of ``Monotone``; ``reached`` is the greatest number seen."""

    __slots__ = ("_greatest",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._greatest: dict[int, int] = {}  # of the held messages, by epoch

    def mark(self, entry: TimelineEntry) -> bytes:
        return self._mark(entry.epoch, entry.position)

    def conflict_place(self, entry: TimelineEntry) -> bytes:
        return place_mark(entry.epoch, entry.position)

    @staticmethod
    def _mark(epoch: int, position: int) -> bytes:
        return struct.pack(">qq", epoch, position)

    def key(self, entry: TimelineEntry) -> Key:
        return (entry.epoch, entry.position)

    def is_above(self, entry: TimelineEntry) -> bool:
        return self.reached is None or entry.position > self.reached

    def record_seen(self, entry: TimelineEntry) -> None:
        if entry.epoch == (self.epoch or 0):
            self.reached = entry.position if self.reached is None else max(self.reached, entry.position)

    def begin_epoch(self, epoch: int) -> list[TimelineEntry]:
        lost = super().begin_epoch(epoch)
        self.reached = self._greatest.pop(epoch, None)
        return lost

    def restore(self, entry: TimelineEntry) -> None:
        super().restore(entry)
        self._greatest[entry.epoch] = max(entry.position, self._greatest.get(entry.epoch, entry.position))

    def advance(self, entries: Iterable[tuple[int, bytes]]) -> None:
        """Record that numbers with their digests, rising from ``reached``, were applied."""
        for position, digest in entries:
            self._known[self._mark(self.epoch or 0, position)] = (digest[:MARK_BYTES], position)
            self._forget()
            self.reached = position

    @override
    def trim(self) -> None:
        if self._known:
            oldest = min(position for _, position in self._known.values())
            self.forget_conflicts(place_mark(self.epoch or 0, oldest))
        super().trim()


class TimestampTimeline(KeyedTimeline):
    """A timeline of ``Timestamp``.

    ``reached`` is the greatest time seen, in microseconds; the watermark is that less the lateness. Closing the input
    advances both by the lateness, and so does a group that is idle.
    """

    __slots__ = ()
    order: "Timestamp"

    @override
    def since_us(self) -> int | None:
        """Return when the newest held message arrived: each message restarts the wait."""
        times = [entry.since_us for entry in self.held.values() if entry.since_us is not None]
        return max(times) if times and self.parked is None else None

    @override
    def close(self) -> None:
        if self.reached is not None and self.held and not self.parked:
            greatest = max(entry.position for entry in self.held.values())
            self.reached = max(self.reached, min(greatest + self.order.lateness_us, limits.REVISION))

    def watermark(self) -> int | None:
        """Return the time, in microseconds, below which a message is late; None before the first message."""
        return None if self.reached is None else self.reached - self.order.lateness_us

    def key(self, entry: TimelineEntry) -> Key:
        return (entry.position, entry.tie, entry.id or "")

    def relation(self, entry: TimelineEntry) -> Relation:
        known = self.recall(entry)
        if known is not None:
            return known
        watermark = self.watermark()
        return Relation.LATE if watermark is not None and entry.position < watermark else Relation.AHEAD

    def record_seen(self, entry: TimelineEntry) -> None:
        self.reached = entry.position if self.reached is None else max(self.reached, entry.position)

    def ready(self) -> TimelineEntry | None:
        key, watermark = None if self.parked else self.first(), self.watermark()
        if key is None or watermark is None:
            return None
        return self.pop() if isinstance(key[0], int) and key[0] <= watermark else None

    def record_applied(self, entry: TimelineEntry) -> None:
        super().record_applied(entry)
        # At the watermark itself a copy would still be accepted, so only what lies below it may be forgotten.
        watermark = self.watermark()
        while len(self._known) > limits.REMEMBERED_IDS:
            oldest = next(iter(self._known))
            if watermark is None or self._known[oldest][1] >= watermark:
                break
            self.forget_oldest()

    @override
    def releases_first(self, entries: Sequence[TimelineEntry]) -> bool:  # noqa: ARG002 - an override
        return True

    @override
    def releasable(self, entries: Sequence[TimelineEntry], held_from: HeldFrom[Held]) -> Iterator[Held]:
        times = [entry.position for entry in entries]
        greatest = max(times if self.reached is None else [self.reached, *times], default=None)
        for held in held_from((0, limits.FIRST_TURN, "", "")):
            if greatest is None or held.position > greatest - self.order.lateness_us:
                return
            yield held
