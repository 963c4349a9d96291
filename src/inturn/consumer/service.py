"""Consumers of several queues in one process, until they are stopped; ``inturn consume`` runs it."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from inturn.consumer.consumer import Consumer
from inturn.core.errors import InputError
from inturn.core.override import override
from inturn.worker.service import LoopService


class ConsumerJob(NamedTuple):
    """A consumer, with the names of its handler, database and queue for display."""

    consumer: Consumer
    handler: str
    database: str
    queue: str


class ConsumerService(LoopService):
    """Consumers, each with its own threads.

    Args:
        jobs: the consumers.

    Raises:
        InputError: if there is none, or two of them consume the same queue.
    """

    def __init__(self, jobs: Sequence[ConsumerJob]) -> None:
        if not jobs:
            raise InputError("nothing to run; pass a handler and a queue, or --config with [[consumers]]")
        places = [(job.database, job.queue) for job in jobs]
        repeated = next((job for job in jobs if places.count((job.database, job.queue)) > 1), None)
        if repeated is not None:  # each would get some of the messages, by chance
            raise InputError(
                f"queue {repeated.queue!r} of {repeated.database} has two consumers; use one with a higher concurrency"
            )
        self._jobs = jobs
        super().__init__([job.consumer for job in jobs])

    @override
    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"handler": job.handler, "database": job.database, "queue": job.queue} | asdict(job.consumer.counts)
            for job in self._jobs
        ]
