"""Numbered rows of an outbox: no gap and no double, whoever writes at once, and an audit of what came out agrees."""

import json
import random
import sqlite3
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import inturn
from inturn.core.errors import InputError, RevisionMismatch, StoreConflict
from inturn.ingest import Ingest, MessageMapping, OutboxSource
from threads import Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_GROUP = MessageMapping(group="body.group_name", revision="body.revision", body="body.body")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The application's database, with an outbox."""
    place = str(tmp_path / "app.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with closing(connect(place)) as connection, connection:
        inturn.outbox(connection).create()
    return place


def connect(place: str) -> Any:
    return psycopg.connect(place) if "://" in place else sqlite3.connect(place, timeout=60)


def write(place: str, seed: int, lives: int) -> None:
    """Send to several groups in each transaction, in any order, and give some of them up."""
    chance = random.Random(seed)
    with closing(connect(place)) as connection:
        for _ in range(lives):
            if "://" not in place:
                connection.execute("begin immediate")
            with suppress(StoreConflict):
                for group in chance.choices("abcd", k=3):
                    inturn.outbox(connection).send({"seed": seed}, group=group)
                if chance.random() < 0.7:
                    connection.commit()
            connection.rollback()  # of what was given up or refused


def test_concurrent_outbox_writers_with_rollbacks_leave_no_gap_in_revisions(
    place: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    with closing(connect(place)) as connection, connection:
        inturn.outbox(connection).send_many([(group, {}) for group in "dcba"])
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda seed: write(place, seed, 12), range(8)))
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        counts = Ingest(OutboxSource(place, "outbox"), db.queue("q"), BY_GROUP, name="app").run(until="caught up")
        log = db.queue("q").peek(1_000)
    assert counts.received == len(log) > 50
    revisions_of = defaultdict[str, list[int]](list)
    for message in log:
        revisions_of[str(message.group)].append(message.revision or 0)
    for group, revisions in revisions_of.items():
        assert sorted(revisions) == list(range(1, len(revisions) + 1)), group
    check_audit(spark, tmp_path, log)


def test_an_audit_of_revisions_assigned_by_the_queue_proposes_gapless(tmp_path: Path, spark: "SparkSession") -> None:
    with inturn.open(tmp_path / "shop.db", durable=False) as db, ThreadPoolExecutor(8) as threads:
        queue = db.queue("q")
        list(threads.map(lambda n: queue.send({"n": n}, group=f"g{n % 4}", revision="next"), range(200)))
        check_audit(spark, tmp_path, queue.peek(1_000))


def check_audit(spark: "SparkSession", path: Path, log: Any) -> None:
    """Check that the audit calls a log gapless, and that all its messages would be applied."""
    lines = [
        json.dumps({"group": message.group, "revision": message.revision, "at": n}) for n, message in enumerate(log)
    ]
    (path / "log.jsonl").write_text("\n".join(lines))
    report = inturn.spark.audit(spark.read.json(str(path / "log.jsonl")), group="group", order="revision", arrival="at")
    assert report.grade is not None
    assert report.grade.name == "Gapless"
    assert {name for name, count in report.grade.gives.items() if count} == {"applied"}
    assert report.grade.gives["applied"] == len(log)
    assert report.gaps is None or (report.gaps.lost, report.gaps.open) == (0, 0)


def test_an_outbox_send_against_the_lock_order_is_refused_instead_of_waiting(postgres_url: str) -> None:
    with closing(connect(postgres_url)) as first, closing(connect(postgres_url)) as second:
        inturn.outbox(first).create()
        inturn.outbox(first).send_many([("a", {}), ("b", {}), ("c", {})])
        first.commit()
        assert inturn.outbox(first).send({}, group="a") == 2
        assert inturn.outbox(second).send({}, group="b") == 2
        with pytest.raises(StoreConflict, match="holds group 'a', and this one already holds 'outbox b'"):
            inturn.outbox(second).send({}, group="a")
        assert inturn.outbox(second).send({}, group="c") == 2, "the transaction goes on"
        waiting = Running(lambda: inturn.outbox(first).send({}, group="b"))
        second.rollback()
        waiting.end()
        assert inturn.outbox(first).last_revision("b") == 2, "that one was waited for"
        assert inturn.outbox(second).send({}, group="c") == 2
        first.commit()
        assert inturn.outbox(second).send({}, group="b") == 3, "nobody has it, so it is taken though c comes later"


def test_invalid_outbox_arguments_are_refused(place: str) -> None:
    with closing(connect(place)) as connection:
        outbox = inturn.outbox(connection)
        for body, group, text in (
            ("text", "a", "an outbox stores JSON"),
            ({}, None, "has no group"),
            ({}, "", "group"),
        ):
            with pytest.raises(InputError, match=text):
                outbox.send(body, group=group)
        with pytest.raises(RevisionMismatch, match=r"expected_revision is 1, .* group 'a' is 0"):
            outbox.send({}, group="a", expected_revision=1)
        with pytest.raises(InputError, match=r"table is .*expected letters"):
            inturn.outbox(connection, "outbox; drop table x")
    with pytest.raises(InputError, match="tx is 7"):
        inturn.outbox(7)  # type: ignore[arg-type]


def test_an_outbox_connection_in_autocommit_mode_is_refused(place: str) -> None:
    plain: Any = (
        psycopg.connect(place, autocommit=True) if "://" in place else sqlite3.connect(place, isolation_level=None)
    )
    with closing(plain), pytest.raises(InputError, match="autocommit mode"):
        inturn.outbox(plain)
