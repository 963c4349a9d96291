"""Inspection of a store without Spark and without the user's code: parked groups, and what one group waits for.

The command line uses it. Whole tables are read with :func:`inturn.spark.read`.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.core.override import override
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.inspection import GroupStatus, HeldStatus, Inspector, time_of
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.results import OutputRow, RejectedRow
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import checked_text
from inturn.json_form import of_value
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
    def groups(self) -> Iterator[GroupStatus]:
        return self._groups(lambda _rows: None)

    @override
    def parked(self) -> Iterator[GroupStatus]:
        return self._groups(lambda rows: rows.column("status").to_numpy(zero_copy_only=False) != Status.OPEN)

    def _groups(self, chosen: Callable[[pa.RecordBatch], Any]) -> Iterator[GroupStatus]:
        """Yield the newest status of the groups whose rows are chosen by a mask, or of all groups."""
        for number, level in reversed(list(enumerate(self.last.levels))):
            for batch in Batches(self._all, level.groups).upto(self._all.high):
                mask = chosen(batch)
                rows = batch if mask is None else batch.filter(pa.array(mask))
                if len(rows):
                    alive = self._alive(rows, number)
                    standings = map(self._standing, rows.to_pylist())
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
        return self._standing(row)

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
    def outputs(self) -> Iterator[OutputRow]:
        """Yield all outputs that the steps have made, each group's in the order of its messages in each step."""
        columns = ("group", "epoch", "revision", "id", "index", "effect_id", "output")
        for _, row in self._parquet("outputs", columns):
            yield OutputRow(*(*row[:-1], msgspec.json.decode(row[-1])))

    @override
    def rejected(self) -> Iterator[RejectedRow]:
        for manifest, row in self._parquet("rejected", ("group", "reason", "detail", "message")):
            yield RejectedRow(*(*row, time_of(manifest.now_us)))

    def _parquet(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Manifest, tuple[Any, ...]]]:
        """Yield the rows of a table of all steps, each with its step."""
        for manifest in map(self.store.manifest, self.store.steps()):
            for file in getattr(manifest, table):
                with self.store.files.told("read", file.path):
                    data = pq.ParquetFile(self.store.files.source(file.path))
                    for batch in data.iter_batches(limits.RESULT_ROWS, columns=list(columns)):
                        rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                        yield from ((manifest, row) for row in rows)

    def _standing(self, row: dict[str, Any]) -> GroupStatus:
        wait_us, waiting_us = self.last.wait_us, row["waiting_us"]
        return GroupStatus(
            group=row["group"],
            status=row["status"],
            epoch=row["epoch"],
            reached=row["reached"],
            error=row["error"],
            skipped=ranges_of(row["skipped"]),
            held=row["held"],
            oldest=time_of(row["oldest_us"]) if row["oldest_us"] is not None else None,
            deadline=time_of(waiting_us + wait_us) if wait_us is not None and waiting_us is not None else None,
            step=row["step"],
            state=self._state(row["state"]),
        )

    def _state(self, stored: dict[str, Any]) -> Any:
        """Return a state as JSON values; one that could not be upgraded is returned as the older version stored it."""
        old = stored.pop(OLD, None)
        if old is not None:
            return json.loads(old)["value"]
        for name, kind in self.last.state.items():
            if kind.startswith("json") and stored.get(name) is not None:
                stored[name] = msgspec.json.decode(stored[name])
        return msgspec.json.decode(of_value(stored if self.last.is_record else stored["state"]))

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
