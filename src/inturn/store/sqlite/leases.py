"""Delivery states in SQLite: holds of single messages, and leases of several.

A hold records that one message is leased, delayed, deferred or was tried before. It is a small row of its own, so a
message itself is written once and deleted once. A lease is one row for all messages of a group that were received
together for the first time. It replaces per-message holds until one message is settled differently. Acknowledged
messages leave it, mostly all at once. Before any other change to one of them, the lease is split into holds.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from inturn.core.queue import redelivery
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement
from inturn.core.queue.messages import QueueInfo
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.statements import SQL, SqliteStatements, as_list

Hold: TypeAlias = tuple[DeliveryState | None, str | None]
"""The hold of a message, and its group; both None if it has none."""

_ACK: Final = SettleAction.ACK  # before Python 3.12 each access to an enum member takes 0.15 µs
_NO_HOLD: Final[Hold] = (None, None)
_numbers: Final = msgspec.json.Decoder(list[int]).decode


@dataclass(eq=False)
class Leases(SqliteStatements):
    """Reads and writes of holds and leases. A lease blocks its group, so a group has at most one."""

    _index: GroupIndex

    # --- holds ---

    def any_hold(self, queue: QueueInfo) -> bool:
        """Return whether any message of a queue has its own hold; usually no message has one."""
        return self._run(SQL["has_hold"], queue.number_range).fetchone() is not None

    def hold(self, number: int) -> Hold:
        """Return the hold of one message."""
        row = self._one("hold", number)
        return (DeliveryState._make(row[1:-1]), row[-1]) if row else _NO_HOLD

    def holds(self, numbers: Iterable[int]) -> dict[int, Hold]:
        """Return the holds of messages that have one, by sequence number."""
        rows = self._all("holds", as_list(numbers))
        return {row[0]: (DeliveryState._make(row[1:-1]), row[-1]) for row in rows}

    def of_group(self, queue: QueueInfo, group: str, *, fetched: bool = False) -> list[tuple[int, DeliveryState]]:
        """Return the holds in a group that are not deferred; with ``fetched``, those of deferred, leased ones too."""
        rows = self._all("group_holds", queue.number, group)
        if fetched:
            rows += self._all("fetched_holds", queue.number, group)
        return [(number, DeliveryState._make(hold)) for number, *hold in rows]

    def set_hold(self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState | None) -> None:
        """Write or remove the hold of a message."""
        if hold is None:
            self._execute("remove_hold", number)
        else:
            self._execute("set_hold", number, queue.number, group, *hold)

    def give_back(
        self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState, delay_ms: int | None, now_ms: int
    ) -> None:
        """End the lease of a message at its receiver's request."""
        is_head = self._is_head(queue, number, group, hold)
        remaining = redelivery.nacked(hold, queue.settings, number, is_head=is_head, delay_ms=delay_ms, now_ms=now_ms)
        self.set_hold(queue, number, group, remaining)

    def end(
        self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState, now_ms: int
    ) -> DeliveryState | None:
        """End an expired hold; return the remaining state."""
        is_head = self._is_head(queue, number, group, hold)
        remaining = redelivery.ended(hold, queue.settings, number, is_head=is_head, now_ms=now_ms)
        self.set_hold(queue, number, group, remaining)
        return remaining

    def _is_head(self, queue: QueueInfo, number: int, group: str | None, hold: DeliveryState) -> bool:
        """Return whether a message was at the head of its group, or needed not to be."""
        return group is None or hold.deferred or self._index.head(queue, group) == number

    # --- leases ---

    def add(self, queue: int, leased: Sequence[tuple[str, list[int], DeliveryState]]) -> None:
        """Write leases for received messages: for each group, its name, its messages and their common hold."""
        rows: list[tuple[Any, ...]] = [
            (queue, group, str(numbers), len(numbers), *hold) for group, numbers, hold in leased
        ]
        if len(rows) == 1:
            self._run(SQL["add_lease"], rows[0])
        else:
            self._do_each("add_lease", rows)

    def acknowledge(self, queue: int, changes: Sequence[Settlement], now_ms: int) -> list[tuple[int, str, set[int]]]:
        """Remove acknowledged messages from their leases, and split the leases that other changes concern.

        Returns:
            For each lease that lost messages, its token, its group and the sequence numbers of these messages.
        """
        acknowledged: defaultdict[int | None, set[int]] = defaultdict(set)
        changed: set[int | None] = set()
        for number, token, act, *_ in changes:
            if token is None:
                row = self._one("message_group", number)
                if row and row[0] is not None:
                    self.break_up(queue, row[0])
            elif act is _ACK:
                acknowledged[token].add(number)
            else:
                changed.add(token)
        reduced: list[tuple[int, str, set[int]]] = []
        ended: list[tuple[int, str]] = []
        run, tokens = self._run, str([*{*acknowledged, *changed}])
        for token, group, text, until_ms in run(SQL["leases"], (queue, tokens)).fetchall():
            if until_ms <= now_ms or token in changed:
                self.break_up(queue, group)
                continue
            numbers = _numbers(text)
            removed = acknowledged[token].intersection(numbers)
            if len(removed) == len(numbers):  # the usual case
                ended.append((queue, group))
            elif removed:
                remaining = [number for number in numbers if number not in removed]
                run(SQL["shrink_lease"], (as_list(remaining), len(remaining), queue, group))
            if removed:
                reduced.append((token, group, removed))
        self.connection.executemany(SQL["end_lease"], ended)
        return reduced

    def break_up(self, queue: int, group: str) -> None:
        """Replace a group's lease, if it has one, by one hold for each message."""
        self._execute("split_lease", queue, group)
        self._execute("end_lease", queue, group)

    def of(self, queue: int, group: str) -> dict[int, DeliveryState]:
        """Return the holds of the messages in a group's lease, by sequence number."""
        return {number: DeliveryState._make(hold) for number, *hold in self._all("lease_holds", queue, group)}
