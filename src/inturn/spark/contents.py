"""The canonical JSON of many rows at once, by Arrow, for the digests of a whole chunk.

What canonical JSON is, ``inturn.core.message`` says, and a property test holds this to it. Columns that need more
than quotes around them are left to it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.message import canonical, column_texts

_ESCAPED = np.zeros(256, dtype=np.bool_)
_ESCAPED[[*range(0x20), ord('"'), ord("\\")]] = True


def texts(column: pa.Array | None, values: Sequence[Any]) -> pa.Array:
    """The canonical JSON of each value of a column.

    Args:
        column: the values as they came in; None if they were converted since.
        values: the same as Python values of the message's types, which the digest is of.
    """
    if column is None:
        return pa.array(column_texts(values), pa.string())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        plain = pc.cast(column, pa.string())
    elif pa.types.is_string(kind) and not _needs_escapes(column):
        plain = pc.binary_join_element_wise('"', column, '"', "")
    else:
        return pa.array(column_texts(values), pa.string())
    return pc.fill_null(plain, "null") if column.null_count else plain


def _needs_escapes(column: pa.StringArray) -> bool:
    _, offsets, data = column.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return bool(_ESCAPED[np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]].any())


def digests(names: Sequence[str], columns: Sequence[pa.Array]) -> list[bytes]:
    """The digest of each row, given its columns' texts.

    Args:
        names: the names of the columns, each once; at least one.
        columns: as :func:`texts` made them.
    """
    parts: list[Any] = []
    for number, (name, column) in enumerate(sorted(zip(names, columns, strict=True), key=lambda pair: pair[0])):
        parts += [("{" if number == 0 else ",") + canonical(name) + ":", column]
    rows = pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary()).to_pylist()
    sha256 = hashlib.sha256
    return [sha256(row).digest() for row in rows]
