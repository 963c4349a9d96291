"""What earlier steps left behind, read in the order of the hash beside the messages of this one.

Each step wrote a level: the groups that it touched, sorted by hash. A group is as its newest level says. A task
walks all levels side by side, a row group of each at a time, and leaves out the row groups that hold no group it needs,
so what it reads follows what the step touches.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from inturn.core.errors import InputError
from inturn.core.message import Entry
from inturn.core.pipeline import Pipeline
from inturn.core.timeline import Status, Timeline, timeline
from inturn.spark.columns.codec import MessageCodec, StateCodec, values
from inturn.spark.tables.manifest import File, Level
from inturn.spark.tables.storage import Storage, parquet

Hashes = npt.NDArray[np.int64]


@dataclass(slots=True)
class Record:
    """One group as an earlier step left it.

    Attributes:
        hash: of the group's text form.
        group: the text form.
        line: its timeline, with the messages it holds put back.
        restore: makes its state, as often as it is asked.
        held_step: the step that wrote what it holds.
    """

    hash: int
    group: str
    line: Timeline
    restore: Callable[[], Any]
    held_step: int | None


class _Restore:
    """The state of a stored group: decoded once with all others, and again only if a handler spoilt it."""

    __slots__ = ("_again", "_first")

    def __init__(self, first: Any, again: Callable[[], Any]) -> None:
        self._first, self._again = [first], again

    def __call__(self) -> Any:
        return self._first.pop() if self._first else self._again()


def _row_group(store: Storage, name: str, reader: pq.ParquetFile, number: int) -> pa.Table:
    with store.told("read", name):
        return reader.read_row_group(number)


class _Cursor:
    """Walks files that are sorted by hash, and gives the rows of wanted hashes up to a bound."""

    def __init__(self, store: Storage, files: Sequence[File], low: int, high: int, due_us: int) -> None:
        near = [file for file in files if file.low <= high and file.high >= low]
        self._parts = self._row_groups(store, sorted(near, key=lambda file: file.low), due_us)
        self._part: tuple[pa.Table | None, Callable[[], pa.Table], int, int, bool] | None = next(self._parts, None)

    @staticmethod
    def _row_groups(
        store: Storage, files: Sequence[File], due_us: int
    ) -> Iterator[tuple[pa.Table | None, Callable[[], pa.Table], int, int, bool]]:
        for file in files:
            reader = parquet(store, file.path)
            due = file.due_us is not None and file.due_us <= due_us
            for number in range(reader.metadata.num_row_groups):
                bounds = reader.metadata.row_group(number).column(0).statistics
                yield None, partial(_row_group, store, file.path, reader, number), bounds.min, bounds.max, due

    def take(self, hashes: Hashes, upto: int) -> Iterator[pa.Table]:
        """The rows with one of ``hashes`` (sorted), not beyond ``upto``; goes on behind them at the next call."""
        while self._part is not None and self._part[2] <= upto:
            table, read, low, high, due = self._part
            first, last = np.searchsorted(hashes, low), np.searchsorted(hashes, high, side="right")
            if last > first:
                table = table if table is not None else read()
                rows = table["hash"].to_numpy()
                at = np.minimum(np.searchsorted(hashes, rows), len(hashes) - 1)
                hit = np.flatnonzero(hashes[at] == rows)
                if len(hit):
                    yield table.take(pa.array(hit))
            if high > upto:
                self._part = (table, read, low, high, due)
                return
            self._part = next(self._parts, None)


class _Due(_Cursor):
    """Finds the groups whose wait is over, whether or not a message came for them."""

    def hashes(self, upto: int, due_us: int) -> Iterator[Hashes]:
        while self._part is not None and self._part[2] <= upto:
            table, read, low, high, due = self._part
            if due:
                table = table if table is not None else read().select(["hash", "deadline_us"])
                rows = table["hash"].to_numpy()
                deadline = table["deadline_us"].fill_null(np.iinfo(np.int64).max).to_numpy()
                yield rows[(deadline <= due_us) & (rows <= upto)]
            if high > upto:
                self._part = (table, read, low, high, due)
                return
            self._part = next(self._parts, None)


class Levels:
    """The groups and held messages of one slice of the hash space, as the step before left them.

    Args:
        store: the store's files.
        levels: oldest first.
        low: the smallest hash of the slice.
        high: the greatest.
        due_us: groups whose deadline is not after this time are found though no message came for them.
        pipeline: whose they are.
        states: reads the states.
    """

    def __init__(
        self,
        store: Storage,
        levels: Sequence[Level],
        low: int,
        high: int,
        due_us: int,
        pipeline: Pipeline,
        states: StateCodec,
    ) -> None:
        self._groups = [_Cursor(store, level.groups, low, high, due_us) for level in levels]
        self._due = [_Due(store, level.groups, low, high, due_us) for level in levels]
        # A cursor for each file: a step's files overlap where the messages' columns changed.
        held = [file for level in levels for file in level.held]
        self._held = [_Cursor(store, [file], low, high, due_us) for file in held]
        self._pipeline, self._states, self._due_us = pipeline, states, due_us
        self._bound, self._high = low - 1, high
        self._found: dict[str, Record] = {}

    def take(self, hashes: Hashes, upto: int | None = None) -> dict[str, Record]:
        """The groups with one of ``hashes`` (sorted, unique) or due, up to ``upto`` and behind the call before.

        The caller takes out of the dictionary what it has dealt with; what it left comes again with the next call.
        """
        bound = self._high if upto is None else upto
        due = [found for cursor in self._due for found in cursor.hashes(bound, self._due_us)]
        wanted = np.unique(np.concatenate([hashes, *due])) if due else hashes
        wanted = wanted[wanted > self._bound]
        if len(wanted):
            new: dict[str, Record] = {}
            for cursor in self._groups:
                for table in cursor.take(wanted, bound):
                    new.update(self._records(table))
            self._put_back(new, bound)
            self._found.update(new)
        self._bound = max(self._bound, bound)
        return self._found

    def _records(self, table: pa.Table) -> Iterator[tuple[str, Record]]:
        array = table["state"].combine_chunks()
        states = self._states.unpack(array)
        columns = {name: values(table[name]) for name in table.column_names if name != "state"}
        for row, name in enumerate(columns["group"]):
            status = columns["status"][row]
            line = timeline(
                self._pipeline.order,
                epoch=columns["epoch"][row],
                reached=columns["reached"][row],
                memory=columns["memory"][row],
                skipped=[(first, last) for first, last in json.loads(columns["skipped"][row] or "[]")],
                parked=Status(status) if status in (Status.GAP, Status.FAILED) else None,
                error=columns["error"][row],
            )
            restore = _Restore(states[row], partial(self._unpack_one, array, row))
            held_step = columns["held_step"][row] if columns["held"][row] else None
            yield name, Record(columns["hash"][row], name, line, restore, held_step)

    def _unpack_one(self, states: pa.StructArray, row: int) -> Any:
        return self._states.unpack(states.slice(row, 1))[0]

    def _put_back(self, records: dict[str, Record], bound: int) -> None:
        """Give each group the messages it holds; what an older level held of a group is dead."""
        holding = np.array(sorted({r.hash for r in records.values() if r.held_step is not None}), dtype=np.int64)
        for cursor in self._held:
            for table in cursor.take(holding, bound):
                self._restore(table, records)

    def _restore(self, table: pa.Table, found: dict[str, Record]) -> None:
        content = pa.Table.from_struct_array(table["message"])
        codec = MessageCodec(self._pipeline, content.column_names)
        columns, bad = codec.read(content)
        if bad:
            row, why = next(iter(bad.items()))
            msg = f"a held message of group {table['group'][row]} does not fit the message type any more: {why}"
            raise InputError(msg)
        messages = codec.build(columns)
        rows = zip(
            *(values(table[name]) for name in ("group", "step", "epoch", "turn", "digest", "id", "since_us")),
            strict=True,
        )
        for at, (name, step, epoch, turn, digest, ident, since_us) in enumerate(rows):
            record = found.get(name)
            if record is not None and record.held_step == step:
                record.line.restore(Entry(turn, digest, messages[at], epoch, ident, since_us, (content, at)))
