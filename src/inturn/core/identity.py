"""Identity of messages and outputs: digest, effect id and the text form of a group.

Each is defined here and nowhere else, because a store written by one runner must mean the same to every other.
"""

import base64
import dataclasses
import datetime as dt
import enum
import hashlib
import json
import json.encoder
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from inturn.core.errors import InputError

type_names = "str, int, date or UUID"


def group_text(value: object) -> str:
    """Return the text form of a group: ``7`` is ``"7"``.

    Args:
        value: a str, int, date or UUID.

    Returns:
        The group's name in every store.

    Raises:
        InputError: for any other type; a float or a bool is not a name.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | dt.date | uuid.UUID) or isinstance(value, dt.datetime):
        raise InputError(f"invalid group {value!r} ({type(value).__name__}): expected {type_names}; cast it to text")
    return str(value)


def plain(value: Any) -> Any:  # noqa: PLR0911 - one return a type is what makes it a table
    """Return the canonical form of a value that JSON cannot hold, such as a date, a decimal or a record.

    Raises:
        InputError: if there is no canonical form for the type.
    """
    match value:
        case dt.datetime():
            return _instant(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            whole, exact = value // dt.timedelta(microseconds=1), value / dt.timedelta(microseconds=1)
            return exact if exact == whole else whole  # from 285 years on a float is not exact to the microsecond
        case Decimal():
            return _decimal(value) if value.is_finite() else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case enum.Enum():
            return value.value
        case uuid.UUID():
            return str(value)
        case set() | frozenset():
            return sorted(value, key=canonical)
    fields = field_names(type(value))
    if fields is None:
        raise InputError(
            f"{value!r} of type {type(value).__name__} has no canonical form; use a dataclass, a msgspec.Struct, a "
            "pydantic model or JSON values"
        )
    return {name: getattr(value, name) for name in fields}


def _instant(value: dt.datetime) -> str:
    """Return a time as ISO 8601, in UTC if it has a zone; in its own zone if the year in UTC is out of range."""
    try:
        return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat()
    except OverflowError:
        return value.isoformat()


def _decimal(value: Decimal) -> str:
    text = format(value, "f")  # not normalize(): that rounds to the context's precision
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def field_names(record: type) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, a ``msgspec.Struct`` type or a model, in order; None for any other type."""
    if dataclasses.is_dataclass(record):
        return _dataclass_fields(record)
    # A Struct is recognised by its attribute, so that core needs only the standard library.
    names: tuple[str, ...] | None = getattr(record, "__struct_fields__", None)
    return tuple(record.__pydantic_fields__) if names is None and is_model(record) else names  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _dataclass_fields(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record))


def is_model(record: object) -> bool:
    """Return whether a type is a model of pydantic that has fields of its own, unlike a ``RootModel``."""
    return getattr(record, "__pydantic_root_model__", None) is False and isinstance(record, type)


_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False, default=plain)
# JSON text never holds a bare newline, so a column encoded with this separator splits into its values again.
_by_line = json.JSONEncoder(separators=("\n", ":"), sort_keys=True, ensure_ascii=False, default=plain)


def canonical(value: Any) -> str:
    """Return canonical JSON: keys sorted, no spaces, characters unescaped; dates as ISO 8601, instants in UTC.

    The keys of dicts are texts, or values of one plain type that are converted to text: dates, times, decimals, bytes.

    Raises:
        InputError: if part of the value has no canonical form.
    """
    try:
        return _encoded(value)
    except TypeError as error:
        raise InputError(f"{value!r} has no canonical form: {error}; use strings as keys of dicts") from error
    except (ValueError, RecursionError) as error:  # ValueError: it contains itself, or has an int of too many digits
        msg = f"{reprlib.repr(value)} has no canonical form: {error}; it must not contain itself or be nested deeply"
        raise InputError(msg) from error


def _encoded(value: Any) -> str:
    try:
        return _canonical.encode(value)
    except TypeError:  # JSON allows fewer types of keys than of values
        return _canonical.encode(_with_plain_keys(value))


def _with_plain_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain_key(key): _with_plain_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_plain_keys(item) for item in value]
    names = field_names(type(value))
    if names is None or isinstance(value, enum.Enum):
        return value
    return {name: _with_plain_keys(getattr(value, name)) for name in names}


def _plain_key(key: Any) -> Any:
    return plain(key) if isinstance(key, _KEYS) and not isinstance(key, enum.Enum) else key


_KEYS = (dt.date, dt.time, dt.timedelta, Decimal, bytes, uuid.UUID)
"""Types of keys of which each value has exactly one text, or one number."""

_quote = json.encoder.encode_basestring


