"""Looks at the queues in SQLite: messages, counts and groups."""

from collections.abc import Iterable
from dataclasses import dataclass

from inturn.core.queue import sessions
from inturn.core.queue.messages import Depth, GroupView, QueueInfo, StoredMessage
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.statements import SqliteStatements, entry_of


@dataclass(eq=False)
class SqliteInspection(SqliteStatements):
    """Reads that change nothing but the index."""

    _index: GroupIndex
    _locks: SqliteGroupLocks
    _leases: Leases

    def read(
        self,
        queue: QueueInfo,
        after: int,
        limit: int,
        *,
        pending: bool = False,
        deferred: bool = False,
        group: str | None = None,
    ) -> list[StoredMessage]:
        """Return the messages after a sequence number."""
        if group is not None and deferred:
            rows = self._all("read_group_deferred", queue.number, group, after, limit)
        elif group is not None:
            self._index.index(queue, queue.last)
            rows = self._all("read_group", queue.number, group, after, limit)
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            begin, end = queue.every
            rows = self._all("read_pending" if pending else "read", max(after, begin), end, limit)
        return [entry_of(row) for row in rows]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the counts of a queue."""
        in_flight, delayed = self._one("hidden", queue.number, now_ms)
        (deferred,) = self._one("deferred", queue.number)
        return Depth(queue.depth, in_flight, delayed, queue.last, deferred)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Return groups with messages, in the order of their heads."""
        self._index.index(queue, queue.last)
        wanted = list(names)
        if wanted:
            found = [(name, *self._one("group", queue.number, name)) for name in wanted]
        else:
            singles = self._all("ungrouped", queue.number, *queue.every, limit)
            found = [*self._all("groups", queue.number, limit), *((None, 1, number) for (number,) in singles)]
        found = sorted((row for row in found if row[1]), key=lambda row: row[2])
        return [self._view(queue, group, depth, head, now_ms) for group, depth, head in found[:limit]]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        entry = entry_of(self._one("one_message", head))
        (own, _), holds, gate = self._leases.hold(head), [], sessions.OPEN
        if group is not None:
            leased = self._leases.of(queue.number, group)
            own = leased.get(head, own)
            holds = [*leased.values(), *(hold for _, hold in self._leases.of_group(queue, group))]
            gate = self._locks.of(queue.number, group)
        return sessions.view(entry, depth, gate, own, holds, now_ms)
