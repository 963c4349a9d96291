"""The locks of a queue, and the list of groups that can be received.

Each queue has two rows that one transaction at a time locks, until it ends:

- A transaction that sends, or moves messages in, locks the *numbering* row. So numbers become visible in order and
  without gaps.
- A transaction that receives, or changes by hand what can be received, locks the *desk* row. `inturn_ready` holds the
  heads of groups that can be received. Only the holder of the desk changes it.

So a slow sender does not block receivers, nor a slow receiver senders. A send does not change `inturn_ready`: the
holder of the desk *lists* new messages from the log. A settlement locks only the holds of its messages. It writes notes
to `inturn_touched`. The next holder of the desk *draws* the notes and *refreshes* their groups in the order of the
notes. Their places in the line are defined in core/queue/ready_groups.py.

The holder of the desk never waits for a settlement. It ends an expired hold only if no settlement has it locked. Until
then the hold keeps its group closed, whatever the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from inturn.core import limits
from inturn.core.queue import redelivery
from inturn.core.queue.clock_skew import ClockSkew, Span
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import Content, QueueInfo, StoredMessage, first_number
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.incarnations import PostgresIncarnations
from inturn.store.postgres.statements import PostgresStatements, Wire
from inturn.store.protocols import RunAgain

_ENTRY: Final = len(StoredMessage._fields)

Row = Sequence[object]
Held = tuple[int, str | None, DeliveryState]
"""A message's number, its group, and what is known of it."""


class Touch(NamedTuple):
    """A group, or a message without a group, to check again for readiness.

    Attributes:
        group: name of the group; None: a message without a group.
        number: sequence number of the message without a group.
        place: last sequence number of the queue when it was given back by hand; None: it was not.
        at_ms: time when it was given back by hand; in :meth:`ReceiverLock.touch_over` the deadline that has passed.
    """

    group: str | None
    number: int | None
    place: int | None = None
    at_ms: int | None = None


InLine = tuple[int, int, int]
"""A place in the line, as (number, turn, head); with turn 0 the number is that of the head."""

Note = tuple[str | None, int | None, int, int | None, int | None]
"""A note for the next holder of the desk.

It has the group, or the number of a message without one, how many messages are gone, when something is due, and when
the group was given back by hand, if it was.
"""


