"""PostgreSQL while another transaction stays open: no dead row is removed, and what a message costs stays the same."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import psycopg
import pytest

import inturn
from inturn.database import Database
from inturn.queue import Queue, QueueSettings, draft
from inturn.store.postgres import statements
from inturn.store.postgres.connection import connect

QUEUE_SQL = "".join((files("inturn.store") / name).read_text() for name in ("postgres/queue.sql", "sql/queues.sql"))
HOT = set(re.findall(r"^-- name: (\w+)$", QUEUE_SQL, re.MULTILINE)) - {
    "queues",
    "groups",
    "group",
    "ungrouped",
    "deferred",
    "spans_begun_after",
    "attempt",
    "group_status_counts",
    "outbox_metrics",
}
"""All but what is asked by people or a retry, or looks at all there is since it is about all there is."""


@contextmanager
def held(url: str, *, writes: bool) -> Iterator[psycopg.Connection[Any]]:
    """Another transaction stays open: it keeps its snapshot and, if it writes, it has a number too."""
    with psycopg.connect(url) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("create temporary table written (id int)" if writes else "select 1 from inturn_meta")
        yield connection
        connection.rollback()


def go(queue: Queue, messages: int, groups: int) -> None:
    """Each message is sent, received and acknowledged before the next."""
    for number in range(messages):
        queue.send(number, group=f"g{number % groups}")
        (message,) = queue.receive()
        assert message.body == number
        message.ack()


def read_of(db: Database, url: str) -> Counter[str]:
    """How many entries of each index inturn's connection has gone through in all."""
    db.store._connection.execute("select pg_stat_force_next_flush()")  # type: ignore[attr-defined]
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(
            "select indexrelname, idx_tup_read from pg_stat_user_indexes where schemaname = current_schema()"
        )
        return Counter(dict(cursor.fetchall()))


def read(db: Database, url: str) -> int:
    """How many in all indices."""
    return read_of(db, url).total()


@pytest.mark.parametrize("groups", [1, 50])
@pytest.mark.parametrize("writes", [False, True])
def test_the_cost_of_a_message_does_not_grow_with_dead_rows(postgres_url: str, writes: bool, groups: int) -> None:
    ticks = itertools.count(10**12, 10)
    with inturn.open(postgres_url, clock=lambda: next(ticks)) as db, held(postgres_url, writes=writes):
        queue = db.queue("q", QueueSettings(visibility_timeout_s=0.2))  # so that deadlines pass meanwhile
        spent = []
        for _ in range(3):
            before = read(db, postgres_url)
            go(queue, 200, groups)
            spent.append((read(db, postgres_url) - before) / 200)
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute("analyze")  # as autovacuum would: it sees two live rows at most
    assert spent[-1] < 2 * spent[0] + 10, spent


def test_expired_dedup_ids_are_not_scanned_again(postgres_url: str) -> None:
    now = 10**12
    with inturn.open(postgres_url, clock=lambda: now) as db, held(postgres_url, writes=False):
        queue = db.queue("q", QueueSettings(dedup_window_s=60))
        spent = []
        for chunk in range(4):
            before = read(db, postgres_url)
            for number in range(150):
                now += 60_000
                queue.send(number, dedup_id=f"{chunk}-{number}")
                queue.ack(queue.receive())
            spent.append((read(db, postgres_url) - before) / 150)
    assert spent[-1] < 1.5 * spent[1] + 10, spent


def fail(queue: Queue, messages: int, failing: int) -> None:
    """As many groups always fail: their messages, and all that are sent, are received one by one."""
    for number in range(messages):
        queue.send("good", group=f"g{number % 7}")
        while (message := queue.receive()[0]).body == "bad":
            message.nack()
        message.ack()
        for _ in range(failing):
            (message,) = queue.receive()
            assert message.body == "bad"
            message.nack()


