"""The rule for texts over Arrow columns: what is no name of a group and no id, and what is not UTF-8 at all.

What the rule is, ``inturn.core.texts`` says. Spark keeps bytes that are no UTF-8 as strings if it is told to, as in
``CAST(payload AS string)``; Python cannot read them.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.texts import name_fault

_NOT_UTF8: Final = "the text of {} is no UTF-8"


def name_faults(what: str, column: pa.ChunkedArray) -> dict[int, str]:
    """Return why texts of a column are no names of groups and no ids, by row."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return {}
    lengths = pc.utf8_length(column)
    wrong = pc.or_(pc.less(lengths, 1), pc.greater(lengths, limits.ID_LENGTH))
    if any(_has_nul(chunk) for chunk in column.chunks):
        wrong = pc.or_(wrong, pc.match_substring(column, "\0"))
    rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy()).tolist()  # noqa: FBT003
    return {row: name_fault(what, column[row].as_py()) for row in rows}


def mended(table: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    r"""Return a table that Python can read, and which rows had bytes that are no UTF-8, with the reason.

    In place of such bytes there are visible escapes, ``\xe9``.
    """
    bad: dict[int, str] = {}
    for at, name in enumerate(table.column_names):
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid:
            column, rows = _mended(table[name])
            table = table.set_column(at, table.schema.field(at), column)
            bad |= {row: bad.get(row, _NOT_UTF8.format(name)) for row in rows}
    return table, bad


def _has_nul(chunk: pa.Array) -> bool:
    """Whether one of the bytes is zero: a look at all of them costs less than one at each text."""
    data = chunk.buffers()[2]
    return data is not None and not np.frombuffer(data, dtype=np.uint8).all()


def _mended(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[int]]:
    values: list[Any] = []
    rows: list[int] = []
    for row, value in enumerate(column.cast(_as_bytes(column.type)).to_pylist()):
        broken: list[bytes] = []
        values.append(_decoded(value, column.type, broken))
        if broken:
            rows.append(row)
    return pa.chunked_array([pa.array(values, column.type)]), rows


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The same type with bytes in place of texts."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    return kind


def _decoded(value: Any, kind: pa.DataType, broken: list[bytes]) -> Any:
    """Return a value with texts in place of bytes; those that are no UTF-8 are added to ``broken``."""
    if value is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = value.decode(errors="backslashreplace")
        if text.encode() != value:
            broken.append(value)
        return text
    if pa.types.is_struct(kind):
        return {field.name: _decoded(value[field.name], field.type, broken) for field in kind}
    if pa.types.is_map(kind):
        return [(_decoded(key, kind.key_type, broken), _decoded(each, kind.item_type, broken)) for key, each in value]
    if pa.types.is_list(kind):
        return [_decoded(each, kind.value_type, broken) for each in value]
    return value
