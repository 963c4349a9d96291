"""What pipelines, keys, producers and the log ask of PostgreSQL looks through no table, whatever is in it."""

import re
from importlib.resources import files
from typing import Any

import psycopg
import pytest

import inturn
from inturn.store.postgres import PostgresStore
from inturn.store.postgres.connection import connect
from inturn.store.postgres.statements import text_of
from inturn.store.records import GroupRecord, GroupUpdate, HeldRecord, OutputRecord, PipelineInfo

OWN = [f"postgres/{name}" for name in ("pipelines", "keys", "log", "kept_log", "producers")]
NAMES = [
    name
    for file in (*OWN, "sql/pipelines", "sql/queues")
    for name in re.findall(r"^-- name: (\w+)$", (files("inturn.store") / f"{file}.sql").read_text(), re.MULTILINE)
    # all of a few; what has no table to look through; what counts all, for a person; what ends at the first row that
    # is not refused, and is asked only while a worker drains its queue; figures, up to a limit; what an erasure changes
    if name
    not in {
        "pipelines",
        "add_pipeline",
        "key_token",
        "summary",
        "has_undelivered",
        "set_due",
        "group_status_counts",
        "outbox_metrics",
        "rewrite_decision",
    }
]

SHORT = "inturn_outbox_note_pkey|inturn_outbox_failing|inturn_decision_new|inturn_decision_pkey|inturn_rejected_number"
"""What is read from its beginning or its end, as far as is asked for."""


def fill(url: str, rows: int) -> None:
    """Groups that hold a message each and have an output on its way, and as many keys."""
    store = PostgresStore(url, durable=False)
    with store.transaction():
        info = PipelineInfo(0, "p")
        store.pipelines.save(info)
        for start in range(0, rows, 5_000):
            updates = [
                GroupUpdate(
                    GroupRecord(f"g{n}", 0, "open", b"", b"", 1, 5, n),
                    [HeldRecord(0, 1, "", f"{n}", 5, b"", "{}")],
                    (),
                    [OutputRecord(0, f"g{n}", None, 1, None, 0, f"{n}", "{}")],
                )
                for n in range(start, start + 5_000)
            ]
            store.pipelines.save_updates(info, updates, [], 0)
        store.pipelines.claim(info, 1_000, 1, 10**12, 1)
        store.execute("insert into inturn_key select 's', n::text, '{}', n from generate_series(1, %s) n", (rows,))
    store.close()


def empty(url: str, left: int) -> None:
    """Leave so many rows in each table."""
    with psycopg.connect(url) as connection:
        for (table,) in connection.execute(
            "select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r'"
        ).fetchall():
            if table != "inturn_meta":
                connection.execute(
                    f"delete from {table} where ctid <> all(array(select ctid from {table} limit {left}))".encode()  # noqa: S608
                )


@pytest.mark.parametrize(("rows", "left"), [(0, 0), (5_000, 0), (5_000, 1), (5_000, 2), (20_000, 20_000)])
def test_no_statement_scans_a_postgres_table(empty_postgres_url: str, rows: int, left: int) -> None:
    """A plan may be made when the tables are empty, or have dead rows only, and used when they are full."""
    inturn.open(empty_postgres_url, durable=False).close()
    if rows:
        fill(empty_postgres_url, rows)
    connection, _ = connect(empty_postgres_url)
    with connection, psycopg.connect(empty_postgres_url) as holder:
        holder.execute("select 1 from inturn_meta")
        if left < rows:
            empty(empty_postgres_url, left)
        if rows:
            connection.execute("set lock_timeout = '30s'")  # the server may be analyzing by itself
            connection.execute("analyze")
        wrong = [f"{name}: {scan}" for name in NAMES for scan in wrongly(connection, name)]
        assert not wrong, "\n".join(wrong)


def wrongly(connection: psycopg.Connection[Any], name: str) -> list[str]:
    """How a statement looks through a table."""
    plan = connection.execute(f"explain (generic_plan) {text_of(name)}".encode()).fetchall()
    text = "\n".join(line for (line,) in plan)
    scans = re.findall(r"Seq Scan.*", text)
    for scan in re.findall(r"(?:Index|Index Only|Tid) Scan .*\n.*", text):
        is_all = re.search(r"Index Cond: \(pipeline = \$1\)$", scan)
        if not re.search(r"Index Cond|TID Cond", scan) or (is_all and not re.search(SHORT, scan)):
            scans.append(" ".join(scan.split()))
    return scans
