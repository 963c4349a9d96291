"""Who locks what in a queue, and how it is known which groups can be received.

Two rows of each queue are locked, each by one transaction at a time, until it ends:

- who sends, or moves messages in, locks the queue's *numbering*, so numbers are seen in their order, without gaps;
- who receives, or changes by hand what can be received, locks the queue's *desk*. `inturn_ready` holds the heads of
  groups that can be received, and is changed only by who has the desk.

So a slow transaction that sends does not stop receivers, nor the other way round. A send does not touch
`inturn_ready`: the log is the mailbox, and who has the desk *lists* what has come to it. Who settles locks no more
than the holds of the messages it was given: it leaves a note in `inturn_touched`, and the next who has the desk
*draws* these and *refreshes* those groups, in the order of the notes: see core/line.py for what places they have.

Who has the desk never waits for who settles: a hold that is over is given back only if nobody is settling it just
now, and until it is given back, whatever the time, it keeps its group closed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from inturn.core import limits, redelivery
from inturn.core.behind import Behind, Span
from inturn.core.delivery import Hold
from inturn.core.envelope import Content, Entry, QueueInfo, first_number
from inturn.store.base import RunAgain
from inturn.store.postgres.catalog import Catalog
from inturn.store.postgres.gates import Gates
from inturn.store.postgres.incarnations import Incarnations
from inturn.store.postgres.statements import Statements, Wire

_ENTRY: Final = len(Entry._fields)

Row = Sequence[object]
Held = tuple[int, str | None, Hold]
"""A message's number, its group, and what is known of it."""


class Touch(NamedTuple):
    """A group that is to be looked at again, or a message without one.

    Attributes:
        group: its name.
        number: of the message, if it has no group.
        place: if it was given back by hand, the last sequence number then.
        at_ms: when that was.
    """

    group: str | None
    number: int | None
    place: int | None = None
    at_ms: int | None = None


InLine = tuple[int, int, int]
"""A place in the line and the head that stands there: a number, a turn (0: the number is the head's), the head."""

Note = tuple[str | None, int | None, int, int | None, int | None]
"""What is left for who has the desk next: a group, or a number; how many are gone; when something is due; and when it
was given back by hand, if it was."""


@dataclass
class Desk:
    """The row of a queue's desk, which is locked; see 0001.sql. ``ready_from`` is None if it stays as it is.

    Attributes:
        version: that of the row: whenever it is kept it has another, by which it is found.
        kept: the row as it is in the database.
        is_changed: whether it was written meanwhile.
        left: the first head that stays listed though it was passed by.
        ready_kept: ``ready_from`` as it is in the database.
        has_back: whether anything of the queue was ever given back; if not, the simpler statements do.
        line: up to there nobody is left of those with a place of their own; None: it stays as it is.
        is_line_left: whether one of them stays though it was passed by.
        is_at_end: whether the row in the database says that nobody is left of them.
        has_ended: whether this is so now.
        touched: groups that are to be looked at again, in the order in which they became ready if they are.
        oldest_ms: when the first message was sent that is there.
        drawn: what was drawn that was touched: all up to a transaction, but for those that had not ended.
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
        """What is to be kept."""
        return self.tokens, self.gone, self.floor, self.ready_from, self.ran_out, self.due_ms

    def is_due(self, until_ms: int) -> None:
        """Something is to be looked at then."""
        self.due_ms = until_ms if self.due_ms is None else min(self.due_ms, until_ms)

    def passed(self, place: InLine, *, is_left: bool) -> None:
        """All who come before in the line are taken, or taken off, but for those that are left."""
        number, turn, head = place
        if turn:
            self.is_line_left |= is_left
            self.line = self.line if self.is_line_left else place
        elif is_left and self.left is None:
            self.left = head
        self.ready_from = self.left or min(number, self.listed) + 1

    def see_end(self) -> None:
        """Nobody is in the line but for those that are left: what is dead is not looked at again."""
        if self.left is None and (self.ready_from or self.ready_kept) <= self.listed:
            self.ready_from = self.listed + 1
        if self.has_back and not self.is_line_left:
            self.has_ended = self.is_changed or not self.is_at_end

    def touch(self, number: int | None, group: str | None) -> None:
        """A message, or its group, is to be looked at again."""
        self.touched.append(Touch(group, None if group is not None else number))

    def touch_over(self, touched: Sequence[Touch], *, before_nacks: bool) -> None:
        """The same with those of which something is over, in the order of the deadlines.

        Args:
            touched: they; ``at_ms`` is the deadline.
            before_nacks: whether one stands before what was given back by hand after its deadline.
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
    """A message that goes into another queue.

    Attributes:
        number: which.
        group: its group.
        origin: where it was sent at first, if it has been moved before.
        note: why.
    """

    number: int
    group: str | None
    origin: int | None
    note: str | None


