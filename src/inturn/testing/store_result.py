"""The result in a Spark store, read from its files without Spark."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.timeline import Status
from inturn.spark.columns.state_codec import StateCodec
from inturn.spark.tables.levels import held_keys
from inturn.spark.tables.manifest import DataFile, SparkStore
from inturn.spark.tables.rows import batches_of
from inturn.testing.outcome import EngineResult, record

_PARKED = (Status.GAP, Status.FAILED, Status.GIVEN_UP)


def stored_result(pipeline: Pipeline, location: Path) -> EngineResult:
    """Return the result in a store."""
    store = SparkStore(location)
    manifests = [store.manifest(step) for step in store.steps()]
    result = EngineResult()
    for manifest in manifests:
        counts = msgspec.convert(manifest.counts, Counts)
        result.counts.add(counts)
        if not counts.balanced:
            result.broken.append(f"the counts of step {manifest.step} do not balance: {counts}")
    for row in _rows(store, [file for manifest in manifests for file in manifest.outputs]):
        result.outputs.setdefault(row["group"], {})[row["effect_id"]] = json.loads(row["output"])
    for row in _rows(store, [file for manifest in manifests for file in manifest.rejected]):
        result.reject(row["group"], row["reason"])
    if manifests:
        _groups(pipeline, store, result)
    return result


def _rows(store: SparkStore, files: Sequence[DataFile]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.read_table(store.files.source(file.path)).to_pylist()]


def _groups(pipeline: Pipeline, store: SparkStore, result: EngineResult) -> None:
    last = store.latest()
    assert last is not None  # noqa: S101 - it has steps
    codec, newest = StateCodec(pipeline), dict[str, dict[str, Any]]()
    for level in last.levels:  # newest last
        for batch in batches_of(store.location, [file.path for file in level.groups]):
            states = codec.unpack(batch.column("state"))
            rows = batch.drop_columns(["state"]).to_pylist()
            newest |= {row["group"]: row | {"state": state} for row, state in zip(rows, states, strict=True)}
    for group, row in newest.items():
        status, skipped = row["status"], json.loads(row["skipped"] or "[]")
        progress = (row["state"], status, row["epoch"], row["reached"], skipped)
        record(result, group, *progress, parked=status in _PARKED, error=row["error"])
    held: dict[str, list[tuple[Any, str]]] = {}
    for level in last.levels:
        for batch in batches_of(store.location, [file.path for file in level.held]):
            for row, spot in zip(batch.to_pylist(maps_as_pydicts="strict"), held_keys(batch), strict=True):
                newest_row = newest[row["group"]]
                if newest_row["held"] and row["step"] >= newest_row["held_step"]:
                    held.setdefault(row["group"], []).append((spot, row["digest"].hex()))
    for group, own in held.items():
        result.held[group] = [(epoch, position, ident, digest) for (epoch, position, _, ident), digest in sorted(own)]
