"""What earlier steps left behind, read in the order of the hash beside the messages of this one.

Each step wrote a level: the groups that it touched, sorted by hash. A group is as its newest level says. A task
walks all levels side by side and takes the rows of the groups it needs, so what it reads follows what the step touches.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.message import Entry
from inturn.core.pipeline import Pipeline
from inturn.core.timeline import Status, Timeline, timeline
from inturn.spark.columns.codec import MessageCodec, StateCodec, values
from inturn.spark.tables.manifest import File, Level
from inturn.spark.tables.sorted import Batches, Cursor, Hashes
from inturn.spark.tables.storage import Storage


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


class _Due(Batches):
    """Finds the groups whose wait is over, whether or not a message came for them."""

    def hashes(self, upto: int, due_us: int) -> Iterator[Hashes]:
        for batch in self.upto(upto):
            rows = batch.column("hash").to_numpy()
            deadline = batch.column("deadline_us").fill_null(np.iinfo(np.int64).max).to_numpy()
            yield rows[(deadline <= due_us) & (rows <= upto)]


class Levels:
    """The groups and held messages of one slice of the hash space, as the step before left them.

    Args:
        store: the store's files.
        levels: oldest first.
        low: the smallest hash of the slice.
        high: the greatest.
        due_us: groups whose deadline is not after this time are found though no message came for them.
        also: hashes of groups that are wanted though no message came for them, sorted.
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
        also: Hashes,
        pipeline: Pipeline,
        states: StateCodec,
    ) -> None:
        def due(files: Sequence[File]) -> list[File]:
            return [file for file in files if file.due_us is not None and file.due_us <= due_us]

        self._groups = [Cursor(store, level.groups, low, high) for level in levels]
        self._due = [_Due(store, due(level.groups), low, high) for level in levels]
        # A cursor for each file: a step's files overlap where the messages' columns changed.
        self._held = [Cursor(store, [file], low, high) for level in levels for file in level.held]
        self._also = also
        self._pipeline, self._states, self._due_us = pipeline, states, due_us
        self._bound, self._high = low - 1, high
        self._found: dict[str, Record] = {}

    def take(self, hashes: Hashes, upto: int | None = None) -> dict[str, Record]:
        """The groups with one of ``hashes`` (sorted, unique) or due, up to ``upto`` and behind the call before.

        The caller takes out of the dictionary what it has dealt with; what it left comes again with the next call.
        """
        bound = self._high if upto is None else upto
        due = [found for cursor in self._due for found in cursor.hashes(bound, self._due_us)]
        due.append(self._also[(self._also > self._bound) & (self._also <= bound)])
        wanted = np.unique(np.concatenate([hashes, *due])) if any(map(len, due)) else hashes
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

    def _records(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Record]]:
        array = rows.column("state")
        states = self._states.unpack(array)
        columns = {name: values(rows.column(name)) for name in rows.schema.names if name != "state"}
        for row, name in enumerate(columns["group"]):
            status = columns["status"][row]
            line = timeline(
                self._pipeline.order,
                epoch=columns["epoch"][row],
                reached=columns["reached"][row],
                memory=columns["memory"][row],
                skipped=[(first, last) for first, last in json.loads(columns["skipped"][row] or "[]")],
                parked=None if status in (Status.OPEN, Status.WAITING) else Status(status),
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

    def _restore(self, batch: pa.RecordBatch, found: dict[str, Record]) -> None:
        table = pa.Table.from_batches([batch])
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


@dataclass(frozen=True)
class Waits:
    """What waits in a slice after a step.

    Attributes:
        oldest_us: since when the message that waits longest waits; None if none does.
        due_us: when the first wait with a time is over; None if there is none.
    """

    oldest_us: int | None
    due_us: int | None


def waits(
    store: Storage, levels: Sequence[Level], low: int, high: int, touched: Sequence[int], ours: Sequence[File]
) -> Waits:
    """What waits in a slice after a step; looks only at the groups that hold messages.

    Args:
        store: the store's files.
        levels: as they were before the step, oldest first.
        low: the smallest hash of the slice.
        high: the greatest.
        touched: the hashes of the groups that the step wrote.
        ours: the files that it wrote them to.
    """
    mine = np.unique(np.array(touched, dtype=np.int64))
    oldest = [file.oldest_us for file in ours if file.oldest_us is not None]
    due = [file.due_us for file in ours if file.due_us is not None]
    for number, level in enumerate(levels):
        waiting = [file for file in level.groups if file.oldest_us is not None]
        for batch in Batches(store, waiting, low, high).upto(high):
            rows = batch.select(["hash", "oldest_us", "deadline_us"]).filter(batch.column("oldest_us").is_valid())
            hashes = rows.column("hash").to_numpy()
            alive = (hashes >= low) & (hashes <= high) & ~np.isin(hashes, mine)
            for newer in levels[number + 1 :]:  # what a newer level says of a group goes before
                if alive.any():
                    cursor = Cursor(store, newer.groups, low, high)
                    for part in cursor.take(np.unique(hashes[alive]), high):
                        alive &= ~np.isin(hashes, part.column("hash").to_numpy())
            still = rows.filter(pa.array(alive))
            oldest += still.column("oldest_us").to_pylist()
            due += still.column("deadline_us").drop_null().to_pylist()
    return Waits(min(oldest, default=None), min(due, default=None))
