"""Groups as earlier steps left them: columns of the rows that a task has found, and an index from group to row."""

import json
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.spark.columns.records import values
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.sorted_files import Hashes
from inturn.spark.tables.writer import GROUPS

_GOING = (Status.OPEN, Status.WAITING)


def with_conflicts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of groups with their memory of conflicts: none if they were stored before there was one."""
    if "conflicts" in rows.schema.names:
        return rows
    index = rows.schema.get_field_index("state")  # the column is before it in each file, so that all are alike
    return rows.add_column(index, "conflicts", pa.nulls(len(rows), GROUPS["conflicts"]))


def ranges_of(stored: str | None) -> list[tuple[int, int]]:
    """Return the skipped ranges of revisions from their stored form."""
    return [(first, last) for first, last in json.loads(stored)] if stored else []


class RowIndex:
    """Row numbers of groups, by hash, and by name where several groups share a hash; in the order of their addition.

    All possible hashes are given, sorted and unique.
    """

    def __init__(self, hashes: Hashes) -> None:
        self._wanted = hashes
        self._first = np.full(len(hashes) + 1, -1)  # first group's row by hash; the last entry: unknown hashes
        self._further: dict[str, int] = {}
        self._names = pa.array([], pa.string())

    def __len__(self) -> int:
        return len(self._names)

    def add(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Add groups, sorted by hash, and return the positions of those that are new."""
        new = np.flatnonzero(self.rows_of(hashes, names) < 0)
        place, rows = self._places(hashes[new]), len(self) + np.arange(len(new))
        first = (self._first[place] < 0) & np.append(True, place[1:] != place[:-1])[: len(new)]
        self._first[place[first]] = rows[first]
        for index in np.flatnonzero(~first).tolist():
            self._further[names[new.item(index)].as_py()] = rows.item(index)
        self._names = pa.concat_arrays([self._names, names.take(pa.array(new)).cast(pa.string())])
        return new

    def rows_of(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Return the row of each of these groups; -1 if it is absent."""
        rows = self._first[self._places(hashes)]
        known = np.flatnonzero(rows >= 0)
        theirs = names.take(pa.array(known)).cast(pa.string())
        same = pc.equal(self._names.take(pa.array(rows[known])), theirs).to_numpy(zero_copy_only=False)
        for index in known[~same].tolist():
            rows[index] = self._further.get(names[index].as_py(), -1)
        return rows

    def _places(self, hashes: Hashes) -> Hashes:
        """Return the position of each hash among the wanted ones; the position past the end if it is not wanted."""
        place = np.searchsorted(self._wanted, hashes)
        place[np.append(self._wanted, 0)[place] != hashes] = len(self._wanted)
        return place


class _DecodedRows:
    """Rows of groups, decoded lazily: most rows are used only in part."""

    def __init__(self, rows: pa.RecordBatch, pipeline: Pipeline, codec: StateCodec) -> None:
        self._array, self._codec, self._order = rows.column("state"), codec, pipeline.order
        self._states: list[Any] = codec.unpack(self._array)
        self.columns = {name: values(rows.column(name)) for name in rows.schema.names if name != "state"}
        self._handed_out = bytearray(len(rows))

    def state(self, row: int) -> Any:
        """Return a fresh state of a row at each call: a handler may have changed the one it was given."""
        if self._handed_out[row]:
            return self._codec.unpack(self._array.slice(row, 1))[0]
        self._handed_out[row] = 1
        return self._states[row]

    def timeline(self, row: int) -> Timeline:
        columns = self.columns
        status = columns["status"][row]
        return self._order.timeline(
            epoch=columns["epoch"][row],
            reached=columns["reached"][row],
            memory=columns["memory"][row],
            skipped=ranges_of(columns["skipped"][row]),
            parked=None if status in _GOING else Status(status),
            error=columns["error"][row],
            conflicts=columns["conflicts"][row] or b"",
        )


class EarlierGroup:
    """One group as an earlier step left it.

    Attributes:
        held_step: first step whose held messages of this group are still held; None if it holds none.
    """

    __slots__ = ("_at", "_rows", "_timeline", "group", "hash", "held_step")

    def __init__(self, rows: _DecodedRows, row: int) -> None:
        columns = rows.columns
        self._rows, self._at = rows, row
        self._timeline: Timeline | None = None
        self.hash: int = columns["hash"][row]
        self.group: str = columns["group"][row]
        self.held_step: int | None = columns["held_step"][row] if columns["held"][row] else None

    @property
    def timeline(self) -> Timeline:
        """The group's timeline, with its held messages restored."""
        if self._timeline is None:
            self._timeline = self._rows.timeline(self._at)
        return self._timeline

    def restore(self) -> Any:
        """Return a fresh copy of the group's state."""
        return self._rows.state(self._at)


class EarlierGroups:
    """Groups with the given ``hashes`` (sorted, unique) up to a bound, as earlier steps left them: a row per group.

    Attributes:
        held_digests: for groups that keep holding messages: the location of the digest of a held message, by group and
            revision. Only those that were asked for.
    """

    def __init__(self, pipeline: Pipeline, states: StateCodec, hashes: Hashes, bound: int) -> None:
        self.bound = bound
        self.held_digests: dict[tuple[str, int], tuple[pa.Array, int]] = {}
        self._pipeline, self._states = pipeline, states
        self._parts: list[pa.RecordBatch] = []
        self._index = RowIndex(hashes)

    def __len__(self) -> int:
        return len(self._index)

    def add(self, batch: pa.RecordBatch, row_numbers: Hashes) -> None:
        """Add these rows of a batch, except groups that are known: rows are added newest first."""
        hashes = batch.column("hash").to_numpy()[row_numbers]
        new = self._index.add(hashes, batch.column("group").take(pa.array(row_numbers)))
        if len(new):
            self._parts.append(with_conflicts(batch.take(pa.array(row_numbers[new]))))

    def rows_of(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Return the row of each of these groups; -1 if it is absent."""
        return self._index.rows_of(hashes, names)

    def has_status(self, status: Status) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows whose group has this status."""
        flags = [pc.equal(part.column("status"), status).to_numpy(zero_copy_only=False) for part in self._parts]
        return np.concatenate([np.empty(0, np.bool_), *flags])

    def column(self, name: str, rows: Hashes | None = None) -> pa.Array:
        """Return a column of these rows, or of all; null for the row -1."""
        empty = pa.array([], GROUPS[name])
        column = pa.concat_arrays([empty, *(part.column(name) for part in self._parts)])
        return column if rows is None else column.take(pa.array(rows, mask=rows < 0))

    def numbers(self, name: str, rows: Hashes | None, absent: int) -> Hashes:
        """Return a column of integers of these rows, or of all; ``absent`` for null and the row -1."""
        return np.asarray(pc.fill_null(self.column(name, rows), absent).to_numpy())

    def memory(self, rows: Hashes) -> pa.Array:
        """Return the packed memory of these rows' timelines; empty bytes for the row -1."""
        return pc.fill_null(self.column("memory", rows), b"")

    @cached_property
    def conflicts(self) -> dict[int, bytes]:
        """The conflicts that groups remember, by row; only of those that remember some."""
        column = self.column("conflicts")
        if column.null_count == len(column):
            return {}
        return {row: packed for row, packed in enumerate(column.to_pylist()) if packed}

    def states(self, rows: Hashes) -> list[Any]:
        """Return the states of these rows; the first state for the row -1."""
        known = [state for part in self._parts for state in self._states.unpack(part.column("state"))]
        make = self._pipeline.make_first
        return [known[row] if row >= 0 else make() for row in rows.tolist()]

    def records(self, rows: Hashes) -> list[EarlierGroup]:
        """Return a record for each of these rows, which are sorted."""
        records = []
        begin = 0
        for part in self._parts:
            first, last = np.searchsorted(rows, (begin, begin + len(part)))
            if last > first:
                decoded = _DecodedRows(part.take(pa.array(rows[first:last] - begin)), self._pipeline, self._states)
                records += [EarlierGroup(decoded, row) for row in range(last - first)]
            begin += len(part)
        return records
