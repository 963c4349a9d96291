"""Looks at the queues in SQLite: messages, counts and groups."""

from collections.abc import Iterable
from dataclasses import dataclass

from inturn.core.queue import sessions
from inturn.core.queue.messages import Depth, GroupView, QueueInfo, StoredMessage
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.statements import SqliteStatements, as_list, entry_of


@dataclass(eq=False)
class SqliteInspection(SqliteStatements):
    """Reads that change nothing, so that a read-only transaction can run them."""

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
            rows = self._all("read_group", queue.number, group, after, limit)
            newest = self._index.unindexed_of(queue, group, after, limit)
            if newest:
                rows = sorted([*rows, *self._all("messages", as_list(newest))])[:limit]
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            begin, end = queue.number_range
            rows = self._all("read_pending" if pending else "read", max(after, begin), end, limit)
        return [entry_of(row) for row in rows]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the counts of a queue."""
        in_flight, delayed = self._one("hidden", queue.number, now_ms)
        (deferred,) = self._one("deferred", queue.number)
        (parked,) = self._one("parked_count", queue.number)
        return Depth(queue.depth, in_flight, delayed, queue.last, deferred, parked)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str | None] = ()) -> list[GroupView]:
        """Return groups with messages, in the order of their heads."""
        selected = list(names)
        if selected:
            listed = [(name, *self._one("group", queue.number, name)) for name in selected if name is not None]
            singles = self._all("ungrouped", queue.number, *queue.number_range, 1) if None in selected else []
        else:
            listed = self._all("groups", queue.number, limit)
            singles = self._all("ungrouped", queue.number, *queue.number_range, limit)
        by_group: dict[str, tuple[int, int]] = {group: (depth, head) for group, depth, head in listed if depth}
        for group, newest in self._index.unindexed(queue).items():
            if not selected or group in selected:
                # A group beyond the limit is after the groups within it, wherever its messages begin.
                depth, head = by_group.get(group, (0, newest[0]))
                by_group[group] = depth + len(newest), head
        heads: list[tuple[int, str | None, int]] = [(head, group, depth) for group, (depth, head) in by_group.items()]
        heads += [(number, None, 1) for (number,) in singles]
        heads.sort(key=lambda group_head: group_head[0])
        return [self._view(queue, group, depth, head, now_ms) for head, group, depth in heads[:limit]]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        entry = entry_of(self._one("one_message", head))
        (own, _), holds, group_lock = self._leases.hold(head), [], sessions.OPEN
        if group is not None:
            leased = self._leases.of(queue.number, group)
            own = leased.get(head, own)
            holds = [*leased.values(), *(hold for _, hold in self._leases.of_group(queue, group))]
            group_lock = self._locks.of(queue.number, group)
        return sessions.view(entry, depth, group_lock, own, holds, now_ms)
