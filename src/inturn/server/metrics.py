"""Prometheus metrics and health of the endpoint and its queues.

The endpoint counts in plain numbers, which become metrics only when a page is requested: a counter of
``prometheus_client`` takes a lock and a microsecond each time. The queues' figures are read from the store at that
time, at most once a second, however many clients ask.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from inturn.core import limits as core_limits
from inturn.core.errors import InturnError
from inturn.core.queue.delivery import SettleAction, SettleResult
from inturn.database import Database
from inturn.server import limits
from inturn.server.failures import Failures
from inturn.store.commands import Ask, Command, Decide, Outcome, Receive, Send, Settle
from inturn.telemetry.collector import buckets, metric
from inturn.telemetry.families import QUEUES, of_pipelines, of_sources
from inturn.telemetry.figures import Figures, QueueFigures

if TYPE_CHECKING:
    from inturn.server.http import HttpServer

_ACK: Final = SettleAction.ACK  # before Python 3.12, access to an enum member takes 0.15 µs
_DONE: Final = SettleResult.DONE
_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, core_limits.COMMANDS_AT_ONCE)


BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the latency histogram's buckets, in seconds; one more bucket lies beyond the last."""


@dataclass
class Latency:
    """The latency histogram of an action: the count of each bucket of :data:`BOUNDS_S`, and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0


class RequestCounts:
    """Request counts and latencies, read by the metrics; changed only in the event loop.

    Attributes:
        requests: counts by action and code. The code is "" for success, else the Query protocol's. The action is "" if
            it could not be read.
        latencies: histograms by action, from the parsed request to the response; a long poll's wait is included.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.latencies: defaultdict[str, Latency] = defaultdict(Latency)

    def add(self, action: str, code: str, took_s: float) -> None:
        """Count an answered request."""
        self.requests[action, code] += 1
        latency = self.latencies[action]
        latency.counts[bisect_left(BOUNDS_S, took_s)] += 1
        latency.sum_s += took_s


