"""Idempotency keys in the file: one row for each key that is not free.

It is a module of its own since keys share nothing with queues but the transaction.
"""

import msgspec

from inturn.core import limits
from inturn.core.idempotency import Answer, Record, Request, Slot, decide
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
        record = row and msgspec.json.decode(row[0], type=Record)
        slot, answer = decide(Slot(record, last_token), request, now_ms)
        if slot.last_token != last_token:
            self._do("save_token", slot.last_token)
        if slot.record == record:
            return answer
        if slot.record is None:
            self._do("remove_key", space, key)
        else:
            self._do("save_key", space, key, msgspec.json.encode(slot.record).decode(), slot.record.until_ms)
        outdated = self._all("outdated_keys", now_ms - limits.CLOCK_SLACK_MS, limits.KEY_EXPIRE_AT_ONCE)
        self._do_each("remove_key", outdated)
        return answer
