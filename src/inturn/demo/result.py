"""What the demo found out: the one value that the console, the picture, the page and the JSON are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import msgspec

from inturn.core.fold import Counts
from inturn.demo.course import Course
from inturn.demo.engines import Differences
from inturn.demo.flights import FlightEvent, Truth
from inturn.demo.naive import Answer, Wrong, faults

NAIVE, DISTINCT = "last write wins", "after dropDuplicates"
SPARK, PROCESS = "inturn on Spark", "inturn in process"
REASONS = {"invalid": "without a tail number"}  # in the demo there is one way to be invalid


@dataclass(frozen=True)
class Knot:
    """The messages of one aircraft: what they say, in their turn, and the order in which they arrived.

    Attributes:
        tail: the aircraft.
        labels: what each revision says; that of revision 1 comes first.
        arrivals: revisions in the order of arrival; one that was delivered twice is there twice.
    """

    tail: str
    labels: list[str]
    arrivals: list[int]

    @property
    def tangle(self) -> tuple[int, int]:
        """How often the next message to arrive is an earlier one, and how many pairs are in the wrong order."""
        first = list(dict.fromkeys(self.arrivals))
        backwards = sum(after < before for before, after in pairwise(first))
        return backwards, sum(before > after for before, after in combinations(first, 2))


@dataclass(frozen=True)
class Example:
    """One aircraft, the truth and what each pipeline says of it."""

    tail: str
    truth: Truth
    answers: dict[str, Answer]

    def faults(self, pipeline: str) -> tuple[bool, bool, bool, bool]:
        """Whether location, legs, minutes and phantoms of a pipeline's answer are wrong."""
        return faults(self.truth, self.answers[pipeline])


@dataclass(frozen=True)
class Kill:
    """How Spark was killed.

    Attributes:
        step: in which step, before its commit.
        again: how many messages of that step were done again.
        waiting: how many aircraft lacked a message at that time, for all that was committed.
    """

    step: int
    again: int
    waiting: int


@dataclass(frozen=True)
class Result:
    """Everything that the demo shows.

    Attributes:
        messages: how many were sent, copies counted.
        aircraft: of how many aircraft.
        producers: how many messages each airline sent.
        late: how many messages were held up for hours.
        twice: how many were sent twice.
        contradicted: the aircraft of which one message came again with other content.
        kill: how Spark was killed.
        steps: where the messages of each step of Spark went.
        process: where the messages went in process.
        differences: in how much Spark and the process differ.
        outputs: how many outputs Spark stored; each landing makes one.
        landings: how many flights landed in truth.
        wrong: of how many aircraft each pipeline's answer is wrong.
        course: what happened when.
        knot: the messages of one aircraft.
        examples: some aircraft that the first pipeline got wrong.
    """

    messages: int
    aircraft: int
    producers: dict[str, int]
    late: int
    twice: int
    contradicted: str
    kill: Kill
    steps: list[Counts]
    process: Counts
    differences: Differences
    outputs: int
    landings: int
    wrong: dict[str, Wrong]
    course: Course
    knot: Knot
    examples: list[Example]

    @property
    def spark(self) -> Counts:
        """Where the messages of all steps went."""
        return total(self.steps)

    @property
    def good(self) -> bool:
        """Whether all is right: every sum, every answer of inturn, an output for every landing, both engines equal."""
        return (
            all(counts.balanced for counts in (*self.steps, self.process))
            and self.spark.received == self.process.received == self.messages
            and self.spark.held == self.spark.released
            and self.wrong[SPARK].aircraft == self.wrong[PROCESS].aircraft == 0
            and self.outputs == self.landings
            and self.differences == Differences(0, 0, 0, 0)
        )

    def as_json(self) -> dict[str, Any]:
        """The result in types that JSON has."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values | {"good": self.good}


def total(steps: Sequence[Counts]) -> Counts:
    """The sum of all steps."""
    found = Counts()
    for counts in steps:
        found.add(counts)
    return found


def knot_of(tail: str, own: Sequence[FlightEvent]) -> Knot:
    """The messages of one aircraft, from its messages in the order of arrival."""
    first = {event.revision: event for event in reversed(own)}
    return Knot(tail, [_label(first[at]) for at in sorted(first)], [event.revision for event in own])


def _label(event: FlightEvent) -> str:
    match event.type:
        case "departed":
            says = f"left {event.origin} for {event.dest}"
        case "landed":
            says = f"landed {event.dest}"
        case _:
            says = f"cancelled {event.origin} to {event.dest}"
    return f"{says}, {event.at.day} {event.at:%b}"


def choose_knot(events: Sequence[FlightEvent], tails: Sequence[str]) -> Knot:
    """Of these aircraft the one whose messages make the best picture: few, tangled, at least one of them twice."""
    own: dict[str, list[FlightEvent]] = {tail: [] for tail in tails}
    for event in events:
        if event.tail in own:
            own[event.tail].append(event)
    knots = [knot_of(tail, its) for tail, its in own.items()]
    fitting = [knot for knot in knots if 9 <= len(knot.labels) <= 14 and len(knot.arrivals) > len(knot.labels)]
    return max(fitting or knots, key=lambda knot: (knot.tangle, knot.tail))


def choose_examples(
    truth: Mapping[str, Truth], found: Mapping[str, Mapping[str, Answer]], first: Sequence[str], count: int = 6
) -> list[Example]:
    """Some aircraft that the naive pipeline got wrong: those named first, then those with the most faults."""
    wrong = [tail for tail, true in truth.items() if any(faults(true, found[NAIVE].get(tail)))]
    wrong.sort(key=lambda tail: (tail not in first, -sum(faults(truth[tail], found[NAIVE].get(tail))), tail))
    return [
        Example(tail, truth[tail], {name: answers[tail] for name, answers in found.items()}) for tail in wrong[:count]
    ]
