"""The result of the demo: the one value for the console, the picture, the page and the JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import msgspec

from inturn.core.pipeline.journal import Counts
from inturn.demo.engines import Differences
from inturn.demo.event_log import EventLog
from inturn.demo.flights import FlightEvent, Truth
from inturn.demo.naive import NaiveAnswer, WrongCounts, faults

NAIVE, DISTINCT = "last write wins", "after dropDuplicates"
SPARK, PROCESS = "inturn on Spark", "inturn in process"
REASONS = {"invalid": "without a tail number"}  # the demo has only one kind of invalid message


@dataclass(frozen=True)
class SampleAircraft:
    """The messages of one aircraft: their labels by revision, and the order in which they arrived.

    Attributes:
        arrivals: revisions in order of arrival; a copy repeats its revision.
    """

    tail: str
    labels: list[str]
    arrivals: list[int]

    @property
    def disorder(self) -> tuple[int, int]:
        """The number of steps back in the order of arrival, and the number of pairs in the wrong order."""
        first = list(dict.fromkeys(self.arrivals))
        backwards = sum(after < before for before, after in pairwise(first))
        return backwards, sum(before > after for before, after in combinations(first, 2))


@dataclass(frozen=True)
class Example:
    """One aircraft, its true state, and the answer of each pipeline."""

    tail: str
    truth: Truth
    answers: dict[str, NaiveAnswer]

    def faults(self, pipeline: str) -> tuple[bool, bool, bool, bool]:
        """Return whether location, legs, minutes and phantoms of a pipeline's answer are wrong."""
        return faults(self.truth, self.answers[pipeline])


@dataclass(frozen=True)
class Kill:
    """The kill of Spark.

    Attributes:
        again: number of messages of that step, which were processed again.
        waiting: number of aircraft that lacked a message at that time, by the committed steps.
    """

    step: int
    again: int
    waiting: int


@dataclass(frozen=True)
class Intake:
    """The way of the messages through a broker.

    Attributes:
        broker: its name.
        received: number of records that became messages of the queue.
        rejected: number of records that were rejected: those without a tail number, which have no group.
    """

    broker: str
    received: int
    rejected: int


@dataclass(frozen=True)
class DemoResult:
    """The numbers and choices that the demo shows.

    Attributes:
        late: number of messages that were hours late.
        contradicted: aircraft with a message that was sent again with other content.
        outputs: number of outputs that Spark stored; each landing has one.
        landings: true number of landings.
        wrong: number of aircraft with a wrong answer, by pipeline.
        examples: some aircraft that the first pipeline got wrong.
        misspelt: aircraft whose last message the handler refuses.
        stopped: the aircraft that are not open, with their status, by engine.
        intake: the way through a broker; None: the airlines sent directly to the queue.
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
    wrong: dict[str, WrongCounts]
    course: EventLog
    sample: SampleAircraft
    examples: list[Example]
    misspelt: str
    stopped: dict[str, dict[str, str]]
    intake: Intake | None = None

    @property
    def spark(self) -> Counts:
        """The counts of all Spark's steps."""
        return total(self.steps)

    @property
    def good(self) -> bool:
        """True if every sum and every answer of inturn is right, each landing has an output, and both engines agree.

        One message, which the handler refuses, is held at the end, and its aircraft alone is parked.
        """
        rejected = self.intake.rejected if self.intake else 0
        return (
            all(counts.balanced for counts in (*self.steps, self.process))
            and self.spark.received == self.process.received == self.messages - rejected
            and self.spark.held - self.spark.released == self.process.held - self.process.released == 1
            and self.stopped == {name: {self.misspelt: "parked"} for name in (SPARK, PROCESS)}
            and self.wrong[SPARK].aircraft == self.wrong[PROCESS].aircraft == 0
            and self.outputs == self.landings
            and self.differences == Differences(0, 0, 0, 0)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the result in JSON types."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values | {"good": self.good}


def total(steps: Sequence[Counts]) -> Counts:
    """Return the sum of all steps."""
    counts_sum = Counts()
    for counts in steps:
        counts_sum.add(counts)
    return counts_sum


def sample_of(tail: str, own: Sequence[FlightEvent]) -> SampleAircraft:
    """Return one aircraft as a sample, from its messages in order of arrival."""
    first = {event.revision: event for event in reversed(own)}
    return SampleAircraft(
        tail, [_label(first[revision]) for revision in sorted(first)], [event.revision for event in own]
    )


def _label(event: FlightEvent) -> str:
    match event.type:
        case "departed":
            says = f"left {event.origin} for {event.dest}"
        case "landed":
            says = f"landed {event.dest}"
        case _:
            says = f"cancelled {event.origin} to {event.dest}"
    return f"{says}, {event.at.day} {event.at:%b}"


def choose_sample(events: Sequence[FlightEvent], tails: Sequence[str]) -> SampleAircraft:
    """Return the sample that makes the best picture: few messages, much out of order, at least one repeated."""
    own: dict[str, list[FlightEvent]] = {tail: [] for tail in tails}
    for event in events:
        if event.tail in own:
            own[event.tail].append(event)
    samples = [sample_of(tail, its) for tail, its in own.items()]
    fitting = [
        sample for sample in samples if 9 <= len(sample.labels) <= 14 and len(sample.arrivals) > len(sample.labels)
    ]
    return max(fitting or samples, key=lambda sample: (sample.disorder, sample.tail))


def choose_examples(
    truth: Mapping[str, Truth],
    all_answers: Mapping[str, Mapping[str, NaiveAnswer]],
    first: Sequence[str],
    count: int = 6,
) -> list[Example]:
    """Return some aircraft that the naive pipeline got wrong: those in ``first``, then those with the most faults."""
    wrong = [tail for tail, true in truth.items() if any(faults(true, all_answers[NAIVE].get(tail)))]
    wrong.sort(key=lambda tail: (tail not in first, -sum(faults(truth[tail], all_answers[NAIVE].get(tail))), tail))
    return [
        Example(tail, truth[tail], {name: answers[tail] for name, answers in all_answers.items()})
        for tail in wrong[:count]
    ]
