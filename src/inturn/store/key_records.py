"""The stored form of idempotency records: JSON, validated when it is read."""

import msgspec

from inturn.core.errors import StoreError
from inturn.core.idempotency_keys import KeyRecord

_SHOWN = 60
"""Maximum number of characters of an invalid record that an error shows."""


def written_record(record: KeyRecord) -> str:
    """Return a record as JSON."""
    return msgspec.json.encode(record).decode()


def read_record(text: str | bytes, where: str) -> KeyRecord:
    """Decode a stored record; ``where`` describes its key.

    Raises:
        StoreError: if it is not a record: another program has written it, or it is damaged.
    """
    try:
        record = msgspec.json.decode(text, type=KeyRecord)
        if record.result is not None:
            msgspec.json.decode(record.result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise no_record(where, text, str(error)) from error
    if record.until_ms is None and not record.is_done:
        raise no_record(where, text, "in progress without an end")
    return record


def no_record(where: str, value: object, reason: str) -> StoreError:
    """Return the error for a value that is not a record."""
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return StoreError(
        f"{where} holds {shown}, which is not a valid record of an idempotency key ({reason}): another program has "
        "written it, or it is damaged. Nothing was changed; use another name for the keys, or delete the record"
    )