class _Traffic:
    """The counts of messages sent to and received from one queue."""

    __slots__ = ("deleted", "duplicates", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.duplicates = self.received = self.deleted = 0


class Metrics:
    """The counters, and the pages that show them; ``front`` is the HTTP server, once it runs."""

    def __init__(
        self,
        db: Database,
        asked: RequestCounts,
        bounds_s: Sequence[float] = BOUNDS_S,
        failures: Failures | None = None,
    ) -> None:
        self.front: HttpServer | None = None
        self._db = db
        self._asked = asked
        self._bounds_s = bounds_s
        self._failures = failures or Failures()
        self._batches = [0] * (len(_SIZES) + 1)
        self._commands = 0
        self._traffic: dict[str, _Traffic] = {}
        self._figures: Callable[[], Awaitable[Figures]] = _TimedCache(self._look, core_limits.FIGURES_S)
        self._health = _TimedCache(self._probe, core_limits.FIGURES_S)

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
            if kind is Ask or kind is Decide:
                continue
            traffic = self._traffic.get(command.queue)
            if traffic is None:
                traffic = self._traffic[command.queue] = _Traffic()
            if kind is Send:
                duplicates = sum([each.duplicate for each in answers])
                traffic.sent += len(answers) - duplicates
                traffic.duplicates += duplicates
            elif kind is Receive:
                traffic.received += len(answers)
            elif isinstance(command, Settle):
                for change, verdict in zip(command.changes, answers, strict=True):
                    traffic.deleted += verdict is _DONE and change.act is _ACK
        if size:
            self._batches[bisect_left(_SIZES, size)] += 1
            self._commands += size

    # --- showing ---

    async def page(self) -> bytes:
        """Return all metrics in Prometheus' text format, ``families.PAGE_TYPE``.

        Raises:
            StoreError: if the store cannot be read.
        """
        figures = await self._figures()
        there = {each.queue for each in figures.queues}
        for gone in self._traffic.keys() - there:
            del self._traffic[gone]
        registry = CollectorRegistry()
        ours = {self._db.name: figures}
        others = map(metric, [*of_pipelines(ours), *of_sources(ours)])
        registry.register(_Families([*self._families(figures.queues), *others]))
        ProcessCollector(registry=registry)
        return await asyncio.to_thread(generate_latest, registry)  # takes long with many queues

    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the store can be written, and a status document; it is public, so it holds no details."""
        try:
            messages, queues = await self._health()
        except (InturnError, TimeoutError) as error:
            self._failures.failed("the store cannot be written", error)
            return False, {"status": "unavailable", "error": "the store cannot be written; see the log"}
        return True, {"status": "ok", "queues": queues, "messages": messages}

    async def _look(self) -> Figures:
        return await self._db.figures.aio()

    async def _probe(self) -> tuple[int, int]:
        async with asyncio.timeout(limits.HEALTH_S):
            return await self._db.writer.arun(Ask("", _written))

    def _families(self, figures: Sequence[QueueFigures]) -> Iterator[Any]:
        for name, what, of, unit in QUEUES:
            values = {each.queue: getattr(each, of) for each in figures}
            yield _gauge(f"inturn_queue_{name}{'_seconds' if unit else ''}", what, values)
        traffic = dict(self._traffic)
        for name, what, of in (
            ("messages_sent", "Messages sent, without duplicates.", "sent"),
            ("messages_received", "Messages received; each delivery of a message counts.", "received"),
            ("messages_deleted", "Messages deleted by their receivers.", "deleted"),
            ("duplicates_dropped", "Messages dropped as duplicates when they were sent.", "duplicates"),
        ):
            counts = {(queue,): getattr(each, of) for queue, each in traffic.items()}
            yield _counter(f"inturn_{name}", what, ["queue"], counts)
        requests = {(action or "unknown", code or "OK"): n for (action, code), n in self._asked.requests.items()}
        yield _counter("inturn_requests", "Requests answered, by action and code.", ["action", "code"], requests)
        seconds = HistogramMetricFamily("inturn_request_seconds", "Duration of requests.", labels=["action"])
        for action, latency in self._asked.latencies.items():
            seconds.add_metric([action or "unknown"], buckets(self._bounds_s, latency.counts), latency.sum_s)
        yield seconds
        if self._commands:  # else `watch` was never called
            sizes = HistogramMetricFamily("inturn_commit_batch_size", "Number of commands per commit.", labels=[])
            sizes.add_metric([], buckets(_SIZES, self._batches), self._commands)
            yield sizes
        if self.front is not None:
            connections = GaugeMetricFamily("inturn_http_connections", "Open connections.")
            connections.add_metric([], self.front.open_connections)
            yield connections
            pending = GaugeMetricFamily("inturn_http_pending_bytes", "Bytes of incomplete and waiting requests.")
            pending.add_metric([], self.front.pending_bytes)
            yield pending
            yield _counter("inturn_http_requests", "Requests received, answered or not.", [], {(): self.front.requests})
            refused = {(str(status),): count for status, count in self.front.refused.items()}
            yield _counter(
                "inturn_http_refused", "Requests refused as malformed, too large or too many.", ["status"], refused
            )


def _written(store: Any, now_ms: int) -> tuple[int, int]:
    """Write to the store; return the number of messages and the number of queues."""
    messages: int = store.servers.written(now_ms)
    return messages, len(store.queues)


class _TimedCache:
    """A cached result with a time to live; concurrent callers wait for the same request."""

    def __init__(self, ask: Callable[[], Any], kept_s: float) -> None:
        self._ask = ask
        self._kept_s = kept_s
        self._asked: asyncio.Task[Any] | None = None
        self._until = 0.0

    async def __call__(self) -> Any:
        if self._asked is None or (self._asked.done() and time.monotonic() >= self._until):
            self._asked = asyncio.ensure_future(self._ask())
            self._asked.add_done_callback(self._note)
        return await asyncio.shield(self._asked)

    def _note(self, _task: "asyncio.Task[Any]") -> None:
        self._until = time.monotonic() + self._kept_s


class _Families(Collector):
    """A collector of metrics that already have their values."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        """Return the metrics."""
        return iter(self._families)


def _gauge(name: str, what: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=["queue"])
    for queue, value in values.items():
        family.add_metric([queue], value)
    return family


def _counter(name: str, what: str, labels: list[str], values: Mapping[Any, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
