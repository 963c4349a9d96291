"""The mapping of Debezium's change events: one group per row by default, with the position in the log as its revision.

Within one row, the position in the log is the order of the changes. In a coarser group it is not, since transactions
interleave in the log: use the order of arrival, which is commit order as long as the topic has one partition, or
``revision="position"``.

The position depends on the connector. Positions of PostgreSQL, MySQL and MongoDB fit into a revision; those of the
connectors in :data:`POSITION_FIELDS` do not, and stay fields of the body.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.override import override
from inturn.core.queue.messages import Draft
from inturn.core.texts import checked
from inturn.core.values.path import parts, value_at
from inturn.core.values.unavailable import merged as merged  # noqa: PLC0414 - public here, and used by inturn.pipelines
from inturn.ingest.mapping import (
    MappingError,
    MessageMapping,
    check_attributes,
    decoded,
    name_of,
    path_reader,
    with_attributes,
)
from inturn.ingest.source import SourceRecord

POSITION_FIELDS: Final = {
    "db2": ("source.commit_lsn", "source.change_lsn"),
    "informix": ("source.commit_lsn", "source.change_lsn"),
    "oracle": ("source.scn", "source.rs_id", "source.ssn"),
    "sqlserver": ("source.commit_lsn", "source.change_lsn", "source.event_serial_no"),
}
"""The fields of an event with the position of a row's change, for :class:`inturn.MonotoneFields`, by connector.

