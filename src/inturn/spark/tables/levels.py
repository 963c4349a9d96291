"""What earlier steps left behind, read in the order of the hash beside the messages of this one.

Each step wrote a level: the groups that it touched, sorted by hash. A group is as its newest level says. A task
walks all levels side by side and takes the rows of the groups it needs, so what it reads follows what the step touches.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.errors import InputError
from inturn.core.message import Entry
from inturn.core.pipeline import Pipeline
from inturn.core.timeline import Status, Timeline, timeline
from inturn.spark.columns.codec import MessageCodec, StateCodec, values
from inturn.spark.tables.manifest import File, Level
from inturn.spark.tables.sorted import Batches, Cursor, Hashes, among
from inturn.spark.tables.storage import Storage

_GOING = (Status.OPEN, Status.WAITING)


@dataclass(frozen=True, slots=True)
class Stored:
    """Held messages that stay in the store, since nothing that came could release them.

    Attributes:
        count: how many.
        oldest_us: since when the one that waits longest waits.
        deadline_us: when the group's wait is over.
    """

    count: int
    oldest_us: int | None
    deadline_us: int | None


class _Rows:
    """Rows of groups, as they were read; most of them are asked for little."""

    def __init__(self, rows: pa.RecordBatch, pipeline: Pipeline, codec: StateCodec) -> None:
        self._array, self._codec, self._order = rows.column("state"), codec, pipeline.order
        self._states: list[Any] = codec.unpack(self._array)
        self.columns = {name: values(rows.column(name)) for name in rows.schema.names if name != "state"}
        self._taken = bytearray(len(rows))

    def state(self, at: int) -> Any:
        """The state of a row, as often as it is asked: a handler may have spoilt what it was given."""
        if self._taken[at]:
            return self._codec.unpack(self._array.slice(at, 1))[0]
        self._taken[at] = 1
        return self._states[at]

    def line(self, at: int) -> Timeline:
        columns, skipped = self.columns, self.columns["skipped"][at]
        status = columns["status"][at]
        return timeline(
            self._order,
            epoch=columns["epoch"][at],
            reached=columns["reached"][at],
            memory=columns["memory"][at],
            skipped=[(first, last) for first, last in json.loads(skipped)] if skipped else [],
            parked=None if status in _GOING else Status(status),
            error=columns["error"][at],
        )


class Record:
    """One group as an earlier step left it.

    Attributes:
        hash: of the group's text form.
        group: the text form.
        reached: how far its timeline is.
        held_step: the first step whose held messages of this group still are; None if it holds none.
        stored: what it holds that was not put back.
        taken: for each revision of that, where its digest is.
    """

    __slots__ = ("_at", "_line", "_rows", "group", "hash", "held_step", "reached", "stored", "taken")

    def __init__(self, rows: _Rows, at: int) -> None:
        columns = rows.columns
        self._rows, self._at = rows, at
        self._line: Timeline | None = None
        self.hash: int = columns["hash"][at]
        self.group: str = columns["group"][at]
        self.reached: int | None = columns["reached"][at]
        self.held_step: int | None = None
        self.stored: Stored | None = None
        self.taken: dict[int, tuple[pa.Array, int]] = {}
        if columns["held"][at]:
            self.held_step = columns["held_step"][at]
            self.stored = Stored(columns["held"][at], columns["oldest_us"][at], columns["deadline_us"][at])

    @property
    def line(self) -> Timeline:
        """Its timeline, with the messages it holds put back, unless they are only ``stored``."""
        if self._line is None:
            self._line = self._rows.line(self._at)
        return self._line

    def restore(self) -> Any:
        """Its state, as often as it is asked."""
        return self._rows.state(self._at)


class Found:
    """Groups as earlier steps left them, in columns: a row for each.

    Args:
        pipeline: whose they are.
        states: reads the states.
        bound: the greatest hash that was looked at.
    """

    def __init__(self, pipeline: Pipeline, states: StateCodec, bound: int) -> None:
        self.bound = bound
        self._pipeline, self._states = pipeline, states
        self._parts: list[pa.RecordBatch] = []
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, batch: pa.RecordBatch, hit: Hashes) -> None:
        """Add these rows of a batch, but for groups that are known: what came before is newer."""
        names = batch.column("group").take(pa.array(hit)).to_pylist()
        if self._rows:
            new = [name not in self._rows for name in names]
            names, hit = list(compress(names, new)), hit[new]
        if names:
            self._rows.update(zip(names, count(len(self._rows)), strict=False))
            self._parts.append(batch.take(pa.array(hit)))

    def rows_of(self, names: Sequence[str]) -> Hashes:
        """The row of each of these groups; -1 if it is not there."""
        return np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)

    def is_open(self) -> npt.NDArray[np.bool_]:
        """For each row, whether the group holds nothing and is not parked."""
        return self._numbers([pc.equal(part.column("status"), Status.OPEN) for part in self._parts], np.bool_)

    def reached(self, before: int) -> Hashes:
        """For each row, how far its timeline is; ``before`` if it has not begun."""
        return self._numbers([pc.fill_null(part.column("reached"), before) for part in self._parts], np.int64)

    def memory(self, rows: Hashes) -> list[bytes]:
        """What the timelines of these rows remember, packed; nothing for the row -1."""
        packed: list[bytes] = pc.fill_null(self._column("memory", pa.binary(), rows), b"").to_pylist()
        return packed

    def skipped(self, rows: Hashes) -> pa.Array:
        """What was skipped, as it is stored; null for the row -1."""
        return self._column("skipped", pa.string(), rows)

    def states(self, rows: Hashes) -> list[Any]:
        """The states of these rows; the first state for the row -1."""
        known = [state for part in self._parts for state in self._states.unpack(part.column("state"))]
        make = self._pipeline.state
        return [known[row] if row >= 0 else make() for row in rows.tolist()]

    def records(self, rows: Hashes) -> list["Record"]:
        """These rows, sorted, one by one."""
        found = []
        begin = 0
        for part in self._parts:
            first, last = np.searchsorted(rows, (begin, begin + len(part)))
            if last > first:
                taken = _Rows(part.take(pa.array(rows[first:last] - begin)), self._pipeline, self._states)
                found += [Record(taken, at) for at in range(last - first)]
            begin += len(part)
        return found

    def _column(self, name: str, kind: pa.DataType, rows: Hashes) -> pa.Array:
        parts = [pa.array([], kind), *(part.column(name) for part in self._parts)]
        return pa.concat_arrays(parts).take(pa.array(rows, mask=rows < 0))

    def _numbers(self, parts: list[pa.Array], kind: type[np.generic]) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, kind), *(part.to_numpy(zero_copy_only=False) for part in parts)])


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
        self._left: dict[str, Record] = {}

    def find(self, hashes: Hashes, upto: int | None = None) -> Found:
        """The groups with one of ``hashes`` (sorted, unique) or due, up to ``upto`` and behind the call before.

        Args:
            hashes: the groups that are wanted.
            upto: the greatest hash to look at; None for the end of the slice.
        """
        bound = self._high if upto is None else upto
        due = [found for cursor in self._due for found in cursor.hashes(bound, self._due_us)]
        due.append(self._also[(self._also > self._bound) & (self._also <= bound)])
        wanted = np.unique(np.concatenate([hashes, *due])) if any(map(len, due)) else hashes
        wanted = wanted[wanted > self._bound]
        found = Found(self._pipeline, self._states, bound)
        if len(wanted):
            for cursor in reversed(self._groups):  # the newest says how a group stands
                for batch, hit in cursor.find(wanted, bound):
                    found.add(batch, hit)
        self._bound = max(self._bound, bound)
        return found

    def take(
        self,
        found: Found,
        rows: Hashes | None = None,
        *,
        restored: Callable[[dict[str, Record]], set[str]] | None = None,
        turns: Hashes | None = None,
    ) -> dict[str, Record]:
        """Some of the groups that were found, with the messages they hold.

        The caller takes out of the dictionary what it has dealt with; what it left comes again with the next call.

        Args:
            found: what :meth:`find` found last.
            rows: which of them, sorted; None for all.
            restored: says, for the groups that hold messages, which of them need them back; the others are told only
                which places are taken. None restores all.
            turns: the places that are asked for.
        """
        records = found.records(np.arange(len(found)) if rows is None else rows)
        holding = {record.group: record for record in records if record.held_step is not None}
        if holding:
            self._put_back(holding, restored(holding) if restored else holding.keys(), found.bound, turns)
        self._left.update((record.group, record) for record in records)
        return self._left

    def _put_back(
        self, records: dict[str, Record], restored: Collection[str], bound: int, turns: Hashes | None
    ) -> None:
        """Give groups the messages they hold, or only say which places are taken; what is older is dead."""
        holding = np.array(sorted({record.hash for record in records.values()}), dtype=np.int64)
        turns = np.unique(turns) if turns is not None else None
        whole = np.array(sorted({records[name].hash for name in restored}), dtype=np.int64)
        for cursor in self._held:
            for batch, hit in cursor.find(holding, bound):
                asked = hit
                if turns is not None:
                    places, hashes = batch.column("turn").to_numpy()[hit], batch.column("hash").to_numpy()[hit]
                    asked = hit[among(places, turns) | among(hashes, whole)]
                if len(asked):
                    self._give(batch, asked, records, restored)
        for name in restored:
            records[name].stored = None

    def _give(self, batch: pa.RecordBatch, hit: Hashes, records: dict[str, Record], restored: Collection[str]) -> None:
        rows = pa.array(hit)
        names, steps = (batch.column(name).take(rows).to_pylist() for name in ("group", "step"))
        back: list[tuple[int, Record]] = []
        digests, turns = batch.column("digest"), batch.column("turn").to_numpy()
        for at, name, step in zip(hit.tolist(), names, steps, strict=True):
            record = records.get(name)
            if record is None or record.held_step is None or step < record.held_step:
                continue
            if name in restored:
                back.append((at, record))
            else:
                record.taken[turns.item(at)] = (digests, at)
        if back:
            self._restore(batch.take(pa.array([at for at, _ in back])), [record for _, record in back])

    def _restore(self, batch: pa.RecordBatch, records: Sequence[Record]) -> None:
        table = pa.Table.from_batches([batch])
        content = pa.Table.from_struct_array(table["message"])
        codec = MessageCodec(self._pipeline, content.column_names)
        columns, bad = codec.read(content)
        if bad:
            row, why = next(iter(bad.items()))
            msg = f"a held message of group {table['group'][row]} does not fit the message type any more: {why}"
            raise InputError(msg)
        messages = codec.build(columns)
        rows = zip(*(values(table[name]) for name in ("epoch", "turn", "digest", "id", "since_us")), strict=True)
        for at, (epoch, turn, digest, ident, since_us) in enumerate(rows):
            records[at].line.restore(Entry(turn, digest, messages[at], epoch, ident, since_us, (content, at)))


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
    mine = np.sort(np.array(touched, dtype=np.int64))
    oldest = [file.oldest_us for file in ours if file.oldest_us is not None]
    due = [file.due_us for file in ours if file.due_us is not None]
    for number, level in enumerate(levels):
        waiting = [file for file in level.groups if file.oldest_us is not None]
        for batch in Batches(store, waiting, low, high).upto(high):
            hashes = batch.column("hash").to_numpy()
            alive = batch.column("oldest_us").is_valid().to_numpy(zero_copy_only=False)
            alive = np.flatnonzero(alive & (hashes >= low) & (hashes <= high))
            alive = alive[~among(hashes[alive], mine)]
            for newer in levels[number + 1 :]:  # what a newer level says of a group goes before
                if len(alive):
                    for part, hit in Cursor(store, newer.groups, low, high).find(hashes[alive], high):
                        alive = alive[~among(hashes[alive], part.column("hash").to_numpy()[hit])]
            still = batch.select(["oldest_us", "deadline_us"]).take(pa.array(alive))
            oldest += still.column("oldest_us").to_pylist()
            due += still.column("deadline_us").drop_null().to_pylist()
    return Waits(min(oldest, default=None), min(due, default=None))
