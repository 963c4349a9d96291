"""The line of ready groups in SQLite: it selects the rows that core/queue/ready_groups.py decides about.

The head of a group that was never given back is in `inturn_ready`, by its sequence number alone. Heads that were given
back, and those that became ready behind them, are in `inturn_line`. That table is not read as long as no message of the
queue was ever given back.
"""

from collections.abc import Sequence

from inturn.core.queue import ready_groups
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.core.queue.ready_groups import LinePlace
from inturn.store.sqlite.statements import SqliteStatements


class ReadyGroups(SqliteStatements):
    """Reads and writes of the line: the heads of the groups that can be received."""

    def next(self, queue: QueueInfo, limit: int, *, grouped: bool = False) -> list[tuple[int, str | None]]:
        """Return the first heads with their groups, in order; with ``grouped``, only those that have a group."""
        every = first_number(queue.number), first_number(queue.number + 1)
        heads: list[tuple[int, str | None]] = self._all("next_group" if grouped else "next_ready", *every, limit)
        if not queue.back[1]:
            return heads
        behind = self._all("next_group_in_line" if grouped else "next_in_line", *every, limit)
        if not behind:
            return heads
        both = [((at,), at, group) for at, group in heads]
        both += [(tuple(place), at, group) for *place, at, group in behind]
        both.sort(key=lambda each: (*each[0], *(0,) * (2 - len(each[0])), each[1]))
        return [(at, group) for _, at, group in both[:limit]]

    def has(self, queue: QueueInfo, head: int) -> bool:
        """Return whether a head is in the line."""
        return self._one("is_ready", head) is not None or (
            queue.back[1] > 0 and self._one("is_in_line", head) is not None
        )

    def leave(self, queue: QueueInfo, heads: Sequence[int]) -> None:
        """Remove heads from the line, if they are in it."""
        if not heads:
            return
        numbers = [(head,) for head in heads]
        self._do_each("not_ready", numbers)
        if queue.back[1]:
            self._do_each("not_in_line", numbers)

    def join(self, queue: QueueInfo, heads: Sequence[tuple[int, str | None, bool]]) -> None:
        """Add heads to the line in this order, except those already in it.

        Args:
            queue: the queue.
            heads: for each head its sequence number, its group, and whether it was given back.
        """
        if not heads:
            return
        if not queue.back[1] and not [head for head, _, is_back in heads if is_back]:  # the usual case
            self._do_each("ready", [(head, group) for head, group, _ in heads])
            return
        before = back = LinePlace(*queue.back)
        for head, group, is_back in heads:
            if not self.has(queue, head):
                place, back = ready_groups.joined(back, head, queue.last, is_back=is_back)
                if place.turn:
                    self._do("join_line", *place, head, group)
                else:
                    self._do("ready", head, group)
        if back != before:
            queue.back = back
            self._do("keep_back", *back, queue.number)
