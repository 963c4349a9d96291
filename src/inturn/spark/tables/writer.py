"""The decisions of one task as rows of files, whose names are unique to the attempt so that tasks never collide."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from inturn.core.errors import HandlerError
from inturn.core.identity import TimelineEntry, canonical
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Group
from inturn.core.pipeline.timeline import Key
from inturn.output_json import output_json
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.manifest import DataFile
from inturn.spark.tables.storage import Storage
from inturn.spark.tables.table_files import ArrowFiles, ParquetFiles, TableFiles, by_hash, concat_alike, unsettled

GROUPS = {
    "hash": pa.int64(),
    "group": pa.string(),
    "epoch": pa.int64(),
    "reached": pa.int64(),
    "status": pa.string(),
    "error": pa.string(),
    "memory": pa.binary(),
    "skipped": pa.string(),
    "held": pa.int64(),
    "held_step": pa.int64(),
    "waiting_us": pa.int64(),
    "oldest_us": pa.int64(),
    "step": pa.int64(),
    "conflicts": pa.binary(),
}
HELD = {
    "hash": pa.int64(),
    "group": pa.string(),
    "epoch": pa.int64(),
    "position": pa.int64(),
    "id": pa.string(),
    "digest": pa.binary(),
    "since_us": pa.int64(),
    "step": pa.int64(),
    "tie": pa.string(),
}
OUTPUTS = {
    "group": pa.string(),
    "epoch": pa.int64(),
    "revision": pa.int64(),
    "id": pa.string(),
    "index": pa.int64(),
    "effect_id": pa.string(),
    "type": pa.string(),
    "output": pa.string(),
    "step": pa.int64(),
}
REJECTED = {
    "group": pa.string(),
    "epoch": pa.int64(),
    "revision": pa.int64(),
    "id": pa.string(),
    "reason": pa.string(),
    "detail": pa.string(),
    "message": pa.string(),
    "step": pa.int64(),
}


class StepWriter:
    """A writer that turns a task's decisions into rows, and the rows into files with the name of this attempt.

    Attributes:
        touched: hashes of the groups that were kept, in the order of the calls.
    """

    def __init__(self, files: Storage, name: str, step: int, pipeline: Pipeline, states: StateCodec) -> None:
        self._out: dict[str, TableFiles] = {
            **{table: ArrowFiles(files, f"data/{table}/{name}") for table in ("groups", "held", "unsettled")},
            **{table: ParquetFiles(files, f"data/{table}/{name}") for table in ("outputs", "rejected")},
        }
        self._step, self._pipeline, self._states = step, pipeline, states
        self.touched: list[int] = []
        self._tables: list[pa.Table] = []
        self._groups: list[tuple[Any, ...]] = []
        self._new_states: list[Any] = []
        self._held: dict[int, tuple[pa.Table, list[tuple[int, str, TimelineEntry]], list[int]]] = {}
        self._held_tables: list[pa.Table] = []

    def group(self, hash_: int, group: Group, held_step: int | None) -> None:
        """Keep a group as it is now; ``held_step`` is the first step whose held messages of it are still held."""
        timeline = group.timeline
        self.touched.append(hash_)
        held = len(timeline.held)
        oldest = (
            min((e.since_us for e in timeline.held.values() if e.since_us is not None), default=None) if held else None
        )
        skipped = json.dumps(timeline.skipped) if timeline.skipped else None
        row: tuple[Any, ...] = (
            hash_,
            group.name,
            timeline.epoch,
            timeline.reached,
            timeline.status,
            timeline.error,
            timeline.memory,
        )
        row += (
            skipped,
            held,
            held_step if held else None,
            timeline.since_us(),
            oldest,
            self._step,
            timeline.conflicts or None,
        )
        self._groups.append(row)
        self._new_states.append(group.fold.state)

    def groups(self, columns: Mapping[str, pa.Array], states: Sequence[Any]) -> None:
        """Keep groups as they are now, given as columns; absent columns are null."""
        self.touched += columns["hash"].to_pylist()
        self._tables.append(_filled(GROUPS, columns, self._step).append_column("state", self._states.pack(states)))

    def hold(self, hash_: int, group: Group, keys: Iterable[Key]) -> None:
        """Keep these of the messages that a group holds."""
        held = group.timeline.held
        for key in sorted(keys):
            content, row = held[key].ref
            _, entries, rows = self._held.setdefault(id(content), (content, [], []))
            entries.append((hash_, group.name, held[key]))
            rows.append(row)

    def hold_rows(self, columns: Mapping[str, pa.Array], content: pa.Table) -> None:
        """Keep messages that have to wait, given as columns; absent columns are null."""
        messages = content.combine_chunks().to_struct_array()
        self._held_tables.append(_filled(HELD, columns, self._step).append_column("message", messages))

    def flush(self) -> None:
        """Write the kept groups and held messages, sorted by hash."""
        groups, self._tables = self._tables, []
        if (rows := self.group_rows()) is not None:
            groups.append(rows)
        if groups:
            table = by_hash(pa.concat_tables(groups))
            self._out["groups"].write(table)
            self._out["unsettled"].write(unsettled(table))
        waiting, self._held_tables = self._held_tables, []
        for content, entries, rows in self._held.values():
            place = [
                (hash_, name, e.epoch, e.position, e.id, e.digest, e.since_us, self._step, e.tie or None)
                for hash_, name, e in entries
            ]
            messages = content.take(pa.array(rows)).combine_chunks().to_struct_array()
            waiting.append(_table(HELD, place).append_column("message", messages))
        self._held = {}
        for table in concat_alike(waiting):
            self._out["held"].write(by_hash(table))

    def group_rows(self) -> pa.Table | None:
        """Return the rows of the groups that :meth:`group` has kept since the last call; None without any."""
        if not self._groups:
            return None
        rows = _table(GROUPS, self._groups).append_column("state", self._states.pack(self._new_states))
        self._groups, self._new_states = [], []
        return rows

    def outputs(self, emitted: Sequence[tuple[str, TimelineEntry, Sequence[Any]]]) -> None:
        """Write outputs, encoded by :meth:`encode`, with their effect ids."""
        rows = [
            (*place, *encoded, self._step)
            for group, entry, outputs in emitted
            for *place, encoded in self._pipeline.output_rows(group, entry, outputs)
        ]
        if rows:
            self._out["outputs"].write(_table(OUTPUTS, rows))

    def rejected(self, rejected: Sequence[tuple[str | None, TimelineEntry, str, str]]) -> None:
        """Write rejected messages with the reason, and their content as canonical JSON."""
        if not rejected:
            return
        contents = _contents([entry.ref for _, entry, _, _ in rejected])
        rows = [
            (
                group,
                entry.epoch if self._pipeline.epoch else None,
                entry.position if self._pipeline.order.has_revisions else None,
                entry.id,
                reason,
                detail,
                canonical(content),
                self._step,
            )
            for (group, entry, reason, detail), content in zip(rejected, contents, strict=True)
        ]
        self._out["rejected"].write(_table(REJECTED, rows))

    def close(self) -> dict[str, list[DataFile]]:
        """Finish the files, and return them by table."""
        self.flush()
        return {table: out.close() for table, out in self._out.items()}

    def encode(self, outputs: Sequence[Any]) -> list[tuple[str, str]]:
        """Return the type name and the JSON of each output; encode now, since a handler may change an output later.

        Raises:
            HandlerError: if an output cannot be stored as JSON.
        """
        try:
            return [(type(output).__name__, output_json(output).decode()) for output in outputs]
        except (TypeError, ValueError, OverflowError) as error:
            msg = f"the handler of pipeline {self._pipeline.name!r} emitted {outputs!r}, which is not JSON: {error}"
            raise HandlerError(msg) from error


def _filled(kinds: dict[str, pa.DataType], columns: Mapping[str, pa.Array], step: int) -> pa.Table:
    """Return a table of these columns, with nulls for the absent ones."""
    rows = len(columns["hash"])
    available = {**columns, "step": pa.repeat(step, rows)}
    arrays = [available[name].cast(kind) if name in available else pa.nulls(rows, kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(arrays, names=list(kinds))


def _table(columns: dict[str, pa.DataType], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    arrays = [
        pa.array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _contents(refs: Sequence[tuple[pa.Table, int]]) -> list[dict[str, Any]]:
    """Return the rows that entries refer to, as Python values; their tables may have different columns."""
    rows: dict[int, dict[int, None]] = {}
    tables: dict[int, pa.Table] = {}
    for table, row in refs:
        tables[id(table)] = table
        rows.setdefault(id(table), {})[row] = None
    read = {
        (key, row): content
        for key, row_numbers in rows.items()
        for row, content in zip(row_numbers, _plain(tables[key].take(pa.array(list(row_numbers)))), strict=True)
    }
    return [read[id(table), row] for table, row in refs]


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as Python values; maps are dicts.

    A map with a repeated key stays a list of pairs; its row is rejected for this reason.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    except (KeyError, ValueError):  # ValueError comes from a map within a struct
        slices = (table.slice(row, 1) for row in range(len(table)))
        rows = [_plain(row)[0] if len(table) > 1 else row.to_pylist()[0] for row in slices]
    return rows
