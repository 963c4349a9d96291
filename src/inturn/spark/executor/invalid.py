"""The invalid rows of a table, with reasons: the timeline's rules for single messages, over columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Gapless, Timestamp
from inturn.core.pipeline.reading import no_next
from inturn.spark.columns.names import CORRUPT
from inturn.spark.columns.texts import name_faults
from inturn.spark.executor.placement import TURN, column_of, within


def unplaced(pipeline: Pipeline, table: pa.Table, group: str, misfits: dict[int, str]) -> dict[int, str]:
    """Return the invalid rows, each with the reason.

    Args:
        pipeline: the definition.
        table: the rows, with only values that Python can hold.
        group: the column with the group's text.
        misfits: the rows that do not fit the message type, with the reasons.
    """
    bad = dict(misfits)
    _note_absent(pipeline, table, group, bad)
    bad.update(unread_lines(table))
    if isinstance(pipeline.order, Gapless):
        turn, start = within(table, pipeline.order.column), pipeline.order.start
        below = pc.fill_null(pc.less(turn, start), False).to_numpy()  # noqa: FBT003
        for row in np.flatnonzero(below).tolist():
            bad.setdefault(row, f"{pipeline.order.column} {turn[row]} is below start {start}")
        last = pc.fill_null(pc.equal(turn, limits.REVISION), False).to_numpy()  # noqa: FBT003
        for row in np.flatnonzero(last).tolist():
            bad.setdefault(row, no_next(pipeline.order.column))
    bad = name_faults(pipeline.group, table[group]) | bad
    return bad if pipeline.id is None else name_faults(pipeline.id, table[column_of(pipeline.id)]) | bad


def unread_lines(table: pa.Table) -> dict[int, str]:
    """Return the rows whose lines Spark's reader could not parse, each with the reason."""
    if CORRUPT not in table.column_names:
        return {}
    lines = np.flatnonzero(table[CORRUPT].is_valid().to_numpy())
    return dict.fromkeys(lines.tolist(), "the line cannot be read as the message type says")


def _note_absent(pipeline: Pipeline, table: pa.Table, group: str, bad: dict[int, str]) -> None:
    """Note rows in which the time is null or not a time, or another field that places them is null."""
    if isinstance(pipeline.order, Timestamp):
        given, nulls = within(table, pipeline.order.column), np.flatnonzero(table[TURN].is_null().to_numpy())
        for row in nulls.tolist():
            bad[row] = f"{pipeline.order.column} is {given[row].as_py()!r:.100}, which is no time"
    for path in reversed([n for n in (pipeline.group, *pipeline.key_fields[1:], pipeline.arrival) if n]):
        column = table[group] if path == pipeline.group else within(table, path)
        if column.null_count:
            nulls = np.flatnonzero(column.is_null().to_numpy())
            bad.update(dict.fromkeys(nulls.tolist(), f"{path} is null"))
