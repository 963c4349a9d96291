"""Rejected records that two instances keep at a time, in PostgreSQL: their order, and looks that wait for nobody."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import inturn
from ingest.scripted import Log, Scripted
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl
from inturn.store.sql.sources import SqlSources

BY_POSITION = MessageMapping(group="partition", revision="position")


class Instance:
    """A connection that locks a partition and keeps a rejected record of it, as an instance does in a commit."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]", partition: str) -> None:
        self._connection, self._partition = connection, partition

    def save(self, position: int) -> None:
        self.lock()
        self._connection.execute(
            "insert into inturn_source_rejection (source, name, position, reason, headers, body, exact, rejected_ms)"
            " values ('bank', %s, %s, 'why', '{}', '{}', '\\x9280c0', 0)",  # exact: no headers, no time
            (self._partition, str(position)),
        )

    def lock(self) -> None:
        self._connection.execute(
            "select 1 from inturn_source_partition where source = 'bank' and name = %s for update", (self._partition,)
        )

    def commit(self) -> None:
        self._connection.commit()


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with inturn.open(postgres_url, durable=False) as db:
        db.queue("payments")
        ingest(db).run(until="caught up")
        yield db


@pytest.fixture
def instances(db: Database, postgres_url: str) -> Iterator[tuple[Instance, Instance]]:
    with ExitStack() as stack:
        p, q = (Instance(stack.enter_context(psycopg.connect(postgres_url)), name) for name in "pq")
        yield p, q


def ingest(db: Database) -> Ingest:
    return Ingest(Scripted(Log(p=[], q=[])), db.queue("payments"), BY_POSITION, name="bank")


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek()]


def test_a_late_committed_rejected_record_is_resent_before_later_ones_of_its_partition(
    db: Database, instances: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    p, q = instances
    q.save(1)  # has the first number, and is committed after the second
    p.save(1)
    p.commit()
    read, waiting = SqlSources.rejected_places, [q]

    def places(*arguments: Any) -> Any:
        result = read(*arguments)
        while waiting:
            late = waiting.pop()
            late.commit()
            late.save(2)
            late.commit()
        return result

    monkeypatch.setattr(SqlSources, "rejected_places", places)
    control, rule = SourceControl(db, "bank"), ingest(db).intake
    assert control.resend(rule).sent == 1
    assert control.resend(rule).sent == 2
    assert sent(db) == [("p", 1), ("q", 1), ("q", 2)]


def test_listing_partitions_does_not_wait_for_the_lock_of_an_instance(
    db: Database, instances: tuple[Instance, Instance]
) -> None:
    for instance in instances:
        instance.lock()
    control = SourceControl(db, "bank")
    assert [partition.name for partition in control.partitions()] == ["p", "q"]