@dataclass
class ReceiverLock:
    """The locked desk row of a queue; see 0001.sql. ``ready_from`` is None if it is unchanged.

    Attributes:
        version: version of the row, by which it is found; :meth:`ReadyList._keep` increments it.
        kept: the row's values in the database.
        is_changed: whether another statement of the transaction has changed the row or the list.
        left: first head that was skipped and stays listed.
        ready_kept: ``ready_from`` in the database.
        has_back: whether any message of the queue was ever given back; if not, simpler statements suffice.
        line: no group with a place of its own is left up to here; None: unchanged.
        is_line_left: whether a group with a place of its own was skipped and stays listed.
        is_at_end: whether the row in the database says that no group with a place of its own is left.
        has_ended: whether none is left now.
        touched: groups to check again, in the order in which they became ready, if they are.
        oldest_ms: when the first stored message was sent.
        drawn: the transactions whose notes were drawn: all below a number but the listed ones, which had not ended.
    """

    tokens: int
    gone: int
    listed: int
    floor: int
    ready_from: int | None
    ran_out: bool
    due_ms: int | None
    oldest_ms: int | None = None
    drawn: tuple[int, list[int]] = (0, [])
    version: int = 0
    kept: tuple[Any, ...] = ()
    is_changed: bool = False
    ready_kept: int = 0
    left: int | None = None
    has_back: bool = False
    line: InLine | None = None
    is_line_left: bool = False
    is_at_end: bool = False
    has_ended: bool = False
    touched: list[Touch] = field(default_factory=list)

    @property
    def row(self) -> tuple[Any, ...]:
        """The values to write."""
        return self.tokens, self.gone, self.floor, self.ready_from, self.ran_out, self.due_ms

    def is_due(self, until_ms: int) -> None:
        """Set the due time of the desk to this deadline if it is earlier."""
        self.due_ms = until_ms if self.due_ms is None else min(self.due_ms, until_ms)

    def passed(self, place: InLine, *, is_left: bool) -> None:
        """Record that the line was processed up to a place; ``is_left``: the group there stays listed."""
        number, turn, head = place
        if turn:
            self.is_line_left |= is_left
            self.line = self.line if self.is_line_left else place
        elif is_left and self.left is None:
            self.left = head
        self.ready_from = self.left or min(number, self.listed) + 1

    def see_end(self) -> None:
        """Record that only skipped groups are left in the line, so that dead rows are not scanned again."""
        if self.left is None and (self.ready_from or self.ready_kept) <= self.listed:
            self.ready_from = self.listed + 1
        if self.has_back and not self.is_line_left:
            self.has_ended = self.is_changed or not self.is_at_end

    def touch(self, number: int | None, group: str | None) -> None:
        """Add a message, or its group, to those to check again."""
        self.touched.append(Touch(group, None if group is not None else number))

    def touch_over(self, touched: Sequence[Touch], *, before_nacks: bool) -> None:
        """Add groups of which a hold or a lock has ended, in the order of the deadlines.

        Args:
            touched: the groups; ``at_ms`` is the deadline.
            before_nacks: whether to put each before the groups that were given back by hand after its deadline.
        """
        nacks = [(at, each) for at, each in enumerate(self.touched) if each.at_ms is not None] if before_nacks else []
        merged, begin, rest = [], 0, list(touched)
        for at, nack in nacks:
            merged += self.touched[begin:at]
            while rest and (rest[0].at_ms or 0) <= (nack.at_ms or 0):
                merged.append(rest.pop(0)._replace(place=nack.place))
            begin = at
        self.touched = [*merged, *self.touched[begin:], *rest]


class Move(NamedTuple):
    """A message to move to another queue.

    Attributes:
        number: sequence number of the message.
        group: its group.
        origin: sequence number under which it was first sent; None if it was never moved.
        note: reason of the move.
    """

    number: int
    group: str | None
    origin: int | None
    note: str | None


