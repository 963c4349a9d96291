"""Inspection of a store without Spark and without the user's code: parked groups, and what one group waits for.

The command line uses it. Whole tables are read with :func:`inturn.spark.read`.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.core.identity import HeldKey
from inturn.core.override import override
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.decision_service import DecisionService
from inturn.core.pipeline.inspection import AppliedDecision, GroupBrief, GroupHistory, GroupStatus, HeldMessageStatus
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.results import Output, RejectedMessage
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import last_line
from inturn.core.words import time_of
from inturn.results.pipeline import PipelineResults
from inturn.spark.columns.hashing import group_hash
from inturn.spark.tables.decision_log import file_of
from inturn.spark.tables.group_status import status_of
from inturn.spark.tables.levels import held_keys
from inturn.spark.tables.manifest import Manifest, SparkStore
from inturn.spark.tables.sorted_files import Cursor, Hashes, SortedBatches, StoreSlice


class SparkInspector(DecisionService):
    """A view of a store after its last step; raises StoreError if there is no store or no step."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = SparkStore(store)
        self._all = StoreSlice(self.store.files)
        self.title = self.store.location
        self.identity = self.store.require_identity()
        self.pipeline = self.identity.pipeline
        last = self.store.latest()
        if last is None:
            raise StoreError(f"{self.store.location} has no step yet")
        self.last: Manifest = last
        self.order, self.policy = StoredOrder.of(self.identity.order), last.policy
        self.version, self.shape = last.version, last.shape

    @override
    def groups(self) -> Iterator[GroupStatus]:
        for number, level in reversed(list(enumerate(self.last.levels))):
            for batch in SortedBatches(self._all, level.groups).upto(self._all.high):
                yield from self._statuses(self._current(batch, number))

    @override
    def unsettled(self, names: Sequence[str] | None = None) -> Iterator[GroupStatus]:
        return (status for rows in self._unsettled(names) for status in self._statuses(rows))

    @override
    def briefs(self) -> Iterator[GroupBrief]:
        for rows in self._unsettled():
            group, status, error, *numbers = (rows.column(name).to_pylist() for name in GroupBrief._fields)
            yield from map(GroupBrief, group, status, map(last_line, error), *numbers)

    def _unsettled(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the newest rows of the groups that are not open; a level after an erasure is searched for them."""
        chosen = None if names is None else pa.array(names, pa.string())
        for number, level in reversed(list(enumerate(self.last.levels))):
            files = level.groups if level.unsettled is None else level.unsettled
            for batch in SortedBatches(self._all, files).upto(self._all.high):
                rows = batch
                if level.unsettled is None:
                    rows = batch.filter(pc.not_equal(batch.column("status"), Status.OPEN.value))
                if chosen is not None:
                    rows = rows.filter(pc.is_in(rows.column("group"), chosen))
                if len(rows):
                    yield self._current(rows, number)

    def _current(self, rows: pa.RecordBatch, number: int) -> pa.RecordBatch:
        """Return the rows of a level whose groups no newer level contains."""
        newer, own_hashes = self.last.levels[number + 1 :], rows.column("hash").to_numpy()
        hashes = np.unique(own_hashes) if newer else own_hashes
        names: list[str] = []
        for level in newer:
            for part, indexes in Cursor(self._all, level.groups).find(hashes, self._all.high):
                names += part.column("group").take(pa.array(indexes)).to_pylist()
        if not names:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows.column("group"), pa.array(names, pa.string()))))

    def _statuses(self, rows: pa.RecordBatch) -> Iterator[GroupStatus]:
        return (status_of(row, self.last) for row in rows.to_pylist())

    @override
    def statuses(self, names: Sequence[str]) -> dict[str, GroupStatus]:
        return {name: status_of(row, self.last) for name, row in self._rows(names).items()}

    @override
    def held(self, name: str) -> list[HeldMessageStatus]:
        return [message for _, _, message in sorted(self._held([name]), key=itemgetter(1))]

    @override
    def heads(self, names: Sequence[str]) -> dict[str, HeldMessageStatus]:
        earliest: dict[str, tuple[HeldKey, HeldMessageStatus]] = {}
        for name, spot, message in self._held(names):
            earliest[name] = min(earliest.get(name, (spot, message)), (spot, message), key=itemgetter(0))
        return {name: message for name, (_, message) in earliest.items()}

    def _held(self, names: Sequence[str]) -> Iterator[tuple[str, HeldKey, HeldMessageStatus]]:
        """Yield the held messages of groups, with the group and the spot of each."""
        since = {name: row["held_step"] for name, row in self._rows(names).items() if row["held"]}
        hashes = _hashes(since)
        for file in (file for level in self.last.levels for file in level.held):
            for part in Cursor(self._all, [file]).read_rows(hashes, self._all.high):
                for row, spot in zip(part.to_pylist(maps_as_pydicts="strict"), held_keys(part), strict=True):
                    first = since.get(row["group"])
                    if first is not None and row["step"] >= first:
                        place = row["epoch"], row["position"], row["id"], time_of(row["since_us"])
                        yield row["group"], spot, HeldMessageStatus(*place, row["digest"].hex(), row["message"])

    @override
    def outputs(self) -> Iterator[Output]:
        """Yield all outputs of the steps; within a step, those of a group are in the order of its messages."""
        columns = ("group", "epoch", "revision", "id", "index", "effect_id", "output")
        for _, row in self._parquet("outputs", columns):
            yield Output(*(*row[:-1], msgspec.json.decode(row[-1])))

    @override
    def rejected(self) -> Iterator[RejectedMessage]:
        for manifest, row in self._parquet("rejected", ("group", "reason", "detail", "message")):
            yield RejectedMessage(*(*row, time_of(manifest.now_us)))

    def _parquet(
        self, table: str, columns: Sequence[str], steps: Sequence[int] | None = None
    ) -> Iterator[tuple[Manifest, tuple[Any, ...]]]:
        """Yield the rows of a table of some steps, or of all, each with its step."""
        for manifest in map(self.store.manifest, self.store.found_steps() if steps is None else steps):
            for file in getattr(manifest, table):
                with self.store.files.store_errors("read", file.path):
                    data = pq.ParquetFile(self.store.files.source(file.path))
                    for batch in data.iter_batches(limits.RESULT_ROWS, columns=list(columns)):
                        rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                        yield from ((manifest, row) for row in rows)

    def _rows(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored rows of those of the groups that exist."""
        stored: dict[str, dict[str, Any]] = {}
        hashes, remaining = _hashes(names), set(names)
        for level in reversed(self.last.levels):  # the newest has the current row
            for part in Cursor(self._all, level.groups).read_rows(hashes, self._all.high):
                new = {row["group"]: row for row in part.to_pylist() if row["group"] in remaining}
                stored |= new
                remaining -= new.keys()
        return stored

    @override
    def pending_decisions(self, name: str) -> list[Decision]:
        return [decision for decision in self.store.pending_decisions(self.last).values() if decision.group == name]

    @override
    def history(self, name: str, limit: int) -> GroupHistory:
        applied = self.store.decisions.applied(name, limits.DECISION_FILES)
        verdicts = self.verdicts(list(applied)[:limit])
        decisions = [AppliedDecision(applied[key], void) for key, void in verdicts.items()]
        row = self._rows([name]).get(name)
        if row is None or not self.store.has_step(row["step"]):
            return GroupHistory(decisions)
        columns = ("group", "epoch", "revision", "id", "index", "effect_id", "output")
        rows = (values for _, values in self._parquet("outputs", columns, [row["step"]]) if values[0] == name)
        outputs = deque((Output(*(*values[:-1], msgspec.json.decode(values[-1]))) for values in rows), limit)
        return GroupHistory(decisions, outputs=list(reversed(outputs)))

    @override
    def append(self, decisions: Sequence[Decision]) -> list[str]:
        return self.store.decisions.append_all(decisions)

    @override
    def stray_files(self) -> list[tuple[str, str]]:
        return [(stray.path, stray.why) for stray in self.store.decisions.strays()]

    @override
    def move_stray_files(self) -> list[tuple[str, str]]:
        return [(stray.path, stray.why) for stray in self.store.decisions.move_strays()]

    @override
    def verdicts(self, names: Sequence[str]) -> dict[str, str]:
        applied = {
            decision.name: decision
            for manifest in self.store.manifests_after(self.last.step)
            for decision in manifest.decisions
        }
        earlier = {
            file for file in map(file_of, names) if file not in applied and self.store.decisions.is_applied(file)
        }
        for step in reversed(self.store.found_steps()) if earlier else ():
            if not earlier - applied.keys():
                break
            applied |= {decision.name: decision for decision in self.store.manifest(step).decisions}
        return {name: entry.verdict(name) for name in names if (entry := applied.get(file_of(name))) is not None}

    @override
    def groups_of(self, names: Sequence[str]) -> dict[str, str]:
        groups: dict[str, str] = {}
        for file in dict.fromkeys(map(file_of, names)):
            groups |= {name: decision.group for name, decision in self.store.decisions.content(file).items()}
        return {name: groups[name] for name in names if name in groups}

    @override
    def batch(self, first: str, count: int) -> list[str]:
        file, _, number = first.partition("/")
        if not number:
            return super().batch(first, count)
        parts = range(0, count, limits.DECISIONS_AT_ONCE)
        files = zip((f"{file.rpartition('.')[0]}.{part:06d}" for part in parts), parts, strict=True)
        return [
            f"{name}/{number:06d}"
            for name, begin in files
            for number in range(min(limits.DECISIONS_AT_ONCE, count - begin))
        ]

    @override
    def may_apply_automatically(self) -> bool:
        return bool(self.last.batches)


def store(location: str | os.PathLike[str]) -> PipelineResults:
    """Return the results in a store after its last step, and decisions about its groups; Spark is not needed.

    Raises:
        StoreError: if there is no store, or it has no step yet.
    """
    return PipelineResults(SparkInspector(location))


def _hashes(names: Iterable[str]) -> Hashes:
    """Return the hashes of groups, sorted and unique."""
    return np.unique(np.array([group_hash(name) for name in names], dtype=np.int64))
