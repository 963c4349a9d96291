"""The rules of one timeline: the verdict on a message, given the status of its group.

The rule is a table, :data:`TABLE`: (status of the group, place of the message) to verdict. A grade of order decides
only the place, in :mod:`inturn.core.pipeline.grades`. Property tests check the rest of inturn, the Spark kernel
included, against these files. There is no clock and no I/O: a runner supplies the time and keeps the messages.
"""

import heapq
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from inturn.core import limits
from inturn.core.identity import HeldKey, TimelineEntry
from inturn.core.texts import kept_error, storable

if TYPE_CHECKING:
    from inturn.core.pipeline.order import Order

Key = tuple[int | str, ...]
MARK_BYTES = 8
"""Length of a remembered digest: its first 8 bytes."""
PLACE_BYTES = 16
"""Length of a place in the memory of conflicts; see :meth:`Timeline.conflict_place`."""
Remembered = tuple[bytes, bytes, int]
"""One message that a store remembers in addition to a timeline: id or number, digest, position."""

_SPARE = 64
"""Number of outdated keys up to which there is no clean-up."""


_NUMBERS = struct.Struct(">QQ")
_ZERO = 2**63


def place_mark(epoch: int, position: int | None) -> bytes:
    """Return the mark of an epoch and a signed 64-bit number; None: a mark before all others of the epoch."""
    return _NUMBERS.pack(epoch + _ZERO, 0 if position is None else position + _ZERO)


class Status(StrEnum):
    """The statuses of a group."""

    OPEN = "open"
    WAITING = "waiting"  # a message is held until its predecessor, or a later message, arrives
    GAP = "gap"  # parked: the wait for a gap has expired
    FAILED = "failed"  # parked: the handler raised
    GIVEN_UP = "given up"  # parked for good, by an operator's decision


class Relation(StrEnum):
    """The places of a message relative to its group."""

    NEXT = "next"
    AHEAD = "ahead"
    COPY = "copy"  # known, same content; or the content of a conflict that was reported
    OTHER = "other"  # known, other content
    FORGOTTEN = "forgotten"  # before the reached place, and no longer remembered
    SKIPPED = "skipped"  # in a gap that was skipped
    LATE = "late"  # below the watermark


class TimelineVerdict(StrEnum):
    """The verdicts on a message."""

    APPLY = "apply"
    EARLY = "early"  # held until its turn comes
    BEHIND = "behind"  # held after a parked message
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    STALE = "stale"
    SKIPPED = "skipped"
    LATE = "late"
    GIVEN_UP = "given up"


_KNOWN = {
    Relation.COPY: TimelineVerdict.DUPLICATE,
    Relation.OTHER: TimelineVerdict.CONFLICT,
    Relation.FORGOTTEN: TimelineVerdict.STALE,
    Relation.SKIPPED: TimelineVerdict.SKIPPED,
    Relation.LATE: TimelineVerdict.LATE,
}
_RUNNING = {Relation.NEXT: TimelineVerdict.APPLY, Relation.AHEAD: TimelineVerdict.EARLY, **_KNOWN}

TABLE: dict[Status, dict[Relation, TimelineVerdict]] = {
    Status.OPEN: _RUNNING,
    Status.WAITING: _RUNNING,
    # A group parked by a gap continues automatically if the predecessor still arrives.
    Status.GAP: {Relation.NEXT: TimelineVerdict.APPLY, Relation.AHEAD: TimelineVerdict.BEHIND, **_KNOWN},
    # A group parked by an error continues only after a decision.
    Status.FAILED: {Relation.NEXT: TimelineVerdict.BEHIND, Relation.AHEAD: TimelineVerdict.BEHIND, **_KNOWN},
    # A group that was given up never continues.
    Status.GIVEN_UP: {Relation.NEXT: TimelineVerdict.GIVEN_UP, Relation.AHEAD: TimelineVerdict.GIVEN_UP, **_KNOWN},
}

STOPPED = (Status.FAILED, Status.GIVEN_UP)
"""The statuses in which no message advances a group."""


class HeldPlace(Protocol):
    """A held message as a store has it."""

    @property
    def epoch(self) -> int:
        """The epoch."""

    @property
    def position(self) -> int:
        """The place in the order."""


Held = TypeVar("Held", bound=HeldPlace)
HeldFrom = Callable[[HeldKey], Iterator[Held]]
"""A function that yields the held messages from a spot on, in the order of the spots."""


