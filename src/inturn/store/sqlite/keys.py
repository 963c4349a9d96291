"""Idempotency keys in the file: one row for each key that is not free.

A separate module, since keys share only the transaction with queues.
"""

from inturn.core import limits
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest, KeySlot, decide
from inturn.store.key_records import read_record, written_record
from inturn.store.sqlite.statements import SqliteStatements


class SqliteKeys(SqliteStatements):
    """The idempotency keys of one file."""

    def update_key(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Read, decide and write, within a transaction.

        A later change of any key deletes an expired row, and only well after its lifetime: until then the row counts
        again if the clock is set back.
        """
        row = self._one("key", space, key)
        (last_token,) = self._one("last_key_token") or (0,)
        record = row and read_record(row[0], f"the key {key!r} of {space!r}")
        slot, answer = decide(KeySlot(record, last_token), request, now_ms)
        if slot.last_token != last_token:
            self._execute("save_last_key_token", slot.last_token)
        if slot.record == record:
            return answer
        if slot.record is None:
            self._execute("remove_key", space, key)
        else:
            self._execute("save_key", space, key, written_record(slot.record), slot.record.until_ms)
        self._clear(now_ms)
        return answer

    def _clear(self, now_ms: int) -> None:
        """Delete a few keys that expired long ago.

        A file has only the clocks of its processes. So that a process whose clock is far ahead cannot delete keys
        that still count for the others, the deletion time advances by at most the slack with each change. It goes back
        at once with a change by a clock that shows an earlier time.
        """
        (cleared_ms,) = self._one("keys_cleared_ms") or (None,)
        until_ms = now_ms if cleared_ms is None else min(now_ms, cleared_ms + limits.CLOCK_SLACK_MS)
        if cleared_ms is None or until_ms < cleared_ms or until_ms > cleared_ms + limits.CLOCK_SLACK_MS // 60:
            self._execute("save_keys_cleared_ms", until_ms)
        outdated = self._all("expired_keys", until_ms - limits.CLOCK_SLACK_MS, limits.KEY_EXPIRE_AT_ONCE)
        self._do_each("remove_key", outdated)
