"""Receives in PostgreSQL: selects the messages to which core/queue/delivery.py applies the rules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from inturn.core import limits
from inturn.core.queue import delivery
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest, StoredMessage, first_number
from inturn.store.postgres.ready_list import Held, InLine, Move, ReceiverLock, Row, entry_of, hold_of
from inturn.store.postgres.settlements import Settling

Taken = list[tuple[StoredMessage, DeliveryState | None]]
"""Messages for a receiver, each with its hold before the receive."""


@dataclass
class _Leases:
    """Leases to write, collected for several receivers."""

    fresh: list[tuple[int, str | None, int, int]] = field(default_factory=list)
    again: list[Held] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)


class PostgresDeliveries(Settling):
    """Receives of messages without a session."""

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        self.look_at_clock(now_ms)
        if self._is_idle(queue, now_ms):
            return [[] for _ in wants]
        desk = self._open(queue, now_ms)
        answers: list[list[Delivery]] = []
        for is_of_group, part in groupby(wants, lambda want: want.group is not None):
            leases = _Leases()
            those = list(part)
            for start in range(0, len(those), 1 if is_of_group else len(those)):
                these = those[start : start + 1] if is_of_group else those
                find = self._take_of_group if is_of_group else self._take_next
                for want, taken in zip(these, find(queue, desk, these, leases, now_ms), strict=True):
                    answers.append(self._lease(queue, desk, taken, want, leases, now_ms))
                self._write_leases(queue, leases, now_ms)
                leases = _Leases()
        if not all(answers):
            self._see_ahead(queue, desk, now_ms)
        self._keep(queue, desk)
        return answers

    def _take_next(
        self, queue: QueueInfo, desk: ReceiverLock, wants: Sequence[ReceiveRequest], leases: _Leases, now_ms: int
    ) -> Iterator[Taken]:
        """Yield the messages for each of several receivers that take from any group."""
        groups = self._free(queue, desk, len(wants), max(want.limit for want in wants))
        for want in wants:
            taken: Taken = []
            while len(taken) < want.limit and (found := next(groups, None)):
                place, group, rows = found
                some = self._take(queue, desk, group, rows, want.limit - len(taken), now_ms)
                if some is not None:
                    leases.heads.append(place[2])
                    taken += some
                desk.passed(place, is_left=some is None)
            yield taken

    def _free(
        self, queue: QueueInfo, desk: ReceiverLock, receivers: int, most: int
    ) -> Iterator[tuple[InLine, str | None, list[Row]]]:
        """Yield the groups that can be received, in the order of the line: place, group, first messages."""
        end = first_number(queue.number + 1)
        chunk = max(receivers * most, limits.LIST_AT_ONCE)
        begin = (desk.ready_from or 0) if desk.left is None else desk.left + 1
        after, count = desk.line, receivers * most + 1  # one more shows whether there are more
        listing = self._do("list", queue.number, end, chunk, desk.floor, desk.version) if desk.ran_out else None
        while True:
            if desk.has_back:
                place = after or (None, None, None)
                rows = self._all("next", queue.number, begin, end, count, most, count, desk.version, *place)
            else:
                rows = self._all("next_fresh", queue.number, begin, end, count, most, count, desk.version)
            if listing is not None:
                desk.listed, listed = listing.rows[0] if listing.rows else (desk.listed, 0)
                desk.is_changed |= listed > 0
                desk.ran_out, listing = listed < chunk, None
            heads = [(head, list(those)) for head, those in groupby(rows, lambda row: row[:4])]
            is_cut = len(rows) == count
            if is_cut and len(heads) > 1:  # the last group may have more rows
                heads.pop()
            for (number, turn, head, group), those in heads:
                if number > desk.listed and not desk.ran_out:  # messages before it are not listed yet
                    is_cut = False
                    break
                after, begin = (number, turn, head), max(begin, min(number, desk.listed) + 1)
                yield after, group, [row[4:] for row in those if row[4] is not None]
            if is_cut:
                continue
            if desk.ran_out:
                desk.see_end()
                return
            listing = self._do("list", queue.number, end, chunk, desk.floor, desk.version)

    def _take_of_group(
        self, queue: QueueInfo, desk: ReceiverLock, wants: Sequence[ReceiveRequest], leases: _Leases, now_ms: int
    ) -> Iterator[Taken]:
        """Yield the messages for the receiver that takes from one group only."""
        (want,) = wants
        rows = self._all("next_of_group", queue.number, want.group, desk.floor, want.limit)
        taken: Taken | None = None
        if rows and not _hides(hold_of(rows[0])):
            taken = self._take(queue, desk, want.group, rows, want.limit, now_ms)
            if taken is not None:
                leases.heads.append(rows[0][0])
        yield taken or []

    def _take(
        self, queue: QueueInfo, desk: ReceiverLock, group: str | None, rows: list[Row], limit: int, now_ms: int
    ) -> Taken | None:
        """Return the messages of a group that can be received.

        Messages at its head that were received too often are moved away first. None: a message cannot be moved now,
        and the group is left as it is.
        """
        to = self.queues.get(queue.settings.dead_letter or "")
        most = queue.settings.max_receives
        while to is not None and rows and delivery.is_exhausted(hold_of(rows[0]), most):
            if _hides(hold_of(rows[0])):
                return []
            if not self._may_move(to):
                return None
            entry = entry_of(rows[0])
            move = Move(entry.sequence_number, group, entry.origin, delivery.exhausted(most))
            self._move(queue, [move], to, now_ms)
            rows = []
            if group is not None:
                rows = self._all("next_of_group", queue.number, group, desk.floor, limit)
            elif to.number == queue.number:  # it keeps its place
                rows = self._all("one_message", entry.sequence_number)
        taken = [(entry_of(row), hold_of(row)) for row in rows[:limit]]
        return taken[: delivery.takes([_seen(hold, now_ms) for _, hold in taken], limit, now_ms)]

    def _lease(
        self, queue: QueueInfo, desk: ReceiverLock, taken: Taken, want: ReceiveRequest, leases: _Leases, now_ms: int
    ) -> list[Delivery]:
        """Add leases for the messages of one receiver; return its deliveries."""
        if not taken:
            return []
        desk.tokens += 1
        token = desk.tokens
        ms = queue.settings.visibility_ms if want.visibility_ms is None else want.visibility_ms
        until_ms = now_ms + ms
        desk.is_due(until_ms)
        given = []
        for entry, before in taken:
            if before is None:
                leases.fresh.append((entry.sequence_number, entry.group, until_ms, token))
                given.append(Delivery(entry, token, until_ms, 1, now_ms))
            else:
                hold = delivery.leased(before, token, ms, now_ms)
                leases.again.append((entry.sequence_number, entry.group, hold))
                given.append(Delivery(entry, token, until_ms, hold.attempts, hold.first_ms))
        return given

    def _write_leases(self, queue: QueueInfo, leases: _Leases, now_ms: int) -> None:
        if leases.fresh:
            columns: list[Any] = list(map(list, zip(*leases.fresh, strict=True)))
            self._do("lease", queue.number, now_ms, *columns)
        if leases.again:
            self._set_holds(queue, leases.again)
        if leases.heads:
            self._do("not_ready", leases.heads)


_LATER: Final = 2**62


def _hides(hold: DeliveryState | None) -> bool:
    """Return whether a hold hides its message: whatever the time, until the hold is ended."""
    return hold is not None and hold.until_ms is not None


def _seen(hold: DeliveryState | None, now_ms: int) -> DeliveryState | None:
    """Return a hold; one that has expired, and that a settlement has locked, as not expired."""
    if hold is not None and hold.until_ms is not None and hold.until_ms <= now_ms:
        return hold._replace(until_ms=_LATER)
    return hold
