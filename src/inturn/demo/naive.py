"""Naive pipelines over the same delivery, and the distance of their answers from the truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inturn.demo.flights import Truth

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LAST_WRITE = "groupBy(tail): the place of the message that arrived last; flights and minutes are summed"
WITHOUT_COPIES = "the same, with only the first of several messages with equal content"


@dataclass(frozen=True)
class NaiveAnswer:
    """The answer of one pipeline for one aircraft; ``phantoms`` are landings that it applied before their departure."""

    location: str | None
    legs: int
    minutes: int
    phantoms: int


@dataclass(frozen=True)
class WrongCounts:
    """The number of aircraft with a wrong answer, by field and in total.

    Attributes:
        phantoms: a landing of a flight that had not departed.
    """

    aircraft: int
    location: int
    legs: int
    minutes: int
    phantoms: int


def compare(truth: Mapping[str, Truth], answers: Mapping[str, NaiveAnswer]) -> WrongCounts:
    """Count the aircraft with an answer that differs from the truth; an aircraft without an answer is wrong in all."""
    aircraft_faults = [faults(true, answers.get(tail)) for tail, true in truth.items()]
    aircraft_faults += [faults(Truth(None, 0, 0), answer) for tail, answer in answers.items() if tail not in truth]
    location, legs, minutes, phantoms = (sum(column) for column in zip(*aircraft_faults, strict=True))
    return WrongCounts(sum(map(any, aircraft_faults)), location, legs, minutes, phantoms)


def faults(true: Truth, answer: NaiveAnswer | None) -> tuple[bool, bool, bool, bool]:
    """Return whether location, legs, minutes and phantoms of an answer are wrong."""
    if answer is None:
        return True, True, True, True
    return (
        answer.location != true.location,
        answer.legs != true.legs,
        answer.minutes != true.minutes,
        answer.phantoms != 0,
    )


def last_write_wins(messages: "DataFrame") -> "DataFrame":
    """Return one row per aircraft: the place from the message that arrived last, flights and minutes summed.

    Phantoms are counted leniently: a landing is one only if no departure of the same flight arrived before it,
    regardless of the messages of other flights.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the name under which everybody knows it

    kind, offset = F.col("type"), F.col("offset")
    landed = kind == "landed"
    place = F.when(landed, F.col("dest")).otherwise(F.concat_ws(" → ", "origin", "dest"))
    of_leg = Window.partitionBy("tail", "flight", "scheduled")
    left_at = F.min(F.when(kind == "departed", offset)).over(of_leg)
    known = messages.where(F.col("tail").isNotNull())
    marked = known.withColumn("phantom", landed & (left_at.isNull() | (left_at > offset)))

    def total(value: "Column") -> "Column":
        return F.coalesce(F.sum(value), F.lit(0))

    return marked.groupBy("tail").agg(
        F.max_by(place, F.when(kind.isin("departed", "landed"), offset)).alias("location"),
        F.count_if(landed).alias("legs"),
        total(F.when(landed, F.col("minutes"))).alias("minutes"),
        F.count_if("phantom").alias("phantoms"),
    )


def without_copies(messages: "DataFrame") -> "DataFrame":
    """Return the messages without exact copies: for each content the first one."""
    from pyspark.sql import functions as F  # noqa: N812

    content = [name for name in messages.columns if name != "offset"]
    return messages.groupBy(*content).agg(F.min("offset").alias("offset"))


def answers(states: "DataFrame") -> dict[str, NaiveAnswer]:
    """Collect a table with one row per aircraft."""
    rows = states.select("tail", "location", "legs", "minutes", "phantoms").collect()
    return {tail: NaiveAnswer(*values) for tail, *values in rows}
