"""What the demo found out: the one value that the console, the picture, the page and the JSON are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import msgspec

from inturn.core.fold import Counts
from inturn.demo.delivery import Row
from inturn.demo.flights import Truth
from inturn.demo.naive import Answer, Wrong, faults

NAIVE, DISTINCT, INTURN = "last write wins", "after dropDuplicates", "inturn"
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
class Result:
    """Everything that the demo shows.

    Attributes:
        messages: how many were delivered, copies counted.
        aircraft: of how many aircraft.
        late: how many messages were held up for hours.
        twice: how many were delivered twice.
        missing: how many came only with the second delivery although they were sent before its first.
        contradicted: the aircraft of which one message came again with other content.
        waiting: how many aircraft waited for a missing message after the first delivery.
        steps: where the messages of each delivery went.
        outputs: how many outputs were stored; each landing makes one.
        landings: how many flights landed in truth.
        wrong: of how many aircraft each pipeline's answer is wrong.
        knot: the messages of one aircraft.
        examples: some aircraft that the first pipeline got wrong.
    """

    messages: int
    aircraft: int
    late: int
    twice: int
    missing: int
    contradicted: str
    waiting: int
    steps: list[Counts]
    outputs: int
    landings: int
    wrong: dict[str, Wrong]
    knot: Knot
    examples: list[Example]

    @property
    def good(self) -> bool:
        """Whether every step balances, every answer of inturn is right and every landing made one output."""
        balanced = all(step.balanced for step in self.steps)
        return balanced and self.wrong[INTURN].aircraft == 0 and self.outputs == self.landings

    def as_json(self) -> dict[str, Any]:
        """The result in types that JSON has."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values | {"good": self.good}


def knot_of(tail: str, own: Sequence[Row]) -> Knot:
    """The messages of one aircraft, from its rows in the order of arrival."""
    first = {row["revision"]: row for row in reversed(own)}
    return Knot(tail, [_label(first[at]) for at in sorted(first)], [row["revision"] for row in own])


def _label(row: Row) -> str:
    match row["type"]:
        case "departed":
            says = f"left {row['origin']} for {row['dest']}"
        case "landed":
            says = f"landed {row['dest']}"
        case _:
            says = f"cancelled {row['origin']} to {row['dest']}"
    return f"{says}, {row['at'].day} {row['at']:%b}"


def choose_knot(rows: Sequence[Row], tails: Sequence[str]) -> Knot:
    """Of these aircraft the one whose messages make the best picture: few, tangled, at least one of them twice."""
    own: dict[str, list[Row]] = {tail: [] for tail in tails}
    for row in rows:
        if row["tail"] in own:
            own[row["tail"]].append(row)
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
