"""Settlements in SQLite, and the removal of messages: acknowledged, moved, cancelled, or past their retention."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inturn.core import limits
from inturn.core.queue import delivery, ready_groups, sessions
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo, StoredMessage
from inturn.store.sql.statements import MessageStatus
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.incarnations import SqliteIncarnations
from inturn.store.sqlite.kept_log import SqliteKeptLog
from inturn.store.sqlite.leases import Hold, Leases
from inturn.store.sqlite.ready_groups import ReadyGroups, Touched
from inturn.store.sqlite.statements import SQL, SqliteStatements, as_list, entry_of

_DONE: Final = SettleResult.DONE  # before Python 3.12 each access to an enum member takes 0.15 µs
_ACK: Final = SettleAction.ACK


@dataclass(eq=False)
class Removals(SqliteStatements):
    """The ways out of a queue."""

    _catalog: SqliteCatalog
    _index: GroupIndex
    _leases: Leases
    _line: ReadyGroups
    _incarnations: SqliteIncarnations
    _log: SqliteKeptLog

    def done(self, queue: QueueInfo, numbers: list[int], groups: Mapping[str, set[int]]) -> None:
        """Remove messages that are done, passed also by group; keep those that the log keeps."""
        self._index.leave(queue, groups)
        if queue.readers or queue.settings.keeps_log:
            read_to = queue.removed_to
            self._execute("acknowledge", as_list([number for number in numbers if number > read_to]))
            self._execute("remove_messages", as_list([number for number in numbers if number <= read_to]))
        else:
            self._run(SQL["remove_messages"], (str(numbers),))
        queue.depth -= len(numbers)
        self._catalog.counted(queue)

    def leave(self, queue: QueueInfo, messages: list[tuple[int, str | None]]) -> None:
        """Remove acknowledged messages, given by number and group, with their holds; clear the list."""
        if messages:
            groups: defaultdict[str, set[int]] = defaultdict(set)
            for number, group in messages:
                if group is not None:
                    groups[group].add(number)
            numbers = [number for number, _ in messages]
            self.done(queue, numbers, groups)
            self._execute("remove_holds", as_list(numbers))
            messages.clear()

    def remove(self, queue: QueueInfo, number: int, group: str | None, *, is_pending: bool = True) -> None:
        """Remove a message, even if a reader has yet to read it."""
        if group is not None:
            self._leases.break_up(queue.number, group)
            self._index.leave(queue, {group: {number}})
        self._execute("remove_message", number)
        self._execute("remove_hold", number)
        self._line.leave(queue, [number])
        self._index.nonempty.clear()
        queue.depth -= is_pending
        self._catalog.counted(queue)

    def retire(self, queue: QueueInfo, now_ms: int) -> Touched:
        """Remove messages past their retention; return their groups."""
        retired_ms = delivery.retired_ms(queue.settings, now_ms)
        oldest = None if retired_ms is None else self._one("oldest_messages", *queue.number_range, 1)
        if retired_ms is None or oldest is None or oldest[-1] > retired_ms:  # the usual case
            return ()
        touched = []
        for number, group, status, sent_ms in self._all("oldest_messages", *queue.number_range, limits.EXPIRE_AT_ONCE):
            if sent_ms > retired_ms:
                break
            self.remove(queue, number, group, is_pending=status != MessageStatus.ACKNOWLEDGED)
            touched.append((0 if group is not None else number, group))
        return touched

    def move(self, queue: QueueInfo, entry: StoredMessage, to: QueueInfo, note: str | None, now_ms: int) -> None:
        """Move a message to another queue, or within its queue."""
        moved = delivery.moved(entry, queue, to, note, now_ms)
        number, group = moved.sequence_number, entry.group
        is_new = number > to.last
        if is_new and to.number not in self._incarnations.begun:
            self._incarnations.begin(to, now_ms)
        self.leave(queue, [(entry.sequence_number, group)])
        self._index.nonempty.discard((queue.number, group))
        self._line.leave(queue, [entry.sequence_number])
        self._execute("add_moved_message", *moved, to.number)
        if is_new:
            to.last = number
            self._index.sent(to, number - 1, [(number, group)])
        else:
            self._index.restore(to, number, group)
            self._log.restore(to, number, group)
        to.depth += 1
        self._catalog.counted(to)
        if group is not None:
            self._line.leave(to, [self._index.next(to, group, number) or 0])
        self._line.refresh(to, [(number if group is None else 0, group)], now_ms)


@dataclass(eq=False)
class Settlements(SqliteStatements):
    """Acknowledgements and the other changes of messages."""

    _catalog: SqliteCatalog
    _index: GroupIndex
    _locks: SqliteGroupLocks
    _leases: Leases
    _line: ReadyGroups
    _removals: Removals

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, nack, move, defer or cancel messages."""
        is_ack = not [change for change in changes if change.act is not _ACK]
        if not is_ack and ready_groups.ended_go_first(changes, queue.settings):
            self._line.refresh(queue, [key for key, *_ in self._line.end_expired(queue, now_ms)], now_ms)
        reduced = self._leases.acknowledge(queue.number, changes, now_ms)
        if sum([len(numbers) for _, _, numbers in reduced]) == len(changes):  # the usual case
            self._removals.done(
                queue, [change[0] for change in changes], {group: removed for _, group, removed in reduced}
            )
            touched: Touched = [(0, group) for _, group, _ in reduced]
            verdicts = [_DONE] * len(changes)
        else:
            verdicts, touched = self._settle_each(queue, changes, reduced, now_ms)
        if touched:
            self._index.nonempty.difference_update([(queue.number, group) for _, group in touched])
            self._line.refresh(queue, touched, now_ms, in_order=not is_ack)  # as are_ordered() in core
        return verdicts

    def _settle_each(
        self, queue: QueueInfo, changes: Sequence[Settlement], reduced: Sequence[tuple[int, str, set[int]]], now_ms: int
    ) -> tuple[list[SettleResult], Touched]:
        """Settle changes one by one; messages in ``reduced`` have left their lease already and only need removal."""
        leased: dict[tuple[int, int | None], str] = {
            (number, token): group for token, group, numbers in reduced for number in numbers
        }
        known = self._leases.holds(change.sequence_number for change in changes) if len(changes) > 1 else {}
        verdicts: list[SettleResult] = []
        touched: list[tuple[int, str | None]] = []
        acknowledged: list[tuple[int, str | None]] = []  # to be removed together
        for change in changes:
            number = change.sequence_number
            if (group := leased.pop(change[:2], None)) is not None:
                verdict, hold = _DONE, None
            else:
                if number not in known:
                    self._removals.leave(queue, acknowledged)
                verdict, hold, group = self._judged(change, known, now_ms)
            verdicts.append(verdict)
            if verdict is not _DONE:
                continue
            is_ack = change.act is _ACK
            if is_ack:
                acknowledged.append((number, group))
            else:
                self._removals.leave(queue, acknowledged)
                self._change(queue, change, hold, group, now_ms, known)
            self._line.leave(queue, [number])  # leased, if its lease had ended before the clock was set back
            if group is not None:
                touched.append((0, group))
            elif not is_ack:
                touched.append((number, None))
        self._removals.leave(queue, acknowledged)
        return verdicts, touched

    def _judged(
        self, change: Settlement, known: dict[int, Hold], now_ms: int
    ) -> tuple[SettleResult, DeliveryState | None, str | None]:
        """Return the verdict on a change, and the hold and group of its message."""
        number = change.sequence_number
        hold, group = known.pop(number) if number in known else self._leases.hold(number)
        if hold is None or change.token is None:
            message = self._one("one_message", number)
            if message is None:
                return SettleResult.GONE, None, None
            group = message[3]
        return delivery.verdict(hold, change, now_ms), hold, group

    def _change(
        self,
        queue: QueueInfo,
        change: Settlement,
        hold: DeliveryState | None,
        group: str | None,
        now_ms: int,
        known: dict[int, Hold],
    ) -> None:
        """Extend, nack, move, defer or cancel one message."""
        number = change.sequence_number
        if change.act is SettleAction.EXTEND:
            group_lock = (
                None if group is None else sessions.extended(self._locks.of(queue.number, group), change, now_ms)
            )
            if group is not None and group_lock is not None:
                self._locks.renew(queue.number, group, group_lock)
                known.clear()  # every hold of the session has changed
            else:
                self._leases.set_hold(queue, number, group, delivery.extended(hold, change.ms or 0, now_ms))
        elif change.act is SettleAction.NACK:
            self._leases.give_back(queue, number, group, delivery.counted(hold, change), change.ms, now_ms)
        elif change.act is SettleAction.DEFER:
            if group is not None:
                self._index.leave(queue, {group: {number}})
            self._execute("defer_message", number)
            self._leases.set_hold(queue, number, group, delivery.deferred(hold))
        elif change.act in {SettleAction.CANCEL, SettleAction.ERASE}:
            self._removals.remove(queue, number, group)
        elif change.to is not None:
            entry = entry_of(self._one("one_message", number))
            self._removals.move(queue, entry, self._catalog.queues[change.to], change.note, now_ms)
