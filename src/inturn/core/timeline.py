"""The rules of one timeline: given where a group stands, what is a message to it?

The rule is a table, :data:`TABLE`: (status of the group, place of the message) to verdict. A grade of order
decides only the place, in :mod:`inturn.core.grades`. Everything else in inturn, the Spark kernel among it, is held to
these files by property tests. No clock, no I/O: a runner tells the time and keeps the messages.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum

from inturn.core import limits
from inturn.core.message import Entry
from inturn.core.order import Order

Key = tuple[int | str, ...]
MARK_BYTES = 8
"""Of a remembered message the first 8 bytes of its digest are kept."""


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
        memory: digests of what was applied, packed; see the subclasses.
        skipped: the skipped ranges of revisions, first and last.
        parked: None, ``gap``, ``failed`` or ``given up``.
        error: why it is parked, in words, with the traceback.
        held: the messages that wait, by their key.
    """

    order: Order
    epoch: int | None = None
    reached: int | None = None
    memory: bytes = b""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    parked: Status | None = None
    error: str | None = None
    held: dict[Key, Entry] = field(default_factory=dict)

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
        lost = [self.held.pop(key) for key in sorted(self.held) if self.held[key].epoch < epoch]
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
        self.parked, self.error = Status.FAILED, error[-limits.ERROR_LENGTH :]
        self.hold(entry, now_us)

    def give_up(self, error: str) -> list[Entry]:
        """Park the group for good; returns what it held."""
        lost = [self.held.pop(key) for key in sorted(self.held)]
        self.parked, self.error = Status.GIVEN_UP, error
        return lost

    def head(self) -> Entry:
        """The first held message; in a failed group the one that is tried next."""
        return self.held[min(self.held)]

    def since_us(self) -> int | None:
        """Since when the group waits; None if it does not wait or is parked."""
        times = [entry.since_us for entry in self.held.values() if entry.since_us is not None]
        return min(times) if times and self.parked is None else None

    def later(self) -> int | None:
        """The next epoch among what is held, which a failed group has kept back; None while the group is parked."""
        later = (entry.epoch for entry in self.held.values() if entry.epoch > (self.epoch or 0))
        return None if self.parked else min(later, default=None)

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
        self.held[self.key(entry)] = entry

    def take(self, entry: Entry) -> None:
        """Take out a held message, whether or not its turn has come."""
        del self.held[self.key(entry)]

    @abstractmethod
    def settle(self) -> None:
        """The step ends: forget what is beyond the limits."""
