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

    @property
    def values(self) -> list[float]:
        """The counts, and the sum at the end, as a family has them."""
        return [*self.counts, self.sum]


class LoopMeasures(ABC):
    """The measurements of a worker, a consumer or the host of a source, changed by its own thread only.

    Attributes:
        what: ``worker``, ``consumer`` or ``ingest``.
        up: whether its loop runs.
        busy: returns the number of groups whose tasks, or messages whose handlers, are running or about to start.
    """

    what: ClassVar[str]

    def __init__(self, database: str, queue: str, *, pipeline: str = "", source: str = "") -> None:
        self.about = {
            "what": self.what,
            "database": database,
            "pipeline": pipeline,
            "queue": queue,
            "source": source,
        }
        self.up = False
        self.busy: Callable[[], int] = int

    @abstractmethod
    def numbers(self) -> dict[str, int | Histogram]:
        """Return the numbers that only this type has, by the names of their families."""

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values, each of which can be added up over workers and processes."""
        numbers = {"up": int(self.up), "busy": self.busy() if self.up else 0, **self.numbers()}
        values = {name: [number] if isinstance(number, int) else number.values for name, number in numbers.items()}
        return {**self.about, **values}


class WorkerMeasures(LoopMeasures):
    """The measurements of a worker.

    Attributes:
        task_seconds: the durations of tasks.
        task_messages: the numbers of messages of tasks.
        deliver_seconds: the durations of deliveries by outcome, ``ok`` or ``error``.
        lost_leases: the number of tasks whose lease expired before they were committed.
        retries: the number of repeated calls of the handler.
    """

    what = "worker"

    def __init__(self, database: str, queue: str, pipeline: str) -> None:
        super().__init__(database, queue, pipeline=pipeline)
        self.task_seconds = Histogram()
        self.task_messages = Histogram(SIZES)
        self.deliver_seconds = {"ok": Histogram(), "error": Histogram()}
        self.lost_leases = self.retries = 0

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        return {
            "lost_leases": self.lost_leases,
            "retries": self.retries,
            "task.duration": self.task_seconds,
            "task.messages": self.task_messages,
            **{f"deliver.duration {outcome}": histogram for outcome, histogram in self.deliver_seconds.items()},
        }


CONSUMED: Final = {
    "done": "acknowledged_messages",
    "failed": "failed_attempts",
    "parked": "parked_groups",
    "deferred": "deferred_messages",
    "dead_lettered": "dead_lettered_messages",
    "lost": "lost_leases",
}
"""The family of each count of ``inturn.consumer.ConsumedCounts``."""


class ConsumerMeasures(LoopMeasures):
    """The measurements of a consumer, which has no pipeline.

    Attributes:
        handler_seconds: the durations of calls of the handler.
        counts: the counts of ``inturn.consumer.ConsumedCounts``.
    """

    what = "consumer"

    def __init__(self, database: str, queue: str) -> None:
        super().__init__(database, queue)
        self.handler_seconds = Histogram()
        self.counts = dict.fromkeys(CONSUMED, 0)

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        counts = {CONSUMED[name]: count for name, count in self.counts.items()}
        return {**counts, "handler.duration": self.handler_seconds}


class IngestMeasures(LoopMeasures):
    """The measurements of the host of a source, which has no pipeline.

    Attributes:
        is_ready: returns whether the source is being read without errors.
    """

    what = "ingest"

    def __init__(self, database: str, queue: str, source: str) -> None:
        super().__init__(database, queue, source=source)
        self.is_ready: Callable[[], bool] = bool

    @override
    def numbers(self) -> dict[str, int | Histogram]:
        return {"up": int(self.up and self.is_ready())}


GAUGES: Final = ("up", "busy")
"""The numbers of a worker or a consumer that are zero after the end of its process."""


def summed(workers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of the measurements of workers, consumers and hosts for each pipeline, queue and source."""
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for worker in workers:
        sums_of_name = sums.setdefault(tuple(value for value in worker.values() if isinstance(value, str)), {})
        for name, value in worker.items():
            sum_so_far = sums_of_name.get(name)
            sums_of_name[name] = (
                value if not isinstance(sum_so_far, list) else [a + b for a, b in zip(sum_so_far, value, strict=True)]
            )
    return list(sums.values())


def with_zero_gauges(workers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last measurements of workers whose process was killed, with their gauges set to 0."""
    return [{name: [0] if name in GAUGES else value for name, value in worker.items()} for worker in workers]


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


def enable() -> None:
    """Start measuring."""
    global is_on  # noqa: PLW0603 - a switch of the process, read at each task
    is_on = True


def register(new: M) -> M:
    """Return the measurements for a starting worker: those of an ended one of the same names, or the new ones."""
    with _mutex:
        for worker in _workers:
            if isinstance(worker, type(new)) and not worker.up and worker.about == new.about:
                worker.up = True
                return worker
        new.up = True
        _workers.append(new)
        return new


def workers() -> list[dict[str, Any]]:
    """Return the measurements of the workers, consumers and hosts of this process, summed by their names."""
    with _mutex:
        return summed(worker.as_json() for worker in _workers)


def count_step(pipeline: str, seconds: float, messages: Mapping[str, int]) -> None:
    """Count a committed Spark step."""
    with _mutex:
        _steps.setdefault(pipeline, StepMeasures()).add(seconds, messages)


def steps() -> dict[str, StepMeasures]:
    """Return the measurements of Spark steps by pipeline."""
    with _mutex:
        return dict(_steps)
