"""Sends in PostgreSQL: appends messages, except duplicates as defined in core/queue/deduplication.py."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inturn.core import limits
from inturn.core.queue import back_pressure, deduplication, numbering
from inturn.core.queue.messages import Draft, QueueInfo, Sent
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.incarnations import PostgresIncarnations
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.producers import PostgresProducers
from inturn.store.postgres.receiver_lock import ReceiverLocks, Recheck
from inturn.store.postgres.statements import PostgresStatements, QueuedStatement
from inturn.store.postgres.texts import check_text


@dataclass(eq=False)
class PostgresSends(PostgresStatements):
    """Sends of messages."""

    _catalog: PostgresCatalog
    _locks: ReceiverLocks
    _incarnations: PostgresIncarnations
    _names: LongNames
    _producers: PostgresProducers
    _spans: PostgresFutureSpans
    _forgotten_ms: int = 0  # ids that expired before this time are deleted
    _forgetting: QueuedStatement | None = None

    def look_again(self) -> None:
        """Reset the position of the deletion of expired ids, since deleted ids are back after a rollback."""
        self._forgotten_ms, self._forgetting = 0, None

    def room(self, queue: QueueInfo) -> int | None:
        """Return the number of messages for which a queue has room until the transaction ends; None: any number."""
        self._lock_depth(queue)
        return back_pressure.room(queue)

    def _lock_depth(self, queue: QueueInfo) -> None:
        """Let no other transaction send to a bounded queue, so that its depth can only decrease."""
        if queue.settings.max_depth is not None:
            self._do("lock_numbering", queue.number)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        """Append messages to a queue."""
        self._spans.end(now_ms)
        if not drafts:
            return []
        drafts = [
            draft
            if draft.group is None or short(draft.group) is draft.group
            else draft._replace(group=self._names.short_name(draft.group))
            for draft in drafts
        ]
        self.wire.note_transaction()
        self._incarnations.begin(queue, now_ms)
        settings = queue.settings
        if settings.single_writer:
            self._producers.check_writers(queue, drafts)
        if settings.content_dedup or any(draft.dedup_id is not None for draft in drafts):
            sent = self._send_known(queue, drafts, now_ms, ahead)
        else:
            sent = self._send_new(queue, drafts, now_ms, ahead)
        self._delay(queue, drafts, sent, now_ms)
        return sent

    def _send_new(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int) -> list[Sent]:
        """Append messages of which none is a duplicate."""
        is_numbered, is_given = numbering.are_numbered(drafts), any(draft.revision is not None for draft in drafts)
        if is_numbered and (
            is_given or any(draft.numbering and draft.numbering.expected is not None for draft in drafts)
        ):
            return self._send_checked(queue, drafts, now_ms, ahead)
        self._lock_depth(queue)
        back_pressure.check_room(queue, len(drafts), ahead)
        if is_numbered:
            return self._send_next(queue, drafts, now_ms)
        if not is_given:
            return _sent(self._add(queue, drafts, now_ms), drafts)
        before = self._add_by("send_with_given_revisions", queue, drafts, now_ms)
        if before is None:  # one is given in a group that the queue numbers
            return self._send_checked(queue, drafts, now_ms, ahead)
        return _sent(before, drafts)

    def _send_next(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Append messages that expect no revision, and let the statement number them."""
        bodies, contents, groups, _, _, _, attributes, marks, _ = map(list, zip(*drafts, strict=True))
        self._check_texts(queue, groups, [])
        values = (_bytes(bodies), contents, groups, [mark is not None for mark in marks], attributes)
        rows = self._all("send_with_next_revisions", queue.number, len(drafts), now_ms, *values)
        if not rows:
            raise self._catalog.removed(queue)
        counts = Counter(draft.group for draft in drafts if draft.numbering is not None)
        lasts = {group: last - counts[group] for _, group, last in rows if group is not None}
        return numbering.numbered(drafts, _sent(rows[0][0], drafts), lasts)[0]

    def _send_checked(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int) -> list[Sent]:
        """Append messages whose revisions are checked against the last ones of their groups."""
        self._do("lock_numbering", queue.number)
        lasts = self._producers.look_up_revisions(queue, drafts)
        self.wire.flush()
        sent, new = numbering.numbered(drafts, _sent(0, drafts), dict(lasts.rows) if lasts else {})
        back_pressure.check_room(queue, len(drafts), ahead)
        self._producers.save_revisions(queue, new)
        before = self._add(queue, _revised(drafts, sent), now_ms)
        return [receipt._replace(sequence_number=receipt.sequence_number + before) for receipt in sent]

    def _add(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> int:
        """Write messages under new numbers; return the number before the first."""
        before = self._add_by("send", queue, drafts, now_ms)
        if before is None:
            raise self._catalog.removed(queue)
        return before

    def _add_by(self, statement: str, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> int | None:
        """Write messages by a statement; return the number before the first, None if it has written nothing."""
        bodies, contents, groups, revisions, ids, _, attributes, _, _ = map(list, zip(*drafts, strict=True))
        self._check_texts(queue, groups, ids)
        values = (_bytes(bodies), contents, groups, revisions, ids, attributes)
        row = self._one(statement, queue.number, len(drafts), now_ms, *values)
        return int(row[0]) if row else None

    def _check_texts(self, queue: QueueInfo, groups: Sequence[str | None], ids: Sequence[str | None]) -> None:
        for group in groups:
            check_text("the group", group)
        for dedup_id in ids:
            check_text("the dedup_id", dedup_id)
        self._locks.news.add(queue.number)

    def _send_known(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int) -> list[Sent]:
        """Append the messages that are not duplicates of earlier ones."""
        settings = queue.settings
        keys = [
            key and (key[0], short(key[1])) for key in (deduplication.known_by(draft, settings) for draft in drafts)
        ]
        known_keys = [key for key in keys if key is not None]
        for scope, dedup_id in known_keys:
            check_text("the group", scope)
            check_text("the dedup_id", dedup_id)
        self._do("lock_numbering", queue.number)
        lasts = self._producers.look_up_revisions(queue, drafts)
        rows = self._all(
            "find_dedup", queue.number, [scope for scope, _ in known_keys], [dedup_id for _, dedup_id in known_keys]
        )
        if not rows:
            raise self._catalog.removed(queue)
        known = {
            known_keys[place - 1]: deduplication.RememberedSend(*remembered)
            for _, place, *remembered in rows
            if place is not None
        }
        sent, new = deduplication.numbered(keys, known.get, int(rows[0][0]), settings, now_ms)
        sent, new_lasts = numbering.numbered(drafts, sent, dict(lasts.rows) if lasts else {})
        back_pressure.check_room(queue, sum(not receipt.duplicate for receipt in sent), ahead)
        if new:
            new = numbering.with_revisions(new, sent)
            columns = zip(*((*key, *first) for key, first in new.items()), strict=True)
            self._do("save_dedup", queue.number, *map(list, columns))
            self._forget(len(new), now_ms)
        self._producers.save_revisions(queue, new_lasts)
        added = [draft for draft, receipt in zip(_revised(drafts, sent), sent, strict=True) if not receipt.duplicate]
        if added:
            self._add(queue, added, now_ms)
        return sent

    def _forget(self, new: int, now_ms: int) -> None:
        """Delete up to twice as many expired ids as were added, so that the table shrinks again."""
        outdated_ms = now_ms - limits.CLOCK_SLACK_MS
        if self._forgetting is not None and self._forgetting.is_done:
            self._forgotten_ms = self._forgetting.rows[0][0] or self._forgotten_ms
        if outdated_ms < self._forgotten_ms:  # the clock was set back
            self._forgotten_ms = 0
        self._forgetting = self._do("remove_expired_dedup", self._forgotten_ms, outdated_ms, 2 * new)

    def _delay(self, queue: QueueInfo, drafts: Sequence[Draft], sent: Sequence[Sent], now_ms: int) -> None:
        usual = queue.settings.delay_ms
        delayed = [
            (number, draft.group, now_ms + delay_ms)
            for draft, (number, is_duplicate, _) in zip(drafts, sent, strict=True)
            if not is_duplicate and (delay_ms := usual if draft.delay_ms is None else draft.delay_ms)
        ]
        if delayed:
            self._do("add_delays", queue.number, now_ms, *map(list, zip(*delayed, strict=True)))
            self._locks.add_rechecks(queue, [Recheck(due_ms=min(until_ms for *_, until_ms in delayed))])


def _bytes(bodies: Iterable[str | bytes]) -> list[bytes]:
    return [body.encode() if isinstance(body, str) else body for body in bodies]


def _revised(drafts: Sequence[Draft], sent: Sequence[Sent]) -> Sequence[Draft]:
    """Return messages with the revisions that the queue gave them."""
    if not numbering.are_numbered(drafts):
        return drafts
    return [draft._replace(revision=receipt.revision) for draft, receipt in zip(drafts, sent, strict=True)]


def _sent(before: int, drafts: Sequence[Draft]) -> list[Sent]:
    """Return the results of messages that have the numbers after one."""
    return [Sent(number, duplicate=False, revision=draft.revision) for number, draft in enumerate(drafts, before + 1)]
