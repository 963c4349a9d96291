"""Idempotency keys in the file: one row for each key that is not free.

It is a file of its own since keys share nothing with queues but the transaction.
"""

import sqlite3
from collections.abc import Mapping

import msgspec

from inturn.core import limits
from inturn.core.idempotency import Answer, Record, Request, Slot, decide


def decide_key(
    connection: sqlite3.Connection, sql: Mapping[str, str], space: str, key: str, request: Request, now_ms: int
) -> Answer:
    """Read, decide and write, within a transaction.

    A row is cleared away by a later change of any key, and only well after its lifetime: if the clock is set back, it
    counts again.
    """
    row = connection.execute(sql["key"], (space, key)).fetchone()
    (last_token,) = connection.execute(sql["last_token"]).fetchone() or (0,)
    record = row and msgspec.json.decode(row[0], type=Record)
    slot, answer = decide(Slot(record, last_token), request, now_ms)
    if slot.last_token != last_token:
        connection.execute(sql["save_token"], (slot.last_token,))
    if slot.record == record:
        return answer
    if slot.record is None:
        connection.execute(sql["remove_key"], (space, key))
    else:
        text = msgspec.json.encode(slot.record).decode()
        connection.execute(sql["save_key"], (space, key, text, slot.record.until_ms))
    until_ms = now_ms - limits.CLOCK_SLACK_MS
    outdated = connection.execute(sql["outdated_keys"], (until_ms, limits.KEY_EXPIRE_AT_ONCE)).fetchall()
    connection.executemany(sql["remove_key"], outdated)
    return answer
