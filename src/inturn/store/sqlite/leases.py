"""Leases in SQLite: one row for all messages of a group that were received together for the first time.

The row stands for the holds of all its messages while they share one fate. Acknowledged messages leave it, mostly all
at once. Before any other change to one of them, the lease is split into one hold for each message.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement
from inturn.store.sqlite.statements import SqliteStatements, as_list

_ACK: Final = SettleAction.ACK  # before Python 3.12 each access to an enum member takes 0.15 µs
_numbers: Final = msgspec.json.Decoder(list[int]).decode


class Leases(SqliteStatements):
    """Reads and writes of leases. A lease blocks its group, so a group has at most one."""

    def add(self, queue: int, taken: Iterable[tuple[str, Sequence[int], DeliveryState]]) -> None:
        """Write leases for received messages.

        Args:
            queue: the queue's number.
            taken: for each group, its name, the sequence numbers of its messages, and their common hold, which has a
                token and an end.
        """
        self._do_each("add_lease", [(queue, group, as_list(each), len(each), *hold) for group, each, hold in taken])

    def acknowledge(self, queue: int, changes: Sequence[Settlement], now_ms: int) -> list[tuple[int, str, set[int]]]:
        """Remove acknowledged messages from their leases, and split the leases that other changes concern.

        Returns:
            For each lease that lost messages, its token, its group and the sequence numbers of those messages.
        """
        acknowledged: defaultdict[int | None, set[int]] = defaultdict(set)
        others: set[int | None] = set()
        for number, token, act, *_ in changes:
            if token is None:
                self._break_up_around(queue, number)
            elif act is _ACK:
                acknowledged[token].add(number)
            else:
                others.add(token)
        taken: list[tuple[int, str, set[int]]] = []
        ended: list[tuple[int, str]] = []
        for token, group, text, until_ms in self._all("leases", queue, as_list({*acknowledged, *others})):
            if until_ms <= now_ms or token in others:
                self.break_up(queue, group)
                continue
            numbers = _numbers(text)
            gone = acknowledged[token].intersection(numbers)
            if len(gone) == len(numbers):  # the usual case
                ended.append((queue, group))
            elif gone:
                left = [number for number in numbers if number not in gone]
                self._do("shrink_lease", as_list(left), len(left), queue, group)
            if gone:
                taken.append((token, group, gone))
        self._do_each("end_lease", ended)
        return taken

    def break_up(self, queue: int, group: str) -> None:
        """Replace a group's lease, if it has one, by one hold for each message."""
        self._do("hold_each", queue, group)
        self._do("end_lease", queue, group)

    def break_up_over(self, queue: int, now_ms: int) -> None:
        """Split expired leases."""
        for (group,) in self._all("leases_over", queue, now_ms, limits.EXPIRE_AT_ONCE):
            self.break_up(queue, group)

    def _break_up_around(self, queue: int, number: int) -> None:
        row = self._one("group_of", number)
        if row and row[0] is not None:
            self.break_up(queue, row[0])

    def of(self, queue: int, group: str) -> dict[int, DeliveryState]:
        """Return the holds of the messages in a group's lease, by sequence number."""
        return {number: DeliveryState._make(hold) for number, *hold in self._all("lease_of", queue, group)}
