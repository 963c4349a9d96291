"""The rules of one timeline: given where a group stands, what is a message to it?

The rule is a table, :data:`TABLE`: (status of the group, place of the message) to verdict. A grade of order
decides only the place, in :mod:`inturn.core.grades`. Everything else in inturn, the Spark kernel among it, is held to
these files by property tests. No clock, no I/O: a runner tells the time and keeps the messages.
"""

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter

from inturn.core.message import Entry
from inturn.core.order import Order
from inturn.core.texts import kept_error, storable

Key = tuple[int | str, ...]
MARK_BYTES = 8
"""Of a remembered message the first 8 bytes of its digest are kept."""


_SPARE = 64
"""So many keys of messages that are held no more are never worth a clean-up."""


class Status(StrEnum):
    """Where a group stands."""

    OPEN = "open"
    WAITING = "waiting"  # something is held until its predecessor, or a later message, comes
    GAP = "gap"  # parked: a gap outlived its wait
    FAILED = "failed"  # parked: the handler raised
    GIVEN_UP = "given up"  # parked for good: a person decided so


class Place(StrEnum):
    """Where a message lies, seen from its group."""

    NEXT = "next"
    AHEAD = "ahead"
    COPY = "copy"  # known, same content
    OTHER = "other"  # known, other content
    FORGOTTEN = "forgotten"  # behind, and no longer remembered
    SKIPPED = "skipped"  # in a gap that was skipped
    LATE = "late"  # below the watermark


class Verdict(StrEnum):
    """What becomes of a message."""

    APPLY = "apply"
    EARLY = "early"  # held until its turn comes
    BEHIND = "behind"  # held behind a parked message
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    STALE = "stale"
    SKIPPED = "skipped"
    LATE = "late"
    GIVEN_UP = "given up"


_KNOWN = {
    Place.COPY: Verdict.DUPLICATE,
    Place.OTHER: Verdict.CONFLICT,
    Place.FORGOTTEN: Verdict.STALE,
    Place.SKIPPED: Verdict.SKIPPED,
    Place.LATE: Verdict.LATE,
}
_RUNNING = {Place.NEXT: Verdict.APPLY, Place.AHEAD: Verdict.EARLY, **_KNOWN}

TABLE: dict[Status, dict[Place, Verdict]] = {
    Status.OPEN: _RUNNING,
    Status.WAITING: _RUNNING,
    # A group that a gap parked goes on by itself if the predecessor comes after all.
    Status.GAP: {Place.NEXT: Verdict.APPLY, Place.AHEAD: Verdict.BEHIND, **_KNOWN},
    # One that an error parked goes on only by a decision.
    Status.FAILED: {Place.NEXT: Verdict.BEHIND, Place.AHEAD: Verdict.BEHIND, **_KNOWN},
    # One that was given up never goes on.
    Status.GIVEN_UP: {Place.NEXT: Verdict.GIVEN_UP, Place.AHEAD: Verdict.GIVEN_UP, **_KNOWN},
}

STOPPED = (Status.FAILED, Status.GIVEN_UP)
"""No message moves such a group."""