@pytest.mark.parametrize("failing", [1, 5])
def test_repeated_nacks_do_not_grow_the_ready_queue_scan(postgres_url: str, failing: int) -> None:
    """Their places in the line are not gone through again; the versions of their one message are, which it has."""
    ticks = itertools.count(10**12, 10)
    with inturn.open(postgres_url, clock=lambda: next(ticks)) as db, held(postgres_url, writes=True):
        queue = db.queue("q")
        queue.send_many([draft("bad", group=f"bad{n}") for n in range(failing)])
        spent = []
        for _ in range(3):
            before = read_of(db, postgres_url)
            fail(queue, 100 // failing, failing)
            spent.append((read_of(db, postgres_url) - before)["inturn_ready_place"] / 100)
    assert min(spent[1:]) < 1.5 * spent[0] + 10, spent


@pytest.mark.parametrize("grouped", [False, True])
def test_messages_waiting_behind_a_nacked_group_do_not_raise_its_cost(postgres_url: str, grouped: bool) -> None:
    """Those have a place in the line too: the next messages of groups of which the first were acknowledged later."""
    with inturn.open(postgres_url, clock=lambda: 10**12) as db, held(postgres_url, writes=False):
        queue = db.queue("q")
        groups = [f"g{n}" for n in range(300)]
        queue.send_many([draft(1, group=group) for group in groups])
        firsts = queue.receive(300)
        queue.send_many([draft(2, group=group) for group in groups])
        queue.send("bad", group="bad")
        queue.receive(group="bad")[0].nack()
        queue.ack(firsts)
        spent = []
        for part in (groups[:100], groups[100:200], groups[200:]):
            before = read(db, postgres_url)
            for group in part:
                (message,) = queue.receive(group=group) if grouped else queue.receive()
                message.ack()
            spent.append((read(db, postgres_url) - before) / 100)
    assert min(spent[1:]) < 1.5 * spent[0] + 10, spent


@pytest.mark.parametrize("given_back", [False, True])
def test_places_removed_by_receive_with_group_lie_before_the_scan_start(postgres_url: str, given_back: bool) -> None:
    """Groups were received by their names: their places are dead, and those of nobody who is received next."""
    with inturn.open(postgres_url, clock=lambda: 10**12) as db, held(postgres_url, writes=False):
        queue = db.queue("q")
        groups = [f"g{n}" for n in range(300)]
        queue.send_many([draft(n, group=group) for n, group in enumerate(groups)])
        if given_back:
            queue.nack(queue.receive(300))
        for group in groups:
            queue.ack(queue.receive(group=group))
        assert queue.receive() == []
        with psycopg.connect(postgres_url) as other:
            (bounds,) = other.execute(
                "select ready_from > listed_to, ready_after_rank > last_requeue_rank from inturn_receiver"
                " order by version desc limit 1"
            )
    assert bounds == (True, True if given_back else None)


# --- plans ---


def plans(url: str) -> dict[str, list[str]]:
    """How each statement looks things up: by which indices, with which conditions."""
    connection, _ = connect(url)
    by_name = {}
    with connection:
        for name in sorted(HOT):
            rows = connection.execute(f"explain (generic_plan) {statements._SQL[name]}".encode()).fetchall()
            text = "\n".join(line for (line,) in rows)
            assert "Seq Scan" not in text, f"{name}:\n{text}"
            scans = re.findall(r"(?:Index|Index Only|Tid) Scan .*\n.*", text)
            for scan in scans:
                assert re.search(r"Index Cond|TID Cond", scan), f"{name} walks an index:\n{text}"
            plain = (re.sub(r" \w+  \(cost=.*\)|InitPlan \d+|\$\d+", "", scan) for scan in scans)
            by_name[name] = sorted(" ".join(step.split()) for step in plain)
    return by_name


def test_query_plans_do_not_change_with_the_table_contents(empty_postgres_url: str) -> None:
    """Nothing there; a row or two, beside dead ones that nobody may remove; and very many."""
    url = empty_postgres_url
    with inturn.open(url, durable=False) as db, psycopg.connect(url, autocommit=True) as other:
        queue = db.queue("q", QueueSettings(retention_s=1000))
        results = [plans(url)]
        for live in (0, 1, 2):
            with held(url, writes=False):
                queue.send_many([draft(n, group=f"g{n}", dedup_id=f"{live}-{n}") for n in range(1_000)])
                messages = queue.receive(1_000)
                queue.ack(messages[live:])
                other.execute("analyze")
                results.append(plans(url))
                queue.ack(messages[:live])
        for given_back in (1, 1_000):  # places in the line
            with held(url, writes=False):
                queue.send_many([draft(n, group=f"g{n}") for n in range(1_000)])
                messages = queue.receive(1_000)
                queue.nack(messages[:given_back])
                queue.ack(messages[given_back:])
                messages = queue.receive(1_000)
                other.execute("analyze")
                results.append(plans(url))
                queue.nack(messages)
                queue.receive(1)
                other.execute("analyze")
                results.append(plans(url))
        for start in range(0, 20_000, 2_000):
            queue.send_many([draft(start, group=str(n % 100), dedup_id=str(start + n)) for n in range(2_000)])
        queue.receive(1_000)
        other.execute("analyze")
        results.append(plans(url))
    changed = [
        f"{name}: {results[0][name]} becomes {plan[name]}"
        for plan in results
        for name in HOT
        if plan[name] != results[0][name]
    ]
    assert not changed, "\n".join(changed)
