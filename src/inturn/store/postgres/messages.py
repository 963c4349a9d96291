"""Changes of stored messages that receives and settlements share: their holds, their removal and their moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from inturn.core.queue import delivery
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import Content, QueueInfo, StoredMessage
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.incarnations import PostgresIncarnations
from inturn.store.postgres.receiver_lock import ReceiverLocks, Recheck
from inturn.store.postgres.statements import PostgresStatements
from inturn.store.sql.dead_letters import report_dead_letter
from inturn.store.sql.statements import MessageStatus

Row: TypeAlias = Sequence[Any]
Held: TypeAlias = tuple[int, str | None, DeliveryState | None]
"""A message's number, its group, and its hold."""
_ENTRY: Final = len(StoredMessage._fields)


class Move(NamedTuple):
    """A message to move to another queue."""

    number: int
    group: str | None
    origin: int | None  # sequence number under which it was first sent; None: it was never moved
    note: str | None


def entry_of(row: Row) -> StoredMessage:
    """Return the message from the first columns of a row."""
    number, body, content, *rest = row[:_ENTRY]
    return StoredMessage(number, body if content == Content.BYTES else body.decode(), content, *rest)


def hold_of(row: Row) -> DeliveryState | None:
    """Return the hold from the columns after the message."""
    return None if row[_ENTRY + 2] is None else DeliveryState._make(row[_ENTRY:])


def hides(hold: DeliveryState | None) -> bool:
    """Return whether a hold hides its message: until the hold is ended, even after its deadline."""
    return hold is not None and hold.until_ms is not None


@dataclass(eq=False)
class PostgresMessages(PostgresStatements):
    """The stored messages of a database, and their holds."""

    _catalog: PostgresCatalog
    _locks: ReceiverLocks
    _incarnations: PostgresIncarnations

    def set_holds(self, queue: QueueInfo, holds: Sequence[Held]) -> None:
        """Write the holds of messages, or remove them (None)."""
        none = [number for number, _, hold in holds if hold is None]
        if none:
            self._do("remove_holds", none)
        rows = [(number, group, *hold) for number, group, hold in holds if hold is not None]
        if rows:
            self._do("set_holds", queue.number, *map(list, zip(*rows, strict=True)))

    def leave(self, queue: QueueInfo, numbers: Sequence[int]) -> None:
        """Remove messages that are done and have no hold; mark those that the log keeps as acknowledged."""
        logged: list[int] = []
        if queue.readers or queue.settings.keeps_log:
            read_to = queue.removed_to
            logged = [number for number in numbers if number > read_to]
            numbers = [number for number in numbers if number <= read_to]
        if logged:
            self._do("set_status", logged, MessageStatus.ACKNOWLEDGED)
        if numbers:
            self._do("remove_messages", list(numbers))

    def dead_letter(self, queue: QueueInfo, row: Row) -> tuple[QueueInfo, str] | None:
        """Return the queue to which a message is moved before a receive, and the note; None: it is not moved."""
        hold = hold_of(row)
        return None if hides(hold) else delivery.dead_letter(hold, queue.settings, self._catalog.queues)

    def leaves(self, queue: QueueInfo, row: Row, dead: tuple[QueueInfo, str], now_ms: int) -> bool:
        """Move a dead letter.

        Returns:
            Whether it was moved: not while another transaction, which may be long, sends to the dead-letter queue.
        """
        to, note = dead
        if self._one("try_numbering", to.number) is None:
            return False
        entry = entry_of(row)
        self.move(queue, [Move(entry.sequence_number, entry.group, entry.origin, note)], to, now_ms)
        report_dead_letter(queue, entry, to)
        return True

    def move(self, queue: QueueInfo, moves: Sequence[Move], to: QueueInfo, now_ms: int) -> None:
        """Move messages to another queue, as :func:`inturn.core.queue.delivery.moved` defines."""
        numbers = [move.number for move in moves]
        self._locks.news.add(to.number)
        if to.number == queue.number:
            self._do("move_within", now_ms, queue.name, numbers, [_note(move.note) for move in moves])
            self._do("remove_holds", numbers)
            self._locks.add_rechecks(queue, [Recheck(move.group, move.number) for move in moves])
            return
        back = [move for move in moves if to.has_assigned(move.origin or move.number)]
        new_moves = [move for move in moves if not to.has_assigned(move.origin or move.number)]
        if new_moves:
            self._incarnations.begin(to, now_ms)
            self._do("move", to.number, len(new_moves), now_ms, queue.name, *_columns(new_moves))
        if back:
            self._locks.acquire(to)
            self._do("move_back", to.number, now_ms, queue.name, *_columns(back))
            places = [(move.origin or move.number, move.group) for move in back if move.group is not None]
            if places:
                self._do("remove_ready_successors", to.number, *map(list, zip(*places, strict=True)))
        self._do("remove_holds", numbers)
        self.leave(queue, numbers)
        self._locks.add_rechecks(queue, [Recheck(move.group, removed_count=1) for move in moves])


def _columns(moves: Sequence[Move]) -> tuple[list[int], list[str | None]]:
    return [move.number for move in moves], [_note(move.note) for move in moves]


def _note(note: str | None) -> str | None:
    """Replace NUL, which a PostgreSQL text cannot hold."""
    return note and note.replace("\0", "\N{REPLACEMENT CHARACTER}")