@dataclass(slots=True)
class Timeline(ABC):
    """One group's place in its order: what was applied, what is remembered, what is held.

    Attributes:
        order: the grade.
        epoch: the current epoch; 0 where the order has none.
        reached: how far the group is: the last revision applied or skipped, the greatest number or time seen, or
            the count of arrivals. None before the first message.
        memory: digests of what was applied, packed; see the subclasses. Within a step it may be a buffer that grows in
            place, so that a message costs the same however many came before it.
        skipped: the skipped ranges of revisions, first and last.
        parked: None, ``gap``, ``failed`` or ``given up``.
        error: why it is parked, in words, with the traceback.
        held: the messages that wait, by their key.
        beside: how many messages a store remembers beside ``memory``; it puts back those that are asked for.
    """

    order: Order
    epoch: int | None = None
    reached: int | None = None
    memory: bytes | bytearray = b""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    parked: Status | None = None
    error: str | None = None
    held: dict[Key, Entry] = field(default_factory=dict)
    beside: int = 0
    _heap: list[Key] = field(default_factory=list, init=False, repr=False, compare=False)
    """The keys of what is held, and of some messages that were."""

    def __post_init__(self) -> None:
        """For the orders that keep more than these fields."""

    @property
    def status(self) -> Status:
        """Where the group stands."""
        return self.parked or (Status.WAITING if self.held else Status.OPEN)

    def judge(self, entry: Entry) -> Verdict:
        """The verdict on a message; nothing changes."""
        return TABLE[self.status][self.place(entry)]

    def renews(self, entry: Entry) -> bool:
        """Whether the message's higher epoch starts the timeline again; a failed group waits for a decision first."""
        return self.parked not in STOPPED and self.epoch is not None and entry.epoch > self.epoch

    def renew(self, epoch: int) -> list[Entry]:
        """Start again in ``epoch``; returns what was held of the epochs before: too late to be applied."""
        lost = []
        while (key := self.first()) is not None and self.held[key].epoch < epoch:
            lost.append(self.held.pop(key))
        self.epoch, self.reached, self.memory, self.skipped = epoch, None, b"", []
        self.parked = self.error = None
        return lost

    def hold(self, entry: Entry, now_us: int) -> None:
        """Keep a message until its turn; ``now_us`` is the step's time."""
        if entry.since_us is None:
            entry.since_us = now_us
        self.restore(entry)

    def park(self, entry: Entry, error: str, now_us: int) -> None:
        """The handler raised on this message: it stays at the head, what comes behind it queues."""
        self.parked, self.error = Status.FAILED, kept_error(error)
        self.hold(entry, now_us)

    def give_up(self, error: str) -> list[Entry]:
        """Park the group for good; returns what it held."""
        lost = [self.held.pop(key) for key in sorted(self.held)]
        self._heap = []
        self.parked, self.error = Status.GIVEN_UP, storable(error)
        return lost

    def head(self) -> Entry:
        """The first held message; in a failed group the one that is tried next."""
        return self.held[min(self.held)]

    def first(self) -> Key | None:
        """The key of the first held message; None if none is held."""
        if not self.held:
            self._heap.clear()
            return None
        while self._heap[0] not in self.held:  # it was taken out of turn
            heapq.heappop(self._heap)
        return self._heap[0]

    def since_us(self) -> int | None:
        """Since when the group waits; None if it does not wait or is parked."""
        times = [entry.since_us for entry in self.held.values() if entry.since_us is not None]
        return min(times) if times and self.parked is None else None

    def later(self) -> list[int]:
        """The epochs after the current one among what is held, in order; a failed group has kept them back."""
        return sorted({entry.epoch for entry in self.held.values() if entry.epoch > (self.epoch or 0)})

    @abstractmethod
    def place(self, entry: Entry) -> Place:
        """Where the message lies."""

    @abstractmethod
    def key(self, entry: Entry) -> Key:
        """The key under which a held message is kept; keys sort in the order of application."""

    @abstractmethod
    def ready(self) -> Entry | None:
        """Take out the held message whose turn it is, if there is one and the group is not parked."""

    @abstractmethod
    def applied(self, entry: Entry) -> None:
        """The message was applied: go forward and remember it."""

    def see(self, entry: Entry) -> None:
        """A message was accepted, applied or held: note how far the group has been seen. Most orders need not."""

    def restore(self, entry: Entry) -> None:
        """Put a held message back as it was stored."""
        key = self.key(entry)
        self.held[key] = entry
        heapq.heappush(self._heap, key)
        if len(self._heap) > 2 * len(self.held) + _SPARE:
            self._heap = sorted(self.held)

    def is_skipped(self, revision: int) -> bool:
        """Whether a revision lies in a gap that was skipped; these were skipped in their order."""
        at = bisect_right(self.skipped, revision, key=itemgetter(0))
        return at > 0 and revision <= self.skipped[at - 1][1]

    def take(self, entry: Entry) -> None:
        """Take out a held message, whether or not its turn has come."""
        del self.held[self.key(entry)]

    @abstractmethod
    def settle(self) -> None:
        """The step ends: forget what is beyond the limits."""
