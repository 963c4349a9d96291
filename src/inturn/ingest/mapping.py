"""The mapping of records to messages: which part of a record is the group, the revision, the id and the body."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.identity import group_text
from inturn.core.queue.messages import Content, Draft
from inturn.core.texts import checked, is_text, text_fault
from inturn.core.values.path import joined, parts, value_at
from inturn.ingest import limits as source_limits
from inturn.ingest.source import Decoder, SourceRecord, UnreadableHeader, header_value

_ROOTS: Final = ("key", "headers", "body", "partition", "position", "time")
_JSON: Final = Content.JSON
_decode: Final = msgspec.json.Decoder().decode
_DIGITS: Final = 20  # of 64 bits, with a sign; int() refuses a text of thousands
_ENCODING_ERRORS: Final = (InputError, RecursionError, UnicodeError)
"""Errors of encoding a decoded value: it may be nested too deep, or contain an unpaired surrogate."""


class MappingError(InputError):
    """A record that cannot become a message; the text is the reason, shortened, with unstorable characters escaped."""

    def __init__(self, text: str) -> None:
        shown = text[: source_limits.REASON_LENGTH].encode("utf-8", "backslashreplace").decode()
        super().__init__(shown.replace("\0", "\\0"))


@dataclass(frozen=True, kw_only=True)
class MessageMapping:
    """A rule that makes messages of records. Each field is a path into the record.

    A path begins with ``key``, ``headers``, ``body``, ``partition``, ``position`` or ``time``. The rest names a field
    of the JSON in that part: ``body.after.account_id``, ``key.id``, ``headers.version``. Without a field,
    ``key`` and a header are texts.

    Args:
        group: the message's group; None: no group.
        revision: its revision, a whole number, also as text.
        ranks: the numbers of revisions that are words: ``{"draft": 1, "open": 2, "paid": 3}``.
        id: its deduplication id; None: no id, and a record still becomes a message only once.
        body: its body; ``body`` alone is the record's body unchanged.
        format: the format of bodies: ``json``, ``text`` (UTF-8) or ``bytes``.
        ignore_empty: whether to skip records without a body, such as tombstones; otherwise they are rejected.
        attributes: its attributes, as paths by attribute name: ``{"trace": "headers.traceparent", "at": "time"}``. An
            attribute that a record lacks is left out.
    """

    group: str | None = "key"
    revision: str | None = None
    id: str | None = None
    body: str = "body"
    format: Literal["json", "text", "bytes"] = "json"
    ignore_empty: bool = False
    ranks: Mapping[str, int] | None = None
    attributes: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("group", "revision", "id", "body"):
            path = getattr(self, name)
            if path is not None and (not isinstance(path, str) or parts(path)[0] not in _ROOTS):
                raise InputError(f"{name} is {path!r}; expected a path that begins with {', '.join(_ROOTS)}")
        check_attributes(self.attributes)
        if self.format not in ("json", "text", "bytes"):
            raise InputError(f"format is {self.format!r}; expected 'json', 'text' or 'bytes'")
        if self.format != "json" and any(path and path.startswith("body.") for path in self._paths):
            raise InputError(f"a path into the body needs format='json', not {self.format!r}")

    @property
    def _paths(self) -> tuple[str | None, ...]:
        return (self.group, self.revision, self.id, self.body, *(self.attributes or {}).values())

    @property
    def needs_headers(self) -> bool:
        """True if a path begins with ``headers``."""
        return any(path is not None and parts(path)[0] == "headers" for path in self._paths)

    def compiled(self) -> Callable[[SourceRecord], Draft | None]:
        """Return the function that maps a record; it returns None for a record that is passed over.

        The function raises MappingError.
        """
        group, revision, id_ = (path_reader(path) for path in (self.group, self.revision, self.id))
        body = None if self.body == "body" else path_reader(self.body)
        as_json, as_bytes = self.format == "json", self.format == "bytes"

        def draft(record: SourceRecord) -> Draft | None:
            data = record.body
            if data is None:
                if self.ignore_empty:
                    return None
                raise MappingError("the record has no body")
            if len(data) > limits.BODY_BYTES:
                raise MappingError(f"the body has {len(data):,} bytes; at most {limits.BODY_BYTES:,} are allowed")
            value = decoded("body", data) if as_json else None
            text: str | bytes
            try:
                if body is not None:
                    text, content = msgspec.json.encode(body(record, value)).decode(), _JSON
                elif as_bytes:
                    text, content = data, Content.BYTES
                else:
                    text, content = _text("body", data), _JSON if as_json else Content.TEXT
                return Draft(
                    text,
                    content,
                    None if group is None else name_of("group", group(record, value)),
                    None if revision is None else _revision(revision(record, value), self.ranks),
                    None if id_ is None else name_of("id", id_(record, value)),
                )
            except _ENCODING_ERRORS as error:
                raise MappingError(str(error)) from error

        return with_attributes(self.attributes, draft)


def check_attributes(paths: Mapping[str, str] | None) -> None:
    """Check the paths of attributes.

    Raises:
        InputError: if one is not valid.
    """
    check_type("attributes", paths, Mapping | None, "a dict of the paths of attributes by their names")
    for name, path in (paths or {}).items():
        if not isinstance(name, str) or not isinstance(path, str) or parts(path)[0] not in _ROOTS:
            raise InputError(
                f"the attribute {name!r} is {path!r}; expected a path that begins with {', '.join(_ROOTS)}"
            )


def with_attributes(
    paths: Mapping[str, str] | None, map_: Callable[[SourceRecord], Draft | None]
) -> Callable[[SourceRecord], Draft | None]:
    """Return the function that maps a record and adds the attributes at these paths."""
    if not paths:
        return map_
    readers = {name: path_reader(path) for name, path in paths.items()}
    reads_body = any(parts(path)[0] == "body" for path in paths.values())

    def draft(record: SourceRecord) -> Draft | None:
        mapped = map_(record)
        if mapped is None:
            return None
        value = decoded("body", record.body) if reads_body and record.body is not None else None
        try:
            read = {name: reader(record, value) for name, reader in readers.items() if reader is not None}
            attributes = msgspec.json.encode({name: value for name, value in read.items() if value is not None})
        except _ENCODING_ERRORS as error:
            raise MappingError(str(error)) from error
        size = len(attributes) + len(mapped.body.encode() if isinstance(mapped.body, str) else mapped.body)
        if size > limits.BODY_BYTES:
            raise MappingError(f"body and attributes have {size:,} bytes; at most {limits.BODY_BYTES:,} are allowed")
        return mapped._replace(attributes=attributes.decode())

    return draft


def with_decoder(
    decode: Decoder | None, map_: Callable[[SourceRecord], Draft | None]
) -> Callable[[SourceRecord], Draft | None]:
    """Return the function that maps a record after it is decoded."""
    return map_ if decode is None else lambda record: map_(decode(record))


def path_reader(path: str | None) -> Callable[[SourceRecord, Any], Any] | None:
    """Return the function that reads the value at a path from a record and its decoded body."""
    if path is None:
        return None
    root, *names = parts(path)
    within = joined(names)
    if root == "body":
        return _field_of_body(within, names)
    if root == "headers":
        return lambda record, _value: _header(record.headers, names)
    if root == "key":
        return (lambda record, _value: _text_or_field("key", record.key, within)) if within else _key_text
    if root == "position":
        return lambda record, _value: value_at(record.position, within) if within else record.position
    return _time if root == "time" else lambda record, _value: record.partition


def _field_of_body(path: str, names: list[str]) -> Callable[[SourceRecord, Any], Any]:
    if len(names) == 1:  # as nearly always
        name = names[0]
        return lambda _record, value: value.get(name) if type(value) is dict else value_at(value, path)
    return lambda _record, value: value_at(value, path)


def _time(record: SourceRecord, _value: Any) -> int | None:
    if record.time_ms is None:
        _check_readable("timestamp", record.headers.get("timestamp"))
    return record.time_ms


def _key_text(record: SourceRecord, _value: Any) -> str | None:
    """Return the key as a text, as nearly all mappings do."""
    return None if record.key is None else _text("key", record.key)


def _header(headers: Mapping[str, bytes | str], names: list[str]) -> Any:
    if not names:
        texts = {name: header_value(value) for name, value in headers.items() if value is not None}
        for name, text in texts.items():
            _check_readable(name, text)
        return texts
    data = headers.get(names[0])
    if data is not None:
        data = header_value(data)
    _check_readable(names[0], data)
    return _text_or_field(f"header {names[0]!r}", data, joined(names[1:]))


def _check_readable(name: str, data: bytes | str | None) -> None:
    if isinstance(data, UnreadableHeader):
        raise MappingError(f"the header {name!r} cannot be read: {data.reason}")
    if isinstance(data, str) and not is_text(data):
        raise MappingError(text_fault(f"header {name!r}", data))


def _text_or_field(label: str, data: bytes | str | None, within: str) -> Any:
    """Return a key or a header as text, or a field of the JSON in it."""
    if data is None:
        return None
    if not within:
        return data if isinstance(data, str) else _text(label, data)
    return value_at(decoded(label, data), within)


def decoded(label: str, data: bytes | str) -> Any:
    """Decode JSON; ``label`` names it in the error.

    Raises:
        MappingError: if it is not JSON.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MappingError(f"the {label} is not JSON: {error}") from error


def _text(label: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MappingError(f"the {label} is not UTF-8: {error}") from error


def name_of(label: str, value: Any) -> str:
    """Return a value as the name of a group or an id.

    Raises:
        InputError: if it cannot be one.
    """
    if value is None:
        raise MappingError(f"the record has no {label}")
    return checked(label, value if isinstance(value, str) else group_text(value))


def _revision(value: Any, ranks: Mapping[str, int] | None) -> int:
    if ranks is not None:
        if not isinstance(value, str) or value not in ranks:
            raise MappingError(f"the revision is {value!r:.100}; expected one of {', '.join(ranks)}")
        value = ranks[value]
    if type(value) is int and -limits.REVISION <= value <= limits.REVISION:  # as nearly always
        return value
    if isinstance(value, str) and len(value) <= _DIGITS and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limits.REVISION:
        raise MappingError(f"the revision is {value!r:.100}; expected a whole number of at most 64 bits")
    return value
