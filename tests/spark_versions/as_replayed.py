"""What a store says, held against the pure timeline: plain Python, since pyspark.testing needs other packages."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from inturn import Pipeline
from inturn.core.pipeline.timeline import Status
from inturn.spark import read

PARKED = (Status.GAP.value, Status.FAILED.value)


def assert_as_replayed(spark: SparkSession, store: Path, pipeline: Pipeline, messages: list[Any]) -> None:
    """States, outputs with their effect ids, and what is held or rejected, are those of ``Pipeline.replay``."""
    replay = pipeline.replay(messages)
    states = {
        group: ("parked" if timeline.status in PARKED else timeline.status.value, timeline.reached, len(timeline.held))
        for group, timeline in replay.timelines.items()
    }
    rows = read(spark, store, "states").collect()
    assert {row.group: (row.status, row.revision, row.held) for row in rows} == states
    assert {row.group: _state(row.asDict()) for row in rows} == {
        group: msgspec.to_builtins(replay.states[group]) for group in states
    }
    outputs = Counter(
        (row.group, row.revision, row["index"], row.effect_id, row.output) for row in _all(spark, store, "outputs")
    )
    assert outputs == Counter(
        (output.group, output.revision, output.index, output.effect_id, msgspec.json.encode(output.output).decode())
        for output in replay.outputs
    )
    held = Counter((row.group, row.revision) for row in _all(spark, store, "parked"))
    assert held == Counter((entry.group, entry.message.revision) for entry in replay.held)
    rejected = Counter((row.group, row.reason, _ruled(row.detail)) for row in _all(spark, store, "rejected"))
    assert rejected == Counter(
        (rejection.group, rejection.reason, _ruled(rejection.detail)) for rejection in replay.rejected
    )


def _ruled(detail: str) -> str:
    """Return a detail without the fields in which a conflict differs: whether they are known depends on the steps."""
    return re.sub(r" \(in .*\)(?=; name fields that)", "", detail)


def _all(spark: SparkSession, store: Path, table: str) -> list[Any]:
    return read(spark, store, table).collect()


def _state(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of the state's own, of which lists are JSON."""
    fields = {
        name: row[name]
        for name in row
        if name not in {"group", "status", "epoch", "revision", "held", "skipped", "step"}
    }
    return {name: msgspec.json.decode(value) if name == "seen" else value for name, value in fields.items()}
