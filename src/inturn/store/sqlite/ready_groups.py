"""The ready queue in SQLite: it selects the rows that core/queue/ready_groups.py decides about.

It contains the head of every group that can be received. So the next message is the first row of an index, whatever the
backlog and the number of locked or parked groups. The head of a group that was never nacked is in `inturn_ready`, by
its sequence number only. Heads that were nacked, and heads that became ready after them, are in `inturn_ready_place`.
That table is not read until a message of the queue is nacked for the first time. Every change of a group ends in
:meth:`ReadyGroups.refresh`. docs/architecture.md shows all tables of a message side by side.

What never happens:

- The head of a leased, delayed, locked or parked group is listed: a receive takes the head off in the transaction that
  leases it, and ``refresh`` looks at the group's holds and lock before it lists a head.
- A free group with a pending message is not listed: a send lists a group's first message, and whatever frees a group (a
  settlement, the end of a lease, a delay or a lock) passes it to ``refresh``.
- A head is in both tables, or twice in one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inturn.core import limits
from inturn.core.queue import delivery, ready_groups
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import QueueInfo
from inturn.core.queue.ready_groups import ReadyPlace
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.producers import SqliteProducers
from inturn.store.sqlite.statements import SQL, SqliteStatements

Touched: TypeAlias = Sequence[tuple[int, str | None]]
"""Groups to be checked again, in the order in which they became ready, if that is known.

