"""The canonical JSON of many rows at once, by Arrow, for the digests of a whole chunk.

What canonical JSON is, ``inturn.core.message`` says, and a property test holds this to it. Columns that need more
than quotes around them are left to it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.message import canonical, column_texts

_SHA256 = hashlib.sha256()


@dataclass(frozen=True)
class Texts:
    """The canonical JSON of each value of a column.

    Attributes:
        quote: what still has to be put before and behind each: a quote or nothing.
        inner: the texts without it.
    """

    quote: str
    inner: pa.Array


def texts(column: pa.Array | None, values: Sequence[Any]) -> Texts:
    """The canonical JSON of each value of a column.

    Args:
        column: the values as they came in; None if they were converted since.
        values: the same as Python values of the message's types, which the digest is of.
    """
    if column is not None:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            plain = pc.cast(column, pa.string())
            return Texts("", pc.fill_null(plain, "null") if column.null_count else plain)
        if pa.types.is_string(kind) and not _needs_escapes(column):
            if not column.null_count:
                return Texts('"', column)
            return Texts("", pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null"))
    return Texts("", pa.array(column_texts(values), pa.string()))


def _needs_escapes(column: pa.StringArray) -> bool:
    _, offsets, data = column.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    return bool((letters < 0x20).any() or (letters == ord('"')).any() or (letters == ord("\\")).any())


def digests(names: Sequence[str], columns: Sequence[Texts]) -> list[bytes]:
    """The digest of each row, given its columns' texts.

    Args:
        names: the names of the columns, each once; at least one.
        columns: as :func:`texts` made them.
    """
    parts: list[Any] = []
    between = "{"
    for name, column in sorted(zip(names, columns, strict=True), key=lambda pair: pair[0]):
        parts += [between + canonical(name) + ":" + column.quote, column.inner]
        between = column.quote + ","
    rows = pc.binary_join_element_wise(*parts, between[:-1] + "}", "").cast(pa.binary()).to_pylist()
    found = []
    copy = _SHA256.copy  # a copy of an empty hash is much cheaper than a new one
    for row in rows:
        each = copy()
        each.update(row)
        found.append(each.digest())
    return found
