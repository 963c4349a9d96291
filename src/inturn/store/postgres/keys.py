"""Idempotency keys in PostgreSQL: one row for each key that is not free.

Locking a key never waits: while another transaction locks or settles the key, it is in progress. An advisory lock
marks a key that has no row yet. A caller that settles a key holds it, so it waits only for a transaction that locks the
key after its lock has expired.
"""

import time

from inturn.core import limits
from inturn.core.idempotency_keys import (
    KeyAnswer,
    KeyRecord,
    KeyRequest,
    KeyResult,
    KeySlot,
    LockKey,
    current,
    decide,
    least_token,
)
from inturn.store.key_records import read_record, written_record
from inturn.store.postgres.names import short
from inturn.store.postgres.statements import PostgresStatements
from inturn.store.postgres.texts import written


class PostgresKeys(PostgresStatements):
    """The idempotency keys of one database."""

    def update_key(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Read the record of a key, decide, and write the new record, in the open transaction.

        A later change of any key deletes expired rows, but only well after their lifetime: if the clock is set back,
        they are valid again.
        """
        key_columns = short(written(space)), short(written(key))
        if isinstance(request, LockKey):
            record = _record(self._one("key", *key_columns), space, key)
            if record is None or current(record, now_ms) != record:
                return self._lock_key(space, key, request, now_ms)
            return decide(KeySlot(record, 0), request, now_ms)[1]
        self.wire.note_transaction()
        since = time.monotonic()
        record = _record(self._one("lock_key", *key_columns), space, key)
        now_ms += int((time.monotonic() - since) * 1000)
        slot, answer = decide(KeySlot(record, 0), request, now_ms)
        self._save(key_columns, record, slot.record, now_ms)
        return answer

    def _lock_key(self, space: str, key: str, request: LockKey, now_ms: int) -> KeyAnswer:
        """Lock a free key, unless another transaction is doing so."""
        key_columns = short(written(space)), short(written(key))
        self.wire.note_transaction()
        locked, row = self._do("take_key", *key_columns), self._do("lock_free_key", *key_columns)
        token = self._next_token(now_ms)  # taken when no other transaction can lock the key
        if not locked.rows[0][0] or not row.rows:
            return KeyAnswer(KeyResult.IN_PROGRESS, None, round(limits.POLL_S * 1000))
        record = _record(row.rows[0], space, key)
        slot, answer = decide(KeySlot(record, token - 1), request, now_ms)
        self._save(key_columns, record, slot.record, now_ms)
        return answer

    def _next_token(self, now_ms: int) -> int:
        """Advance the sequence, at least to the server's time, since it may be behind after a restore of an older copy.

        Two transactions that advance it at once could set it back, so a lock admits one at a time. The rollback to the
        savepoint releases the lock in any transaction, but does not undo the change of the sequence.
        """
        self.wire.queue_text("savepoint inturn_token")
        self._do("lock_key_tokens")
        token = self._do("key_token", least_token(now_ms))
        self.wire.queue_text("rollback to savepoint inturn_token")
        self.wire.queue_text("release savepoint inturn_token")
        self.wire.flush()
        return int(token.rows[0][0])

    def _save(
        self, key_columns: tuple[str, str], before: KeyRecord | None, after: KeyRecord | None, now_ms: int
    ) -> None:
        if before == after:
            return
        if after is None:
            self._do("remove_key", *key_columns)
        else:
            self._do("save_key", *key_columns, written_record(after), after.until_ms)
        self._do("remove_expired_keys", now_ms - limits.CLOCK_SLACK_MS, limits.KEY_EXPIRE_AT_ONCE)


def _record(row: tuple[str | None] | None, space: str, key: str) -> KeyRecord | None:
    return None if row is None or row[0] is None else read_record(row[0], f"the key {key!r} of {space!r}")
