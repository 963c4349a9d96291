"""Inspection of a store without Spark and without the user's code: parked groups, and what one group waits for.

The command line uses it. Whole tables are read with :func:`inturn.spark.read`.
"""

import datetime as dt
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inturn.core.errors import InputError, StoreError
from inturn.core.override import override
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.inspection import GroupStatus, HeldStatus, Inspector, RejectedStatus, time_of
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import checked_text
from inturn.spark.columns.hashing import group_hash
from inturn.spark.columns.names import OLD
from inturn.spark.tables.earlier import ranges_of
from inturn.spark.tables.manifest import Manifest, SparkStore
from inturn.spark.tables.sorted import Batches, Cursor, Hashes, StoreSlice


class SparkInspector(Inspector):
    """A view of a store as its last step left it; a StoreError says if there is none."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = SparkStore(store)
        self._all = StoreSlice(self.store.files)
        self.about = self.store.known()
        last = self.store.latest()
        if last is None:
            raise StoreError(f"{self.store.location} has no step yet")
        self.last: Manifest = last
        self.order, self.policy = StoredOrder.of(self.about.order), last.policy

    @override
    def parked(self) -> Iterator[GroupStatus]:
        for number, level in reversed(list(enumerate(self.last.levels))):
            for batch in Batches(self._all, level.groups).upto(self._all.high):
                standing = batch.column("status").to_numpy(zero_copy_only=False) != Status.OPEN
                rows = batch.filter(pa.array(standing))
                if len(rows):
                    alive = self._alive(rows, number)
                    standings = (_standing(row, self.last.wait_us) for row in rows.to_pylist())
                    yield from (each for each in standings if each.group in alive)

    def _alive(self, rows: pa.RecordBatch, number: int) -> set[str]:
        """Return the groups among the rows that no newer level contains."""
        names = set(rows.column("group").to_pylist())
        hashes: Hashes = np.unique(rows.column("hash").to_numpy())
        for newer in self.last.levels[number + 1 :]:
            for part in Cursor(self._all, newer.groups).take(hashes, self._all.high):
                names -= set(part.column("group").to_pylist())
        return names

    @override
    def group(self, name: str) -> GroupStatus:
        checked_text("group", name)
        row = self._row(name)
        if row is None:
            raise InputError(f"{self.store.location} has no group {name!r}")
        return _standing(row, self.last.wait_us)

    @override
    def held(self, name: str) -> list[HeldStatus]:
        row = self._row(name)
        if row is None or not row["held"]:
            return []
        wanted = np.array([group_hash(name)], dtype=np.int64)
        found = [
            HeldStatus(
                each["epoch"],
                each["turn"],
                each["id"],
                time_of(each["since_us"]),
                each["digest"].hex(),
                each["message"],
            )
            for level in self.last.levels
            for file in level.held
            for part in Cursor(self._all, [file]).take(wanted, self._all.high)
            for each in part.to_pylist(maps_as_pydicts="strict")
            if each["group"] == name and each["step"] >= row["held_step"]
        ]
        return sorted(found, key=lambda each: (each.epoch, each.turn, each.id or ""))

    @override
    def refused(self, name: str) -> RejectedStatus | None:
        return RejectedStatus.of(name, self._rejected())

    def _rejected(self) -> Iterator[tuple[str | None, str, str, dt.datetime]]:
        for manifest in map(self.store.manifest, self.store.steps()):
            for file in manifest.rejected:
                data = pa.BufferReader(self.store.files.read(file.path) or b"")
                table = pq.read_table(data, columns=["group", "reason", "detail"])
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    yield (*row, time_of(manifest.now_us))

    def _row(self, name: str) -> dict[str, Any] | None:
        wanted = np.array([group_hash(name)], dtype=np.int64)
        for level in reversed(self.last.levels):
            for part in Cursor(self._all, level.groups).take(wanted, self._all.high):
                for row in part.to_pylist():
                    if row["group"] == name:
                        return dict(row)
        return None

    @override
    def undecided(self, name: str) -> list[Decision]:
        return [each for each in self.store.undecided(self.last).values() if each.group == name]

    @override
    def decide(self, decision: Decision) -> str:
        return self.store.decisions.append(decision)

    @override
    def strays(self) -> list[tuple[str, str]]:
        return [(each.path, each.why) for each in self.store.decisions.strays()]

    @override
    def move_strays(self) -> list[tuple[str, str]]:
        return [(each.path, each.why) for each in self.store.decisions.move_strays()]

    @override
    def verdict(self, name: str) -> str | None:
        taken = (each for manifest in self.store.after(self.last.step) for each in manifest.decisions)
        return next((each.void or "" for each in taken if each.name == name), None)

    @override
    def is_followed(self) -> bool:
        return bool(self.last.batches)


def _standing(row: dict[str, Any], wait_us: int | None) -> GroupStatus:
    return GroupStatus(
        group=row["group"],
        status=row["status"],
        epoch=row["epoch"],
        reached=row["reached"],
        error=row["error"],
        skipped=ranges_of(row["skipped"]),
        held=row["held"],
        oldest=time_of(row["oldest_us"]) if row["oldest_us"] is not None else None,
        deadline=time_of(row["waiting_us"] + wait_us)
        if wait_us is not None and row["waiting_us"] is not None
        else None,
        step=row["step"],
        state=_state(row["state"]),
    )


def _state(stored: dict[str, Any]) -> Any:
    """Return a state's fields; a state that could not be upgraded is returned as the older version stored it."""
    old = stored.pop(OLD, None)
    return stored if old is None else json.loads(old)["value"]
