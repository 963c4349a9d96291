"""The state of groups after earlier steps, read in hash order beside the messages of the current step.

Each step wrote a level: the groups that it touched, sorted by hash. The newest level with a group holds its current
state. A task walks all levels side by side and takes the rows of the groups it needs, so the amount read depends on
the groups that the step touches.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.errors import InputError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.grades import timeline
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.records import values
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.earlier import Index
from inturn.spark.tables.manifest import File, Level
from inturn.spark.tables.sorted import Batches, Cursor, Hashes, among
from inturn.spark.tables.storage import Storage
from inturn.spark.tables.writer import GROUPS

_NONE: Hashes = np.empty(0, np.int64)
ALL_US = 2**62
"""A time bound that makes every waiting group due."""
NONE_US = -(2**62)
"""A time bound that makes no group due."""
_GOING = (Status.OPEN, Status.WAITING)


def ranges_of(stored: str | None) -> list[tuple[int, int]]:
    """Return the skipped ranges of revisions from their stored form."""
    return [(first, last) for first, last in json.loads(stored)] if stored else []


class _Rows:
    """Rows of groups, decoded lazily: most rows are used only in part."""

    def __init__(self, rows: pa.RecordBatch, pipeline: Pipeline, codec: StateCodec) -> None:
        self._array, self._codec, self._order = rows.column("state"), codec, pipeline.order
        self._states: list[Any] = codec.unpack(self._array)
        self.columns = {name: values(rows.column(name)) for name in rows.schema.names if name != "state"}
        self._taken = bytearray(len(rows))

    def state(self, at: int) -> Any:
        """Return a fresh state of a row at each call: a handler may have changed the one it was given."""
        if self._taken[at]:
            return self._codec.unpack(self._array.slice(at, 1))[0]
        self._taken[at] = 1
        return self._states[at]

    def line(self, at: int) -> Timeline:
        columns = self.columns
        status = columns["status"][at]
        return timeline(
            self._order,
            epoch=columns["epoch"][at],
            reached=columns["reached"][at],
            memory=columns["memory"][at],
            skipped=ranges_of(columns["skipped"][at]),
            parked=None if status in _GOING else Status(status),
            error=columns["error"][at],
        )


class EarlierGroup:
    """One group as an earlier step left it.

    Attributes:
        hash: hash of the group's text form.
        group: the text form.
        held_step: first step whose held messages of this group are still held; None if it holds none.
    """

    __slots__ = ("_at", "_line", "_rows", "group", "hash", "held_step")

    def __init__(self, rows: _Rows, at: int) -> None:
        columns = rows.columns
        self._rows, self._at = rows, at
        self._line: Timeline | None = None
        self.hash: int = columns["hash"][at]
        self.group: str = columns["group"][at]
        self.held_step: int | None = columns["held_step"][at] if columns["held"][at] else None

    @property
    def line(self) -> Timeline:
        """The group's timeline, with the messages it holds put back."""
        if self._line is None:
            self._line = self._rows.line(self._at)
        return self._line

    def restore(self) -> Any:
        """Return a fresh copy of the group's state."""
        return self._rows.state(self._at)