An ``scn`` alone is not sufficient: one transaction may change a row several times within one ``scn``.
"""

SEVERAL_FIELDS: Final = ("commit_lsn", "scn")
"""The fields of ``source`` that tell that its position has several fields."""
LOG_POSITIONS: Final = ("lsn", "ord", "file")
"""The fields of ``source`` that tell that its position is one number."""
ROW_COLUMNS: Final = ("row", "table", "position")
"""The fields that :func:`change_message` adds."""
CHANGES: Final = frozenset("cudr")
"""The operations that change a row."""
_OTHER_OPERATIONS: Final = {
    "t": "a truncate event (op t) is not a change of a row",
    "m": "a logical message (op m) is not a change of a row",
}
PASSED_OVER: Final = tuple(_OTHER_OPERATIONS)
"""The operations that :func:`change_message` passes over."""
_ADDED_PREFIX: Final = "__"
"""The prefix of the fields that a flattened event has besides the fields of its row."""
_SOURCE_PREFIX: Final = "source_"
TABLE: Final = ("db", "schema", "table", "collection")
"""The fields of ``source`` that name a table."""
_JSON: Final = msgspec.json.Encoder(order="deterministic")


class _Envelope(msgspec.Struct):
    """An event with its schema; the event stays undecoded, since a number may have more digits than a float."""

    payload: msgspec.Raw


@dataclass(frozen=True, kw_only=True)
class DebeziumMapping(MessageMapping):
    """A rule that maps Debezium's change events to messages, in JSON, with or without their schemas.

    The body is the event without its schema. Tombstones are skipped. Truncates, logical messages, schema changes,
    transaction markers and heartbeats are rejected, so that they do not pass unnoticed.

    A flattened event is the row alone, as produced by Debezium's ``ExtractNewRecordState``, with the fields that
    ``add.fields`` names: ``__db``, ``__table``, ``__lsn``. A record without a body may be a delete or the tombstone
    after a delete. It is rejected, unless ``ignore_empty`` declares that all of them are tombstones.

    Args:
        group: a field of the row, such as ``account``, of the row after the change or, for a delete, before it; None:
            each row is a group, by its table and key.
        revision: None: for a row its position in the log if one number holds it, for a coarser group none;
            ``position``: that of the record; or the path to another field of the event, such as ``source.ts_ms``.
        flat: whether the events are flattened.
        ignore_empty: whether to skip records without a body if events are flattened; otherwise they are rejected.
        id: as in :class:`MessageMapping`; the default of a webhook is ``headers.webhook-id``.
        attributes: as in :class:`MessageMapping`.
    """

    group: str | None = None
    flat: bool = False

    def __post_init__(self) -> None:
        for name in ("group", "revision", "id"):
            path = getattr(self, name)
            if path is not None and not (isinstance(path, str) and path):
                raise InputError(f"{name} is {path!r}; expected the path of a field")
        check_attributes(self.attributes)
        if (self.body, self.format, self.ranks) != ("body", "json", None):
            raise InputError("a Debezium mapping sets body, format and ranks itself; remove them")

    @property
    @override
    def needs_headers(self) -> bool:
        paths = (self.id or "", *(self.attributes or {}).values())
        return any(parts(path)[0] == "headers" for path in paths if path)

    @override
    def compiled(self) -> Callable[[SourceRecord], Draft | None]:
        id_ = path_reader(self.id)
        return with_attributes(self.attributes, lambda record: self._draft(record, id_))

    def _draft(self, record: SourceRecord, id_: Callable[[SourceRecord, Any], Any] | None) -> Draft | None:
        if record.body is None:
            self._check_tombstone()
            return None
        if len(record.body) > limits.BODY_BYTES:
            raise MappingError(f"the body has {len(record.body):,} bytes; at most {limits.BODY_BYTES:,} are allowed")
        value = decoded("body", record.body)
        event = _payload(value)
        if event is None:
            self._check_tombstone()
            return None
        source = _added_source_fields(event) if self.flat else _source_fields(event)
        try:
            raw = record.body if event is value else msgspec.json.decode(record.body, type=_Envelope).payload
            group = self._row_group(source, record.key) if self.group is None else self._field_group(event)
            revision = self._revision(record, event, source)
            dedup_id = None if id_ is None else name_of("id", id_(record, value))
            return Draft(bytes(raw).decode(), group=group, revision=revision, dedup_id=dedup_id)
        except (InputError, RecursionError) as error:
            raise MappingError(str(error)) from error

    def _check_tombstone(self) -> None:
        """Refuse a record without a body if it may be a delete."""
        if self.flat and not self.ignore_empty:
            raise MappingError(
                "the record has no body: it is a delete, or the tombstone after one; configure the connector to keep "
                "deletes as rows (delete.tombstone.handling.mode=rewrite), then set ignore_empty to skip tombstones"
            )

    def _row_group(self, source: dict[str, Any], key: bytes | None) -> str:
        """Return the name of a row: its table and its key."""
        if key is None:
            raise MappingError(
                "the record has no key, since its table has no primary key; set group to a field of the row"
            )
        table = _table(source)
        if self.flat and not table:
            raise MappingError(
                "the row does not name its table; configure the connector to add it (add.fields=db,table), or set group"
            )
        return checked("group", f"{table}/{_JSON.encode(_payload(decoded('key', key))).decode()}")

    def _field_group(self, event: dict[str, Any]) -> str:
        path = self.group or ""
        value = value_at(event if self.flat else event.get("after") or event.get("before"), path)
        if value is None:
            raise MappingError(f"the row has no field {path}; a delete event has it only with REPLICA IDENTITY FULL")
        return name_of("group", value)

    def _revision(self, record: SourceRecord, event: dict[str, Any], source: Mapping[str, Any]) -> int | None:
        if self.revision is None:
            return position_of(source) if self.group is None else None
        value = record.position if self.revision == "position" else value_at(event, self.revision)
        return _number(self.revision, value, limits.REVISION)


def position_of(source: Mapping[str, Any]) -> int | None:
    """Return the position of a change in its database's log as one number; it orders the changes of one row.

    For PostgreSQL it is ``lsn``, for MySQL and MariaDB the number of the file, ``pos`` and ``row``, packed. For MongoDB
    it is the timestamp of its oplog, which is the seconds and ``ord``, packed.

    Returns:
        None if one number cannot hold it, see :data:`POSITION_FIELDS`.

    Raises:
        MappingError: if there is no position, or it is out of range.
    """
    if "lsn" in source:
        return _number("lsn", source["lsn"], limits.REVISION)
    if any(name in source for name in SEVERAL_FIELDS):
        return None
    if "ord" in source:
        seconds = _number("ts_ms", source.get("ts_ms"), 2**31 * 1000 - 1) // 1000
        return seconds << 32 | _number("ord", source["ord"], 2**32 - 1)
    file = source.get("file")
    if file is None:
        raise MappingError(
            f"unknown log position of connector {source.get('connector')!r}; set revision to the path of a field"
        )
    number = re.search(r"\.([0-9]{1,9})$", file) if isinstance(file, str) else None
    if number is None:
        raise MappingError(f"the file is {file!r}; expected a name that ends with a dot and a number")
    packed = _number("file number", int(number[1]), 2**19 - 1) << 44
    return packed | _number("pos", source.get("pos"), 2**32 - 1) << 12 | _number("row", source.get("row"), 2**12 - 1)


def change_message(event: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an event that changes a row as a message of a pipeline; see :func:`inturn.spark.debezium` for DataFrames.

    The message has the fields of the event, without its schema, and ``row``: the row after the change or, for a delete,
    before it; ``table``: the names of its database, schema and table; ``position``: see :func:`position_of`, absent if
    one number cannot hold it. They are None where the event has no usable value, so that a pipeline rejects it.

    Returns:
        None if the event is not a change of a row: a truncate, a logical message, a heartbeat, a transaction marker, a
        schema change, or a tombstone.

    Raises:
        InputError: if the event is not a mapping.
    """
    if event is None:
        return None
    check_type("event", event, Mapping, "a change event as a dict, such as json.loads(line), or None for a tombstone")
    payload = event.get("payload")
    if event.get("op") is None and "payload" in event and (payload is None or isinstance(payload, dict)):
        beside = {name: value for name, value in event.items() if name not in ("op", "schema", "payload")}
        event = beside | (payload or {})
    op, before, after, unread = (event.get(name) for name in ("op", "before", "after", "payload"))
    if op in PASSED_OVER or (op is None and before is None and after is None and unread is None):
        return None
    is_change = isinstance(op, str) and op in CHANGES
    fields = event.get("source")
    source = {name: value for name, value in fields.items() if value is not None} if isinstance(fields, dict) else {}
    row = before if after is None else after
    message = {**event, "row": row if is_change else None, "table": _table(source) or None}
    try:
        position = position_of(source)
    except MappingError:
        return message | {"position": None}
    return message if position is None else message | {"position": position if is_change else None}