class ReadyList(PostgresStatements):
    """The desks of a database's queues.

    Args:
        wire: wire to the database.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.catalog: Final = PostgresCatalog(wire)
        self.gates: Final = PostgresGroupLocks(wire)
        self.incarnations: Final = PostgresIncarnations(wire)
        self.behind: Final = ClockSkew()
        self._locked: set[int] = set()  # the queues whose desks this transaction has locked
        self._news: set[int] = set()  # the queues in which others may find messages after the commit
        self._idle: set[int] = set()  # the queues in which the last receive found nothing
        self._drawn: set[int] = set()  # the queues whose notes this connection has scanned in full once

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def _notify(self, channel: str) -> None:
        """Notify others of the queues in which they may find messages."""
        if self._news:
            self._do("notify", channel, ",".join(map(str, sorted(self._news)[: limits.COMMANDS_AT_ONCE])))

    def look_at_clock(self, now_ms: int) -> None:
        """Correct deadlines after the clock was set back, so that nothing waits much longer than its duration."""
        over = self.behind.look(now_ms, self._later)
        holds = [(until_ms, since_ms, *span[2:]) for span, since_ms, until_ms in over if span.kind == "hold"]
        if holds:
            self._do("end_holds_at", *map(list, zip(*holds, strict=True)))
        for span, since_ms, until_ms in over:
            if span.kind == "lock":
                self._do("end_lock_at", until_ms, since_ms, *span[1:])

    def _later(self, now_ms: int) -> list[Span]:
        """Return the holds and locks that begin in the future of this clock."""
        rows = self._all("begun_later", now_ms, limits.NOTED_SPANS)
        return [
            Span("lock", queue, grp, *span) if kind else Span("hold", queue, number, *span)
            for kind, queue, number, grp, *span in rows
        ]

    # --- the desk ---

    def _lock(self, queue: QueueInfo) -> None:
        """Lock the desk until the transaction ends."""
        if queue.number not in self._locked:
            self._locked.add(queue.number)
            self._do("lock_desk", queue.number)

    def _open(self, queue: QueueInfo, now_ms: int) -> ReceiverLock:
        """Lock and return the desk, after processing notes of settlements and expired deadlines.

        Raises:
            RunAgain: if the queue was removed.
        """
        self._lock(queue)
        is_known = queue.number in self._drawn  # if not, the transaction ids may be those of another server
        rows = self._all("draw", queue.number, first_number(queue.number + 1), is_known)
        if not rows:
            self.catalog.forget()
            raise RunAgain(f"the queue {queue.name!r} was removed at the same time")
        version, tokens, gone, listed, floor, ready_from, ran_out, due_ms, has_back, is_at_end = rows[0][:10]
        snapshot, own, first, oldest_ms = rows[0][10:14]
        self._drawn.add(queue.number)
        kept = tokens, gone, floor, None, ran_out, due_ms
        # Messages not committed yet, or sent later, have numbers after all listed ones.
        floor = first or max(floor, listed + 1)
        desk = ReceiverLock(
            tokens, gone, listed, floor, None, ran_out, due_ms, oldest_ms, _drawn(snapshot, own), version, kept
        )
        desk.has_back, desk.is_at_end, desk.ready_kept = has_back, is_at_end, ready_from
        notes = [row[14:] for row in rows if row[18] is not None]
        for group, number, more_gone, due, _, at_ms, place in sorted(notes, key=lambda note: note[4]):
            desk.gone += more_gone
            if due is not None:
                desk.is_due(due)
            if group is not None or number is not None:
                desk.touched.append(Touch(group, None if group is not None else number, place, at_ms))
            if at_ms is not None:
                self._mark_back(queue, desk)
        self._tidy(queue, desk, now_ms)
        return desk

    def _is_idle(self, queue: QueueInfo, now_ms: int) -> bool:
        """Return whether there is still nothing to receive, for a receiver that waits.

        The check takes no lock and so writes nothing; a row lock is written to the server's disk.
        """
        if queue.number not in self._idle or queue.number in self._locked:
            return False
        retention_s = queue.settings.retention_s
        sent_until_ms = None if retention_s is None else round(now_ms - retention_s * 1000)
        found = self._one("is_anything", queue.number, first_number(queue.number + 1), now_ms, sent_until_ms)
        if found is not None and not found[0]:
            return True
        self._idle.discard(queue.number)
        return False

    def _keep(self, queue: QueueInfo, desk: ReceiverLock) -> None:
        """Write the row of the desk if it has changed."""
        if desk.row != desk.kept or desk.is_changed or desk.line is not None or desk.has_ended:
            line = desk.line or (None, None, None)
            self._do("keep_desk", queue.number, *desk.row, *desk.drawn, desk.version, *line, desk.has_ended)
            desk.version += 1

    def _tidy(self, queue: QueueInfo, desk: ReceiverLock, now_ms: int) -> None:
        """End expired holds and locks, remove messages past their retention, and list groups that are free now."""
        if queue.settings.retention_s is not None:
            self._retire(queue, desk, round(now_ms - queue.settings.retention_s * 1000))
        if desk.due_ms is not None and desk.due_ms <= now_ms:
            over = [(until_ms, 0, group) for until_ms, group in self.gates.end_locks(queue.number, desk.due_ms, now_ms)]
            rows = self._all("over", queue.number, desk.floor, now_ms, limits.EXPIRE_AT_ONCE, desk.due_ms)
            self._end_holds(queue, rows, now_ms)
            if any(attempts for _, _, _, _, attempts, *_ in rows):
                self._mark_back(queue, desk)
            over += [(until_ms, number, group) for number, group, until_ms, *_ in rows]
            over.sort(key=lambda each: each[:2])
            touched = [Touch(group, None if group is not None else number, None, at) for at, number, group in over]
            desk.touch_over(touched, before_nacks=not queue.settings.retry_delay_s)
            (desk.due_ms,) = self._one("next_due", queue.number, desk.due_ms)
        self._refresh(queue, desk)

    def _end_holds(self, queue: QueueInfo, rows: Iterable[Row], now_ms: int) -> None:
        """End expired leases and delays; each row has the hold and whether its message is the head of its group."""
        left = []
        for number, group, *fields, is_head in rows:
            hold = DeliveryState._make(fields)
            ended = redelivery.ended(hold, queue.settings, number, is_head=bool(is_head), now_ms=now_ms)  # type: ignore[arg-type]
            left.append((number, group, ended))
        self._set_holds(queue, left)  # type: ignore[arg-type]

    def _retire(self, queue: QueueInfo, desk: ReceiverLock, sent_until_ms: int) -> None:
        if desk.oldest_ms is None or desk.oldest_ms > sent_until_ms:  # the usual case
            return
        end = first_number(queue.number + 1)
        for number, group, done in self._all("retire", desk.floor, end, limits.EXPIRE_AT_ONCE, sent_until_ms):
            desk.gone += done != 1
            desk.touch(number, group)

    def _refresh(self, queue: QueueInfo, desk: ReceiverLock) -> None:
        """Put the heads of the touched groups that are free now into the line."""
        touched: dict[tuple[str | None, int | None], Touch] = {}
        for each in desk.touched:
            touched.pop(each[:2], None)  # its last position counts
            touched[each[:2]] = each
        if touched and not desk.has_back:
            groups = [each.group for each in touched.values() if each.group is not None]
            numbers = [each.number for each in touched.values() if each.number is not None]
            if groups:
                self._do("refresh_fresh", queue.number, groups, desk.floor, desk.version)
            if numbers:
                self._do("refresh_fresh_singles", queue.number, numbers, desk.version)
        elif touched:
            groups, numbers, places, _ = map(list, zip(*touched.values(), strict=True))
            self._do("refresh", queue.number, groups, numbers, places, desk.floor, desk.version)
        desk.is_changed |= bool(touched)
        desk.touched = []

    def _mark_back(self, queue: QueueInfo, desk: ReceiverLock) -> None:
        """Record in the desk that a message of the queue was given back."""
        if not desk.has_back:
            desk.has_back = desk.is_changed = True
            self._do("mark_back", queue.number, desk.version, first_number(queue.number))

    def _see_ahead(self, queue: QueueInfo, desk: ReceiverLock, now_ms: int) -> None:
        """Set the next end of a lease, a delay or a lock, after a receive that found nothing."""
        self._idle.add(queue.number)
        is_ahead = desk.due_ms is not None and desk.due_ms > now_ms  # if not, a settlement has it locked
        noted_ms = self.behind.next_ms(queue.number)
        due_ms = desk.due_ms if is_ahead else None
        queue.due_ms = due_ms if noted_ms is None else min(noted_ms, noted_ms if due_ms is None else due_ms)

    # --- shared by receives and settlements ---

    def _set_holds(self, queue: QueueInfo, holds: Sequence[tuple[int, str | None, DeliveryState | None]]) -> None:
        """Write the holds of messages, or remove them (None)."""
        none = [number for number, _, hold in holds if hold is None]
        if none:
            self._do("remove_holds", none)
        rows = [(number, group, *hold) for number, group, hold in holds if hold is not None]
        if rows:
            number, group, until_ms, token, attempts, extended, since_ms, first_ms, deferred = zip(*rows, strict=True)
            columns = (number, group, until_ms, token, attempts, extended, since_ms, first_ms, deferred)
            self._do("set_holds", queue.number, *map(list, columns))

    def _leave(self, queue: QueueInfo, numbers: Sequence[int]) -> None:
        """Remove messages that are done and have no hold; mark those that a reader has yet to read as done."""
        kept: list[int] = []
        if queue.readers:
            read_to = queue.read_to
            kept = [number for number in numbers if number > read_to]
            numbers = [number for number in numbers if number <= read_to]
        if kept:
            self._do("set_done", kept, 1)
        if numbers:
            self._do("remove_messages", list(numbers))

    def _move(self, queue: QueueInfo, moves: Sequence[Move], to: QueueInfo, now_ms: int) -> None:
        """Move messages to another queue; a message that returns to the queue of its first send takes its old place.

        A move within the queue keeps the places.
        """
        here = moves if to.number == queue.number else []
        back = [] if here else [move for move in moves if to.has_given(move.origin or move.number)]
        there = [] if here else [move for move in moves if not to.has_given(move.origin or move.number)]
        self._news.add(to.number)
        if there:
            numbers, notes = [move.number for move in there], [_note(move.note) for move in there]
            self.incarnations.begin(to, now_ms)
            self._do("move", to.number, len(there), now_ms, queue.name, numbers, notes)
        if here:
            self._do(
                "move_within", now_ms, queue.name, [move.number for move in here], [_note(move.note) for move in here]
            )
        if back:
            self._lock(to)
            numbers, notes = [move.number for move in back], [_note(move.note) for move in back]
            self._do("move_back", to.number, now_ms, queue.name, numbers, notes)
            places = [(move.origin or move.number, move.group) for move in back if move.group is not None]
            if places:
                self._do("not_first", to.number, [place for place, _ in places], [group for _, group in places])
        gone = [] if here else [move.number for move in moves]
        self._do("remove_holds", [move.number for move in moves])
        self._leave(queue, gone)
        if here:
            self._touch(queue, [(move.group, move.number, 0, None, None) for move in here])
        else:
            self._touch(queue, [(move.group, None, 1, None, None) for move in moves])

    def _may_move(self, to: QueueInfo) -> bool:
        """Return whether messages can be moved to a queue now.

        They cannot while another transaction, which may be long, sends to it.
        """
        return self._one("try_numbering", to.number) is not None

    def _touch(self, queue: QueueInfo, notes: Iterable[Note]) -> None:
        """Write notes for the next holder of the desk."""
        rows = list(notes)
        if not rows:
            return
        self._news.add(queue.number)
        if any(at_ms is not None for *_, at_ms in rows):
            self._do("touch_back", queue.number, *map(list, zip(*rows, strict=True)))
        else:
            self._do("touch", queue.number, *map(list, zip(*[row[:4] for row in rows], strict=True)))


def entry_of(row: Row) -> StoredMessage:
    """Return the message from the first columns of a row."""
    number, body, content, *rest = row[:_ENTRY]
    text = body if content == Content.BYTES else body.decode()  # type: ignore[attr-defined]
    return StoredMessage(number, text, content, *rest)  # type: ignore[arg-type]


def hold_of(row: Row) -> DeliveryState | None:
    """Return the hold from the columns behind the message."""
    return None if row[_ENTRY + 2] is None else DeliveryState._make(row[_ENTRY:])


def _drawn(snapshot: str, own: int) -> tuple[int, list[int]]:
    """Return the transactions that a snapshot sees: the number below which all are seen, and the exceptions.

    The exceptions are the running transactions, including the own one.
    """
    _, end, going_on = snapshot.split(":")
    return int(end), [own, *map(int, filter(None, going_on.split(",")))]


def _note(note: str | None) -> str | None:
    """Replace NUL, which a PostgreSQL text cannot hold."""
    return note and note.replace("\0", "\N{REPLACEMENT CHARACTER}")
