"""What happened when: messages sent by each airline, steps of Spark and its death, outputs of the process."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH_S = 0.5

Span = tuple[float, float]


@dataclass(frozen=True)
class Course:
    """The course of the run, in seconds from its beginning.

    Attributes:
        width_s: into intervals of so many seconds it is divided.
        producers: of each airline how many messages it sent in each interval.
        process: how many outputs the worker in process delivered in each.
        steps: when each step of Spark began and was committed.
        killed_s: when Spark was killed.
    """

    width_s: float
    producers: dict[str, list[int]]
    process: list[int]
    steps: list[Span]
    killed_s: float


def course(
    began: float,
    sent: Mapping[str, Iterable[dt.datetime]],
    delivered: Iterable[float],
    committed: Sequence[tuple[str, float]],
    killed: float,
) -> Course:
    """Put together the course of a run.

    Args:
        began: when it all began, in seconds since 1970, as are all other numbers for a time.
        sent: when each airline sent its messages.
        delivered: when the worker delivered its outputs.
        committed: when each step was committed, ISO 8601, and how many seconds it had taken.
        killed: when Spark was killed.
    """
    ends = [(dt.datetime.fromisoformat(at).timestamp() - began, seconds) for at, seconds in committed]
    return Course(
        WIDTH_S,
        {name: _intervals(time.timestamp() - began for time in times) for name, times in sent.items()},
        _intervals(time - began for time in delivered),
        [(round(end - seconds, 2), round(end, 2)) for end, seconds in ends],
        round(killed - began, 2),
    )


def _intervals(times_s: Iterable[float]) -> list[int]:
    found: list[int] = []
    for time_s in times_s:
        at = max(int(time_s / WIDTH_S), 0)
        found += [0] * (at + 1 - len(found))
        found[at] += 1
    return found
