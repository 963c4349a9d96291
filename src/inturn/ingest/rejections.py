"""Rejected records: their complete storage, their restoration, and the limits of a source."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from inturn.core.errors import InputError, RejectedFull
from inturn.core.override import override
from inturn.core.texts import is_text, storable, text_fault
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.ingest.mapping import MappingError
from inturn.ingest.positions import position_json
from inturn.ingest.source import SourceRecord, UnreadableHeader, header_value
from inturn.store.sources import RejectedRecord, SourceStore


def rejected_record(record: SourceRecord, reason: str, secret: Mapping[str, str] | None = None) -> RejectedRecord:
    """Return a record as it is stored, with the reason.

    Args:
        record: the record.
        reason: the reason.
        secret: headers that are not stored, each with the reason; a mapping that reads one of them can never map the
            record again.
    """
    secret = secret or {}
    headers, exact = dict[str, bytes | str](), dict[str, Any]()
    headers_error: str | None = None
    try:
        headers = {name: header_value(value) for name, value in record.headers.items() if value is not None}
    except MappingError as error:
        headers_error = str(error)
    texts = {
        storable(name): storable(value) if isinstance(value, str) else value.decode(errors="replace")
        for name, value in headers.items()
        if name not in secret
    }
    for name, value in headers.items():
        if not is_text(name):
            headers_error = text_fault("header's name", name)
        elif name in secret:
            exact[name] = (b"", secret[name])
        elif isinstance(value, UnreadableHeader):
            exact[name] = (bytes(value), value.reason)
        elif isinstance(value, str) and not is_text(value):
            exact[name] = (value.encode(errors="surrogatepass"), text_fault("text", value))
        else:
            exact[name] = value
    return RejectedRecord(
        record.partition,
        position_json(record.position),
        reason,
        record.key,
        msgspec.json.encode(texts).decode(),
        record.body,
        msgspec.msgpack.encode((exact if headers_error is None else headers_error, record.time_ms)),
    )


def restore(rejected: RejectedRecord) -> SourceRecord:
    """Return a stored record as the source returned it.

    Values that were not stored, such as secret headers, become unreadable headers: a mapping that reads one rejects the
    record.
    """
    exact, time_ms = msgspec.msgpack.decode(rejected.exact)
    headers: Mapping[str, bytes | str]
    headers = _UnreadableHeaders(exact) if isinstance(exact, str) else {name: _header(exact[name]) for name in exact}
    return SourceRecord(
        rejected.partition, msgspec.json.decode(rejected.position), rejected.body, rejected.key, headers, time_ms
    )


def _header(value: Any) -> bytes | str:
    return UnreadableHeader(*value) if isinstance(value, list) else value


class _UnreadableHeaders(Mapping[str, bytes | str]):
    """The headers of a record whose source could not read them; a mapping that reads one rejects the record."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @override
    def __getitem__(self, name: str) -> bytes | str:
        raise MappingError(self._reason)

    @override
    def __iter__(self) -> Iterator[str]:
        raise MappingError(self._reason)

    @override
    def __len__(self) -> int:
        raise MappingError(self._reason)


class RejectedLimits(NamedTuple):
    """The limits of a source's stored rejected records: their number, and their size in bytes.

    Raises:
        InputError: by ``checked``, if one is not a whole number above 0.
    """

    records: int = source_limits.REJECTED_RECORDS
    size: int = source_limits.REJECTED_BYTES

    def validated(self) -> "RejectedLimits":
        """Return it, if it is valid."""
        if not all(isinstance(number, int) and number > 0 for number in self):
            settings = f"max_rejected is {self.records!r} and max_rejected_bytes is {self.size!r}"
            raise InputError(f"{settings}; expected whole numbers above 0")
        return self

    def save(
        self, store: SourceStore, source: str, rejected: Sequence[RejectedRecord], now_ms: int, *, may_drop: bool
    ) -> int:
        """Store rejected records; return the number dropped for lack of room.

        Args:
            store: the store.
            source: the source.
            rejected: the records.
            now_ms: the time.
            may_drop: whether the source still has the records: then the first record without room and all later ones
                are dropped, so that all before it are stored. Otherwise each is the only copy and none is dropped; the
                records of one call may then exceed the limit, so that a large batch finds room.

        Raises:
            RejectedFull: if none may be dropped and the limit is reached.
        """
        if not rejected:
            return 0
        records, size = store.rejected_total(source)
        if not may_drop and (records >= self.records or size >= self.size):
            raise RejectedFull(
                f"source {source!r} stores {records:,} rejected records of {size:,} bytes; its limits are "
                f"{self.records:,} records and {self.size:,} bytes: resend or purge records, or raise max_rejected and "
                "max_rejected_bytes"
            )
        stored = len(rejected)
        for index, record in enumerate(rejected if may_drop else ()):
            records += 1
            size += len(record.key or b"") + len(record.headers.encode()) + len(record.body or b"")
            if records > self.records or size > self.size:
                stored = index
                break
        store.reject(source, rejected[:stored], now_ms)
        dropped = len(rejected) - stored
        if dropped:
            text = (
                "source %(source)s has reached its limit of rejected records: %(count)d more are dropped, the last "
                "from %(partition)s at %(position)s: %(reason)s"
            )
            last = rejected[-1]._asdict()
            fields = {name: last[name] for name in ("partition", "position", "reason")}
            EVENTS.warning("dropped", source, text, source=source, count=dropped, **fields)
        return dropped
