"""The state of groups after earlier steps, read in hash order along with the messages of the current step.

Each step wrote a level: the groups that it touched, sorted by hash. The newest level with a group holds its current
state. A task walks all levels side by side and takes the rows of the groups it needs, so the amount read depends on
the groups that the step touches.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.identity import HeldKey, TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.records import values
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.earlier_groups import EarlierGroup, EarlierGroups
from inturn.spark.tables.manifest import DataFile, StoreLevel
from inturn.spark.tables.sorted_files import Cursor, Hashes, SortedBatches, StoreSlice, is_in

_NONE: Hashes = np.empty(0, np.int64)
ALL_US = 2**62
"""A time bound that makes every waiting group due."""
NONE_US = -(2**62)
"""A time bound that makes no group due."""


class _DueGroups(SortedBatches):
    """Record batches that are searched for groups whose wait has expired, with or without a new message."""

    def hashes(self, upto: int, since_us: int) -> Iterator[Hashes]:
        for batch in self.upto(upto):
            rows = batch.column("hash").to_numpy()
            waiting = batch.column("waiting_us").fill_null(np.iinfo(np.int64).max).to_numpy()
            yield rows[(waiting <= since_us) & (rows <= upto)]


class LevelReader:
    """The groups and held messages of a slice, as the previous step left them.

    Args:
        levels: levels, oldest first.
        since_us: groups that have waited since this time or longer are due: found without a new message.
        also: sorted hashes of groups that are wanted without a new message.
    """

    def __init__(
        self,
        part: StoreSlice,
        levels: Sequence[StoreLevel],
        since_us: int,
        also: Hashes,
        pipeline: Pipeline,
        states: StateCodec,
    ) -> None:
        def due(files: Sequence[DataFile]) -> list[DataFile]:
            return [file for file in files if file.waiting_us is not None and file.waiting_us <= since_us]

        self._groups = [Cursor(part, level.groups) for level in levels]
        self._due = [_DueGroups(part, due(level.groups)) for level in levels]
        # One cursor per file: files of one step overlap where the columns of the messages changed.
        self._held = [Cursor(part, [file]) for level in levels for file in level.held]
        self._also = also
        self._pipeline, self._states, self.since_us = pipeline, states, since_us
        self._bound, self._high = part.low - 1, part.high
        self._unhandled: dict[str, EarlierGroup] = {}

    def find(self, hashes: Hashes, upto: int | None = None) -> EarlierGroups:
        """Return the groups with one of ``hashes`` (sorted, unique) or due, from the end of the last call to ``upto``.

        Without ``upto`` this is the end of the slice.
        """
        bound = self._high if upto is None else upto
        due = [due_hashes for cursor in self._due for due_hashes in cursor.hashes(bound, self.since_us)]
        due.append(self._also[(self._also > self._bound) & (self._also <= bound)])
        all_hashes = np.unique(np.concatenate([hashes, *due])) if any(map(len, due)) else hashes
        all_hashes = all_hashes[all_hashes > self._bound]
        groups = EarlierGroups(self._pipeline, self._states, all_hashes, bound)
        if len(all_hashes):
            for cursor in reversed(self._groups):  # newest first: the newest level has the current state
                for batch, row_numbers in cursor.find(all_hashes, bound):
                    groups.add(batch, row_numbers)
        self._bound = max(self._bound, bound)
        return groups

    def load_held(
        self, groups: EarlierGroups, rows: Hashes | None = None, *, holding: Hashes = _NONE, positions: Hashes = _NONE
    ) -> dict[str, EarlierGroup]:
        """Return found groups with the messages they hold.

        The caller removes from the dictionary what it has handled; the next call returns the rest again.

        Args:
            groups: result of the last :meth:`find`.
            rows: rows to return, sorted; None for all.
            holding: rows of other groups, which continue to hold their messages; only their taken places are read.
            positions: places to look up for ``holding``.
        """
        records = groups.records(np.arange(len(groups)) if rows is None else rows)
        restored = {record.group: record for record in records if record.held_step is not None}
        since = {name: record.held_step for name, record in restored.items()}
        if len(holding):
            names, steps = (groups.column(name, holding).to_pylist() for name in ("group", "held_step"))
            since.update(zip(names, steps, strict=True))
        if since:
            hashes = np.array([record.hash for record in restored.values()], dtype=np.int64)
            restored_hashes = np.unique(hashes)
            needed_hashes = np.unique(np.concatenate([hashes, groups.numbers("hash", holding, 0)]))
            wanted_positions = np.unique(positions) if len(holding) else None
            for cursor in self._held:
                for batch, row_numbers in cursor.find(needed_hashes, groups.bound):
                    selected = row_numbers
                    if wanted_positions is not None:
                        position = batch.column("position").to_numpy()[row_numbers]
                        hash_ = batch.column("hash").to_numpy()[row_numbers]
                        selected = row_numbers[is_in(position, wanted_positions) | is_in(hash_, restored_hashes)]
                    self._distribute_held(batch, selected, groups, restored, since)
        self._unhandled.update((record.group, record) for record in records)
        return self._unhandled

    def _distribute_held(
        self,
        batch: pa.RecordBatch,
        row_numbers: Hashes,
        groups: EarlierGroups,
        restored: dict[str, EarlierGroup],
        since: Mapping[str, int | None],
    ) -> None:
        """Restore the held messages of groups, or record taken places; rows before the held step are dead."""
        rows = pa.array(row_numbers)
        names, steps = (batch.column(name).take(rows).to_pylist() for name in ("group", "step"))
        to_restore: list[tuple[int, EarlierGroup]] = []
        digests, positions = batch.column("digest"), batch.column("position").to_numpy()
        for row, name, step in zip(row_numbers.tolist(), names, steps, strict=True):
            first = since.get(name)
            if first is None or step < first:
                continue
            if name in restored:
                to_restore.append((row, restored[name]))
            else:
                groups.held_digests[name, positions.item(row)] = (digests, row)
        if to_restore:
            self._restore(batch.take(pa.array([row for row, _ in to_restore])), [record for _, record in to_restore])

    def _restore(self, batch: pa.RecordBatch, records: Sequence[EarlierGroup]) -> None:
        table = pa.Table.from_batches([batch])
        content = pa.Table.from_struct_array(table["message"])
        messages, bad = MessageCodec(self._pipeline, content.column_names).from_table(content)
        for row, reason in bad.items():
            msg = f"a held message of group {table['group'][row]} no longer fits the message type: {reason}"
            raise InputError(msg)
        rows = zip(held_keys(table), *(values(table[name]) for name in ("digest", "id", "since_us")), strict=True)
        for index, ((epoch, position, tie, _), digest, ident, since_us) in enumerate(rows):
            entry = TimelineEntry(position, digest, messages[index], epoch, ident, since_us, (content, index), tie)
            records[index].timeline.restore(entry)


def held_keys(held: pa.Table | pa.RecordBatch) -> list[HeldKey]:
    """Return the positions of held messages in their groups."""
    columns = (held[name].to_pylist() for name in ("epoch", "position", "tie", "id"))
    return [(epoch, position, tie or "", ident or "") for epoch, position, tie, ident in zip(*columns, strict=True)]


def longest_waits(
    part: StoreSlice, levels: Sequence[StoreLevel], touched: Sequence[int], written: Sequence[DataFile]
) -> tuple[int | None, int | None]:
    """Return since when messages wait longest in a slice after a step, with and without parked groups; None if none.

    Only groups that hold messages are read. ``touched`` are the hashes of the groups that the step wrote to
    ``written``, and ``levels`` those before it, oldest first.
    """
    touched_hashes = np.sort(np.array(touched, dtype=np.int64))
    oldest = min((file.oldest_us for file in written if file.oldest_us is not None), default=ALL_US)
    waiting = min((file.waiting_us for file in written if file.waiting_us is not None), default=ALL_US)
    for number, level in enumerate(levels):
        # A group that began to wait later than a known one cannot change the result.
        longer = [
            file
            for file in level.groups
            if _began_before(file.oldest_us, oldest) or _began_before(file.waiting_us, waiting)
        ]
        batches = SortedBatches(part, longer).upto(part.high)
        parts = [_waits_longer(batch, part, touched_hashes, oldest, waiting) for batch in batches]
        alive = pa.concat_batches(parts) if parts else None
        for newer in levels[number + 1 :]:  # a newer level overrides this one
            if not alive:
                break
            hashes = alive.column("hash").to_numpy()
            newer_rows = Cursor(part, newer.groups).find(hashes, part.high)
            overridden = [batch.column("hash").to_numpy()[row_numbers] for batch, row_numbers in newer_rows]
            alive = alive.filter(pa.array(~is_in(hashes, np.concatenate([_NONE, *overridden]))))
        if alive:
            oldest = min(oldest, int(_since(alive, "oldest_us").min()))
            waiting = min(waiting, int(_since(alive, "waiting_us").min()))
    return oldest if oldest < ALL_US else None, waiting if waiting < ALL_US else None


def _began_before(since_us: int | None, other_us: int) -> bool:
    return since_us is not None and since_us < other_us


def _since(groups: pa.RecordBatch, column: str) -> Hashes:
    """Return the times since which groups wait; ``ALL_US`` for groups that do not wait."""
    return np.asarray(groups.column(column).fill_null(ALL_US).to_numpy())


def _waits_longer(
    batch: pa.RecordBatch, part: StoreSlice, but: Hashes, oldest_us: int, waiting_us: int
) -> pa.RecordBatch:
    """Return the groups of a slice that began to wait before these times, except those in ``but`` (sorted)."""
    hashes = batch.column("hash").to_numpy()
    longer = (_since(batch, "oldest_us") < oldest_us) | (_since(batch, "waiting_us") < waiting_us)
    rows = np.flatnonzero(longer & (hashes >= part.low) & (hashes <= part.high))
    rows = rows[~is_in(hashes[rows], but)]
    return batch.select(["hash", "oldest_us", "waiting_us"]).take(pa.array(rows))
