"""What the line of ready groups asks of PostgreSQL reads indices from a place on, whatever is in the tables."""

import re

import pytest

import inturn
from inturn.store.postgres.connection import connect
from inturn.store.postgres.statements import text_of

FILL = """
insert into inturn_ready (sequence_number, grp, place, rank)
select (1::bigint << 44) + n, 'g' || n, case when n % 2 = 0 then (1::bigint << 44) + 100000 end, n
from generate_series(1, 20000) n;
insert into inturn_message (sequence_number, queue, grp, body, content, sent_ms)
select (1::bigint << 44) + n, 1, 'g' || n, '', 0, 0 from generate_series(1, 20000) n;
insert into inturn_hold (sequence_number, queue, grp, attempts, since_ms, deferred)
select (1::bigint << 44) + n, 1, 'g' || n, 1, 0, false from generate_series(2, 20000, 2) n;
set lock_timeout = '30s'; -- the server may be analyzing by itself
analyze
"""
NAMES = [
    "next_heads",
    "next_heads_unplaced",
    "next_ready_group",
    "refresh",
    "refresh_unplaced",
    "refresh_unplaced_ungrouped",
    "add_returned_rechecks",
    "has_work",
    "save_receiver",
    "mark_first_requeue",
    "list_ready_by_priority",
    "refresh_by_priority",
    "remove_ready_head",
]


@pytest.mark.parametrize("full", [False, True])
def test_no_ready_queue_statement_scans_a_postgres_table(empty_postgres_url: str, full: bool) -> None:
    """A plan may be made when the tables are empty, and used when they are full."""
    inturn.open(empty_postgres_url, durable=False).queue("q")
    connection, _ = connect(empty_postgres_url)
    with connection:
        if full:
            for statement in FILL.split(";"):
                connection.execute(statement.encode())
        for name in NAMES:
            plan = connection.execute(f"explain (generic_plan) {text_of(name)}".encode()).fetchall()
            text = "\n".join(line for (line,) in plan)
            assert "Seq Scan" not in text, f"{name}:\n{text}"
            assert text.count("Index Cond") == len(re.findall(r"Index (?:Only )?Scan", text)), f"{name}:\n{text}"
            if name in {"next_heads", "next_ready_group"}:
                assert "inturn_ready_place" in text, text
