"""Sends in PostgreSQL: appends messages, without the duplicates that core/queue/deduplication.py tells."""

from collections.abc import Sequence
from dataclasses import dataclass

from inturn.core import limits
from inturn.core.queue import back_pressure, deduplication
from inturn.core.queue.messages import Draft, QueueInfo, Sent
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.incarnations import PostgresIncarnations
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.receiver_lock import Note, ReceiverLocks
from inturn.store.postgres.statements import PostgresStatements, QueuedStatement
from inturn.store.postgres.texts import check_text


@dataclass(eq=False)
class PostgresSends(PostgresStatements):
    """Sends of messages."""

    _catalog: PostgresCatalog
    _locks: ReceiverLocks
    _incarnations: PostgresIncarnations
    _names: LongNames
    _spans: PostgresFutureSpans
    _forgotten_ms: int = 0  # ids that expired before this time are deleted
    _forgetting: QueuedStatement | None = None

    def look_again(self) -> None:
        """Reset the position of the deletion of expired ids, since deleted ids are back after a rollback."""
        self._forgotten_ms, self._forgetting = 0, None

    def room(self, queue: QueueInfo) -> int | None:
        """Return how many messages a queue has room for until the transaction ends; None: any number."""
        self._lock_depth(queue)
        return back_pressure.room(queue)

    def _lock_depth(self, queue: QueueInfo) -> None:
        """Let nobody else send to a bounded queue: what is counted then can only become less."""
        if queue.settings.max_depth is not None:
            self._do("lock_numbering", queue.number)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        """Append messages to a queue."""
        self._spans.end(now_ms)
        if not drafts:
            return []
        drafts = [
            each
            if each.group is None or short(each.group) is each.group
            else each._replace(group=self._names.kept(each.group))
            for each in drafts
        ]
        self._incarnations.begin(queue, now_ms)
        settings = queue.settings
        if settings.content_dedup or any(draft.dedup_id is not None for draft in drafts):
            sent = self._send_known(queue, drafts, now_ms, ahead)
        else:
            self._lock_depth(queue)
            back_pressure.check_room(queue, len(drafts), ahead)
            before = self._add(queue, drafts, now_ms)
            sent = [Sent(before + place, duplicate=False) for place in range(1, len(drafts) + 1)]
        self._delay(queue, drafts, sent, now_ms)
        return sent

    def _add(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> int:
        """Write messages under new numbers; return the number before the first."""
        bodies, contents, groups, revisions, ids, _, attributes = map(list, zip(*drafts, strict=True))
        data = [body.encode() if isinstance(body, str) else body for body in bodies]
        for group, dedup_id in zip(groups, ids, strict=True):
            check_text("the group", group)
            check_text("the dedup_id", dedup_id)
        self._locks.news.add(queue.number)
        values = (data, contents, groups, revisions, ids, attributes)
        row = self._one("send", queue.number, len(drafts), now_ms, *values)
        if row is None:
            raise self._catalog.removed(queue)
        return int(row[0])

    def _send_known(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int) -> list[Sent]:
        """Append the messages that are not duplicates of earlier ones."""
        settings = queue.settings
        keys = [
            key and (key[0], short(key[1])) for key in (deduplication.known_by(draft, settings) for draft in drafts)
        ]
        wanted = [key for key in keys if key is not None]
        for scope, dedup_id in wanted:
            check_text("the group", scope)
            check_text("the dedup_id", dedup_id)
        self._do("lock_numbering", queue.number)
        rows = self._all("known", queue.number, [scope for scope, _ in wanted], [each for _, each in wanted])
        if not rows:
            raise self._catalog.removed(queue)
        known = {
            wanted[place - 1]: deduplication.RememberedSend(number, until_ms)
            for _, place, number, until_ms in rows
            if place is not None
        }
        sent, new = deduplication.numbered(keys, known.get, int(rows[0][0]), settings, now_ms)
        back_pressure.check_room(queue, sum(not each.duplicate for each in sent), ahead)
        if new:
            columns = zip(*((*key, *first) for key, first in new.items()), strict=True)
            self._do("remember", queue.number, *map(list, columns))
            self._forget(len(new), now_ms)
        added = [draft for draft, each in zip(drafts, sent, strict=True) if not each.duplicate]
        if added:
            self._add(queue, added, now_ms)
        return sent

    def _forget(self, new: int, now_ms: int) -> None:
        """Delete up to twice as many expired ids as were added, so that the table shrinks again."""
        outdated_ms = now_ms - limits.CLOCK_SLACK_MS
        if self._forgetting is not None and self._forgetting.is_done:
            self._forgotten_ms = self._forgetting.rows[0][0] or self._forgotten_ms
        if outdated_ms < self._forgotten_ms:  # the clock went back
            self._forgotten_ms = 0
        self._forgetting = self._do("forget", self._forgotten_ms, outdated_ms, 2 * new)

    def _delay(self, queue: QueueInfo, drafts: Sequence[Draft], sent: Sequence[Sent], now_ms: int) -> None:
        usual = queue.settings.delay_ms
        delayed = [
            (number, draft.group, now_ms + delay_ms)
            for draft, (number, is_duplicate) in zip(drafts, sent, strict=True)
            if not is_duplicate and (delay_ms := usual if draft.delay_ms is None else draft.delay_ms)
        ]
        if delayed:
            self._do("delay", queue.number, now_ms, *map(list, zip(*delayed, strict=True)))
            self._locks.note(queue, [Note(due_ms=min(until_ms for *_, until_ms in delayed))])