class LogSequence(NamedTuple):
    """The ``source.sequence`` of PostgreSQL's connector.

    Attributes:
        committed: the position of the last commit **before** this transaction; None: unknown.
        own: the position of this change; None: unknown.
    """

    committed: int | None
    own: int | None


def sequence_of(source: Mapping[str, Any]) -> LogSequence:
    """Return the sequence of a change, which is a text that holds a JSON array of two texts or nulls.

    Raises:
        MappingError: if it is something else.
    """
    text = source.get("sequence")
    positions = decoded("sequence", text) if isinstance(text, str) else None
    if not isinstance(positions, list) or len(positions) != 2:
        raise MappingError(f"the sequence is {text!r}; expected a text that holds a JSON array of two positions")
    return LogSequence(
        *(None if position is None else _number("sequence", position, 2**64 - 1) for position in positions)
    )


def _table(source: Mapping[str, Any]) -> str:
    return ".".join(source[name] for name in TABLE if isinstance(source.get(name), str))


def _source_fields(event: Any) -> dict[str, Any]:
    """Return the source of a change; refuse an event that is not a change of a row."""
    _check_change(event)
    source = event.get("source")
    if not isinstance(source, dict):
        raise MappingError("the event has no source")
    return source


def _added_source_fields(row: Any) -> dict[str, Any]:
    """Return the source fields of a flattened event; refuse an event that is not a change of a row."""
    if not isinstance(row, dict):
        raise MappingError("the event is not an object")
    added = {name.removeprefix(_ADDED_PREFIX): value for name, value in row.items() if name.startswith(_ADDED_PREFIX)}
    named = {
        name.removeprefix(_SOURCE_PREFIX): value for name, value in added.items() if name.startswith(_SOURCE_PREFIX)
    }
    # Without "source." in add.fields, ts_ms is the connector's clock, which differs when a change is sent again.
    source = {name: value for name, value in added.items() if name != "ts_ms"} | named
    op = source.get("op", "c")
    if not isinstance(op, str) or op not in CHANGES:
        raise MappingError(f"the op is {op!r:.100}; expected c, u, d or r")
    return source


def _check_change(event: Any) -> None:
    """Refuse an event that is not a change of a row, and name its kind."""
    if not isinstance(event, dict):
        raise MappingError("the event is not an object")
    op = event.get("op")
    if not isinstance(op, str):
        if "ddl" in event:
            raise MappingError("a schema change (ddl) is not a change of a row")
        if event.get("status") in ("BEGIN", "END"):
            raise MappingError("a transaction marker is not a change of a row")
        raise MappingError(
            "the event has no op: it is a heartbeat, a flattened event (set flat) or not a Debezium event"
        )
    if op not in CHANGES:
        raise MappingError(_OTHER_OPERATIONS.get(op, f"the op is {op!r}; expected c, u, d or r"))


def _payload(value: Any) -> Any:
    """Return an event or a key without its schema."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def _number(label: str, value: Any, maximum: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value) if len(value) < 25 else -1
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise MappingError(f"the {label} is {value!r:.100}; expected a whole number from 0 to {maximum}")
    return value
