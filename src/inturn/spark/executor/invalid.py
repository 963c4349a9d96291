"""The invalid rows of a task, with reasons: the rules of ``inturn.core`` for single messages, over columns."""

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.errors import InvalidMessage
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.order import no_time
from inturn.core.texts import name_fault
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.names import CORRUPT, OWN
from inturn.spark.columns.records import rows_of
from inturn.spark.columns.unsupported_values import as_texts, unreadable, without_rows
from inturn.spark.executor.placement import POSITION, TIE, column_of, field_values


class ValidRows:
    """The valid rows of tables; the journal gets the others, with the reasons."""

    def __init__(self, pipeline: Pipeline, codec: MessageCodec, journal: Journal, group: str) -> None:
        self._pipeline, self._codec, self._journal, self._group = pipeline, codec, journal, group

    def split(self, table: pa.Table) -> tuple[pa.Table, dict[str, list[object]], list[Any]]:
        """Reject invalid rows; return the other rows, their columns as Python values, and their messages."""
        table = self._readable(table)
        columns, conversion_faults = self._codec.read(table)
        bad = invalid_rows(self._pipeline, table, self._group, conversion_faults)
        valid_rows = [row for row in range(len(table)) if row not in bad]
        valid_columns = rows_of(columns, valid_rows) if bad else columns
        messages, refused = self._codec.build(valid_columns)
        if refused:
            bad |= {valid_rows[index]: reason for index, reason in refused.items()}
            stay = [index for index in range(len(valid_rows)) if index not in refused]
            valid_columns, messages = rows_of(valid_columns, stay), [messages[index] for index in stay]
        if not bad:
            return table, columns, messages
        content = _content(table)
        for row, reason in sorted(bad.items()):
            self._reject(table[self._group][row].as_py(), content, row, reason)
        return without_rows(table, bad), valid_columns, messages

    def _readable(self, table: pa.Table) -> pa.Table:
        """Reject rows with values that Python cannot hold; return the others."""
        content = _content(table)
        faults = unreadable(content)
        if not faults:
            return table
        faults |= {row: reason for row, reason in unread_lines(table).items() if row in faults}
        rows = pa.array(sorted(faults))
        texts, groups = as_texts(content.take(rows)), as_texts(table.select([self._group]).take(rows))
        for index, row in enumerate(sorted(faults)):
            self._reject(groups[self._group][index].as_py(), texts, index, faults[row])
        return without_rows(table, faults)

    def _reject(self, group: str | None, content: pa.Table, row: int, reason: str) -> None:
        if self._pipeline.on_invalid == "fail":
            raise InvalidMessage(f"{reason}: {content.slice(row, 1).to_pylist()[0]!r}")
        # An invalid row has no position and no epoch; the entry only refers to its content.
        entry = TimelineEntry(cast("int", None), b"", None, cast("int", None), ref=(content, row))
        self._journal.reject(cast("str", group), entry, "invalid", reason)


def _content(table: pa.Table) -> pa.Table:
    own = (name for name in table.column_names if name.startswith(OWN) and name != CORRUPT)
    return table.drop_columns(list(own))


def invalid_rows(pipeline: Pipeline, table: pa.Table, group: str, conversion_faults: dict[int, str]) -> dict[int, str]:
    """Return the invalid rows of a table, each with the reason; given are those that do not fit the message type."""
    bad = conversion_faults | _rows_without_order(pipeline, table)
    for path in reversed([n for n in (pipeline.group, *pipeline.key_fields[1:], pipeline.arrival) if n]):
        column = table[group] if path == pipeline.group else field_values(table, path)
        if column.null_count:
            bad.update(dict.fromkeys(_rows(column.is_null()), f"{path} is null"))
    bad.update(unread_lines(table))
    if pipeline.order.bounds is not None and pipeline.position is not None:
        positions, (least, greatest) = field_values(table, pipeline.position), pipeline.order.bounds
        for row in _rows(pc.or_(pc.less(positions, least), pc.greater(positions, greatest))):
            bad.setdefault(row, cast("str", pipeline.order.fault(positions[row].as_py())))
    bad = name_faults(pipeline.group, table[group]) | bad
    return bad if pipeline.id is None else name_faults(pipeline.id, table[column_of(pipeline.id)]) | bad


def unread_lines(table: pa.Table) -> dict[int, str]:
    """Return the rows whose lines Spark's reader could not parse, each with the reason."""
    if CORRUPT not in table.column_names:
        return {}
    return dict.fromkeys(_rows(table[CORRUPT].is_valid()), "the line cannot be parsed as the message type")


def _rows_without_order(pipeline: Pipeline, table: pa.Table) -> dict[int, str]:
    """Return the rows whose time is invalid or null, or that have an invalid position."""
    order = pipeline.order
    if order.fields:
        rows = _rows(table[TIE].is_null())
        values = [field_values(table, name).take(pa.array(rows, pa.int64())).to_pylist() for name in order.fields]
        return {row: cast("str", order.fault(place)) for row, *place in zip(rows, *values, strict=True)}
    if pipeline.time is None:
        return {}
    times = field_values(table, pipeline.time)
    return {row: no_time(pipeline.time, times[row].as_py()) for row in _rows(table[POSITION].is_null())}


def name_faults(label: str, column: pa.ChunkedArray) -> dict[int, str]:
    """Return the rows whose text is not valid as a group name or an id, each with the reason."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return {}
    lengths = pc.utf8_length(column)
    wrong = pc.or_(pc.less(lengths, 1), pc.greater(lengths, limits.ID_LENGTH))
    if any(_has_nul(chunk) for chunk in column.chunks):
        wrong = pc.or_(wrong, pc.match_substring(column, "\0"))
    return {row: name_fault(label, column[row].as_py()) for row in _rows(wrong)}


def _rows(flags: pa.ChunkedArray) -> list[int]:
    """Return the rows in which a flag is set."""
    rows: list[int] = np.flatnonzero(pc.fill_null(flags, False).to_numpy()).tolist()  # noqa: FBT003
    return rows


def _has_nul(chunk: pa.Array) -> bool:
    """Return whether any byte is zero; one check of all bytes costs less than one of each text."""
    data = chunk.buffers()[2]
    return data is not None and not np.frombuffer(data, dtype=np.uint8).all()