def column_texts(column: Sequence[Any]) -> list[str]:
    """Return the canonical JSON of each value."""
    try:
        texts = _by_line.encode(column)[1:-1].split("\n") if column else []
    except (TypeError, ValueError, RecursionError):
        texts = []  # raised below, for the value at fault
    # More parts than values: a value is a container itself, with separators of its own.
    return texts if len(texts) == len(column) else [canonical(value) for value in column]


def contents(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[str]:
    """Return the canonical JSON of each row of a table given as columns of equal length (at least one column).

    Nulls are left out at every level: null and absent are the same.
    """
    pairs = sorted(zip(names, columns, strict=True)) if len(set(names)) == len(names) else []
    template = "{" + ",".join(canonical(name).replace("%", "%%") + ":%s" for name, _ in pairs) + "}"
    texts = [column_texts(column) for _, column in pairs]
    if not any("null" in text for column in texts for text in column):
        return [template % row for row in zip(*texts, strict=True)]
    parts = [
        [
            None if value is None else f"{canonical(name)}:{canonical_without_nulls(value, text)}"
            for value, text in zip(column, own, strict=True)
        ]
        for (name, column), own in zip(pairs, texts, strict=True)
    ]
    return ["{" + ",".join(part for part in row if part is not None) + "}" for row in zip(*parts, strict=True)]


def canonical_without_nulls(value: Any, text: str) -> str:
    """Return the canonical JSON of a value without the nulls in it, given its canonical JSON with them."""
    return canonical(_without_nulls(value)) if "null" in text else text


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    names = field_names(type(value))
    if names is None or isinstance(value, enum.Enum):
        return value
    fields = ((name, getattr(value, name)) for name in names)
    return {name: _without_nulls(field) for name, field in fields if field is not None}


def digests(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[bytes]:
    """Return the digest of each row: SHA-256 (32 bytes) of its canonical JSON.

    Args:
        names: the content's field names, each once, in any order.
        columns: the values, one sequence per name, all of one length.

    Raises:
        InputError: if a value has no canonical form.
    """
    sha256 = hashlib.sha256
    return [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in contents(names, columns)]


def digest(content: Mapping[str, Any]) -> bytes:
    """Return the digest of one message's content: the one-row case of :func:`digests`."""
    text = _content_text(content)
    if text is not None:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return digests(list(content), [[value] for value in content.values()])[0]


def _content_text(content: Mapping[str, Any]) -> str | None:
    """Return the canonical JSON of a content in one call; None if part of it is null or has no canonical form."""
    if not {*map(type, content)} <= {str}:
        return None
    try:
        text = _canonical.encode(content if type(content) is dict else dict(content))
    except (InputError, TypeError, ValueError, RecursionError):  # raised by ``digests``, for the value at fault
        return None
    return None if "null" in text else text


def effect_id(pipeline: str, group: str, epoch: int | None, place: int | str, index: int) -> str:
    """Return the id of one output, the same in every run: 64 hexadecimal digits.

    Args:
        pipeline: the pipeline's name.
        group: the group's text form.
        epoch: the epoch, or None where the order has none.
        place: the revision, or the id where the order has no revision.
        index: index of the output among the message's outputs, from 0.

    Returns:
        SHA-256 over the canonical JSON array of these five.
    """
    place_text = place if isinstance(place, int) else _quote(place)
    # Equals canonical([pipeline, group, epoch, place, index]); written out because it runs for every output.
    text = f"[{_quote(pipeline)},{_quote(group)},{'null' if epoch is None else epoch},{place_text},{index}]"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


HeldKey = tuple[int, int, str, str]
"""The position of a held message in its group: epoch, position, tie and id."""


@dataclasses.dataclass(slots=True)
class TimelineEntry:
    """A message as the timeline sees it: its place, its digest, and the message itself for the handler.

    Attributes:
        position: its place in the order: a revision, a time in microseconds, or a count of arrivals.
        digest: 32 bytes, see :func:`digests`.
        message: message for the handler.
        epoch: its epoch; 0 if the order has no epochs.
        id: the deduplication id, where the pipeline names one.
        since_us: start of its wait, in microseconds since 1970; None if it is not held.
        ref: the runner's own reference to the message's stored content.
        tie: text that orders it among messages of the same position, before the id; see
            :meth:`~inturn.core.pipeline.order.Order.tie`.
    """

    position: int
    digest: bytes
    message: Any
    epoch: int = 0
    id: str | None = None
    since_us: int | None = None
    ref: Any = None
    tie: str = ""

    @property
    def key(self) -> HeldKey:
        """The position in the group."""
        return (self.epoch, self.position, self.tie, self.id or "")
