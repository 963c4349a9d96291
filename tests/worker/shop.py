"""What the tests of the worker share: a queue over any store, messages sent and worked off, and what came of it."""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from clocks import RunningClock
from inturn import Gapless, Pipeline
from inturn.core.identity import canonical
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.replay import Replay
from inturn.core.queue.messages import QueueInfo
from inturn.queue import Queue, QueueSettings, draft
from inturn.results.stored_place import counts_of
from inturn.store.commands import StoreCall
from inturn.store.postgres import PostgresStore
from inturn.store.protocols import QueueAndPipelineStore
from inturn.store.records import StoredDecision
from inturn.store.sqlite import SqliteStore
from inturn.store.writer.group_commit import Writer
from inturn.worker import Worker
from inturn.worker.codec import WorkerStateCodec, timeline_of
from memory_store.store import MemoryStore
from waiting import DEADLINE_S, until

SHOPS: dict[str, Callable[[Path, Callable[[], str]], QueueAndPipelineStore]] = {
    "memory": lambda path, url: MemoryStore(),
    "sqlite": lambda path, url: SqliteStore(str(path), durable=False),
    "postgres": lambda path, url: PostgresStore(url(), durable=False),
}
"""Makes a store of each kind, of a file's path and what gives the address of an empty schema of PostgreSQL."""
Row = dict[str, Any]


def post(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """The handler of most tests: it changes the state in place, and only then looks whether it can."""
    state["balance"] = state.get("balance", 0) + message["amount"]
    state.setdefault("seen", []).append(message["amount"])
    if message["amount"] < 0:
        msg = f"amount {message['amount']} is below zero"
        raise ValueError(msg)
    return state, [{"posted": message["amount"], "balance": state["balance"]}]


def ledger(order: Any = None, handler: Any = post, **more: Any) -> Pipeline:
    return Pipeline(name="ledger", group="account", order=order or Gapless("revision"), handler=handler, **more)


def row(revision: int, amount: int = 1, account: str = "a", **more: Any) -> Row:
    return {"account": account, "revision": revision, "amount": amount, **more}


class Shop:
    """A queue named q over a store, with a clock that goes on by itself and can be moved forth."""

    def __init__(self, kind: str, path: Path = Path(), url: Callable[[], str] = str) -> None:
        self.clock = RunningClock()
        self.store = SHOPS[kind](path, url)
        self.writer = Writer(self.store, self.clock)
        self.queue = Queue(self.writer, "q")

        self.make("q")

    def make(self, name: str) -> None:
        """Make a queue if it does not exist."""

        def make(store: Any, now_ms: int) -> None:
            if name not in store.queues:
                store.save(name, QueueInfo(0, name, QueueSettings(visibility_timeout_s=5), now_ms))

        self.writer.run(StoreCall("", make))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        if isinstance(self.store, SqliteStore | PostgresStore):
            self.store.close()

    def send(self, messages: Iterable[Row], group: str | None = "account") -> None:
        self.queue.send_many([draft(message, group=message[group] if group else None) for message in messages])

    def work(self, pipeline: Pipeline, *, gaps: bool = False, **more: Any) -> Worker:
        """Work off everything that is there."""
        with Worker(pipeline, self.queue, **more) as worker:
            worker.drain(DEADLINE_S)
            if gaps:
                until(lambda: not self.ask(lambda store, number: store.due(number, self.clock() * 1000, 1)))
        return worker

    def ask(self, function: Callable[[Any, int], Any], name: str = "ledger") -> Any:
        """Ask the store about a pipeline, which is named by its number."""
        return self.writer.run(
            StoreCall("", lambda store, _now_ms: function(store.pipelines, store.pipelines.info(name).number))  # type: ignore[attr-defined]
        )

    def decide(self, decision: Any) -> str:
        name = f"{decision.at_us:016d}-{decision.id}"
        text = msgspec.json.encode(decision).decode()
        self.ask(lambda store, number: store.append_decisions(number, [StoredDecision(name, decision.group, text)]))
        return name

    def seen(self, pipeline: Pipeline) -> dict[str, Any]:
        """Everything that is kept of a pipeline."""
        codec = WorkerStateCodec(pipeline)
        records, outputs, rejected, held = self.ask(_everything)
        assert {record.group: record.held for record in records} == {
            group: len(messages) for group, messages in held.items()
        }
        return {
            "states": {record.group: codec.decode(record.state) for record in records},
            "outputs": sorted((output.group, output.effect_id, json.loads(output.output)) for output in outputs),
            "rejected": sorted((rejection.group or "", rejection.reason) for _, rejection in rejected),
            "held": sorted(
                (record.group, record.status, json.loads(message.content)["amount"])
                for record in records
                for message in held[record.group]
            ),
            "status": {record.group: record.status for record in records},
            "errors": {
                record.group: (timeline_of(pipeline, record).error or "").strip().splitlines()[-1:]
                for record in records
            },
        }

    def outputs(self, group: str) -> list[Any]:
        """What a group has put out, in order."""
        outputs = self.ask(lambda store, number: store.outputs(number, 0, 100_000))
        return [json.loads(output.output) for output in outputs if output.group == group]

    def seen_lines(self, pipeline: Pipeline) -> dict[str, Any]:
        """Of each group its state, and how many messages it holds."""
        records = self.ask(lambda store, number: store.list_groups(number, "", 100_000))
        return {record.group: (WorkerStateCodec(pipeline).read(record), record.held) for record in records}

    def counts(self, name: str = "ledger") -> Counts:
        return counts_of(self.writer.run(StoreCall("", lambda store, _now_ms: store.pipelines.info(name))))  # type: ignore[attr-defined]


def _everything(store: Any, number: int) -> tuple[Any, ...]:
    records = store.list_groups(number, "", 100_000)
    held = {record.group: store.held(number, record.group) for record in records}
    return records, store.outputs(number, 0, 100_000), store.rejections(number, 0, 100_000), held


def expected(result: Replay) -> dict[str, Any]:
    """The same of a replay."""
    return {
        "states": result.states,
        "outputs": sorted((o.group, o.effect_id, json.loads(canonical(o.output))) for o in result.outputs),
        "rejected": sorted((rejection.group or "", rejection.reason) for rejection in result.rejected),
        "held": sorted((message.group, message.status, message.message["amount"]) for message in result.held),
        "status": {group: timeline.status.value for group, timeline in result.timelines.items()},
        "errors": {
            group: (timeline.error or "").strip().splitlines()[-1:] for group, timeline in result.timelines.items()
        },
    }


def stepwise(pipeline: Pipeline, messages: Sequence[Row], **more: Any) -> Replay:
    """The replay in the order of the list, each message a step of its own."""
    result = Replay()
    total = Counts()
    for message in messages:
        result = pipeline.replay([message], after=result, **more)
        total.add(result.counts)
    result.counts = total
    return result


class Gate:
    """A handler that waits for some messages until it is let go."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.news = threading.Condition()
        self.open: set[Any] = set()

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
        with self.news:
            assert self.news.wait_for(predicate, timeout_s), self.begun

    def let(self, *names: Any) -> None:
        with self.news:
            self.open.update(names)
            self.news.notify_all()

    def __call__(self, name: Any) -> None:
        with self.news:
            self.begun.append(name)
            self.news.notify_all()
            assert self.news.wait_for(lambda: name in self.open, DEADLINE_S)
