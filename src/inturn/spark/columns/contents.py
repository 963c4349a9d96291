"""The canonical JSON of many rows at once, built by Arrow, for the digests of a whole chunk.

``inturn.core.identity`` defines canonical JSON, and a property test compares this module with it. Columns
whose values need more than quotes around them are converted there.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.identity import canonical, canonical_without_nulls, column_texts

_SHA256 = hashlib.sha256()


@dataclass(frozen=True)
class ContentTexts:
    """The canonical JSON of each value of a column; null for a null value, which is left out of its row.

    Attributes:
        quote: the text to add before and after each value: a quote or nothing.
    """

    quote: str
    inner: pa.Array


def texts(column: pa.Array | None, values: Sequence[Any]) -> ContentTexts:
    """Return the canonical JSON of each value of a column, given as read (None if converted since) and in Python."""
    if column is not None:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return ContentTexts("", pc.cast(column, pa.string()))
        if pa.types.is_string(kind) and not _needs_escapes(column):
            if not column.null_count:
                return ContentTexts('"', column)
            return ContentTexts("", pc.binary_join_element_wise('"', column, '"', ""))
    known = zip(values, column_texts(values), strict=True)
    return ContentTexts(
        "",
        pa.array(
            [None if value is None else canonical_without_nulls(value, text) for value, text in known], pa.string()
        ),
    )


def _needs_escapes(column: pa.StringArray) -> bool:
    _, offsets, data = column.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    return bool((letters < 0x20).any() or (letters == ord('"')).any() or (letters == ord("\\")).any())


def digests(names: Sequence[str], columns: Sequence[ContentTexts]) -> list[bytes]:
    """Return the digest of each row; the names of the columns are unique, and at least one."""
    if any(column.inner.null_count for column in columns):
        return _hashes(_without_nulls(names, columns))
    parts: list[Any] = []
    between = "{"
    for name, column in sorted(zip(names, columns, strict=True), key=lambda pair: pair[0]):
        parts += [between + canonical(name) + ":" + column.quote, column.inner]
        between = column.quote + ","
    return _hashes(pc.binary_join_element_wise(*parts, between[:-1] + "}", ""))


def _without_nulls(names: Sequence[str], columns: Sequence[ContentTexts]) -> pa.Array:
    """Return the JSON of each row without its null values."""
    parts: list[Any] = []
    for name, column in sorted(zip(names, columns, strict=True), key=lambda pair: pair[0]):
        before, suffix = canonical(name) + ":" + column.quote, column.quote + ","
        parts.append(pc.fill_null(pc.binary_join_element_wise(before, column.inner, suffix, ""), ""))
    inner = pc.ascii_rtrim(pc.binary_join_element_wise(*parts, ""), ",")
    return pc.binary_join_element_wise("{", inner, "}", "")


def _hashes(texts: pa.Array) -> list[bytes]:
    rows = texts.cast(pa.binary()).to_pylist()
    row_digests = []
    copy = _SHA256.copy  # a copy of an empty hash is much cheaper than a new one
    for row in rows:
        hasher = copy()
        hasher.update(row)
        row_digests.append(hasher.digest())
    return row_digests
