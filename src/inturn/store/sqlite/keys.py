"""Idempotency keys in the file: one row for each key that is not free.

It is a module of its own since keys share nothing with queues but the transaction.
"""

from inturn.core import limits
from inturn.core.idempotency import Answer, Request, Slot, decide
from inturn.store.key_records import read_record, written_record
from inturn.store.sqlite.statements import Statements


class Keys(Statements):
    """The idempotency keys of one file.

    Args:
        connection: to the file.
    """

    def decide(self, space: str, key: str, request: Request, now_ms: int) -> Answer:
        """Read, decide and write, within a transaction.

        A row is cleared away by a later change of any key, and only well after its lifetime: if the clock is set back,
        it counts again.
        """
        row = self._one("key", space, key)
        (last_token,) = self._one("last_token") or (0,)
        record = row and read_record(row[0], f"the key {key!r} of {space!r}")
        slot, answer = decide(Slot(record, last_token), request, now_ms)
        if slot.last_token != last_token:
            self._do("save_token", slot.last_token)
        if slot.record == record:
            return answer
        if slot.record is None:
            self._do("remove_key", space, key)
        else:
            self._do("save_key", space, key, written_record(slot.record), slot.record.until_ms)
        self._clear(now_ms)
        return answer

    def _clear(self, now_ms: int) -> None:
        """Clear away a few keys whose lifetime is long over.

        A file has no clock but those of its processes. So that one whose clock is far ahead forgets nothing for the
        others, the time by which keys are cleared away goes on by no more than the slack with each change, and goes
        back at once with a change by a clock that is behind it.
        """
        (cleared_ms,) = self._one("keys_cleared_ms") or (None,)
        until_ms = now_ms if cleared_ms is None else min(now_ms, cleared_ms + limits.CLOCK_SLACK_MS)
        if cleared_ms is None or until_ms < cleared_ms or until_ms > cleared_ms + limits.CLOCK_SLACK_MS // 60:
            self._do("save_keys_cleared_ms", until_ms)
        outdated = self._all("outdated_keys", until_ms - limits.CLOCK_SLACK_MS, limits.KEY_EXPIRE_AT_ONCE)
        self._do_each("remove_key", outdated)
