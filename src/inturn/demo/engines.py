"""The results of Spark and of the worker in process, and their comparison."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inturn.core.pipeline.inspection import GroupStatus
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.selection import PARKED
from inturn.demo.naive import NaiveAnswer
from inturn.demo.pipeline import Aircraft
from inturn.results.inspection import DatabaseInspector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = Aircraft.__struct_fields__


@dataclass(frozen=True)
class EngineOutcome:
    """The result of one engine.

    Attributes:
        states: status, revision and state fields of each aircraft.
        rejected: number of rejected messages, by aircraft and reason.
    """

    states: dict[str, tuple[Any, ...]]
    outputs: dict[str, Any]
    rejected: Counter[tuple[str | None, str]]
    counts: Counts

    @property
    def stopped(self) -> dict[str, str]:
        """The aircraft that are not open, with their status."""
        return {tail: status for tail, (status, *_) in self.states.items() if status != "open"}

    def answers(self) -> dict[str, NaiveAnswer]:
        """Return its answer for each aircraft."""
        answers = {}
        for tail, (_status, _revision, *values) in self.states.items():
            known = dict(zip(FIELDS, values, strict=True))
            answers[tail] = NaiveAnswer(known["location"], known["legs"], known["minutes"], known["phantoms"])
        return answers


@dataclass(frozen=True)
class Differences:
    """The differences between two engines.

    Attributes:
        states: number of aircraft with different states.
        outputs: number of effect ids with different outputs, or with an output in only one engine.
        rejected: number of messages that only one of them rejected.
        counts: number of messages counted differently; duplicate and stale count as one.
    """

    states: int
    outputs: int
    rejected: int
    counts: int


def differences(first: EngineOutcome, other: EngineOutcome) -> Differences:
    """Compare two engines."""
    return Differences(
        _count_unequal(first.states, other.states),
        _count_unequal(first.outputs, other.outputs),
        ((first.rejected - other.rejected) + (other.rejected - first.rejected)).total(),
        sum(abs(a - b) for a, b in zip(_final_counts(first.counts), _final_counts(other.counts), strict=True)),
    )


def _count_unequal(first: dict[str, Any], other: dict[str, Any]) -> int:
    missing = object()
    return sum(first.get(name, missing) != other.get(name, missing) for name in first.keys() | other.keys())


def _final_counts(counts: Counts) -> tuple[int, ...]:
    """Return the final counts; the number of messages held in between depends on the division into steps."""
    return counts.received, counts.applied, counts.duplicate + counts.stale, counts.held - counts.released


def spark_result(spark: "SparkSession", store: Path, counts: Counts) -> EngineOutcome:
    """Return the result in a Spark store."""
    import inturn.spark

    states = inturn.spark.read(spark, store, "states").select("group", "status", "revision", *FIELDS).collect()
    outputs = inturn.spark.read(spark, store, "outputs").select("effect_id", "output").collect()
    rejected = inturn.spark.read(spark, store, "rejected").select("group", "reason").collect()
    return EngineOutcome(
        {tail: tuple(values) for tail, *values in states},
        {effect_id: json.loads(text) for effect_id, text in outputs},
        Counter((tail, reason) for tail, reason in rejected),
        counts,
    )


def worker_result(inspector: DatabaseInspector, delivered: dict[str, Any]) -> EngineOutcome:
    """Return the result in a worker's database, with its delivered outputs by effect id."""
    return EngineOutcome(
        {
            group.group: (_status(group), group.reached, *(group.state[name] for name in FIELDS))
            for group in inspector.groups()
        },
        delivered,
        Counter((message.group, message.reason) for message in inspector.rejected()),
        inspector.counts(),
    )


def _status(group: GroupStatus) -> str:
    """Return the status of a group as in Spark's table of states, which has no reason for parking."""
    return "parked" if group.status in PARKED else group.status
