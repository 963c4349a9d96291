"""Sessions in PostgreSQL: selects groups to which core/queue/sessions.py applies the rules.

To begin or end a session, and to park or resume a group, a transaction holds the receiver lock. The other requests of a
session do not, so they may be in a long transaction. A write of the state locks the row of the group's lock shared, so
that no other transaction unlocks the group. A renewal of the lock changes its row and its leases.
"""

from dataclasses import dataclass

from inturn.core import limits
from inturn.core.queue import redelivery, sessions
from inturn.core.queue.delivery import DeliveryState, SettleResult
from inturn.core.queue.messages import QueueInfo, first_number
from inturn.core.queue.sessions import SessionAnswer, SessionRequest, SessionVerb
from inturn.store import limits as store_limits
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.messages import Held, PostgresMessages
from inturn.store.postgres.names import LongNames
from inturn.store.postgres.ready_list import ReadyList
from inturn.store.postgres.receiver_lock import RankedPlace, ReceiverLock, ReceiverLocks, Recheck
from inturn.store.postgres.statements import PostgresStatements

_WITHOUT_RECEIVER_LOCK = {
    SessionVerb.LOOK: "group_lock",
    SessionVerb.GET_STATE: "group_lock",
    SessionVerb.SET_STATE: "group_lock_to_share",
    SessionVerb.RENEW: "group_lock_to_renew",
}


@dataclass(eq=False)
class PostgresSessions(PostgresStatements):
    """Session requests."""

    _locks: ReceiverLocks
    _ready: ReadyList
    _messages: PostgresMessages
    _group_locks: PostgresGroupLocks
    _names: LongNames
    _spans: PostgresFutureSpans

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        self._spans.end(now_ms)
        group = None if group is None else self._names.short_name(group)
        if request.verb in _WITHOUT_RECEIVER_LOCK:
            answer = self._go_on(queue, group or "", request, now_ms)
        else:
            answer = self._change(queue, group, request, now_ms)
        return answer._replace(group=self._names.reader([answer.group])(answer.group))

    def _change(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a request that needs the receiver lock."""
        answer = SessionAnswer(SettleResult.HELD)
        is_for_any = group is None and request.verb is SessionVerb.LOCK
        if is_for_any and self._ready.is_idle(queue, now_ms):
            return answer
        lock = self._ready.open(queue, now_ms)
        target = self._next_group(queue, lock) if is_for_any else group or ""
        if target is not None:
            answer = self._decide(queue, lock, target, request, now_ms)
        self._ready.close(queue, lock, now_ms, has_found=answer.verdict is SettleResult.DONE)
        return answer

    def _go_on(self, queue: QueueInfo, group: str, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a request that does not need the receiver lock."""
        verb, number = request.verb, queue.number
        before = self._group_locks.of(number, group, _WITHOUT_RECEIVER_LOCK[verb])
        verdict, group_lock = sessions.decide(before, request, now_ms, is_held=False, token=0)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.SET_STATE:
            self._group_locks.set_state(number, group, request.state)
        elif verb is SessionVerb.RENEW:
            self._group_locks.renew(number, group, group_lock)
            self._locks.add_rechecks(queue, [Recheck(due_ms=group_lock.until_ms)])
        state = self._group_locks.state(number, group) if verb is SessionVerb.GET_STATE else None
        return SessionAnswer(verdict, group, group_lock, state)

    def _decide(
        self, queue: QueueInfo, lock: ReceiverLock, group: str, request: SessionRequest, now_ms: int
    ) -> SessionAnswer:
        verb, number = request.verb, queue.number
        before = self._group_locks.to_take(number, group)
        if before is None:
            return SessionAnswer(SettleResult.HELD, group)
        is_held = verb in {SessionVerb.LOCK, SessionVerb.PARK} and self._is_held(queue, group)
        verdict, group_lock = sessions.decide(before, request, now_ms, is_held=is_held, token=lock.last_token + 1)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.LOCK:
            lock.last_token += 1
        if group_lock.until_ms is not None:
            lock.is_due(group_lock.until_ms)
        if group_lock != before:
            self._group_locks.save(number, group, group_lock)
        if verb in {SessionVerb.CLOSE, SessionVerb.PARK} and request.token is not None:
            self._end_leases(queue, lock, group, request.token, now_ms)
        if sessions.excludes_receivers(group_lock) != sessions.excludes_receivers(before):
            head = self._one("first_of_group", number, group, lock.messages_from)
            if head:
                self._do("remove_ready", [head[0]])
            lock.add_candidate(None, group)
            self._ready.refresh(queue, lock)
            self._locks.news.add(number)
        return SessionAnswer(verdict, group, group_lock)

    def _next_group(self, queue: QueueInfo, lock: ReceiverLock) -> str | None:
        """Return the first free group of the ready queue; skip groups with a leased deferred message."""
        after: RankedPlace | None = None
        count = 1
        if lock.is_list_complete:
            self._list(queue, lock)
        while True:
            seen = after or (None, None, None)
            rows = self._all(
                "next_ready_group", queue.number, first_number(queue.number + 1), *seen, count, lock.version
            )
            for place, rank, number, group in rows:
                if lock.is_early(place):  # messages before it are not listed yet
                    break
                after = place, rank, number
                if not self._is_held(queue, group):
                    return str(group)
            else:
                if rows:
                    count = limits.HEADS_AT_ONCE
                    continue
                if lock.is_list_complete:
                    return None
            self._list(queue, lock)

    def _list(self, queue: QueueInfo, lock: ReceiverLock) -> None:
        listing = self._ready.list_later(queue, lock, store_limits.LIST_AT_ONCE)
        self.wire.flush()
        self._ready.see_listed(lock, listing, store_limits.LIST_AT_ONCE)

    def _is_held(self, queue: QueueInfo, group: str) -> bool:
        """Return whether a message of the group is leased.

        An expired lease that was not ended counts, since a settlement has it locked.
        """
        return any(hold.token is not None and hold.until_ms is not None for _, hold in self._holds(queue, group))

    def _holds(self, queue: QueueInfo, group: str) -> list[tuple[int, DeliveryState]]:
        fetched = self._do("fetched_holds", queue.number, group)
        rows = self._all("group_holds", queue.number, group)
        return [(number, DeliveryState._make(hold)) for number, *hold in (*rows, *fetched.rows)]

    def _end_leases(self, queue: QueueInfo, lock: ReceiverLock, group: str, token: int, now_ms: int) -> None:
        """Give back the messages received under a lock."""
        numbers = [number for number, hold in self._holds(queue, group) if hold.token == token]
        if not numbers:
            return
        remaining: list[Held] = []
        for number, held_group, *fields, is_head in self._all(
            "lock_holds_to_end", queue.number, lock.messages_from, numbers
        ):
            hold = DeliveryState._make(fields)
            now = redelivery.nacked(hold, queue.settings, number, is_head=is_head, delay_ms=None, now_ms=now_ms)
            remaining.append((number, held_group, now))
            if now is not None and now.until_ms is not None:
                lock.is_due(now.until_ms)
        self._messages.set_holds(queue, remaining)
        self._ready.mark_requeue(queue, lock)
        lock.add_candidate(None, group)
        self._ready.refresh(queue, lock)
