"""What a store of the ledger says, held against what the pure timeline says."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from inturn.core.pipeline.replay import Replay
from inturn.core.pipeline.timeline import Status
from inturn.spark import read

PARKED = (Status.GAP.value, Status.FAILED.value)


def assert_tables(spark: SparkSession, store: Path, replay: Replay) -> None:
    """States, outputs, held and rejected messages of the ledger, and their effect ids, are those of the replay."""
    assertDataFrameEqual(read(spark, store, "states").drop("step"), states(replay))
    assertDataFrameEqual(read(spark, store, "outputs").drop("step"), outputs(replay))
    columns = ("group", "status", "reason", "revision", "error", "message")
    stored = Counter(map(_told, read(spark, store, "parked").select(*columns).collect()))
    assert stored == held(replay), (stored - held(replay), held(replay) - stored)
    reasons = ("group", "reason", "detail", "message")
    stored = Counter(map(_told, read(spark, store, "rejected").select(*reasons).collect()))
    assert stored == rejected(replay), (stored - rejected(replay), rejected(replay) - stored)


def states(replay: Replay) -> list[Row]:
    """The table of states as the replay has it."""
    return [
        Row(
            group=group,
            status="parked" if timeline.status in PARKED else timeline.status.value,
            epoch=None,
            revision=timeline.reached,
            held=len(timeline.held),
            skipped=None,
            balance=replay.states[group].balance,
            seen=msgspec.json.encode(replay.states[group].seen).decode(),
        )
        for group, timeline in replay.timelines.items()
    ]


def outputs(replay: Replay) -> list[Row]:
    """The table of outputs as the replay has it."""
    return [
        Row(
            group=output.group,
            epoch=output.epoch,
            revision=output.revision,
            id=output.id,
            index=output.index,
            effect_id=output.effect_id,
            type=type(output.output).__name__,
            output=msgspec.json.encode(output.output).decode(),
        )
        for output in replay.outputs
    ]


def held(replay: Replay) -> Counter[tuple[Any, ...]]:
    """What is held, with why."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for entry in replay.held:
        parked = entry.status in PARKED
        status, reason = ("parked", entry.status) if parked else ("waiting", None)
        error = _last_line(replay.timelines[entry.group].error)
        counts[(entry.group, status, reason, entry.message.revision, error, _content(entry.message))] += 1
    return counts


def rejected(replay: Replay) -> Counter[tuple[Any, ...]]:
    """What was rejected, with why."""
    return Counter(
        (rejection.group, rejection.reason, _ruled(rejection.detail), _content(rejection.message))
        for rejection in replay.rejected
    )


def _ruled(detail: str) -> str:
    """Return a detail without the fields in which a conflict differs: whether they are known depends on the steps."""
    return re.sub(r" \(in .*\)(?=; name fields that)", "", detail)


def _told(row: Row) -> tuple[Any, ...]:
    known = row.asDict()
    if "detail" in known:
        known["detail"] = _ruled(row.detail)
    if "error" in known:
        known["error"] = _last_line(row.error)
    return (*list(known.values())[:-1], _content(json.loads(row.message)))


def _last_line(error: str | None) -> str | None:
    """The error without its traceback, which may name other files on a worker."""
    return error.splitlines()[-1] if error else error


def _content(message: Any) -> str:
    """A message of the ledger as JSON, whatever it is; what only says when it arrived is left out."""
    fields = msgspec.to_builtins(message)
    return json.dumps({name: fields[name] for name in ("account", "revision", "amount")})