class Desks(Statements):
    """The desks of one database's queues.

    Args:
        wire: to it.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.catalog: Final = Catalog(wire)
        self.gates: Final = Gates(wire)
        self.incarnations: Final = Incarnations(wire)
        self.behind: Final = Behind()
        self._locked: set[int] = set()  # the queues whose desks this transaction has
        self._news: set[int] = set()  # the queues in which others may find something after it
        self._idle: set[int] = set()  # the queues in which nothing was found the last time
        self._drawn: set[int] = set()  # the queues whose notes this connection has once looked through whole

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def _notify(self, channel: str) -> None:
        """Tell others that they may find something."""
        if self._news:
            self._do("notify", channel, ",".join(map(str, sorted(self._news)[: limits.COMMANDS_AT_ONCE])))

    def look_at_clock(self, now_ms: int) -> None:
        """If it went back, nothing waits for much longer than it was to wait."""
        over = self.behind.look(now_ms, self._later)
        holds = [(until_ms, since_ms, *span[2:]) for span, since_ms, until_ms in over if span.kind == "hold"]
        if holds:
            self._do("end_holds_at", *map(list, zip(*holds, strict=True)))
        for span, since_ms, until_ms in over:
            if span.kind == "lock":
                self._do("end_lock_at", until_ms, since_ms, *span[1:])

    def _later(self, now_ms: int) -> list[Span]:
        """What begins in the future of this clock."""
        rows = self._all("begun_later", now_ms, limits.NOTED_SPANS)
        return [
            Span("lock", queue, grp, *span) if kind else Span("hold", queue, number, *span)
            for kind, queue, number, grp, *span in rows
        ]

    # --- the desk ---

    def _lock(self, queue: QueueInfo) -> None:
        """Have the desk until the transaction ends."""
        if queue.number not in self._locked:
            self._locked.add(queue.number)
            self._do("lock_desk", queue.number)

    def _open(self, queue: QueueInfo, now_ms: int) -> Desk:
        """Have the desk, with everything seen to that has come about since: what was settled, and what is over.

        Raises:
            RunAgain: if the queue is not there any more.
        """
        self._lock(queue)
        is_known = queue.number in self._drawn  # or the numbers of transactions may be those of another server
        rows = self._all("draw", queue.number, first_number(queue.number + 1), is_known)
        if not rows:
            self.catalog.forget()
            msg = f"the queue {queue.name!r} was removed at the same time"
            raise RunAgain(msg)
        version, tokens, gone, listed, floor, ready_from, ran_out, due_ms, has_back, is_at_end = rows[0][:10]
        snapshot, own, first, oldest_ms = rows[0][10:14]
        self._drawn.add(queue.number)
        kept = tokens, gone, floor, None, ran_out, due_ms
        # What is not committed yet, or comes later, has a number after all that were listed.
        floor = first or max(floor, listed + 1)
        desk = Desk(tokens, gone, listed, floor, None, ran_out, due_ms, oldest_ms, _drawn(snapshot, own), version, kept)
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
        """Whether there is nothing to be had, as there was nothing the last time: whoever waits only looks.

        It takes no lock and so writes nothing, whereas a row lock is written to the server's disk.
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

    def _keep(self, queue: QueueInfo, desk: Desk) -> None:
        """What is at the desk has changed."""
        if desk.row != desk.kept or desk.is_changed or desk.line is not None or desk.has_ended:
            line = desk.line or (None, None, None)
            self._do("keep_desk", queue.number, *desk.row, *desk.drawn, desk.version, *line, desk.has_ended)
            desk.version += 1

    def _tidy(self, queue: QueueInfo, desk: Desk, now_ms: int) -> None:
        """Give back leases that are over, remove what is past its retention, and list groups that are free now."""
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
        """End leases and delays that are over; each row has the hold, and whether it is the head of its group."""
        left = []
        for number, group, *fields, is_head in rows:
            hold = Hold._make(fields)
            ended = redelivery.ended(hold, queue.settings, number, is_head=bool(is_head), now_ms=now_ms)  # type: ignore[arg-type]
            left.append((number, group, ended))
        self._set_holds(queue, left)  # type: ignore[arg-type]

    def _retire(self, queue: QueueInfo, desk: Desk, sent_until_ms: int) -> None:
        if desk.oldest_ms is None or desk.oldest_ms > sent_until_ms:  # as nearly always
            return
        end = first_number(queue.number + 1)
        for number, group, done in self._all("retire", desk.floor, end, limits.EXPIRE_AT_ONCE, sent_until_ms):
            desk.gone += done != 1
            desk.touch(number, group)

    def _refresh(self, queue: QueueInfo, desk: Desk) -> None:
        """Put the heads of those groups that are free now into the line."""
        touched: dict[tuple[str | None, int | None], Touch] = {}
        for each in desk.touched:
            touched.pop(each[:2], None)  # where one is last
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

    def _mark_back(self, queue: QueueInfo, desk: Desk) -> None:
        """Something was given back."""
        if not desk.has_back:
            desk.has_back = desk.is_changed = True
            self._do("mark_back", queue.number, desk.version, first_number(queue.number))

    def _see_ahead(self, queue: QueueInfo, desk: Desk, now_ms: int) -> None:
        """Nothing was found: when a lease, a delay or a lock is over, at the earliest."""
        self._idle.add(queue.number)
        is_ahead = desk.due_ms is not None and desk.due_ms > now_ms  # if not, somebody is settling it just now
        noted_ms = self.behind.next_ms(queue.number)
        due_ms = desk.due_ms if is_ahead else None
        queue.due_ms = due_ms if noted_ms is None else min(noted_ms, noted_ms if due_ms is None else due_ms)

    # --- what both who receives and who settles does ---

    def _set_holds(self, queue: QueueInfo, holds: Sequence[tuple[int, str | None, Hold | None]]) -> None:
        """Messages have other holds, or none."""
        none = [number for number, _, hold in holds if hold is None]
        if none:
            self._do("remove_holds", none)
        rows = [(number, group, *hold) for number, group, hold in holds if hold is not None]
        if rows:
            number, group, until_ms, token, attempts, extended, since_ms, first_ms, deferred = zip(*rows, strict=True)
            columns = (number, group, until_ms, token, attempts, extended, since_ms, first_ms, deferred)
            self._do("set_holds", queue.number, *map(list, columns))

    def _leave(self, queue: QueueInfo, numbers: Sequence[int]) -> None:
        """Messages are done with, which nobody holds any more; one is kept if a reader has yet to read it."""
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
        """Put messages into another queue; where one was sent at first, it is in its old place again.

        Within their queue they stay where they are.
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
        """Whether messages can be moved there now; not while another transaction, which may last, is sending to it."""
        return self._one("try_numbering", to.number) is not None

    def _touch(self, queue: QueueInfo, notes: Iterable[Note]) -> None:
        """Leave notes for who has the desk next."""
        rows = list(notes)
        if not rows:
            return
        self._news.add(queue.number)
        if any(at_ms is not None for *_, at_ms in rows):
            self._do("touch_back", queue.number, *map(list, zip(*rows, strict=True)))
        else:
            self._do("touch", queue.number, *map(list, zip(*[row[:4] for row in rows], strict=True)))


def entry_of(row: Row) -> Entry:
    """The message in a row that begins with one."""
    number, body, content, *rest = row[:_ENTRY]
    text = body if content == Content.BYTES else body.decode()  # type: ignore[attr-defined]
    return Entry(number, text, content, *rest)  # type: ignore[arg-type]


def hold_of(row: Row) -> Hold | None:
    """The hold in a row, behind the message."""
    return None if row[_ENTRY + 2] is None else Hold._make(row[_ENTRY:])


def _drawn(snapshot: str, own: int) -> tuple[int, list[int]]:
    """What a transaction with this snapshot has seen: all before one, but for those that go on, itself among them."""
    _, end, going_on = snapshot.split(":")
    return int(end), [own, *map(int, filter(None, going_on.split(",")))]


def _note(note: str | None) -> str | None:
    """A PostgreSQL text holds no NUL."""
    return note and note.replace("\0", "\N{REPLACEMENT CHARACTER}")
