"""The figures of a database for the metrics: of its queues, pipelines, outboxes and sources."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from inturn.core import limits
from inturn.core.errors import InturnError
from inturn.telemetry.events import EventLogger

_LOG = EventLogger("telemetry")


class QueueFigures(NamedTuple):
    """The figures of a queue.

    Attributes:
        queue: name of the queue.
        messages: number of messages that are not acknowledged.
        in_flight: number of them that are leased.
        delayed: number of them that are hidden for a time and not leased.
        oldest_s: time since the send of the oldest of them, in seconds; 0 without any.
        blocked: number of groups with hidden messages of which none can be received now.
        parked: number of parked groups.
    """

    queue: str
    messages: int
    in_flight: int
    delayed: int
    oldest_s: float
    blocked: int
    parked: int

    @classmethod
    def from_numbers(
        cls, now_ms: int, queue: str, messages: tuple[int, int, int], oldest_ms: int | None, blocked: int, parked: int
    ) -> Self:
        """Return the figures at a time, with the numbers of messages; ``oldest_ms`` is when the oldest one was sent."""
        oldest_s = 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000
        return cls(queue, *messages, oldest_s, blocked, parked)


class PipelineFigures(NamedTuple):
    """The figures of a pipeline; at most ``limits.FIGURES_ROWS`` groups, and outputs, are counted.

    Attributes:
        pipeline: name of the pipeline.
        counts: counts of its messages by verdict; those of rejected ones by reason.
        groups: numbers of groups by status, without the open ones.
        held: number of messages held by these groups.
        oldest_held_s: time for which the oldest of them has been held, in seconds; 0 without any.
        outputs: number of outputs that are not delivered.
        oldest_output_s: age of the oldest of them, in seconds; 0 without any.
        failing: number of groups whose delivery has failed.
    """

    pipeline: str
    counts: Mapping[str, Any]
    groups: Mapping[str, int]
    held: int
    oldest_held_s: float
    outputs: int
    oldest_output_s: float
    failing: int

    @classmethod
    def from_rows(
        cls,
        now_ms: int,
        pipeline: str,
        counts: Mapping[str, Any],
        standing: Iterable[tuple[str, int, int, int | None]],
        outbox: tuple[int, int | None, int],
    ) -> Self:
        """Return the figures at a time; the rows are of ``group_status_counts`` and ``outbox_metrics``."""
        rows = list(standing)
        oldest_us = min((row[3] for row in rows if row[3] is not None), default=now_ms * 1000)
        outputs, made_ms, failing = outbox
        return cls(
            pipeline,
            counts,
            {status: count for status, count, *_ in rows},
            sum(row[2] for row in rows),
            max(0, now_ms - oldest_us / 1000) / 1000,
            outputs,
            0.0 if made_ms is None else max(0, now_ms - made_ms) / 1000,
            failing,
        )


class SourceFigures(NamedTuple):
    """The figures of a partition of a source, or the sums of all of them if there are many.

    Attributes:
        source: name of the source.
        partition: name of the partition; ``*``: all, since there are more than ``limits.FIGURES_PARTITIONS``.
        partitions: number of partitions by status: ``read``, ``unread`` (no instance owns it), ``finished`` (read
            to its end, as a file), ``paused``, ``refused`` (its note says why).
        received: number of records that became messages.
        rejected: number of records that were rejected.
        dropped: number of these that were not stored, because the source reached its limit.
        moved: number of messages that wait for a decision, because their group was read from another partition before.
        lag: number of unread records when its owner last checked; None: unknown.
        age_s: time since the last committed record was written, in seconds; 0 if all is read; None: unknown. Of
            several partitions, the greatest.
        idle_s: time since the position last changed, in seconds; None: never. Of several partitions, the least.
    """

    source: str
    partition: str
    partitions: Mapping[str, int]
    received: int
    rejected: int
    dropped: int
    moved: int
    lag: int | None
    age_s: float | None
    idle_s: float | None

    @classmethod
    def from_row(cls, now_ms: int, row: Sequence[Any]) -> Self:
        """Return the figures at a time; the row is that of the statement ``source_metrics``."""
        source, partition, *counts, received, rejected, dropped, moved, lag, oldest_ms, moved_ms = row
        partitions = dict(zip(("read", "unread", "finished", "paused", "refused"), counts, strict=True))
        age_s = 0.0 if lag == 0 else None  # `oldest_ms` covers the partitions that may have unread records
        if oldest_ms is not None:
            age_s = max(0, now_ms - oldest_ms) / 1000
        idle_s = max(0, now_ms - moved_ms) / 1000 if moved_ms else None
        return cls(source, partition, partitions, received, rejected, dropped, moved, lag, age_s, idle_s)


class Figures(NamedTuple):
    """The figures of all queues, pipelines and sources of a database."""

    queues: Sequence[QueueFigures]
    pipelines: Sequence[PipelineFigures]
    sources: Sequence[SourceFigures] = ()


class HasFigures(Protocol):
    """A database, as :func:`inturn.open` returns it.

    Attributes:
        name: its name in the labels.
    """

    name: str

    @property
    def figures(self) -> Callable[[], Figures]:
        """The function that reads its figures."""
        ...


class FiguresReader:
    """The figures of databases, each read at most once in ``limits.FIGURES_S``, however often they are requested."""

    def __init__(self, databases: Iterable[HasFigures]) -> None:
        self._databases = list(databases)
        self._mutex = threading.Lock()
        self._figures: dict[str, Figures] = {}
        self._until = 0.0

    def read(self) -> dict[str, Figures]:
        """Return the figures by the databases' names; a database that cannot be read is left out, with a warning."""
        with self._mutex:
            if time.monotonic() >= self._until:
                self._figures = {}
                for database in self._databases:
                    try:
                        self._figures[database.name] = database.figures()
                    except InturnError as error:
                        text = "cannot read the figures of database %(database)s: %(error)s"
                        _LOG.warning("unreadable", database.name, text, database=database.name, error=str(error))
                self._until = time.monotonic() + limits.FIGURES_S
            return self._figures
