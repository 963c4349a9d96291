"""What Spark and the worker in process have made of the messages, and whether it is the same."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inturn.core.fold import Counts
from inturn.demo.naive import Answer
from inturn.demo.pipeline import Aircraft
from inturn.worker.look import PipelineLook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = Aircraft.__struct_fields__


@dataclass(frozen=True)
class Engine:
    """What one engine has made of the messages.

    Attributes:
        states: of each aircraft its status, its revision and the fields of its state.
        outputs: by their effect ids.
        rejected: how many messages, by aircraft and reason.
        counts: where all the messages went.
    """

    states: dict[str, tuple[Any, ...]]
    outputs: dict[str, Any]
    rejected: Counter[tuple[str | None, str]]
    counts: Counts

    def answers(self) -> dict[str, Answer]:
        """What it says of each aircraft."""
        found = {}
        for tail, (_status, _revision, *values) in self.states.items():
            known = dict(zip(FIELDS, values, strict=True))
            found[tail] = Answer(known["location"], known["legs"], known["minutes"], known["phantoms"])
        return found


@dataclass(frozen=True)
class Differences:
    """In how much two engines differ.

    Attributes:
        states: aircraft that are not in the same state.
        outputs: effect ids of which only one has an output, or the other another one.
        rejected: messages that only one of them rejected.
        counts: messages that went elsewhere; copies may be called duplicate or stale.
    """

    states: int
    outputs: int
    rejected: int
    counts: int


def differences(one: Engine, other: Engine) -> Differences:
    """Compare two engines."""
    return Differences(
        _unlike(one.states, other.states),
        _unlike(one.outputs, other.outputs),
        ((one.rejected - other.rejected) + (other.rejected - one.rejected)).total(),
        sum(abs(a - b) for a, b in zip(_ends(one.counts), _ends(other.counts), strict=True)),
    )


def _unlike(one: dict[str, Any], other: dict[str, Any]) -> int:
    missing = object()
    return sum(one.get(name, missing) != other.get(name, missing) for name in one.keys() | other.keys())


def _ends(counts: Counts) -> tuple[int, ...]:
    """Where messages are in the end; how often they were held on the way follows from the cut into steps."""
    return counts.received, counts.applied, counts.duplicate + counts.stale, counts.held - counts.released


def on_spark(spark: "SparkSession", store: Path, counts: Counts) -> Engine:
    """What is in a store of Spark's."""
    import inturn.spark

    states = inturn.spark.read(spark, store, "states").select("group", "status", "revision", *FIELDS).collect()
    outputs = inturn.spark.read(spark, store, "outputs").select("effect_id", "output").collect()
    rejected = inturn.spark.read(spark, store, "rejected").select("group", "reason").collect()
    return Engine(
        {tail: tuple(values) for tail, *values in states},
        {effect_id: json.loads(text) for effect_id, text in outputs},
        Counter((tail, reason) for tail, reason in rejected),
        counts,
    )


def in_process(look: PipelineLook, delivered: dict[str, Any]) -> Engine:
    """What a worker has kept in its database, and what it has delivered, by effect id."""
    return Engine(
        {each.group: (each.status, each.reached, *(each.state[name] for name in FIELDS)) for each in look.groups()},
        delivered,
        Counter((each.group, each.reason) for each in look.rejected()),
        look.counts(),
    )
