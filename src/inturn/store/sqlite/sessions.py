"""Sessions in SQLite: it selects rows that core/queue/sessions.py decides about, and leases messages in sessions."""

from collections.abc import Sequence

from inturn.core import limits
from inturn.core.queue import delivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleResult
from inturn.core.queue.messages import Delivery, ParkedGroup, QueueInfo, ReceiveRequest
from inturn.core.queue.sessions import GroupLock, SessionAnswer, SessionRequest, SessionVerb
from inturn.store.sqlite.deliveries import Found, SqliteDeliveries, entry_of


class SqliteSessions(SqliteDeliveries):
    """Deliveries within sessions and without."""

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Run a session request on a group, with its effects on messages; None: the next group that can be locked."""
        self.look_at_clock(now_ms)
        if request.verb is SessionVerb.LOCK:
            self._tidy(queue, now_ms)
            group = self._next_group(queue, now_ms) if group is None else group
            answer = SessionAnswer(SettleResult.HELD) if group is None else self._decide(queue, group, request, now_ms)
            if answer.verdict is not SettleResult.DONE:
                self.look_ahead(queue, now_ms)
            return answer
        return self._decide(queue, group or "", request, now_ms)

    def _decide(self, queue: QueueInfo, group: str, request: SessionRequest, now_ms: int) -> SessionAnswer:
        verb, number = request.verb, queue.number
        before = self.gates.of(number, group)
        is_held = False
        if verb in {SessionVerb.LOCK, SessionVerb.PARK}:
            self.leases.break_up(number, group)
            is_held = self._is_held(queue, group, now_ms)
        verdict, gate = sessions.decide(before, request, now_ms, is_held=is_held, token=queue.tokens + 1)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.LOCK:
            queue.tokens += 1
            self.catalog.counted(queue)
        elif verb is SessionVerb.SET_STATE:
            self.gates.set_state(number, group, request.state)
        if verb is SessionVerb.RENEW:
            self.gates.renew(number, group, gate)
        elif gate != before:
            self.gates.save(number, group, gate)
        if verb in {SessionVerb.CLOSE, SessionVerb.PARK}:
            self._end(queue, group, request.token, now_ms)
        if sessions.is_closed(gate) != sessions.is_closed(before):
            self.line.leave(queue, [self.pending.head(queue, group) or 0])
            self._refresh(queue, [(0, group)], now_ms)
        return SessionAnswer(
            verdict, group, gate, self.gates.state(number, group) if verb is SessionVerb.GET_STATE else None
        )

    def _next_group(self, queue: QueueInfo, now_ms: int) -> str | None:
        """Return the oldest free group; skip one with messages still leased, as after a partly extended lease."""
        seen, number = 0, 1
        while len(rows := self.line.next(queue, number, grouped=True)) > seen:
            for _, group in rows[seen:]:
                if group is not None and not self._is_held(queue, group, now_ms):
                    return group
            seen, number = len(rows), 2 * number + limits.HEADS_AT_ONCE
        return None

    def _is_held(self, queue: QueueInfo, group: str, now_ms: int) -> bool:
        return any(delivery.is_leased(hold, now_ms) for _, hold in self._holds_of(queue, group))

    def _holds_of(self, queue: QueueInfo, group: str) -> list[tuple[int, DeliveryState]]:
        rows = self._all("group_holds", queue.number, group) + self._all("fetched_holds", queue.number, group)
        return [(number, DeliveryState._make(hold)) for number, *hold in rows]

    def _end(self, queue: QueueInfo, group: str, token: int | None, now_ms: int) -> None:
        """Give back what was received under a lock."""
        if token is not None:
            for number, hold in self._holds_of(queue, group):
                if hold.token == token:
                    self._give_back(queue, number, group, hold, None, now_ms)

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Return parked groups, in the order in which they were parked."""
        return [ParkedGroup._make(row) for row in self._all("parked", queue.number, limit)]

    # --- receiving ---

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        if all(want.token is None and want.number is None for want in wants):  # the usual case
            return super().receive(queue, wants, now_ms)
        return [self._receive_one(queue, want, now_ms) for want in wants]

    def _receive_one(self, queue: QueueInfo, want: ReceiveRequest, now_ms: int) -> list[Delivery]:
        if want.token is None and want.number is None:
            return super().receive(queue, [want], now_ms)[0]
        self.look_at_clock(now_ms)
        self._tidy(queue, now_ms)
        if want.number is not None:
            return self._fetch(queue, want, want.number, now_ms)
        gate = self.gates.of(queue.number, want.group or "")
        taken: Sequence[Found] = []
        if sessions.is_of(gate, want.token, now_ms):
            taken = self._take_within(queue, want, gate, now_ms)
        if not taken:
            self.look_ahead(queue, now_ms)
        return self._give(queue, taken, want, gate, now_ms)

    def _take_within(self, queue: QueueInfo, want: ReceiveRequest, gate: GroupLock, now_ms: int) -> Sequence[Found]:
        """Return what a session can receive next; its own leases do not block it."""
        self._has_holds = self._holds_anything(queue)
        while found := self._not_its_own(queue, want, gate):
            entry, first = found[0]
            dead = delivery.dead_letter(first, queue.settings, self.queues)
            if dead is None:
                return found[: delivery.takes([hold for _, hold in found], want.limit, now_ms)]
            self._move(queue, entry, *dead, now_ms)
        return []

    def _not_its_own(self, queue: QueueInfo, want: ReceiveRequest, gate: GroupLock) -> Sequence[Found]:
        """Return the first messages of a session's group that the session has not received yet."""
        group = want.group or ""
        found = self._with_holds(self._all("session_messages", queue.number, group, gate.token, want.limit))
        if len(found) < want.limit:
            own = {number for number, hold in self._holds_of(queue, group) if hold.token == gate.token}
            found += self._with_holds(self._newest(queue, group, 0, want.limit - len(found), own))
        return found

    def _fetch(self, queue: QueueInfo, want: ReceiveRequest, number: int, now_ms: int) -> list[Delivery]:
        """Lease a deferred message, if nobody has it."""
        row = self._one("one_message", number) if queue.has_given(number) else None
        hold = self._hold(number) if row else None
        if row is None or not delivery.is_deferred(hold) or delivery.is_hidden(hold, now_ms):
            return []
        entry = entry_of(row)
        gate = sessions.OPEN if entry.group is None else self.gates.of(queue.number, entry.group)
        if not sessions.may_fetch(gate, want.token, now_ms):
            return []
        dead = delivery.dead_letter(hold, queue.settings, self.queues)
        if dead is not None:
            self._move(queue, entry, *dead, now_ms)
            return []
        return self._give(queue, [(entry, hold)], want, gate, now_ms)

    def _give(
        self,
        queue: QueueInfo,
        taken: Sequence[Found],
        want: ReceiveRequest,
        gate: GroupLock,
        now_ms: int,
    ) -> list[Delivery]:
        """Lease messages; within a session the leases end with its lock."""
        if want.token is None:
            answer = self._lease(queue, taken, want, now_ms, [])  # a deferred message has a hold already
            if answer:
                self.catalog.counted(queue)
            return answer
        given = []
        for entry, hold in taken:
            held = sessions.within(gate, delivery.leased(hold, want.token, 0, now_ms))
            self._do("set_hold", entry.sequence_number, queue.number, entry.group, *held)
            given.append(Delivery(entry, want.token, held.until_ms or 0, held.attempts, held.first_ms))
        return given