@dataclass(slots=True)
class Timeline(ABC):
    """The position of one group in its order: applied, remembered and held messages.

    Attributes:
        order: grade of order.
        epoch: current epoch; 0 where the order has none.
        reached: the last revision applied or skipped, the greatest number or time seen, or the count of arrivals. None
            before the first message.
        memory: digests of applied messages, packed; see the subclasses. Within a step it may be a buffer that grows in
            place, so that the cost of a message does not depend on the number of earlier ones.
        skipped: skipped ranges of revisions, first and last.
        parked: None, ``gap``, ``failed`` or ``given up``.
        error: why it is parked, in words, with the traceback.
        held: messages that wait, by their key.
        external_ids: number of messages that a store remembers in addition to ``memory``; it restores the needed ones.
        conflicts: the conflicting contents that were reported, at the end of a step: for each the mark of its place and
            the first 8 bytes of its digest, sorted and joined.
    """

    order: "Order"
    epoch: int | None = None
    reached: int | None = None
    memory: bytes | bytearray = b""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    parked: Status | None = None
    error: str | None = None
    held: dict[Key, TimelineEntry] = field(default_factory=dict)
    external_ids: int = 0
    conflicts: bytes = b""
    _heap: list[Key] = field(default_factory=list, init=False, repr=False, compare=False)
    """The keys of held messages, and of some that are no longer held."""
    _reported: set[bytes] | None = field(default=None, init=False, repr=False, compare=False)
    """``conflicts`` within a step, one by one; None in the usual case of no conflicts."""

    def __post_init__(self) -> None:
        """Set up further fields; orders that have some extend it."""
        if self.conflicts:
            size = PLACE_BYTES + MARK_BYTES
            self._reported = {self.conflicts[start : start + size] for start in range(0, len(self.conflicts), size)}

    @property
    def status(self) -> Status:
        """The status of the group."""
        return self.parked or (Status.WAITING if self.held else Status.OPEN)

    def verdict(self, entry: TimelineEntry) -> TimelineVerdict:
        """Return the verdict on a message; nothing changes."""
        position = self.relation(entry)
        if position is Relation.OTHER and self._reported and self._conflict(entry) in self._reported:
            position = Relation.COPY
        return TABLE[self.status][position]

    def report_conflict(self, entry: TimelineEntry) -> bool:
        """Remember a conflict; return whether it is new. If not, the message is a copy of one that was reported."""
        conflict, known = self._conflict(entry), self._reported or set()
        if conflict in known:
            return False
        known.add(conflict)
        self._reported = known
        return True

    def _conflict(self, entry: TimelineEntry) -> bytes:
        return self.conflict_place(entry) + entry.digest[:MARK_BYTES]

    def forget_conflicts(self, below: bytes) -> None:
        """Forget the conflicts of places below this mark."""
        if self._reported:
            self._reported = {place for place in self._reported if place >= below}

    def begins_epoch(self, entry: TimelineEntry) -> bool:
        """Return whether the message's higher epoch starts the timeline again.

        A failed group waits for a decision first; a group that was given up never starts again.
        """
        return self.parked not in STOPPED and self.epoch is not None and entry.epoch > self.epoch

    def begin_epoch(self, epoch: int) -> list[TimelineEntry]:
        """Start again in ``epoch``; return the held messages of earlier epochs, which are too late to be applied."""
        lost = []
        while (key := self.first()) is not None and self.held[key].epoch < epoch:
            lost.append(self.held.pop(key))
        self.epoch, self.reached, self.memory, self.skipped = epoch, None, b"", []
        self.forget_conflicts(place_mark(epoch, None))
        self.parked = self.error = None
        if key is not None:  # a failed group has held this epoch's messages back
            self.begin(self.held[key])
        return lost

    def hold(self, entry: TimelineEntry, now_us: int) -> None:
        """Keep a message until its turn; ``now_us`` is the step's time."""
        if entry.since_us is None:
            entry.since_us = now_us
        self.restore(entry)

    def park(self, entry: TimelineEntry, error: str, now_us: int) -> None:
        """Park the group: the handler raised on this message, which stays at the head with later ones behind it."""
        self.parked, self.error = Status.FAILED, kept_error(error)
        self.hold(entry, now_us)

    def give_up(self, error: str) -> list[TimelineEntry]:
        """Park the group for good; return the messages that it held."""
        lost = [self.held.pop(key) for key in sorted(self.held)]
        self._heap = []
        self.parked, self.error = Status.GIVEN_UP, storable(error)
        return lost

    def head(self) -> TimelineEntry:
        """Return the first held message; in a failed group, the message that is tried next."""
        return self.held[min(self.held)]

    def first(self) -> Key | None:
        """Return the key of the first held message; None if none is held."""
        if not self.held:
            self._heap.clear()
            return None
        while self._heap[0] not in self.held:  # it was taken out of turn
            heapq.heappop(self._heap)
        return self._heap[0]

    def since_us(self) -> int | None:
        """Return when the group's wait began; None if it does not wait or is parked."""
        times = [entry.since_us for entry in self.held.values() if entry.since_us is not None]
        return min(times) if times and self.parked is None else None

    def later_epochs(self) -> list[int]:
        """Return the epochs of held messages after the current one, in order; a failed group has held them back."""
        return sorted({entry.epoch for entry in self.held.values() if entry.epoch > (self.epoch or 0)})

    @abstractmethod
    def relation(self, entry: TimelineEntry) -> Relation:
        """Return the place of a message."""

    @abstractmethod
    def conflict_place(self, entry: TimelineEntry) -> bytes:
        """Return the 16 bytes of a message's place in the memory of conflicts; the lowest is dropped first."""

    @abstractmethod
    def identity(self, entry: TimelineEntry) -> Hashable:
        """Return the identity of a message: of two messages with the same identity only one can be applied."""

    @abstractmethod
    def waiting(self, entry: TimelineEntry) -> TimelineEntry | None:
        """Return the held message with the identity of this one; None if there is none."""

    @abstractmethod
    def key(self, entry: TimelineEntry) -> Key:
        """Return the key under which a held message is kept; keys sort in the order of application."""

    @abstractmethod
    def ready(self) -> TimelineEntry | None:
        """Remove and return the next held message to apply, if there is one and the group is not parked."""

    @abstractmethod
    def record_applied(self, entry: TimelineEntry) -> None:
        """Record an applied message: advance and remember it."""

    def begin(self, entry: TimelineEntry) -> None:
        """Note the first message of a group or of an epoch, before it is judged; most orders need not."""

    def record_seen(self, entry: TimelineEntry) -> None:
        """Record how far the group has been seen, for an accepted message, applied or held; most orders need not."""

    def restore(self, entry: TimelineEntry) -> None:
        """Put a held message back as it was stored."""
        key = self.key(entry)
        self.held[key] = entry
        heapq.heappush(self._heap, key)
        if len(self._heap) > 2 * len(self.held) + _SPARE:
            self._heap = sorted(self.held)

    # -- for orders that have gaps, times, or ids without end --------------------------------------------------

    def gaps(self) -> list[tuple[int, int, int]]:
        """Return the gaps before and between held messages: first and last missing revision, start of the wait (µs)."""
        return []

    def skip(self, first: int, last: int) -> None:
        """Skip the missing revisions ``first`` to ``last``; if they arrive later they are rejected as skipped."""
        raise NotImplementedError

    def drop(self, entry: TimelineEntry) -> None:
        """Remove a held message that is never applied; it is remembered as applied, so that a copy is a duplicate."""
        self.remove_held(entry)
        self.record_applied(entry)

    def is_idle(self, now_us: int) -> bool:
        """Return whether no message has arrived for so long that held messages no longer wait for a later one."""
        idle_us = self.order.idle_us
        if idle_us is None:
            return False
        since_us = self.since_us()
        return since_us is not None and now_us - since_us >= idle_us

    def close(self) -> None:
        """Close the input: nothing waits for a later message any longer."""

    def external_marks(self, entries: Iterable[TimelineEntry]) -> list[bytes]:  # noqa: ARG002 - a hook
        """Return the distinct marks of these messages that may be among the ids stored in addition to the timeline."""
        return []

    def add_external(self, remembered: Iterable[Remembered]) -> None:
        """Add ids that are stored in addition to the timeline, until the step ends."""

    def take_external(self) -> list[Remembered]:
        """Remove and return the remembered ids if there are many, for the store to keep; call it after the step."""
        return []

    # -- for a runner that loads only those held messages that new ones may release ----------------------------

    def may_release(self, entries: Sequence[TimelineEntry]) -> bool:  # noqa: ARG002 - a hook
        """Return whether these messages may release held ones; if not, only their copies matter."""
        return self.parked not in STOPPED

    def releases_first(self, entries: Sequence[TimelineEntry]) -> bool:  # noqa: ARG002 - a hook
        """Return whether the messages that these release are the first ones in the order of their spots."""
        return False

    def releasable(self, entries: Sequence[TimelineEntry], held_from: HeldFrom[Held]) -> Iterator[Held]:  # noqa: ARG002
        """Yield the held messages that these may release, if those are the first ones."""
        return iter(())

    def is_skipped(self, revision: int) -> bool:
        """Return whether a revision lies in a skipped gap; gaps are skipped in their order."""
        index = bisect_right(self.skipped, revision, key=itemgetter(0))
        return index > 0 and revision <= self.skipped[index - 1][1]

    def remove_held(self, entry: TimelineEntry) -> None:
        """Remove a held message, in or out of order."""
        del self.held[self.key(entry)]

    def trim(self) -> None:
        """End the step: forget messages and conflicts beyond the limits."""
        if self._reported or self.conflicts:
            last = sorted(self._reported or ())[-limits.REMEMBERED_CONFLICTS :]
            self._reported, self.conflicts = set(last), b"".join(last)
