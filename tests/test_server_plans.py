"""What pipelines, idempotency keys and the log ask of PostgreSQL looks through no table, whatever is in it."""

import re
from importlib.resources import files

import pytest

import inturn
from inturn.store.kept import HeldMessage, Kept, Line, MadeOutput, PipelineInfo
from inturn.store.postgres import PostgresStore
from inturn.store.postgres.connection import connect
from inturn.store.postgres.statements import text_of

HERE = files("inturn.store.postgres")
NAMES = [
    name
    for each in ("pipelines", "keys", "log")
    for name in re.findall(r"^-- name: (\w+)$", (HERE / f"{each}.sql").read_text(), re.MULTILINE)
    if name not in {"pipelines", "add_pipeline", "key_token"}  # all of a few; what has no table to look through
]

SHORT = "inturn_posted_pkey|inturn_outbox_failing|inturn_decision_new"
"""What is read from its beginning, as far as is asked for."""


def fill(url: str, rows: int) -> None:
    """Groups that hold a message each and have an output on its way, and as many keys."""
    store = PostgresStore(url, durable=False)
    with store.transaction():
        info = PipelineInfo(0, "p")
        store.pipelines.save(info)
        for at in range(0, rows, 5_000):
            kept = [
                Kept(
                    Line(f"g{n}", 0, "open", b"", b"", 1, 5, n),
                    [HeldMessage(0, 1, f"{n}", 5, b"", "{}")],
                    (),
                    [MadeOutput(0, f"g{n}", None, 1, None, 0, f"{n}", "{}")],
                )
                for n in range(at, at + 5_000)
            ]
            store.pipelines.keep(info, kept, [], 0)
        store.pipelines.claim(info, 1_000, 1, 10**12, 1)
        store.execute("insert into inturn_key select 's', n::text, '{}', n from generate_series(1, %s) n", (rows,))
    store.close()


@pytest.mark.parametrize("rows", [0, 20_000])
def test_no_statement_looks_through_a_table(postgres_url: str, rows: int) -> None:
    """A plan may be made when the tables are empty, and used when they are full."""
    inturn.open(postgres_url, durable=False).close()
    if rows:
        fill(postgres_url, rows)
    connection, _ = connect(postgres_url)
    with connection:
        if rows:
            connection.execute("analyze")
        for name in NAMES:
            plan = connection.execute(f"explain (generic_plan) {text_of(name)}".encode()).fetchall()
            text = "\n".join(line for (line,) in plan)
            assert "Seq Scan" not in text, f"{name}:\n{text}"
            for scan in re.findall(r"(?:Index|Index Only|Tid) Scan .*\n.*", text):
                assert re.search(r"Index Cond|TID Cond", scan), f"{name} walks an index:\n{text}"
                is_all = re.search(r"Index Cond: \(pipeline = \$1\)$", scan)
                assert not is_all or re.search(SHORT, scan), f"{name} looks at all of a pipeline:\n{text}"
