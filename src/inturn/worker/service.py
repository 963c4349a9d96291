"""Loops over several queues in one process, until they are stopped; for ``inturn work`` and ``inturn consume``."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.override import override
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Counts
from inturn.queue import Queue
from inturn.telemetry import measures
from inturn.worker.background import BackgroundLoop
from inturn.worker.chain import ToQueue, target_of
from inturn.worker.outbox import Deliver
from inturn.worker.worker import Worker


class Job(NamedTuple):
    """A pipeline over a queue; the arguments of :func:`inturn.work`, and a display name of the database."""

    pipeline: Pipeline
    queue: Queue
    deliver: Deliver | Queue | ToQueue | None = None
    concurrency: int = limits.WORKER_CONCURRENCY
    database: str = ""


class LoopService(ABC):
    """Loops that are started, watched and stopped together.

    Args:
        loops: the loops, which are not started yet.

    Attributes:
        is_done: whether it ended because all queues were empty.
    """

    def __init__(self, loops: Sequence[BackgroundLoop]) -> None:
        self._loops = loops
        self._stopping = threading.Event()
        self._is_running = False
        self.is_done = False

    @abstractmethod
    def _rows(self) -> list[dict[str, Any]]:
        """Return the counts of each loop, as JSON values; the values that are not numbers identify the loop."""

    def run(self, *, until_empty: bool = False) -> None:
        """Work until stopped, until one of the loops fails or, with ``until_empty``, until all queues are empty.

        Raises:
            Exception: the error of the first loop that failed; the others are stopped in order.
        """
        with ExitStack() as stack:
            for loop in self._loops:
                stack.enter_context(loop)
            stack.callback(self._stop_all)
            self._is_running = True
            if until_empty:
                self._drain()
                self._finish()
                self.is_done = not self._stopping.is_set()
                self._stopping.set()
            while not self._stopping.wait(limits.WORKER_LOOK_S):
                for loop in self._loops:
                    loop.check()

    def _drain(self) -> None:
        """Wait until all queues are empty at the same time: one loop may send to a queue that was drained before."""
        counted = -1
        while counted < (counted := self._counted()):
            for loop in self._loops:
                try:
                    loop.drain()
                except InputError:
                    if not self._stopping.is_set():
                        raise
                    return  # a stop ends the wait

    def _finish(self) -> None:
        """Finish the work once all queues are empty; a hook."""

    def _counted(self) -> int:
        return sum(value for row in self._rows() for value in row.values() if isinstance(value, int))

    def stop_soon(self) -> None:
        """Receive no more messages; ``run`` returns once running handlers are done."""
        self._stopping.set()
        self._stop_all()

    def _stop_all(self) -> None:
        self._is_running = False
        for loop in self._loops:
            loop.stop_soon()

    def status(self) -> dict[str, Any]:
        """Return whether all loops run and can use their databases, and the counts of each, as JSON values."""
        is_running = self._is_running and not self._stopping.is_set()
        return {"ready": is_running and all(loop.is_available for loop in self._loops), "workers": self._rows()}


class Service(LoopService):
    """A worker for each job, each with its own threads.

    Args:
        jobs: the pipelines and their queues.
        grace_s: how long a stop waits for running handlers, in seconds.
        is_final: whether the input is complete, so that messages that wait for a later one are released once all queues
            are empty.

    Raises:
        InputError: if there is no job, two of them run the same pipeline over the same queue or, with ``is_final``, no
            pipeline has times.
    """

    def __init__(self, jobs: Sequence[Job], *, grace_s: float = limits.WORKER_GRACE_S, is_final: bool = False) -> None:
        if not jobs:
            raise InputError("nothing to run; pass a pipeline and a queue, or --config with [[pipelines]]")
        names = [(job.pipeline.name, job.queue.name, job.database) for job in jobs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise InputError(
                f"two jobs run the pipeline {repeated[0]!r} on {repeated[1]!r}; raise its concurrency instead"
            )
        if is_final and not any(job.pipeline.order.has_times for job in jobs):
            all_names = ", ".join(job.pipeline.name for job in jobs)
            raise InputError(f"final needs a pipeline with the order Timestamp; given: {all_names}; leave final out")
        self._jobs, self._is_final = jobs, is_final
        self._workers = [
            Worker(job.pipeline, job.queue, concurrency=job.concurrency, deliver=job.deliver, grace_s=grace_s)
            for job in jobs
        ]
        super().__init__(self._workers)

    @override
    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"pipeline": job.pipeline.name, "database": job.database, "queue": job.queue.name} | counted(worker.counts)
            for job, worker in zip(self._jobs, self._workers, strict=True)
        ]

    @override
    def _finish(self) -> None:
        for worker in self._upstream_first() if self._is_final else ():
            worker.is_final = True
            self._drain()

    def _upstream_first(self) -> list[Worker]:
        """Return the workers of orders by time, each after the workers that send to its queue."""
        remaining, ordered = list(zip(self._workers, self._jobs, strict=True)), list[Worker]()
        while remaining:
            targets = {(job.database, target_of(job.deliver)) for _, job in remaining}
            free = (pair for pair in remaining if (pair[1].database, pair[1].queue.name) not in targets)
            first = next(free, remaining[0])  # pipelines in a circle have no first one
            remaining.remove(first)
            ordered += [first[0]] if first[1].pipeline.order.has_times else []
        return ordered


def status_of(service: LoopService) -> dict[str, Any]:
    """Return the status of a service, and the measurements of its process, as its parent needs them."""
    return service.status() | {"measures": measures.workers(), "is_done": service.is_done}


def counted(counts: Counts) -> dict[str, int]:
    """Return counts as a flat record."""
    names = ("received", "released", "applied", "duplicate", "stale", "held")
    return {name: getattr(counts, name) for name in names} | {"rejected": sum(counts.rejected.values())}