An item is ``(0, name)``, or ``(number, None)`` for a message without a group. Of repeated items the last counts.
"""


@dataclass(eq=False)
class ReadyGroups(SqliteStatements):
    """The line: the heads of the groups that can be received."""

    _index: GroupIndex
    _locks: SqliteGroupLocks
    _leases: Leases
    _producers: SqliteProducers

    def next(self, queue: QueueInfo, limit: int, *, grouped: bool = False) -> list[tuple[int, str | None]]:
        """Return the first heads with their groups, in order; with ``grouped``, only heads that have a group."""
        first = SQL["next_ready_group"] if grouped else SQL["next_ready"]
        heads: list[tuple[int, str | None]] = self._run(first, (*queue.number_range, limit)).fetchall()
        if not queue.last_requeue_place[1]:
            return heads
        placed = self._all("next_ready_group_place" if grouped else "next_ready_place", *queue.number_range, limit)
        if not placed:
            return heads
        both = [((head, 0), head, group) for head, group in heads]
        both += [((place, rank), head, group) for place, rank, head, group in placed]
        both.sort(key=lambda entry: entry[:2])
        return [(head, group) for _, head, group in both[:limit]]

    def has(self, queue: QueueInfo, head: int) -> bool:
        """Return whether a head is in the ready queue."""
        return self._one("is_ready", head) is not None or (
            queue.last_requeue_place[1] > 0 and self._one("has_ready_place", head) is not None
        )

    def leave(self, queue: QueueInfo, heads: Sequence[int]) -> None:
        """Remove heads from the ready queue, if they are in it."""
        numbers = [(head,) for head in heads]
        self.connection.executemany(SQL["remove_ready"], numbers)
        if queue.last_requeue_place[1]:
            self.connection.executemany(SQL["remove_ready_place"], numbers)

    def _join(self, queue: QueueInfo, heads: Sequence[tuple[int, str | None, bool]]) -> None:
        """Add heads, each with its group and whether it was nacked, in this order; skip heads that are listed."""
        has_lead = queue.settings.priority_lead is not None
        if (
            not queue.last_requeue_place[1] and not has_lead and not [head for head, _, is_back in heads if is_back]
        ):  # the usual case
            if len(heads) == 1:
                self._run(SQL["add_ready"], heads[0][:2])
            else:
                self._do_each("add_ready", [head[:2] for head in heads])
            return
        priorities = self._producers.priorities(queue, [group for _, group, _ in heads]) if has_lead else {}
        before = back = ReadyPlace(*queue.last_requeue_place)
        for head, group, is_back in heads:
            if not self.has(queue, head):
                place, back = ready_groups.place_of_joining(back, head, queue.last, is_back=is_back)
                if not is_back and (lead := ready_groups.lead_of(priorities.get(group, 0), queue.settings)):
                    place = ready_groups.moved_forward(place, lead, queue.number)
                    back = back if back.rank else ReadyPlace(0, 2)  # so that inturn_ready_place is read
                if place.rank:
                    self._execute("add_ready_place", *place, head, group)
                else:
                    self._execute("add_ready", head, group)
        if back != before:
            queue.last_requeue_place = back
            self._execute("save_last_requeue", *back, queue.number)

    # --- changes ---

    def refresh(self, queue: QueueInfo, touched: Touched, now_ms: int, *, in_order: bool = True) -> None:
        """Add the heads of the groups that are free to the ready queue; unless ``in_order``, oldest heads first."""
        ready: list[tuple[int, str | None, bool]] = []
        for number, group in touched if len(touched) == 1 else ready_groups.in_join_order(touched):
            if group is None:
                hold, _ = self._leases.hold(number)
                if self._one("one_message", number) and ready_groups.is_ready(hold, (), now_ms):
                    ready.append((number, None, ready_groups.is_requeued(hold)))
                continue
            row = self._head(queue, group)
            if row is None or row[2]:
                continue
            head, has_holds, _ = row
            own = None
            if has_holds:
                holds = dict(self._leases.of_group(queue, group))
                own = holds.get(head)
                if not ready_groups.is_ready(own, holds.values(), now_ms):
                    continue
            ready.append((head, group, own is not None and ready_groups.is_requeued(own)))
        if not in_order:
            ready.sort(key=lambda entry: entry[0])
        if ready:
            self._join(queue, ready)

    def set_priority(self, queue: QueueInfo, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group, and its place if it is ready and was not nacked."""
        self._producers.save_priority(queue, group, priority)
        head = self._index.head(queue, group)
        if head is not None and self.has(queue, head) and not ready_groups.is_requeued(self._leases.hold(head)[0]):
            self.leave(queue, [head])
            self.refresh(queue, [(0, group)], now_ms)

    def _head(self, queue: QueueInfo, group: str) -> tuple[int, int, int] | None:
        """Return a group's head, whether the group has holds, and whether it is locked, parked or leased."""
        newest = self._index.newest(queue, group, 0, 1)
        values = (queue.number, group, newest[0] if newest else None)
        row: tuple[int, int, int] | None = self._run(SQL["group_head"], values).fetchone()
        if row is None and newest:  # the listed message is gone
            head = self._index.first_of_newest(queue, group)
            row = self._one("group_head", queue.number, group, head) if head else None
        return row

    def tidy(self, queue: QueueInfo, now_ms: int, touched: Touched = ()) -> None:
        """End expired holds and locks, and refresh their groups after those that are already touched."""
        if self._run(SQL["has_expired"], (queue.number, now_ms)).fetchone():
            expired = self.end_expired(queue, now_ms)
            for _, number, group, hold in expired:
                if hold is not None and delivery.is_hidden(
                    self._leases.end(queue, number, group, hold, now_ms), now_ms
                ):
                    self.leave(queue, [number])
            touched = [*touched, *(key for key, *_ in expired)]
        if touched:
            self.refresh(queue, touched, now_ms)

    def end_expired(
        self, queue: QueueInfo, now_ms: int
    ) -> list[tuple[tuple[int, str | None], int, str | None, DeliveryState | None]]:
        """Unlock groups whose lock has expired, and return all that has expired, in the order of the deadlines.

        Each item has its key for `Touched`, the sequence number, the group, and the hold, which is None for a lock.
        """
        expired: list[tuple[int, int, str | None, DeliveryState | None]] = [
            (until_ms, 0, group, None) for until_ms, group in self._locks.end_locks(queue.number, now_ms)
        ]
        for (group,) in self._all("expired_leases", queue.number, now_ms, limits.EXPIRE_AT_ONCE):
            self._leases.break_up(queue.number, group)
        holds = self._all("expired_holds", queue.number, now_ms, limits.EXPIRE_AT_ONCE)
        expired += [(hold[0], number, group, DeliveryState._make(hold)) for number, group, *hold in holds]
        expired.sort(key=lambda expiry: expiry[:3])
        return [((number if group is None else 0, group), number, group, hold) for _, number, group, hold in expired]
