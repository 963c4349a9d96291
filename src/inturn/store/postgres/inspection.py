"""Looks into queues in PostgreSQL that change nothing: messages, counts, and the groups of a queue."""

from collections.abc import Iterable
from dataclasses import dataclass

from inturn.core.queue import sessions
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import (
    Depth,
    GroupView,
    QueueInfo,
    StoredMessage,
    first_number,
)
from inturn.core.queue.sessions import FIRST_PARKED, ParkedGroup
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import entry_of, hold_of
from inturn.store.postgres.names import LongNames, as_it_is, named, short
from inturn.store.postgres.statements import PostgresStatements


@dataclass(eq=False)
class PostgresInspection(PostgresStatements):
    """Looks at messages and groups."""

    _catalog: PostgresCatalog
    _group_locks: PostgresGroupLocks
    _names: LongNames

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
        if group is not None:
            group = short(group)
            rows = self._all("read_group_deferred" if deferred else "read_group", queue.number, group, after, limit)
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            after = max(after, first_number(queue.number))
            rows = self._all("read_pending" if pending else "read", after, first_number(queue.number + 1), limit)
        entries = [entry_of(row) for row in rows]
        name = self._names.reader(entry.group for entry in entries)
        return entries if name is as_it_is else [named(entry, name) for entry in entries]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the message counts of a queue."""
        hidden = self._do("hidden", queue.number, now_ms)
        deferred = self._do("deferred", queue.number)
        parked = self._do("parked_count", queue.number)
        last, messages, _ = self._catalog.counts(queue)
        (in_flight, delayed), (put_aside,), (groups,) = hidden.rows[0], deferred.rows[0], parked.rows[0]
        return Depth(messages, in_flight, delayed, last, put_aside, groups)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str | None] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first."""
        selected = [*names]
        if selected:
            keys = [short(name) for name in selected if name is not None]
            listed = [(name, *self._one("group", queue.number, name)) for name in keys]
        else:
            listed = self._all("groups", queue.number, limit)
        singles = 0 if selected and None not in selected else 1 if selected else limit
        if singles:
            listed += [(None, 1, number) for (number,) in self._all("ungrouped", queue.number, singles)]
        listed = sorted((row for row in listed if row[1]), key=lambda row: row[2])
        name = self._names.reader(row[0] for row in listed)
        views = (self._view(queue, group, depth, head, now_ms) for group, depth, head in listed[:limit])
        return [view._replace(group=view.group and name(view.group)) for view in views]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        row = self._one("one_message", head)
        own = hold_of(row)
        holds: list[DeliveryState] = []
        group_lock = sessions.OPEN
        if group is not None:
            holds = [DeliveryState(*hold) for _, *hold in self._all("group_holds", queue.number, group)]
            group_lock = self._group_locks.of(queue.number, group)
        return sessions.view(entry_of(row), depth, group_lock, own, holds, now_ms)

    def parked(self, queue: QueueInfo, limit: int, after: tuple[int, str] = FIRST_PARKED) -> list[ParkedGroup]:
        """Return the parked groups after a time and a name, in the order of parking."""
        rows = self._all("parked", queue.number, after[0], short(after[1]), limit)
        name = self._names.reader(row[0] for row in rows)
        return [ParkedGroup(name(group), *more) for group, *more in rows]
