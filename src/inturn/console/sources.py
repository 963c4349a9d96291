"""Sources of databases: their partitions, positions and rejected records; pause, resume and seek."""

from typing import Any, Final

from inturn.console.databases import database, databases
from inturn.console.fields import RequestFields
from inturn.console.json_texts import json_value
from inturn.console.store_addresses import UnreadStore
from inturn.core.errors import InturnError
from inturn.core.source_shares import SourcePartition
from inturn.core.words import counted
from inturn.ingest import SourceControl, source_names
from inturn.store.sources import RejectedRecord

_REJECTED: Final = 20


def sources(fields: RequestFields) -> dict[str, Any]:
    """Return the partitions of all sources, and the first records that each source rejected."""
    entries: list[dict[str, Any]] = []
    unread: list[UnreadStore] = []
    for address in databases(fields.stores):
        try:
            with address.open() as db:
                now_ms = db.writer.clock()
                for name in source_names(db):
                    control = SourceControl(db, name)
                    moved = control.moved_counts()
                    rows = [_row(partition, moved.get(partition.name, 0), now_ms) for partition in control.partitions()]
                    records = control.rejected(_REJECTED)
                    rejected = [_shown(record) for record in records]
                    entries.append(
                        {"database": address.title, "source": name, "partitions": rows, "rejected": rejected}
                    )
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(address.title, str(error)))
    return {"sources": entries, "unread": unread}


def pause(fields: RequestFields) -> dict[str, str]:
    """Pause a source, or one partition of it: no process reads it."""
    return _changed(fields, "pause")


def resume(fields: RequestFields) -> dict[str, str]:
    """Resume a source, or one partition of it."""
    return _changed(fields, "resume")


def seek(fields: RequestFields) -> dict[str, str]:
    """Set the position from which a source, or one partition of it, is read; empty: the start.

    Raises:
        InputError: if the position is not JSON.
    """
    text = fields.get("position")
    position = None if text is None else json_value("the position", text)
    with database(fields).open() as db:
        count = SourceControl(db, fields.need("source")).seek(position, *_partitions(fields))
    return {"done": f"position of {counted(count, 'partition')} set to {text or 'the start'}"}


def _changed(fields: RequestFields, change: str) -> dict[str, str]:
    with database(fields).open() as db:
        control = SourceControl(db, fields.need("source"))
        count = (control.pause if change == "pause" else control.resume)(*_partitions(fields))
    return {"done": f"{count} partitions: {change}"}


def _partitions(fields: RequestFields) -> list[str]:
    partition = fields.get("partition")
    return [] if partition is None else [partition]


def _shown(record: RejectedRecord) -> dict[str, Any]:
    """Return a rejected record without its exact headers, which only a resend needs."""
    return {name: value for name, value in record._asdict().items() if name != "exact"}


def _row(partition: SourcePartition, moved: int, now_ms: int) -> dict[str, Any]:
    if partition.note is not None:
        status = "refused"
    elif partition.is_paused:
        status = "paused"
    else:
        status = "read" if partition.is_owned(now_ms) else "read by nobody"
    return {
        "partition": partition.name,
        "position": partition.position,
        "status": status,
        "owner": partition.owner if partition.is_owned(now_ms) else None,
        "received": partition.received,
        "rejected": partition.rejected,
        "moved": moved,
        "lag": partition.lag,
        "age_s": partition.age_s(now_ms),
        "refusal": partition.note,
    }
