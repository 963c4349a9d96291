"""The locks of a queue, and the rechecks that transactions leave for the next holders.

Each queue has two rows that one transaction at a time locks, until it ends:

- A transaction that sends, or moves messages in, locks the *numbering* row. So numbers become visible in order and
  without gaps.
- A transaction that receives, or by which a user changes which groups can be received, locks the *receiver* row: it has
  the receiver lock.

So a slow sender does not block receivers, nor a slow receiver senders. A settlement locks only the holds of its
messages. It writes rows to `inturn_recheck`, which the next holder of the receiver lock takes.

The holder never waits for a settlement. It ends an expired hold only if no settlement has it locked. Until then the
hold keeps its group closed, even after its deadline.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.statements import PostgresStatements, Wire

RankedPlace: TypeAlias = tuple[int, int, int]
"""A place in the ready queue, as (number, rank, head); with rank 0 the number is the number of the head."""


class Recheck(NamedTuple):
    """A row of `inturn_recheck`, for the next holder of a receiver lock."""

    group: str | None = None  # to check again for readiness
    number: int | None = None  # of a message without a group, to check again
    removed_count: int = 0  # number of messages that are gone
    due_ms: int | None = None  # when something is due
    returned_ms: int | None = None  # when a user returned the group or message, if so


class ReadyCandidate(NamedTuple):
    """A group, or a message without a group, to check again for readiness."""

    group: str | None
    number: int | None  # of the message without a group
    place: int | None = None  # last sequence number when a user returned it; None: not returned
    at_ms: int | None = None  # when a user returned it; in `add_expired` the deadline that has passed


@dataclass
class ReceiverLock:
    """The locked row of a queue in `inturn_receiver`; see schema.sql."""

    last_token: int
    removed_count: int
    listed_to: int
    messages_from: int
    ready_from: int | None  # None: unchanged
    is_list_complete: bool
    due_ms: int | None
    oldest_ms: int | None  # when the first stored message was sent
    seen: tuple[int, list[int]]  # rechecks of transactions below a number were read, except of unfinished ones
    version: int  # of the row, by which it is found; `save_receiver` increments it
    stored: tuple[Any, ...]  # the row's values in the database
    stored_ready_from: int  # `ready_from` in the database
    has_requeues: bool  # whether any message of the queue was ever nacked; if not, simpler statements suffice
    is_at_end: bool  # whether, by the row in the database, no group with its own place is left
    lead: int = 0  # maximum number of messages by which a group may move ahead; see ready_groups.py
    has_ended: bool = False  # whether none is left now
    is_changed: bool = False  # whether another statement of the transaction has changed the row or the list
    skipped_head: int | None = None  # first head that was skipped and stays listed
    ready_after: RankedPlace | None = None  # no group with a place of its own is left up to here; None: unchanged
    is_place_skipped: bool = False  # whether a group with a place of its own was skipped and stays listed
    candidates: list[ReadyCandidate] = field(default_factory=list)  # in the order in which they became ready

    @property
    def row(self) -> tuple[Any, ...]:
        """The values to write."""
        return (
            self.last_token,
            self.removed_count,
            self.messages_from,
            self.ready_from,
            self.is_list_complete,
            self.due_ms,
        )

    def is_due(self, until_ms: int) -> None:
        """Set the due time of the row to this deadline if it is earlier."""
        self.due_ms = until_ms if self.due_ms is None else min(self.due_ms, until_ms)

    def passed(self, place: RankedPlace, *, is_left: bool) -> None:
        """Record that the ready queue was processed up to a place; ``is_left``: the group there stays listed."""
        number, rank, head = place
        if rank:
            self.is_place_skipped |= is_left
            self.ready_after = self.ready_after if self.is_place_skipped else place
        elif is_left and self.skipped_head is None:
            self.skipped_head = head
        self.ready_from = self.skipped_head or min(number, self.listed_to) + 1

    def is_early(self, number: int) -> bool:
        """Return whether a message that is not listed yet may have a place before one of this number."""
        return number > self.listed_to - self.lead and not self.is_list_complete

    def see_end(self) -> None:
        """Record that only skipped groups are left in the ready queue, so that dead rows are not scanned again."""
        if self.skipped_head is None and (self.ready_from or self.stored_ready_from) <= self.listed_to:
            self.ready_from = self.listed_to + 1
        if self.has_requeues and not self.is_place_skipped:
            self.has_ended = self.is_changed or not self.is_at_end

    def add_candidate(self, number: int | None, group: str | None) -> None:
        """Add a message, or its group, to those to check again."""
        self.candidates.append(ReadyCandidate(group, None if group is not None else number))

    def add_expired(self, expired: Sequence[ReadyCandidate], *, before_nacks: bool) -> None:
        """Add groups with an ended hold or lock, in the order of the deadlines.

        Args:
            expired: the groups; ``at_ms`` is the deadline.
            before_nacks: whether to put each before the groups that a user returned after its deadline.
        """
        merged, begin, rest = [], 0, list(expired)
        for index, nack in enumerate(self.candidates):
            if nack.at_ms is None or not before_nacks:
                continue
            merged += self.candidates[begin:index]
            while rest and (rest[0].at_ms or 0) <= nack.at_ms:
                merged.append(rest.pop(0)._replace(place=nack.place))
            begin = index
        self.candidates = [*merged, *self.candidates[begin:], *rest]


class ReceiverLocks(PostgresStatements):
    """The receiver locks that a transaction takes, and the rechecks that it leaves for the next holders.

    Attributes:
        news: numbers of the queues in which other receivers may find messages after the commit.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.news: set[int] = set()
        self._taken: set[int] = set()

    def begin(self) -> None:
        """Forget the transaction before."""
        self.news.clear()
        self._taken.clear()

    def acquire(self, queue: QueueInfo) -> None:
        """Lock the receiver row until the transaction ends."""
        if queue.number not in self._taken:
            self._taken.add(queue.number)
            self._do("lock_receiver", queue.number)

    def holds(self, queue: QueueInfo) -> bool:
        """Return whether this transaction has locked the receiver row."""
        return queue.number in self._taken

    def add_rechecks(self, queue: QueueInfo, rechecks: Iterable[Recheck]) -> None:
        """Write rechecks for the next holder."""
        rows = list(rechecks)
        if not rows:
            return
        self.news.add(queue.number)
        if any(recheck.returned_ms is not None for recheck in rows):
            self._do("add_returned_rechecks", queue.number, *map(list, zip(*rows, strict=True)))
        else:
            self._do("add_rechecks", queue.number, *map(list, zip(*[recheck[:4] for recheck in rows], strict=True)))

    def notify(self, channel: str) -> None:
        """Notify other processes of the queues in which they may find messages."""
        if self.news:
            self._do("notify", channel, ",".join(map(str, sorted(self.news)[: limits.COMMANDS_AT_ONCE])))