class EarlierGroups:
    """Groups as earlier steps left them, in columns: one row per group.

    Args:
        pipeline: the pipeline of the groups.
        states: codec that reads the states.
        wanted: hashes to look for, sorted and unique.
        bound: greatest hash that was looked at.

    Attributes:
        places: for groups that keep holding messages: the location of the digest of a held message, by group and
            revision. Only those that were asked for.
    """

    def __init__(self, pipeline: Pipeline, states: StateCodec, wanted: Hashes, bound: int) -> None:
        self.bound = bound
        self.places: dict[tuple[str, int], tuple[pa.Array, int]] = {}
        self._pipeline, self._states = pipeline, states
        self._parts: list[pa.RecordBatch] = []
        self._index = Index(wanted)

    def __len__(self) -> int:
        return len(self._index)

    def add(self, batch: pa.RecordBatch, hit: Hashes) -> None:
        """Add these rows of a batch, except groups that are known: rows are added newest first."""
        hashes = batch.column("hash").to_numpy()[hit]
        new = self._index.add(hashes, batch.column("group").take(pa.array(hit)))
        if len(new):
            self._parts.append(batch.take(pa.array(hit[new])))

    def rows_of(self, hashes: Hashes, names: pa.Array) -> Hashes:
        """Return the row of each of these groups; -1 if it is absent."""
        return self._index.rows_of(hashes, names)

    def status(self, status: Status) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows whose group has this status."""
        flags = [pc.equal(part.column("status"), status).to_numpy(zero_copy_only=False) for part in self._parts]
        return np.concatenate([np.empty(0, np.bool_), *flags])

    def column(self, name: str, rows: Hashes | None = None) -> pa.Array:
        """Return a column of these rows, or of all; null for the row -1."""
        empty = pa.array([], GROUPS[name])
        whole = pa.concat_arrays([empty, *(part.column(name) for part in self._parts)])
        return whole if rows is None else whole.take(pa.array(rows, mask=rows < 0))

    def numbers(self, name: str, rows: Hashes | None, absent: int) -> Hashes:
        """Return a column of integers of these rows, or of all; ``absent`` for null and the row -1."""
        return np.asarray(pc.fill_null(self.column(name, rows), absent).to_numpy())

    def memory(self, rows: Hashes) -> pa.Array:
        """Return the packed memory of these rows' timelines; empty bytes for the row -1."""
        return pc.fill_null(self.column("memory", rows), b"")

    def states(self, rows: Hashes) -> list[Any]:
        """Return the states of these rows; the first state for the row -1."""
        known = [state for part in self._parts for state in self._states.unpack(part.column("state"))]
        make = self._pipeline.make_first
        return [known[row] if row >= 0 else make() for row in rows.tolist()]

    def records(self, rows: Hashes) -> list["EarlierGroup"]:
        """Return a record for each of these rows, which are sorted."""
        found = []
        begin = 0
        for part in self._parts:
            first, last = np.searchsorted(rows, (begin, begin + len(part)))
            if last > first:
                taken = _Rows(part.take(pa.array(rows[first:last] - begin)), self._pipeline, self._states)
                found += [EarlierGroup(taken, at) for at in range(last - first)]
            begin += len(part)
        return found


class _Due(Batches):
    """Record batches that are searched for groups whose wait is over, with or without a new message."""

    def hashes(self, upto: int, since_us: int) -> Iterator[Hashes]:
        for batch in self.upto(upto):
            rows = batch.column("hash").to_numpy()
            waiting = batch.column("waiting_us").fill_null(np.iinfo(np.int64).max).to_numpy()
            yield rows[(waiting <= since_us) & (rows <= upto)]


