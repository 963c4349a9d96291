"""The same parked groups in a database and in a store on Spark, for tests of decisions about them."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import inturn
from inturn import Gapless, Pipeline, Wait
from inturn.core.pipeline.decision_service import DecisionService
from inturn.core.pipeline.dry_run import DryRun
from inturn.core.pipeline.selection import DecisionDraft
from inturn.queue import draft
from inturn.results.inspection import DatabaseInspector
from inturn.spark import advance as spark_advance
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.dry_run import dry_run as spark_dry_run
from inturn.spark.driver.inspection import SparkInspector
from inturn.worker.dry_run import dry_run as worker_dry_run
from inturn.worker.inspection import apply_decisions as worker_settle
from kernel_harness import DAWN, Bench

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
Row = dict[str, Any]


def post(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """Change the state in place, and only then look whether the amount is right."""
    state["balance"] = state.get("balance", 0) + message["amount"]
    if message["amount"] < 0:
        msg = f"amount {message['amount']} is below zero"
        raise ValueError(msg)
    return state, [message["amount"]]


def mended(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """Take amounts below zero too, but for -2."""
    state["balance"] = state.get("balance", 0) + message["amount"]
    if message["amount"] == -2:
        msg = f"{message['account']} again"
        raise KeyError(msg)
    return state, [message["amount"]]


def ledger(handler: Any = post, **more: Any) -> Pipeline:
    order = more.pop("order", None) or Gapless("revision")
    return Pipeline(name="ledger", group="account", order=order, handler=handler, **more)


def waiting(handler: Any = post) -> Pipeline:
    return ledger(handler, on_gap=Wait("10 minutes"))


def row(account: str, revision: int, amount: int = 1) -> Row:
    return {"account": account, "revision": revision, "amount": amount}


class StoredLedger(ABC):
    """A pipeline with its groups in a store; time goes on only as ``pass_time`` says.

    Attributes:
        at: the store, as commands are given it.
    """

    at: str

    @abstractmethod
    def receive(self, pipeline: Pipeline, messages: Sequence[Row]) -> None:
        """Take messages in, and the decisions that are there."""

    @abstractmethod
    def pass_time(self, minutes: int) -> None:
        """Let time pass."""

    @abstractmethod
    def look(self) -> DecisionService:
        """Return a view of the store as it is now."""

    @abstractmethod
    def dry_run(self, pipeline: Pipeline, prepared: DecisionDraft) -> Iterator[DryRun]:
        """Run decisions dry."""

    @abstractmethod
    def settle(self, pipeline: Pipeline) -> None:
        """Take decisions without messages."""

    @abstractmethod
    def outputs(self) -> list[tuple[str, Any]]:
        """Return all outputs so far with their groups, those of a group in order."""

    @abstractmethod
    def rejected(self) -> list[tuple[str | None, str]]:
        """Return the groups and reasons of all rejected messages so far."""

    @abstractmethod
    def content(self) -> Any:
        """Return all that is stored, to see whether it changes."""


class InDatabase(StoredLedger):
    def __init__(self, target: str) -> None:
        self.now_ms = int(DAWN.timestamp() * 1000)
        self.db = inturn.open(target, durable=False, clock=self.clock)
        self.at = f"{target}#ledger"
        self.queue = self.db.queue("q")

    def clock(self) -> int:
        self.now_ms += 1  # so that no two decisions have the same time
        return self.now_ms

    def receive(self, pipeline: Pipeline, messages: Sequence[Row]) -> None:
        self.queue.send_many([draft(message, group=message["account"]) for message in messages])
        inturn.work(pipeline, self.queue, until="empty", concurrency=2)

    def pass_time(self, minutes: int) -> None:
        self.now_ms += minutes * 60_000

    def look(self) -> DatabaseInspector:
        return DatabaseInspector(self.db, "ledger")

    def dry_run(self, pipeline: Pipeline, prepared: DecisionDraft) -> Iterator[DryRun]:
        return worker_dry_run(pipeline, self.look(), prepared)

    def settle(self, pipeline: Pipeline) -> None:
        worker_settle(pipeline, self.look())

    def outputs(self) -> list[tuple[str, Any]]:
        return [(output.group, output.output) for output in self.look().outputs()]

    def rejected(self) -> list[tuple[str | None, str]]:
        return [(rejected.group, rejected.reason) for rejected in self.look().rejected()]

    def content(self) -> Any:
        tables = ["group", "held", "output", "rejected", "decision", "mark", "outbox", "pipeline"]
        with self.db.transaction() as tx:
            return {name: sorted(map(str, tx.execute(f"select * from inturn_{name}"))) for name in tables}  # noqa: S608 - the names above


class OnSpark(StoredLedger):
    def __init__(self, path: Path | None) -> None:
        self.now = DAWN
        self.bench = Bench(ledger(), SCHEMA, root=path)
        self.bench.hash_of = group_hash  # type: ignore[method-assign]  # the true one: inspectors compute it too
        self.at = str(self.bench.root)

    def receive(self, pipeline: Pipeline, messages: Sequence[Row]) -> None:
        self.bench.pipeline = pipeline
        self.bench.step(messages, now=self.now)

    def pass_time(self, minutes: int) -> None:
        self.now += dt.timedelta(minutes=minutes)

    def look(self) -> SparkInspector:
        return SparkInspector(self.bench.root)

    def dry_run(self, pipeline: Pipeline, prepared: DecisionDraft) -> Iterator[DryRun]:
        return spark_dry_run(pipeline, self.look(), prepared, now=self.now)

    def settle(self, pipeline: Pipeline) -> None:
        while True:
            spark_advance(pipeline, store=self.bench.root, now=self.now)
            if not self.bench.store.pending_decisions(self.bench.store.latest()):
                return

    def _rows(self, table: str) -> list[Row]:
        manifests = map(self.bench.store.manifest, self.bench.store.steps())
        return self.bench.rows([file for manifest in manifests for file in getattr(manifest, table)])

    def outputs(self) -> list[tuple[str, Any]]:
        return [(record["group"], msgspec.json.decode(record["output"])) for record in self._rows("outputs")]

    def rejected(self) -> list[tuple[str | None, str]]:
        return [(record["group"], record["reason"]) for record in self._rows("rejected")]

    def content(self) -> Any:
        return {str(path): path.read_bytes() for path in self.bench.root.rglob("*") if path.is_file()}


KINDS = ["sqlite", "postgres", "spark"]


@contextmanager
def stored(kind: str, path: Path | None, url: Callable[[], str]) -> Iterator[StoredLedger]:
    """A ledger without groups, in a store of this kind."""
    if kind == "spark":
        store = OnSpark(path and path / "store")
        with store.bench:
            yield store
        return
    target = url() if kind == "postgres" else ":memory:" if path is None else str(path / "shop.db")
    database = InDatabase(target)
    with database.db:
        yield database
