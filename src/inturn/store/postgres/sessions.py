"""Sessions in PostgreSQL: selects groups to which core/queue/sessions.py applies the rules, and receives in sessions.

To begin or end a session, and to park or resume a group, a transaction holds the desk. The other requests of a session
do not take the desk, so they may be in a long transaction. A write of the state locks the gate's row shared, so that no
other transaction opens the gate. A renewal of the lock changes the gate's row and its leases.
"""

from collections.abc import Sequence

from inturn.core import limits
from inturn.core.queue import delivery, redelivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleResult
from inturn.core.queue.messages import Delivery, ParkedGroup, QueueInfo, ReceiveRequest, first_number
from inturn.core.queue.sessions import GroupLock, SessionAnswer, SessionRequest, SessionVerb
from inturn.store.postgres.ready_list import Move, ReceiverLock, entry_of, hold_of
from inturn.store.postgres.receives import PostgresDeliveries, Taken, _hides, _seen

_WITHOUT_DESK = {
    SessionVerb.LOOK: "gate",
    SessionVerb.GET_STATE: "gate",
    SessionVerb.SET_STATE: "gate_to_share",
    SessionVerb.RENEW: "gate_to_renew",
}


class PostgresSessions(PostgresDeliveries):
    """Session requests, and receives with or without a session."""

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        self.look_at_clock(now_ms)
        if request.verb in _WITHOUT_DESK:
            return self._go_on(queue, group or "", request, now_ms)
        answer = SessionAnswer(SettleResult.HELD)
        if group is None and request.verb is SessionVerb.LOCK and self._is_idle(queue, now_ms):
            return answer
        desk = self._open(queue, now_ms)
        if group is None and request.verb is SessionVerb.LOCK:
            group = self._next_group(queue, desk)
        elif group is None:
            group = ""
        if group is not None:
            answer = self._decide(queue, desk, group, request, now_ms)
        if answer.verdict is not SettleResult.DONE:
            self._see_ahead(queue, desk, now_ms)
        self._keep(queue, desk)
        return answer

    def _go_on(self, queue: QueueInfo, group: str, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a request that does not need the desk."""
        verb, number = request.verb, queue.number
        before = self.gates.of(number, group, _WITHOUT_DESK[verb])
        verdict, gate = sessions.decide(before, request, now_ms, is_held=False, token=0)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.SET_STATE:
            self.gates.set_state(number, group, request.state)
        elif verb is SessionVerb.RENEW:
            self.gates.renew(number, group, gate)
            self._touch(queue, [(None, None, 0, gate.until_ms, None)])
        return SessionAnswer(
            verdict, group, gate, self.gates.state(number, group) if verb is SessionVerb.GET_STATE else None
        )

    def _decide(
        self, queue: QueueInfo, desk: ReceiverLock, group: str, request: SessionRequest, now_ms: int
    ) -> SessionAnswer:
        """Apply a request that needs the desk."""
        verb, number = request.verb, queue.number
        before = self.gates.to_take(number, group)
        if before is None:
            return SessionAnswer(SettleResult.HELD, group)
        is_held = verb in {SessionVerb.LOCK, SessionVerb.PARK} and self._is_held(queue, group)
        verdict, gate = sessions.decide(before, request, now_ms, is_held=is_held, token=desk.tokens + 1)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.LOCK:
            desk.tokens += 1
        if gate.until_ms is not None:
            desk.is_due(gate.until_ms)
        if gate != before:
            self.gates.save(number, group, gate)
        if verb in {SessionVerb.CLOSE, SessionVerb.PARK} and request.token is not None:
            self._end(queue, desk, group, request.token, now_ms)
        if sessions.is_closed(gate) != sessions.is_closed(before):
            head = self._one("first_of_group", number, group, desk.floor)
            if head:
                self._do("not_ready", [head[0]])
            desk.touch(None, group)
            self._refresh(queue, desk)
            self._news.add(number)
        return SessionAnswer(verdict, group, gate)

    def _next_group(self, queue: QueueInfo, desk: ReceiverLock) -> str | None:
        """Return the first free group in the line; a listed group is skipped only if it has an extended lease."""
        after: tuple[int, int, int] | None = None
        count = 1
        if desk.ran_out:
            self._list(queue, desk)
        while True:
            seen = after or (None, None, None)
            rows = self._all("next_group", queue.number, first_number(queue.number + 1), *seen, count, desk.version)
            for place, turn, number, group in rows:
                if place > desk.listed and not desk.ran_out:  # messages before it are not listed yet
                    break
                after = place, turn, number
                if not self._is_held(queue, group):
                    return str(group)
            else:
                if rows:
                    count = limits.HEADS_AT_ONCE
                    continue
                if desk.ran_out:
                    return None
            self._list(queue, desk)

    def _list(self, queue: QueueInfo, desk: ReceiverLock) -> None:
        end = first_number(queue.number + 1)
        row = self._one("list", queue.number, end, limits.LIST_AT_ONCE, desk.floor, desk.version)
        desk.listed, listed = row or (desk.listed, 0)
        desk.is_changed |= listed > 0
        desk.ran_out = listed < limits.LIST_AT_ONCE

    def _is_held(self, queue: QueueInfo, group: str) -> bool:
        """Return whether a message of the group is leased.

        An expired lease that was not ended counts, since a settlement has it locked.
        """
        return any(hold.token is not None and hold.until_ms is not None for _, hold in self._leases(queue, group))

    def _leases(self, queue: QueueInfo, group: str) -> list[tuple[int, DeliveryState]]:
        fetched = self._do("fetched_holds", queue.number, group)
        rows = self._all("group_holds", queue.number, group)
        return [(number, DeliveryState._make(hold)) for number, *hold in (*rows, *fetched.rows)]

    def _end(self, queue: QueueInfo, desk: ReceiverLock, group: str, token: int, now_ms: int) -> None:
        """Give back the messages received under a lock."""
        numbers = [number for number, hold in self._leases(queue, group) if hold.token == token]
        if not numbers:
            return
        left: list[tuple[int, str | None, DeliveryState | None]] = []
        for number, each, *fields, is_head in self._all("end_leases", queue.number, desk.floor, numbers):
            hold = DeliveryState._make(fields)
            left.append(
                (
                    number,
                    each,
                    redelivery.nacked(hold, queue.settings, number, is_head=is_head, delay_ms=None, now_ms=now_ms),
                )
            )
        for *_, now in left:
            if now is not None and now.until_ms is not None:
                desk.is_due(now.until_ms)
        self._set_holds(queue, left)
        self._mark_back(queue, desk)
        desk.touch(None, group)
        self._refresh(queue, desk)

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Return the parked groups, in the order in which they were parked."""
        return [ParkedGroup._make(row) for row in self._all("parked", queue.number, limit)]

    # --- receives ---

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        if all(want.token is None and want.number is None for want in wants):  # the usual case
            return super().receive(queue, wants, now_ms)
        return [self._receive_one(queue, want, now_ms) for want in wants]

    def _receive_one(self, queue: QueueInfo, want: ReceiveRequest, now_ms: int) -> list[Delivery]:
        if want.token is None and want.number is None:
            return super().receive(queue, [want], now_ms)[0]
        self.look_at_clock(now_ms)
        desk = self._open(queue, now_ms)
        if want.number is not None:
            given = self._fetch(queue, desk, want, want.number, now_ms)
        else:
            gate = self.gates.of(queue.number, want.group or "")
            taken: Taken = []
            if sessions.is_of(gate, want.token, now_ms):
                taken = self._take_within(queue, desk, want, gate, now_ms)
            given = self._give(queue, desk, taken, want, gate, now_ms)
        if not given:
            self._see_ahead(queue, desk, now_ms)
        self._keep(queue, desk)
        return given

    def _take_within(
        self, queue: QueueInfo, desk: ReceiverLock, want: ReceiveRequest, gate: GroupLock, now_ms: int
    ) -> Taken:
        """Return what a session can receive next; its own leases do not block it."""
        to = self.queues.get(queue.settings.dead_letter or "")
        most = queue.settings.max_receives
        while rows := self._all("session_messages", queue.number, want.group, desk.floor, gate.token, want.limit):
            entry, hold = entry_of(rows[0]), hold_of(rows[0])
            if to is None or not delivery.is_exhausted(hold, most) or _hides(hold):
                found = [(entry_of(row), hold_of(row)) for row in rows]
                holds = [_seen(each, now_ms) for _, each in found]
                return found[: delivery.takes(holds, want.limit, now_ms)]
            if not self._may_move(to):
                return []
            move = Move(entry.sequence_number, entry.group, entry.origin, delivery.exhausted(most))
            self._move(queue, [move], to, now_ms)
        return []

    def _fetch(
        self, queue: QueueInfo, desk: ReceiverLock, want: ReceiveRequest, number: int, now_ms: int
    ) -> list[Delivery]:
        """Lease a deferred message if it is not leased."""
        row = self._one("one_message", number) if queue.has_given(number) else None
        hold = hold_of(row) if row else None
        if row is None or not delivery.is_deferred(hold) or _hides(hold):
            return []
        entry = entry_of(row)
        gate = sessions.OPEN if entry.group is None else self.gates.of(queue.number, entry.group)
        if not sessions.may_fetch(gate, want.token, now_ms):
            return []
        to = self.queues.get(queue.settings.dead_letter or "")
        most = queue.settings.max_receives
        if to is not None and delivery.is_exhausted(hold, most):
            if not self._may_move(to):
                return []
            move = Move(entry.sequence_number, entry.group, entry.origin, delivery.exhausted(most))
            self._move(queue, [move], to, now_ms)
            return []
        return self._give(queue, desk, [(entry, hold)], want, gate, now_ms)

    def _give(
        self, queue: QueueInfo, desk: ReceiverLock, taken: Taken, want: ReceiveRequest, gate: GroupLock, now_ms: int
    ) -> list[Delivery]:
        """Lease messages; in a session until its lock ends."""
        if not taken:
            return []
        token = want.token
        if token is None:
            desk.tokens += 1
            token = desk.tokens
        given, holds = [], []
        ms = queue.settings.visibility_ms if want.visibility_ms is None else want.visibility_ms
        for entry, before in taken:
            hold = delivery.leased(before, token, ms, now_ms)
            if want.token is not None:
                hold = sessions.within(gate, hold)
            until_ms = hold.until_ms or 0
            desk.is_due(until_ms)
            holds.append((entry.sequence_number, entry.group, hold))
            given.append(Delivery(entry, token, until_ms, hold.attempts, hold.first_ms))
        self._set_holds(queue, holds)
        return given