class Levels:
    """The groups and held messages of one slice of the hash space, as the previous step left them.

    Args:
        store: the store's files.
        levels: levels, oldest first.
        low: smallest hash of the slice.
        high: greatest hash of the slice.
        since_us: groups that have waited since this time or longer are due: found without a new message.
        also: sorted hashes of groups that are wanted without a new message.
        pipeline: the pipeline of the groups.
        states: codec that reads the states.
    """

    def __init__(
        self,
        store: Storage,
        levels: Sequence[Level],
        low: int,
        high: int,
        since_us: int,
        also: Hashes,
        pipeline: Pipeline,
        states: StateCodec,
    ) -> None:
        def due(files: Sequence[File]) -> list[File]:
            return [file for file in files if file.waiting_us is not None and file.waiting_us <= since_us]

        self._groups = [Cursor(store, level.groups, low, high) for level in levels]
        self._due = [_Due(store, due(level.groups), low, high) for level in levels]
        # One cursor per file: files of one step overlap where the columns of the messages changed.
        self._held = [Cursor(store, [file], low, high) for level in levels for file in level.held]
        self._also = also
        self._pipeline, self._states, self.since_us = pipeline, states, since_us
        self._bound, self._high = low - 1, high
        self._left: dict[str, EarlierGroup] = {}

    def find(self, hashes: Hashes, upto: int | None = None) -> EarlierGroups:
        """Return the groups with one of ``hashes`` (sorted, unique) or due, from the end of the last call to ``upto``.

        Args:
            hashes: hashes of the wanted groups.
            upto: greatest hash to look at; None for the end of the slice.
        """
        bound = self._high if upto is None else upto
        due = [found for cursor in self._due for found in cursor.hashes(bound, self.since_us)]
        due.append(self._also[(self._also > self._bound) & (self._also <= bound)])
        wanted = np.unique(np.concatenate([hashes, *due])) if any(map(len, due)) else hashes
        wanted = wanted[wanted > self._bound]
        found = EarlierGroups(self._pipeline, self._states, wanted, bound)
        if len(wanted):
            for cursor in reversed(self._groups):  # newest first: the newest level has the current state
                for batch, hit in cursor.find(wanted, bound):
                    found.add(batch, hit)
        self._bound = max(self._bound, bound)
        return found

    def take(
        self, found: EarlierGroups, rows: Hashes | None = None, *, holding: Hashes = _NONE, turns: Hashes = _NONE
    ) -> dict[str, EarlierGroup]:
        """Return found groups with the messages they hold.

        The caller removes from the dictionary what it has handled; the next call returns the rest again.

        Args:
            found: result of the last :meth:`find`.
            rows: rows to return, sorted; None for all.
            holding: rows of other groups, which keep holding their messages; only their taken places are looked up.
            turns: places to look up for ``holding``.
        """
        records = found.records(np.arange(len(found)) if rows is None else rows)
        restored = {record.group: record for record in records if record.held_step is not None}
        since = {name: record.held_step for name, record in restored.items()}
        if len(holding):
            names, steps = (found.column(name, holding).to_pylist() for name in ("group", "held_step"))
            since.update(zip(names, steps, strict=True))
        if since:
            hashes = np.array([record.hash for record in restored.values()], dtype=np.int64)
            whole = np.unique(hashes)
            wanted = np.unique(np.concatenate([hashes, found.numbers("hash", holding, 0)]))
            asked = np.unique(turns) if len(holding) else None
            for cursor in self._held:
                for batch, hit in cursor.find(wanted, found.bound):
                    looked = hit
                    if asked is not None:
                        turn, hash_ = batch.column("turn").to_numpy()[hit], batch.column("hash").to_numpy()[hit]
                        looked = hit[among(turn, asked) | among(hash_, whole)]
                    self._give(batch, looked, found, restored, since)
        self._left.update((record.group, record) for record in records)
        return self._left

    def _give(
        self,
        batch: pa.RecordBatch,
        hit: Hashes,
        found: EarlierGroups,
        restored: dict[str, EarlierGroup],
        since: Mapping[str, int | None],
    ) -> None:
        """Give groups the messages they hold, or note which places are taken; rows before the held step are dead."""
        rows = pa.array(hit)
        names, steps = (batch.column(name).take(rows).to_pylist() for name in ("group", "step"))
        back: list[tuple[int, EarlierGroup]] = []
        digests, turns = batch.column("digest"), batch.column("turn").to_numpy()
        for at, name, step in zip(hit.tolist(), names, steps, strict=True):
            first = since.get(name)
            if first is None or step < first:
                continue
            if name in restored:
                back.append((at, restored[name]))
            else:
                found.places[name, turns.item(at)] = (digests, at)
        if back:
            self._restore(batch.take(pa.array([at for at, _ in back])), [record for _, record in back])

    def _restore(self, batch: pa.RecordBatch, records: Sequence[EarlierGroup]) -> None:
        table = pa.Table.from_batches([batch])
        content = pa.Table.from_struct_array(table["message"])
        codec = MessageCodec(self._pipeline, content.column_names)
        columns, bad = codec.read(content)
        messages, refused = ([], {}) if bad else codec.build(columns)
        if bad or refused:
            row, why = next(iter((bad or refused).items()))
            msg = f"a held message of group {table['group'][row]} does not fit the message type any more: {why}"
            raise InputError(msg)
        rows = zip(*(values(table[name]) for name in ("epoch", "turn", "digest", "id", "since_us")), strict=True)
        for at, (epoch, turn, digest, ident, since_us) in enumerate(rows):
            records[at].line.restore(TimelineEntry(turn, digest, messages[at], epoch, ident, since_us, (content, at)))


