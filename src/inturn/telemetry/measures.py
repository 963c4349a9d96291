"""Measurements of this process in plain numbers, which become metrics only when they are requested.

A counter of a metrics library takes a lock and a microsecond each time. Nothing is measured before :func:`begin`.
"""

import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from inturn.core.override import override

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the buckets of durations; a further bucket counts larger values."""
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""The upper bounds of the buckets of numbers of messages."""

is_on = False
"""True while this process is measured."""


class Histogram:
    """The count of each bucket, and the sum of the values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds: Final = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class LoopMeasures(ABC):
    """The measurements of a worker, a consumer or the host of a source, changed by its own thread only.

    Attributes:
        what: ``worker``, ``consumer`` or ``ingest``.
        up: whether its loop runs.
        busy: returns the number of groups whose turns, or messages whose handlers, are running or about to start.
    """

    what: ClassVar[str]

    def __init__(self, pipeline: str, queue: str, source: str = "") -> None:
        self.pipeline, self.queue, self.source = pipeline, queue, source
        self.up = False
        self.busy: Callable[[], int] = int

    @abstractmethod
    def numbers(self) -> dict[str, int | Histogram]:
        """Return the numbers that only this type has, by name."""

    def told(self) -> dict[str, Any]:
        """Return the numbers as JSON values, each of which can be added up over workers and processes."""
        numbers = {"up": int(self.up), "busy": self.busy() if self.up else 0, **self.numbers()}
        return {
            "what": self.what,
            "pipeline": self.pipeline,
            "queue": self.queue,
            "source": self.source,
            **{name: [each] if isinstance(each, int) else [*each.counts, each.sum] for name, each in numbers.items()},
        }


class WorkerMeasures(LoopMeasures):
    """The measurements of a worker.

    Attributes:
        turn_seconds: the durations of turns.
        turn_messages: the numbers of messages of turns.
        deliver_seconds: the durations of deliveries by outcome, ``ok`` or ``error``.
        leases_lost: the number of turns whose lease expired before they were committed.
        retries: the number of repeated calls of the handler.
    """

    what = "worker"

    def __init__(self, pipeline: str, queue: str) -> None:
        super().__init__(pipeline, queue)
        self.turn_seconds = Histogram()
        self.turn_messages = Histogram(SIZES)
        self.deliver_seconds = {"ok": Histogram(), "error": Histogram()}
        self.leases_lost = self.retries = 0

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        return {
            "leases_lost": self.leases_lost,
            "retries": self.retries,
            "turn_seconds": self.turn_seconds,
            "turn_messages": self.turn_messages,
            **{f"deliver_{outcome}": each for outcome, each in self.deliver_seconds.items()},
        }


class ConsumerMeasures(LoopMeasures):
    """The measurements of a consumer, which has no pipeline.

    Attributes:
        handler_seconds: the durations of calls of the handler.
        counts: the counts of messages by outcome; see ``inturn.consumer.ConsumedCounts``.
    """

    what = "consumer"

    def __init__(self, queue: str) -> None:
        super().__init__("", queue)
        self.handler_seconds = Histogram()
        self.counts = dict.fromkeys(("done", "failed", "parked", "deferred", "dead_lettered", "lost"), 0)

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        return {**self.counts, "handler_seconds": self.handler_seconds}


class IngestMeasures(LoopMeasures):
    """The measurements of the host of a source, which has no pipeline.

    Attributes:
        is_ready: returns whether the source is being read without errors.
    """

    what = "ingest"

    def __init__(self, source: str, queue: str) -> None:
        super().__init__("", queue, source)
        self.is_ready: Callable[[], bool] = bool

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        return {"up": int(self.up and self.is_ready())}


GAUGES: Final = ("up", "busy")
"""The numbers of a worker or a consumer that are zero after the end of its process."""


def summed(
    workers: Iterable[Mapping[str, Any]], by: Sequence[str] = ("what", "pipeline", "queue", "source")
) -> list[dict[str, Any]]:
    """Return the sums of the measurements of workers, consumers and hosts for each pipeline, queue and source."""
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for worker in workers:
        into = sums.setdefault(tuple(worker[name] for name in by), {})
        for name, value in worker.items():
            there = into.get(name)
            into[name] = value if not isinstance(there, list) else [a + b for a, b in zip(there, value, strict=True)]
    return list(sums.values())


def ended(workers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last measurements of workers whose process was killed, with their gauges set to 0."""
    return [{name: [0] if name in GAUGES else value for name, value in each.items()} for each in workers]


M = TypeVar("M", bound=LoopMeasures)


class StepMeasures:
    """The measurements of the Spark steps of a pipeline that this driver has committed."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.messages: dict[str, int] = {}
        self.last_s = 0.0

    def add(self, seconds: float, messages: Mapping[str, int]) -> None:
        """Count a step."""
        self.seconds.add(seconds)
        for verdict, count in messages.items():
            self.messages[verdict] = self.messages.get(verdict, 0) + count
        self.last_s = time.time()


_mutex = threading.Lock()
_workers: list[LoopMeasures] = []
_steps: dict[str, StepMeasures] = {}


def begin() -> None:
    """Start measuring."""
    global is_on  # noqa: PLW0603 - a switch of the process, read at each turn
    is_on = True


def begun(new: M) -> M:
    """Return the measurements for a starting worker: those of an ended one of the same names, or the new ones."""
    with _mutex:
        for each in _workers:
            known, wanted = ((of.pipeline, of.queue, of.source) for of in (each, new))
            if isinstance(each, type(new)) and not each.up and known == wanted:
                each.up = True
                return each
        new.up = True
        _workers.append(new)
        return new


def workers() -> list[dict[str, Any]]:
    """Return the measurements of the workers, consumers and hosts of this process, summed by their names."""
    with _mutex:
        return summed(each.told() for each in _workers)


def count_step(pipeline: str, seconds: float, messages: Mapping[str, int]) -> None:
    """Count a committed Spark step."""
    with _mutex:
        _steps.setdefault(pipeline, StepMeasures()).add(seconds, messages)


def steps() -> dict[str, StepMeasures]:
    """Return the measurements of Spark steps by pipeline."""
    with _mutex:
        return dict(_steps)
