"""Sessions in SQLite: it selects rows that core/queue/sessions.py decides about."""

from dataclasses import dataclass

from inturn.core import limits
from inturn.core.queue import delivery, sessions
from inturn.core.queue.delivery import SettleResult
from inturn.core.queue.messages import QueueInfo
from inturn.core.queue.sessions import FIRST_PARKED, ParkedGroup, SessionAnswer, SessionRequest, SessionVerb
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.ready_groups import ReadyGroups
from inturn.store.sqlite.receives import Receives
from inturn.store.sqlite.statements import SqliteStatements


@dataclass(eq=False)
class SqliteSessions(SqliteStatements):
    """Locks, parks and states of groups."""

    _catalog: SqliteCatalog
    _index: GroupIndex
    _locks: SqliteGroupLocks
    _leases: Leases
    _line: ReadyGroups
    _receives: Receives

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Run a session request on a group, with its effects on messages; None: the next group that can be locked."""
        if request.verb is not SessionVerb.LOCK:
            return self._decide(queue, group or "", request, now_ms)
        self._receives.tidy(queue, now_ms)
        group = self._next_group(queue, now_ms) if group is None else group
        answer = SessionAnswer(SettleResult.HELD) if group is None else self._decide(queue, group, request, now_ms)
        if answer.verdict is not SettleResult.DONE:
            self._receives.prefetch(queue, now_ms)
        return answer

    def _decide(self, queue: QueueInfo, group: str, request: SessionRequest, now_ms: int) -> SessionAnswer:
        verb, number = request.verb, queue.number
        before = self._locks.of(number, group)
        is_held = False
        if verb in {SessionVerb.LOCK, SessionVerb.PARK}:
            self._leases.break_up(number, group)
            is_held = self._is_held(queue, group, now_ms)
        verdict, group_lock = sessions.decide(before, request, now_ms, is_held=is_held, token=queue.last_token + 1)
        if verdict is not SettleResult.DONE:
            return SessionAnswer(verdict, group)
        if verb is SessionVerb.LOCK:
            queue.last_token += 1
            self._catalog.counted(queue)
        elif verb is SessionVerb.SET_STATE:
            self._locks.set_state(number, group, request.state)
        if verb is SessionVerb.RENEW:
            self._locks.renew(number, group, group_lock)
        elif group_lock != before:
            self._locks.save(number, group, group_lock)
        if verb in {SessionVerb.CLOSE, SessionVerb.PARK} and request.token is not None:
            self._give_back(queue, group, request.token, now_ms)
        if sessions.excludes_receivers(group_lock) != sessions.excludes_receivers(before):
            self._line.leave(queue, [self._index.head(queue, group) or 0])
            self._line.refresh(queue, [(0, group)], now_ms)
        state = self._locks.state(number, group) if verb is SessionVerb.GET_STATE else None
        return SessionAnswer(verdict, group, group_lock, state)

    def _give_back(self, queue: QueueInfo, group: str, token: int, now_ms: int) -> None:
        """Return the messages that were received under a lock."""
        for number, hold in self._leases.of_group(queue, group, fetched=True):
            if hold.token == token:
                self._leases.give_back(queue, number, group, hold, None, now_ms)

    def _next_group(self, queue: QueueInfo, now_ms: int) -> str | None:
        """Return the oldest free group; skip one of which a deferred message is leased."""
        seen, number = 0, 1
        while len(rows := self._line.next(queue, number, grouped=True)) > seen:
            for _, group in rows[seen:]:
                if group is not None and not self._is_held(queue, group, now_ms):
                    return group
            seen, number = len(rows), 2 * number + limits.HEADS_AT_ONCE
        return None

    def _is_held(self, queue: QueueInfo, group: str, now_ms: int) -> bool:
        return any(delivery.is_leased(hold, now_ms) for _, hold in self._leases.of_group(queue, group, fetched=True))

    def parked(self, queue: QueueInfo, limit: int, after: tuple[int, str] = FIRST_PARKED) -> list[ParkedGroup]:
        """Return the parked groups after a time and a name, in the order of parking."""
        return [ParkedGroup._make(row) for row in self._all("parked", queue.number, *after, limit)]