@dataclass(frozen=True)
class Waits:
    """The longest waits in a slice after a step.

    Attributes:
        oldest_us: time at which the longest-waiting message began to wait; None if none waits.
        waiting_us: the same for groups that are not parked.
    """

    oldest_us: int | None
    waiting_us: int | None


def waits(
    store: Storage, levels: Sequence[Level], low: int, high: int, touched: Sequence[int], ours: Sequence[File]
) -> Waits:
    """Return the longest waits in a slice after a step; look only at groups that hold messages.

    Args:
        store: the store's files.
        levels: levels before the step, oldest first.
        low: smallest hash of the slice.
        high: greatest hash of the slice.
        touched: hashes of the groups that the step wrote.
        ours: files that the step wrote these groups to.
    """
    mine = np.sort(np.array(touched, dtype=np.int64))
    oldest = min((file.oldest_us for file in ours if file.oldest_us is not None), default=ALL_US)
    waiting = min((file.waiting_us for file in ours if file.waiting_us is not None), default=ALL_US)
    for number, level in enumerate(levels):
        # A group that began to wait later than a known one cannot change the result.
        longer = [file for file in level.groups if _before(file.oldest_us, oldest) or _before(file.waiting_us, waiting)]
        batches = Batches(store, longer, low, high).upto(high)
        found = [_waits_longer(batch, low, high, mine, oldest, waiting) for batch in batches]
        alive = pa.concat_batches(found) if found else None
        for newer in levels[number + 1 :]:  # a newer level overrides this one
            if not alive:
                break
            hashes = alive.column("hash").to_numpy()
            parts = Cursor(store, newer.groups, low, high).find(hashes, high)
            said = [part.column("hash").to_numpy()[hit] for part, hit in parts]
            alive = alive.filter(pa.array(~among(hashes, np.concatenate([_NONE, *said]))))
        if alive:
            oldest = min(oldest, int(_since(alive, "oldest_us").min()))
            waiting = min(waiting, int(_since(alive, "waiting_us").min()))
    return Waits(oldest if oldest < ALL_US else None, waiting if waiting < ALL_US else None)


def _before(since_us: int | None, other_us: int) -> bool:
    return since_us is not None and since_us < other_us


def _since(groups: pa.RecordBatch, column: str) -> Hashes:
    """Return the times since which groups wait; ``ALL_US`` for groups that do not wait."""
    return np.asarray(groups.column(column).fill_null(ALL_US).to_numpy())


def _waits_longer(
    batch: pa.RecordBatch, low: int, high: int, but: Hashes, oldest_us: int, waiting_us: int
) -> pa.RecordBatch:
    """Return the groups of a slice that began to wait before these times, except those in ``but`` (sorted)."""
    hashes = batch.column("hash").to_numpy()
    longer = (_since(batch, "oldest_us") < oldest_us) | (_since(batch, "waiting_us") < waiting_us)
    rows = np.flatnonzero(longer & (hashes >= low) & (hashes <= high))
    rows = rows[~among(hashes[rows], but)]
    return batch.select(["hash", "oldest_us", "waiting_us"]).take(pa.array(rows))
