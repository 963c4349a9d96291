"""The check of sources passes those that keep the rules and names what a broken one does."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest

from ingest.scripted import Log, Scripted
from inturn.ingest import FolderSource, OutboxSource, Source, SourceRecord
from inturn.testing import SourceFault, source

SEEDS = range(1, 11)


def writer(log: Log) -> Callable[[Sequence[int]], None]:
    def produce(numbers: Sequence[int]) -> None:
        for n in numbers:
            log.partitions[("p", "q", "r")[n % 3]].append(b'{"n": %d}' % n)

    return produce


@pytest.mark.parametrize("seed", SEEDS)
def test_a_correct_source_passes_the_source_check(seed: int) -> None:
    log = Log(p=[], q=[], r=[])
    source(lambda: Scripted(log), writer(log), seed=seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_folder_source_passes_the_source_check(tmp_path: Path, seed: int) -> None:
    def produce(numbers: Sequence[int]) -> None:
        new = tmp_path / f".{numbers[0]:06}.jsonl"
        new.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        new.rename(tmp_path / new.name[1:])

    source(lambda: FolderSource(tmp_path), produce, seed=seed, steps=60)


@pytest.mark.thorough
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_outbox_source_passes_the_source_check(
    tmp_path: Path, kind: str, deletes: bool, request: pytest.FixtureRequest
) -> None:
    place: Any = tmp_path / "app.db"
    connection: Any
    if kind == "postgres":
        place = request.getfixturevalue("empty_postgres_url")
        connection = psycopg.connect(place, autocommit=True)
        connection.execute("create table o (id bigserial, xid xid8 not null default pg_current_xact_id(), n int)")
    else:
        connection = sqlite3.connect(place, isolation_level=None)
        connection.execute("create table o (id integer primary key autoincrement, n int)")

    def produce(numbers: Sequence[int]) -> None:
        for n in numbers:
            connection.execute(f"insert into o (n) values ({n})")  # noqa: S608 - a number

    source(lambda: OutboxSource(place, "o", delete=deletes), produce, steps=60)
    connection.close()


class Forgetful(Scripted):
    """It loses a record where it is opened again."""

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, position and position + (position % 5 == 0))


class Repeating(Scripted):
    """It begins one record before where it is opened."""

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, position and position - (position % 5 == 0))


class Ahead(Scripted):
    """What it has polled and nobody has committed is not polled again by another one."""

    read: ClassVar[dict[str, int]] = {}

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, max(position or 0, self.read.get(partition, 0)) if position else position)

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        records = super().poll(limit, timeout_s)
        Ahead.read = Ahead.read | self.at if len(records) == limit else Ahead.read
        return records


class Reordering(Scripted):
    """Within a poll the last comes first."""

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        return super().poll(limit, timeout_s)[::-1]


class Greedy(Scripted):
    """It gives one record more than asked for."""

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        return super().poll(limit + 1, timeout_s)


class Deaf(Scripted):
    """It goes on reading what was closed."""

    def close(self, partition: str) -> None:
        pass

    def open(self, partition: str, position: Any) -> None:
        self.at[partition] = position or 0


class Renamed(Scripted):
    """Each of its objects says another incarnation."""

    def incarnation(self, partition: str) -> str:
        return str(id(self))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS[:3])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Forgetful, "are lost|returns .* after .*, but .* when opened"),
        (Repeating, "returned again after its commit|returns .* after .*, but .* when opened"),
        (Ahead, "are lost|when opened at"),
        (Reordering, "returned after record|when opened at"),
        (Greedy, "poll.* returned . records"),
        (Deaf, "instance . returned a record of '.', which it has not opened"),
        (Renamed, "the incarnation of '.' changed from"),
    ],
)
def test_a_broken_source_is_reported_with_its_fault_and_schedule(kind: type[Scripted], why: str, seed: int) -> None:
    log = Log(p=[], q=[], r=[])
    Ahead.read = {}
    with pytest.raises(SourceFault, match=f"(?s)({why}).*seed {seed}, the schedule:\n    1 produce 0 to ") as error:
        source(lambda: kind(log), writer(log), seed=seed, patience_s=0.2)
    log.partitions = {"p": [], "q": [], "r": []}
    Ahead.read = {}
    with pytest.raises(SourceFault) as repeated:
        source(lambda: kind(log), writer(log), seed=seed, patience_s=0.2)
    if kind is not Renamed:
        assert str(repeated.value) == str(error.value), "the seed gives the same again"


class Broker:
    """A queue of acknowledgements: what is not acknowledged comes again to the next reader."""

    def __init__(self) -> None:
        self.waiting: list[int] = []

    def put(self, numbers: Sequence[int]) -> None:
        self.waiting += numbers

    def client(self, *, loses: bool = False) -> "Client":
        return Client(self, loses=loses)


class Client(Source):
    def __init__(self, broker: Broker, *, loses: bool) -> None:
        self.broker, self.loses = broker, loses
        self.taken: list[int] = []
        self.is_open = False

    def partitions(self) -> Sequence[str]:
        return ["q"]

    def open(self, partition: str, position: Any) -> None:
        self.is_open = True

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        numbers, self.broker.waiting = self.broker.waiting[:limit], self.broker.waiting[limit:]
        self.taken += numbers
        return [SourceRecord("q", None, b'{"n": %d}' % n) for n in numbers]

    def confirm(self, partition: str, position: Any) -> None:
        self.taken = []

    def close(self, partition: str) -> None:
        if not self.loses:
            self.broker.waiting = sorted(self.taken + self.broker.waiting)
        self.taken = []

    def shutdown(self) -> None:
        self.close("q")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_redelivering_broker_passes_and_a_losing_broker_fails_the_source_check(seed: int) -> None:
    broker = Broker()
    source(broker.client, broker.put, seed=seed, redelivers=True)
    broken = Broker()
    with pytest.raises(SourceFault, match="are lost"):
        source(
            lambda: broken.client(loses=True),
            broken.put,
            seed=seed,
            redelivers=True,
            patience_s=0.2,
        )
