"""Prometheus metrics and health of the endpoint and its queues.

The endpoint counts in plain numbers, which become metrics only when a page is requested: a counter of
``prometheus_client`` takes a lock and a microsecond each time. The queues' figures are read from the store at that
time, at most once a second, however many clients ask.
"""

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from inturn.core import limits as core_limits
from inturn.core.errors import InturnError
from inturn.core.queue.delivery import SettleAction, SettleResult
from inturn.database import Database
from inturn.serving.http.failures import FailureLog
from inturn.sqs import limits
from inturn.store.commands import Command, Outcome, Receive, Send, Settle, StoreCall, UpdateKey
from inturn.telemetry import families, measures
from inturn.telemetry.collector import page
from inturn.telemetry.families import Family, Kind, histogram
from inturn.telemetry.figures import Figures
from inturn.telemetry.measures import SECONDS, SIZES, Histogram

if TYPE_CHECKING:
    from inturn.serving.http.server import HttpServer

_ACK: Final = SettleAction.ACK  # before Python 3.12, access to an enum member takes 0.15 µs
_DONE: Final = SettleResult.DONE
_TRAFFIC: Final = (
    ("sent_messages", "Messages sent, without duplicates.", "sent"),
    ("received_messages", "Messages received; each delivery of a message counts.", "received"),
    ("acknowledged_messages", "Messages acknowledged by their receivers.", "acknowledged"),
    ("duplicate_messages", "Messages dropped as duplicates when they were sent.", "duplicates"),
)
_HTTP: Final[Sequence[tuple[str, Kind, str, str]]] = (
    ("received_requests", "counter", "Requests received, answered or not.", "requests"),
    ("open_connections", "gauge", "Open connections.", "open_connections"),
    ("pending_bytes", "gauge", "Bytes of incomplete and waiting requests.", "pending_bytes"),
)


class RequestCounts:
    """The durations of answered requests, read by the metrics; changed only in the event loop.

    Attributes:
        durations: histograms by action and code, from the parsed request to the response; a long poll's wait is
            included. The code is "" for success, else the Query protocol's. The action is "" if it could not be read.
    """

    def __init__(self) -> None:
        self.durations: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)

    def add(self, action: str, code: str, took_s: float) -> None:
        """Count an answered request."""
        durations = self.durations[action, code]
        durations.counts[bisect_left(SECONDS, took_s)] += 1
        durations.sum += took_s


class _Traffic:
    """The counts of messages sent to and received from one queue."""

    __slots__ = ("acknowledged", "duplicates", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.duplicates = self.received = self.acknowledged = 0


class Metrics:
    """The counters, and the pages that show them; ``front`` is the HTTP server, once it runs."""

    def __init__(self, db: Database, counts: RequestCounts, failures: FailureLog | None = None) -> None:
        self.front: HttpServer | None = None
        self._db = db
        self._counts = counts
        self._failures = failures or FailureLog()
        self._commits = Histogram(SIZES)
        self._traffic: dict[str, _Traffic] = {}
        self._figures: Callable[[], Awaitable[Figures]] = _TimedCache(self._read_figures, core_limits.FIGURES_S)
        self._health = _TimedCache(self._probe, core_limits.FIGURES_S)
        measures.enable()

    def watch(self, commands: Sequence[Command[Any]], outcomes: Sequence[Outcome]) -> None:
        """Count the results of one transaction of the writer; called by the thread or task that runs the transaction.

        Receives that found nothing and keep waiting are not counted.
        """
        size = 0
        for command, (answers, error) in zip(commands, outcomes, strict=True):
            if error is not None or answers == []:
                continue
            size += 1
            kind = type(command)
            if kind is StoreCall or kind is UpdateKey:
                continue
            traffic = self._traffic.get(command.queue)
            if traffic is None:
                traffic = self._traffic[command.queue] = _Traffic()
            if kind is Send:
                duplicates = sum([answer.duplicate for answer in answers])
                traffic.sent += len(answers) - duplicates
                traffic.duplicates += duplicates
            elif kind is Receive:
                traffic.received += len(answers)
            elif isinstance(command, Settle):
                for change, verdict in zip(command.changes, answers, strict=True):
                    traffic.acknowledged += verdict is _DONE and change.act is _ACK
        if size:
            commits = self._commits
            commits.counts[bisect_left(SIZES, size)] += 1
            commits.sum += size

    # --- showing ---

    async def page(self) -> bytes:
        """Return all metrics in Prometheus' text format, ``families.PAGE_TYPE``.

        Raises:
            StoreError: if the store cannot be read.
        """
        figures = await self._figures()
        existing = {figure.queue for figure in figures.queues}
        for removed in self._traffic.keys() - existing:
            del self._traffic[removed]
        every = [*families.all_families({self._db.name: figures}, measures.workers()), *self.endpoint_families()]
        return await asyncio.to_thread(page, every)  # takes long with many queues

    def endpoint_families(self) -> Iterator[Family]:
        """Yield the metrics that only an endpoint has."""
        db, front, traffic = self._db.name, self.front, dict(self._traffic)
        for name, text, field in _TRAFFIC:
            messages = {(db, queue): getattr(counts, field) for queue, counts in traffic.items()}
            yield Family(f"inturn.queue.{name}", "counter", text, ("database", "queue"), messages)
        durations = {
            (db, action or "unknown", code): duration.values
            for (action, code), duration in self._counts.durations.items()
        }
        labels, text = ("database", "action", "error_type"), "Duration of answered requests."
        yield histogram("inturn.server.request.duration", text, labels, durations)
        commits = {(db,): self._commits.values}
        yield histogram("inturn.server.commit.commands", "Commands per commit.", ("database",), commits)
        for name, kind, text, field in _HTTP:
            number = {} if front is None else {(db,): getattr(front, field)}
            yield Family(f"inturn.server.{name}", kind, text, ("database",), number)
        refused = {} if front is None else {(db, str(status)): count for status, count in front.refused.items()}
        text = "Requests refused as malformed, too large or too many."
        yield Family("inturn.server.refused_requests", "counter", text, ("database", "status_code"), refused)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the store can be written, and a status document; it is public, so it holds no details."""
        try:
            messages, queues = await self._health()
        except (InturnError, TimeoutError) as error:
            self._failures.failed("the store cannot be written", error)
            return False, {"status": "unavailable", "error": "the store cannot be written; see the log"}
        return True, {"status": "ok", "queues": queues, "messages": messages}

    async def _read_figures(self) -> Figures:
        return await self._db.figures.aio()

    async def _probe(self) -> tuple[int, int]:
        async with asyncio.timeout(limits.HEALTH_S):
            return await self._db.writer.arun(StoreCall("", _written))


def _written(store: Any, now_ms: int) -> tuple[int, int]:
    """Write to the store; return the number of messages and the number of queues."""
    messages: int = store.servers.probe_write(now_ms)
    return messages, len(store.queues)


class _TimedCache:
    """A cached result with a time to live; concurrent callers wait for the same request."""

    def __init__(self, read: Callable[[], Any], ttl_s: float) -> None:
        self._read = read
        self._ttl_s = ttl_s
        self._result: asyncio.Task[Any] | None = None
        self._until = 0.0

    async def __call__(self) -> Any:
        if self._result is None or (self._result.done() and time.monotonic() >= self._until):
            self._result = asyncio.ensure_future(self._read())
            self._result.add_done_callback(self._note)
        return await asyncio.shield(self._result)

    def _note(self, _task: "asyncio.Task[Any]") -> None:
        self._until = time.monotonic() + self._ttl_s
