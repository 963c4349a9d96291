"""The course of a demo run: messages sent by each airline, Spark's steps and its kill, outputs of the process."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH_S = 0.5

Span = tuple[float, float]


@dataclass(frozen=True)
class EventLog:
    """The course of the run, in seconds from its beginning.

    Attributes:
        producers: number of messages that each airline sent in each interval.
        process: number of outputs that the worker in process delivered in each interval.
        steps: begin and commit of each step of Spark.
    """

    width_s: float
    producers: dict[str, list[int]]
    process: list[int]
    steps: list[Span]
    killed_s: float


def build_event_log(
    began: float,
    sent: Mapping[str, Iterable[dt.datetime]],
    delivered: Iterable[float],
    committed: Sequence[tuple[str, float]],
    killed: float,
) -> EventLog:
    """Combine the course of a run.

    Args:
        began: begin of the run, in seconds since 1970, like all other numbers for a time.
        sent: times at which each airline sent its messages.
        delivered: times at which the worker delivered its outputs.
        committed: for each step the time of its commit, ISO 8601, and its duration in seconds.
        killed: time of the kill of Spark.
    """
    ends = [
        (dt.datetime.fromisoformat(committed_at).timestamp() - began, seconds) for committed_at, seconds in committed
    ]
    return EventLog(
        WIDTH_S,
        {name: _intervals(time.timestamp() - began for time in times) for name, times in sent.items()},
        _intervals(time - began for time in delivered),
        [(round(end - seconds, 2), round(end, 2)) for end, seconds in ends],
        round(killed - began, 2),
    )


def _intervals(times_s: Iterable[float]) -> list[int]:
    counts: list[int] = []
    for time_s in times_s:
        interval = max(int(time_s / WIDTH_S), 0)
        counts += [0] * (interval + 1 - len(counts))
        counts[interval] += 1
    return counts
