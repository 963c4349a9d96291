"""The pending messages of each group, in order.

An index by group writes to another place for every message: one page each once the queue is long, many times the cost
of the message itself. So messages enter the table ``inturn_pending`` only after thousands of newer ones were sent, in
bulk and in the order of the table. Most are done by then. Newer messages are listed in memory, by group, from the end
of the log. Other processes may have removed some of them meanwhile, so each listed message is looked up before use.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.statements import SqliteStatements, as_list

_NONE: Final[Sequence[int]] = ()


@dataclass(slots=True)
class _Newest:
    """The messages of a queue that are not in the table, by group; some may be gone."""

    after: int  # the sequence number before the first possible one
    seen: int  # the last sequence number read
    groups: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(eq=False)
class GroupIndex(SqliteStatements):
    """An index of the pending messages of groups.

    Attributes:
        newest_messages: the minimum number of newest messages that are kept out of the table.
        nonempty: some of the groups that have a pending message, so that a send need not search for one.
    """

    newest_messages = limits.NEWEST_MESSAGES

    _catalog: SqliteCatalog
    nonempty: set[tuple[int, str | None]] = field(default_factory=set)
    _newest: dict[int, _Newest] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)  # queues whose list has changed in the open transaction

    # --- transactions ---

    def refresh(self) -> None:
        """Drop data that other processes may have changed, and lists of queues that they removed or indexed."""
        self.nonempty.clear()
        indexed = self._catalog.indexed
        for number in [number for number, known in self._newest.items() if indexed.get(number) != known.after]:
            del self._newest[number]

    def commit(self) -> None:
        """Keep the changes recorded in this transaction."""
        self._touched.clear()

    def roll_back(self) -> None:
        """Drop the changes recorded in this transaction."""
        for number in self._touched:
            self._newest.pop(number, None)
        self._touched.clear()

    # --- looking ---

    def newest(self, queue: QueueInfo, group: str, after: int, limit: int) -> Sequence[int]:
        """Return a group's first messages after a sequence number that are not in the table; some may be gone."""
        known = self._newest.get(queue.number)
        if known is None or known.seen < queue.last:
            known = self._read(queue)
        numbers = known.groups.get(group, _NONE)
        begin = bisect_right(numbers, after)
        return numbers[begin : begin + limit]

    def head(self, queue: QueueInfo, group: str) -> int | None:
        """Return the first pending message of a group."""
        row: tuple[int] | None = self._one("first_of_group", queue.number, group)
        return row[0] if row else self.first_of_newest(queue, group)

    def next(self, queue: QueueInfo, group: str, after: int) -> int | None:
        """Return the first pending message of a group after a sequence number."""
        row: tuple[int] | None = self._one("next_pending", queue.number, group, after)
        return row[0] if row else self.first_of_newest(queue, group, after)

    def remove(self, queue: QueueInfo, group: str, removed: set[int]) -> None:
        """Remove messages from the list, because they left the queue or a look-up did not find them."""
        known = self._newest.get(queue.number)
        numbers = known.groups.get(group) if known else None
        if not known or not numbers:
            return
        self._touched.add(queue.number)
        if removed.issuperset(numbers[: len(removed)]):  # the usual case
            del numbers[: len(removed)]
        else:
            numbers[:] = [number for number in numbers if number not in removed]
        if not numbers:
            del known.groups[group]

    def first_of_newest(self, queue: QueueInfo, group: str, after: int = 0) -> int | None:
        """Return a group's first pending message after a sequence number that is not in the table."""
        while numbers := self.newest(queue, group, after, limits.HEADS_AT_ONCE):
            pending: list[int] = [number for (number,) in self._all("still_pending", as_list(numbers))]
            if len(pending) < len(numbers):
                self.remove(queue, group, set(numbers).difference(pending))
            if pending:
                return pending[0]
        return None

    def unindexed(self, queue: QueueInfo) -> Mapping[str, Sequence[int]]:
        """Return the pending messages that are not in the table, by group, as they are on the disk."""
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for number, group in self._all("newest", queue.number, self._catalog.indexed[queue.number], queue.last):
            by_group[group].append(number)
        return by_group

    def unindexed_of(self, queue: QueueInfo, group: str, after: int, limit: int) -> Sequence[int]:
        """Return the listed messages of one group, after a sequence number."""
        after = max(after, self._catalog.indexed[queue.number])
        return [number for (number,) in self._all("newest_of_group", queue.number, after, queue.last, group, limit)]

    def _read(self, queue: QueueInfo) -> _Newest:
        """Add the messages sent since the last read to the list."""
        number = queue.number
        known = self._newest.get(number)
        if known is None:
            known = self._newest[number] = _Newest(self._catalog.indexed[number], self._catalog.indexed[number])
        groups = known.groups
        for sequence_number, group in self._all("newest", number, known.seen, queue.last):
            groups[group].append(sequence_number)
        known.seen = queue.last
        self._touched.add(number)
        return known

    # --- changing ---

    def leave(self, queue: QueueInfo, groups: Mapping[str, set[int]]) -> None:
        """Remove messages, by group, that are no longer pending."""
        indexed = self._catalog.indexed[queue.number]
        inside: dict[str, set[int]] = {}
        for group, numbers in groups.items():
            old = numbers if max(numbers) <= indexed else {number for number in numbers if number <= indexed}
            if old:
                inside[group] = old
            if len(old) < len(numbers):
                self.remove(queue, group, numbers - old)
        if inside:
            self._take_out(queue.number, inside)

    def _take_out(self, queue: int, groups: Mapping[str, set[int]]) -> None:
        """Delete messages from the table: by range if the range of a group holds nothing else, one by one otherwise."""
        before = self.connection.total_changes
        self._do_each(
            "remove_pending_range",
            [(queue, group, min(numbers), max(numbers), len(numbers)) for group, numbers in groups.items()],
        )
        if self.connection.total_changes - before < sum(map(len, groups.values())):
            self._do_each(
                "remove_pending", [(queue, group, number) for group, numbers in groups.items() for number in numbers]
            )

    def restore(self, queue: QueueInfo, number: int, group: str | None) -> None:
        """Add a message that returned to its old place between others."""
        self.index(queue, number)  # so that every listed message is after it
        if group is not None:
            self._execute("add_pending", queue.number, group, number)

    def forget(self, queue: int) -> None:
        """Drop the list of a queue whose messages were all removed."""
        self._newest.pop(queue, None)

    def sent(self, queue: QueueInfo, before: int, messages: Sequence[tuple[int, str | None]]) -> None:
        """Note messages appended after the number ``before``, and index those that are no longer among the newest."""
        known = self._newest.get(queue.number)
        if known is not None and known.seen == before:
            for number, group in messages:
                if group is not None:
                    known.groups[group].append(number)
            known.seen = queue.last
            self._touched.add(queue.number)
        if queue.last - self._catalog.indexed[queue.number] >= 2 * self.newest_messages:
            self.index(queue, queue.last - self.newest_messages)

    def index(self, queue: QueueInfo, up_to: int) -> None:
        """Put all messages up to a sequence number into the table."""
        number = queue.number
        indexed = self._catalog.indexed[number]
        if up_to > indexed:
            self._execute("index_pending", number, indexed, up_to)
            self._catalog.indexed[number] = up_to
            self._catalog.counted(queue)
            self._newest.pop(number, None)
