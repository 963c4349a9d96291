"""The stored form of an idempotency key's record: JSON, checked when it is read."""

import msgspec

from inturn.core.errors import StoreError
from inturn.core.idempotency import Record

_SHOWN = 60
"""How many characters of what is no record an error shows."""


def written_record(record: Record) -> str:
    """Return a record as JSON."""
    return msgspec.json.encode(record).decode()


def read_record(text: str | bytes, where: str) -> Record:
    """Return the record that a text stands for.

    Args:
        text: what is stored.
        where: what it is stored under, for the error.

    Raises:
        StoreError: It is no record: somebody else has written it, or it is damaged.
    """
    try:
        record = msgspec.json.decode(text, type=Record)
        if record.result is not None:
            msgspec.json.decode(record.result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise no_record(where, text, str(error)) from error
    if record.until_ms is None and not record.is_done:
        raise no_record(where, text, "in progress without an end")
    return record


def no_record(where: str, found: object, why: str) -> StoreError:
    """Return the error that says what was found where a record was expected."""
    shown = repr(found)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return StoreError(
        f"{where} holds {shown}, which is no record of an idempotency key ({why}): somebody else has written it, or it "
        "is damaged. Nothing was changed; use keys of another name, or delete it if nobody needs it"
    )
