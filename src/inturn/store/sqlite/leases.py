"""Leases over SQLite: one row for the messages of a group that were received together, and nobody had before.

As long as all of them fare alike it stands for the holds of each. What is acknowledged leaves it, mostly all at once;
whatever else becomes of one of them, the lease is broken up first, into a hold for each.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.delivery import Act, Change, Hold
from inturn.store.sqlite.statements import Statements, as_list

_ACK: Final = Act.ACK  # until Python 3.12 each look at a member of an enumeration takes 0.15 µs
_numbers: Final = msgspec.json.Decoder(list[int]).decode


class Leases(Statements):
    """Reads and writes leases. While one lasts, its group is blocked; so a group has one at most."""

    def add(self, queue: int, taken: Iterable[tuple[str, Sequence[int], Hold]]) -> None:
        """Messages were received.

        Args:
            queue: its number.
            taken: groups, the numbers of messages of each, and what is known of each of these: a hold with a token
                and an end.
        """
        self._do_each("add_lease", [(queue, group, as_list(each), len(each), *hold) for group, each, hold in taken])

    def acknowledge(self, queue: int, changes: Sequence[Change], now_ms: int) -> list[tuple[int, str, set[int]]]:
        """Take what is acknowledged out of its lease; break up the leases that other changes are about.

        Returns:
            Of each lease that something was taken out of its token, its group, and the numbers of the messages.
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
            if len(gone) == len(numbers):  # as nearly always
                ended.append((queue, group))
            elif gone:
                left = [number for number in numbers if number not in gone]
                self._do("shrink_lease", as_list(left), len(left), queue, group)
            if gone:
                taken.append((token, group, gone))
        self._do_each("end_lease", ended)
        return taken

    def break_up(self, queue: int, group: str) -> None:
        """Of each message of a group's lease, if it has one, there is a hold from now on."""
        self._do("hold_each", queue, group)
        self._do("end_lease", queue, group)

    def break_up_over(self, queue: int, now_ms: int) -> None:
        """Break up what is over."""
        for (group,) in self._all("leases_over", queue, now_ms, limits.EXPIRE_AT_ONCE):
            self.break_up(queue, group)

    def _break_up_around(self, queue: int, number: int) -> None:
        row = self._one("group_of", number)
        if row and row[0] is not None:
            self.break_up(queue, row[0])

    def of(self, queue: int, group: str) -> dict[int, Hold]:
        """What is known of the messages of a group's lease, by their numbers."""
        return {number: Hold._make(hold) for number, *hold in self._all("lease_of", queue, group)}
