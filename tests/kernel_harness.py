"""Runs steps of the Spark kernel in this process, without Spark, and reads the tables back.

So the kernel, its files and its commits can be held to the pure timeline on thousands of small histories, where a
Spark session would manage a handful. The rows are prepared as the intake does, only the hash is another.
"""

import datetime as dt
import hashlib
import math
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inturn import Pipeline
from inturn.core import limits
from inturn.core.identity import canonical, field_names, group_text
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.replay import Replay
from inturn.spark.columns.hashing import bucket_bounds
from inturn.spark.columns.names import GROUP, HASH
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.driver.step import Stepper
from inturn.spark.executor import decisions, task
from inturn.spark.executor.plan import Plan, SliceResult, total_counts
from inturn.spark.executor.sort import sorted_chunks
from inturn.spark.tables.manifest import DataFile, Manifest, SparkStore
from inturn.spark.tables.merge import levels_to_merge

DAWN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
# A small step is fsync more than anything else; in memory that costs nothing.
QUICK = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


@dataclass(frozen=True)
class Bounds:
    """How little a step may have in memory, so that small histories meet every edge."""

    chunk_rows: int = limits.CHUNK_ROWS
    sort_rows: int = limits.SORT_ROWS
    merge_rows: int = limits.MERGE_ROWS
    row_group_rows: int = limits.ROW_GROUP_ROWS
    snapshot_every: int = limits.SNAPSHOT_EVERY
    remembered: int = limits.REMEMBERED_REVISIONS
    remembered_ids: int = limits.REMEMBERED_IDS
    remembered_conflicts: int = limits.REMEMBERED_CONFLICTS
    levels: int = limits.LEVELS

    @contextmanager
    def applied(self) -> Iterator[None]:
        """These bounds in force; also for a replay, which shares what is remembered."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "ROW_GROUP_ROWS", self.row_group_rows)
            patch.setattr(limits, "SNAPSHOT_EVERY", self.snapshot_every)
            patch.setattr(limits, "REMEMBERED_REVISIONS", self.remembered)
            patch.setattr(limits, "REMEMBERED_IDS", self.remembered_ids)
            patch.setattr(limits, "REMEMBERED_CONFLICTS", self.remembered_conflicts)
            patch.setattr(limits, "LEVELS", self.levels)
            # Those of the sort are bound as defaults, so the call is given them.
            tiny = partial(
                sorted_chunks,
                chunk_rows=self.chunk_rows,
                sort_rows=self.sort_rows,
                merge_rows=self.merge_rows,
                spill_dir=QUICK,
            )
            patch.setattr(task, "sorted_chunks", tiny)
            yield


@dataclass
class Seen:
    """What a store holds, in the shape in which a replay is compared with it.

    Attributes:
        states: the state of every group.
        outputs: (group, epoch, revision, id, index, effect id, type, output as JSON values), sorted.
        rejected: how often (group, reason, detail, content) was rejected.
        held: (group, status, content) in the order of application.
        errors: the parked groups that say why.
        places: for each group its status, epoch, how far it is, what was skipped, and what it remembers.
    """

    states: dict[str, Any] = field(default_factory=dict)
    outputs: list[tuple[Any, ...]] = field(default_factory=list)
    rejected: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    held: list[tuple[str, str, str]] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)
    places: dict[str, tuple[Any, ...]] = field(default_factory=dict)


class Bench:
    """One store, and steps on it.

    Args:
        pipeline: the definition; its handler need not travel, so it may be anything.
        schema: the columns of the input.
        buckets: of the store.
        hashes: if given, only so many groups' hashes exist, and groups share them.
        bounds: how little a step may have in memory.
        seed: shuffles the rows, as Spark would.
        root: the store; None makes a directory of its own.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        schema: pa.Schema,
        *,
        buckets: int = 2,
        hashes: int | None = None,
        bounds: Bounds | None = None,
        seed: int = 0,
        root: Path | None = None,
    ) -> None:
        self.pipeline, self.schema, self.buckets, self.hashes = pipeline, schema, buckets, hashes
        self.bounds = bounds or Bounds()
        self._random = random.Random(seed)
        self._own = tempfile.TemporaryDirectory(prefix="inturn-test-", dir=QUICK) if root is None else None
        self.root = Path(self._own.name) if self._own else root
        self.store = SparkStore(self.root)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.cleanup()

    def step(
        self, messages: Sequence[Any], *, now: dt.datetime = DAWN, final: bool = False, schema: pa.Schema | None = None
    ) -> Counts:
        """Take messages (dicts of the columns, or records) as one step and commit it."""
        manifest, counts = self.prepare(messages, now=now, final=final, schema=schema)
        self.store.commit(manifest)
        self.store.archive(manifest)
        return counts

    def prepare(
        self, messages: Sequence[Any], *, now: dt.datetime = DAWN, final: bool = False, schema: pa.Schema | None = None
    ) -> tuple[Manifest, Counts]:
        """A step with its files written and its manifest not yet: as `batch` does it."""
        table = self.table(messages, schema or self.schema)
        stepper = Stepper(self.pipeline, self.root, buckets=self.buckets, without_spark=True)
        names = [name for name in table.column_names if name not in (HASH, GROUP)]
        if self.pipeline.fields is not None:
            names = [name for name in names if name in (*self.pipeline.fields, self.pipeline.arrival)]
        plan = stepper.plan(None, now, final=final)
        with self.bounds.applied():
            merging = levels_to_merge(plan.levels)
        group = GROUP if GROUP in table.column_names else self.pipeline.group
        plan = msgspec.structs.replace(
            plan, columns=names, merge=plan.merge if plan.previous_format else merging, group=group
        )
        plan = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)  # as it travels
        rows = table.select([*names, *(name for name in (GROUP, HASH) if name in table.column_names)])
        with self.bounds.applied(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(decisions, "group_hash", self.hash_of)
            results = [self._task(plan, rows, bucket) for bucket in range(plan.buckets)]
        counts = total_counts(results)
        return stepper._manifest(plan, results, counts, None, 0.0), counts

    def _task(self, plan: Plan, table: pa.Table, bucket: int) -> SliceResult:
        low, high = bucket_bounds(bucket, plan.buckets)
        rows = [index for index, hash_ in enumerate(table[HASH].to_pylist()) if low <= hash_ <= high]
        self._random.shuffle(rows)
        own_rows = table.take(pa.array(rows, pa.int64())).combine_chunks()
        batches = own_rows.to_batches(max_chunksize=self._random.randint(1, 5))
        result = task.run_task(plan, self.pipeline, bucket, f"{plan.attempt}-0", batches)
        return msgspec.json.decode(msgspec.json.encode(result), type=SliceResult)

    def table(self, messages: Sequence[Any], schema: pa.Schema) -> pa.Table:
        """The messages as columns, with the group's text, where its column is not text itself, and its hash."""
        rows = [columns_of(message) for message in messages]
        table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)
        groups = [row.get(self.pipeline.group) for row in rows]
        texts = [None if group is None else group_text(group) for group in groups]
        hashes = [self.hash_of(text if text is not None else repr(row)) for text, row in zip(texts, rows, strict=True)]
        if schema.field(self.pipeline.group).type != pa.string():
            table = table.append_column(GROUP, pa.array(texts, pa.string()))
        return table.append_column(HASH, pa.array(hashes, pa.int64()))

    def hash_of(self, text: str) -> int:
        """A stable 64-bit hash of a group's text."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if self.hashes is not None:
            # A few values all over the range, so that every bucket can meet groups that share one.
            digest = hashlib.sha256(bytes([digest[0] % self.hashes])).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def seen(self) -> Seen:
        """What the committed steps left, read with pyarrow alone."""
        manifests = [self.store.manifest(number) for number in self.store.steps()]
        seen = Seen()
        if not manifests:
            return seen
        for row in self.rows([file for manifest in manifests for file in manifest.outputs]):
            *place, text, _ = row.values()
            seen.outputs.append((*place, msgspec.json.decode(text)))
        seen.outputs.sort(key=repr)
        for row in self.rows([file for manifest in manifests for file in manifest.rejected]):
            seen.rejected[(row["group"], row["reason"], ruled(row["detail"]), row["message"])] += 1
        self._groups(manifests[-1], seen)
        return seen

    def _groups(self, last: Manifest, seen: Seen) -> None:
        newest: dict[str, dict[str, Any]] = {}
        codec = StateCodec(self.pipeline)
        for level in last.levels:
            for file in level.groups:
                table = self._arrow(file)
                assert table["hash"].to_pylist() == sorted(table["hash"].to_pylist())
                assert len(table) == file.rows
                states = codec.unpack(table["state"].combine_chunks())
                for row, state in zip(table.drop_columns(["state"]).to_pylist(), states, strict=True):
                    newest[row["group"]] = row | {"state": state}
        held: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        for file in (file for level in last.levels for file in level.held):
            rows = self.rows([file])
            assert [row["hash"] for row in rows] == sorted(row["hash"] for row in rows)
            assert len(rows) == file.rows
            for row in rows:
                position = (
                    row["epoch"],
                    row["position"],
                    row.get("tie") or "",
                    row["id"] or "",
                    canonical(row["message"]),
                )
                held.setdefault(row["group"], []).append((row["step"], position))
        for group, row in sorted(newest.items()):
            seen.states[group] = row["state"]
            since = row["held_step"] if row["held"] else math.inf
            own_positions = [position for step, position in held.get(group, []) if step >= since]
            assert len(own_positions) == row["held"]
            seen.held += [(group, row["status"], message) for *_, message in sorted(own_positions)]
            if row["error"] is not None:
                seen.errors.add(group)
            skipped = [tuple(interval) for interval in msgspec.json.decode(row["skipped"] or "[]")]
            remembered = (row["memory"], row["conflicts"] or b"")
            seen.places[group] = (row["status"], row["epoch"], row["reached"], skipped, *remembered)

    def _arrow(self, file: DataFile) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self.root / file.path))).read_all()

    def rows(self, files: Sequence[DataFile]) -> list[dict[str, Any]]:
        """All rows of data files."""
        tables = [self._arrow(f) if f.path.endswith(".arrow") else pq.read_table(self.root / f.path) for f in files]
        return [row for table in tables for row in table.to_pylist(maps_as_pydicts="strict")]


def columns_of(message: Any) -> Mapping[str, Any]:
    """A message as a row: records by their fields, the records in them as dicts."""
    if isinstance(message, Mapping):
        return message
    return {name: _builtin(getattr(message, name)) for name in field_names(type(message)) or ()}


def ruled(detail: str) -> str:
    """Return a detail without the fields in which a conflict differs: whether they are known depends on the chunks."""
    return re.sub(r" \(in .*\)(?=; name fields that)", "", detail)


def _builtin(value: Any) -> Any:
    if isinstance(value, list):
        return [_builtin(item) for item in value]
    if field_names(type(value)) is not None:
        return columns_of(value)
    return value


def expected(replay: Replay, columns: Sequence[str] | None = None) -> Seen:
    """A replay in the shape in which the store is read; with columns, the content of a message is only these."""

    def content(message: Any) -> str:
        row = columns_of(message)
        return canonical({name: row[name] for name in columns or row})

    return Seen(
        states=replay.states,
        outputs=sorted(
            (
                (o.group, o.epoch, o.revision, o.id, o.index, o.effect_id, type(o.output).__name__, _json(o.output))
                for o in replay.outputs
            ),
            key=repr,
        ),
        rejected=Counter((r.group, r.reason, ruled(r.detail), content(r.message)) for r in replay.rejected),
        held=[(h.group, h.status, content(h.message)) for h in replay.held],
        errors=set(replay.errors),
        places={
            name: (
                timeline.status.value,
                timeline.epoch,
                timeline.reached,
                timeline.skipped,
                timeline.memory,
                timeline.conflicts,
            )
            for name, timeline in replay.timelines.items()
        },
    )


def _json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def total(steps: Sequence[Counts]) -> dict[str, Any]:
    """What does not depend on how a history is cut: an old copy is a duplicate or stale, what is held is a balance."""
    counts = Counts()
    for step in steps:
        assert step.balanced
        counts.add(step)
    return {
        "received": counts.received,
        "applied": counts.applied,
        "copies": counts.duplicate + counts.stale,
        "held": counts.held - counts.released,
        "rejected": counts.rejected,
    }
