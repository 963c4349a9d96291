"""The format of the tables: later steps are run once, by whoever opens a database first; other formats are refused.

There is no later step yet, so the tests give a newer version its own, with the formats of later_formats.py.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

import inturn
from inturn.core.errors import StoreError, StoreMismatch
from inturn.store import limits
from inturn.store.postgres import migrate
from inturn.store.postgres.connection import connect_for_inspection as look_at_server
from inturn.store.sql.steps import FIRST, read_steps
from inturn.store.sqlite import connection as sqlite_connection
from inturn.store.sqlite.reader import SqlitePipelineReader
from later_formats import ADDED, BROKEN
from threads import together

ADDING = "create table inturn_later (number integer);\ninsert into inturn_later values (1);\n"
BREAKING = f"-- readable_from: {BROKEN}\nalter table inturn_later rename column number to value;\n"
FAILING = "create table inturn_never (number integer);\ninsert into inturn_nowhere values (1);\n"


class Tables:
    """A database of one kind, and versions of inturn that know later steps.

    Args:
        kind: ``sqlite`` or ``postgres``.
        address: the database, which is empty.
        folder: an empty folder, for the steps.
    """

    def __init__(self, kind: str, address: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.kind, self.address, self.folder, self._patch = kind, address, folder, patch
        self._module: Any = migrate if kind == "postgres" else sqlite_connection

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""
        if self.kind == "postgres":
            with psycopg.connect(self.address) as server:
                cursor = server.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []
        with closing(sqlite3.connect(self.address)) as connection, connection:
            return connection.execute(statement).fetchall()

    def knows(self, steps: dict[int, str] | None = None) -> None:
        """From now on this process has the version with these steps; none: today's."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "schema.sql").write_text((files(f"inturn.store.{self.kind}") / "schema.sql").read_text())
        if steps:
            (self.folder / "migrations").mkdir()
            for number, text in steps.items():
                (self.folder / "migrations" / f"{number:04}.sql").write_text(text)
        self._patch.setattr(self._module, "STEPS", read_steps(self.folder))

    def version(self) -> int:
        """The format that the database has."""
        return int(self.run("select value from inturn_meta where name = 'version'")[0][0])

    def set_version(self, number: int) -> None:
        """Make it a database of another format, as far as its number goes."""
        inturn.open(self.address).close()
        self.run(f"update inturn_meta set value = {number} where name = 'version'")  # noqa: S608 - of this test

    def look(self) -> None:
        """Open it for reads alone."""
        if self.kind == "postgres":
            look_at_server(self.address).close()
        else:
            SqlitePipelineReader(self.address, 60).close()


@pytest.fixture(params=["sqlite", "postgres"])
def tables(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    url = request.getfixturevalue("empty_postgres_url") if request.param == "postgres" else str(tmp_path / "shop.db")
    with monkeypatch.context() as patch:
        yield Tables(request.param, url, tmp_path / "steps", patch)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_schema_steps_start_with_the_first_and_are_in_order(kind: str) -> None:
    first, *later = read_steps(files(f"inturn.store.{kind}"))
    assert (first.number, first.readable_from) == (FIRST, None)
    assert [step.number for step in later] == sorted({step.number for step in later} - set(range(FIRST + 1)))


def test_a_new_database_has_all_schema_steps(tables: Tables) -> None:
    tables.knows({BROKEN: BREAKING, ADDED: ADDING})
    steps = [(step.number, step.readable_from) for step in tables._module.STEPS]
    assert steps == [(FIRST, None), (ADDED, None), (BROKEN, BROKEN)]
    inturn.open(tables.address).close()
    assert tables.version() == BROKEN
    assert tables.run("select value from inturn_later") == [(1,)]


def test_the_first_open_runs_a_new_schema_step_once(tables: Tables) -> None:
    with inturn.open(tables.address) as db:
        db.queue("q").send("kept")
    tables.knows({ADDED: ADDING})

    def depth() -> int:
        with inturn.open(tables.address, create=False) as db:
            return db.queue("q").depth().messages

    assert together(*[depth] * 4) == [1] * 4
    assert tables.version() == ADDED
    assert tables.run("select number from inturn_later") == [(1,)]
    assert depth() == 1


def test_a_failed_schema_step_changes_nothing(tables: Tables) -> None:
    with inturn.open(tables.address) as db:
        db.queue("q").send("kept")
    tables.knows({ADDED: ADDING, BROKEN: FAILING})
    with pytest.raises((StoreError, sqlite3.Error), match="inturn_nowhere"):
        inturn.open(tables.address)
    assert tables.version() == FIRST
    tables.knows({ADDED: ADDING, BROKEN: FAILING.partition("\n")[0]})  # neither table is there
    with inturn.open(tables.address) as db:
        assert [message.body for message in db.queue("q").receive()] == ["kept"]


@pytest.mark.parametrize("tables", ["postgres"], indirect=True)
def test_an_older_postgres_client_continues_after_an_additive_step(tables: Tables) -> None:
    with inturn.open(tables.address) as old:
        queue = old.queue("q")
        queue.send("before")
        tables.knows({ADDED: ADDING})
        inturn.open(tables.address).close()
        tables.knows()
        queue.send("after")
        assert [message.body for message in queue.receive(10)] == ["before", "after"]
    with inturn.open(tables.address, create=False) as old:
        assert old.queue("q").depth().messages == 2
    tables.look()
    assert tables.version() == ADDED


@pytest.mark.parametrize("tables", ["sqlite"], indirect=True)
def test_an_older_version_cannot_write_a_file_of_a_newer_format(tables: Tables) -> None:
    with inturn.open(tables.address) as old:
        queue = old.queue("q")
        tables.knows({ADDED: ADDING})
        inturn.open(tables.address).close()
        tables.knows()
        with pytest.raises(StoreMismatch, match=f"its format is {ADDED}, this one knows {FIRST}; update inturn"):
            queue.send("lost")
    for act in (lambda: inturn.open(tables.address), tables.look):
        with pytest.raises(StoreMismatch, match=f"written by a newer inturn: its format is {ADDED}"):
            act()


@pytest.mark.parametrize("tables", ["postgres"], indirect=True)
def test_an_older_postgres_client_stops_after_a_breaking_step(tables: Tables) -> None:
    with inturn.open(tables.address) as old:
        queue = old.queue("q")
        tables.knows({ADDED: ADDING, BROKEN: BREAKING})
        inturn.open(tables.address).close()
        tables.knows({ADDED: ADDING})
        with pytest.raises(StoreMismatch, match=f"needs a version that knows format {BROKEN}; this one knows {ADDED}"):
            queue.send("lost")
    for act in (lambda: inturn.open(tables.address), tables.look):
        with pytest.raises(
            StoreMismatch, match=f"its format is {BROKEN}, which needs a version that knows format {BROKEN}"
        ):
            act()


def test_read_only_opens_run_no_schema_step(tables: Tables) -> None:
    inturn.open(tables.address).close()
    tables.look()
    tables.knows({ADDED: ADDING})
    with pytest.raises(StoreMismatch, match=r"was written by an older inturn.*; migrate it with inturn\.open"):
        tables.look()
    assert tables.version() == FIRST
    inturn.open(tables.address).close()
    tables.look()


@pytest.mark.parametrize("number", [1, FIRST - 1])
def test_an_unreleased_format_is_refused(tables: Tables, number: int) -> None:
    tables.set_version(number)
    expected = f"has format {number}, of a development version before the first release; .* create a new database"
    for act in (lambda: inturn.open(tables.address), tables.look):
        with pytest.raises(StoreMismatch, match=expected):
            act()
    assert tables.version() == number


@pytest.mark.parametrize("tables", ["postgres"], indirect=True)
@pytest.mark.parametrize("deadlocks", [1, limits.MIGRATION_TRIES - 1, limits.MIGRATION_TRIES])
def test_a_deadlocked_schema_step_is_retried(tables: Tables, deadlocks: int) -> None:
    inturn.open(tables.address).close()
    tables.run("create sequence tries")  # what a rollback does not take back
    deadlock = f"""
    do $$ begin
        if nextval('tries') <= {deadlocks} then raise exception 'deadlock' using errcode = 'deadlock_detected'; end if;
    end $$;
    """
    tables.knows({ADDED: ADDING + deadlock})
    if deadlocks < limits.MIGRATION_TRIES:
        inturn.open(tables.address).close()
        assert (tables.version(), tables.run("select number from inturn_later")) == (ADDED, [(1,)])
        return
    with pytest.raises(StoreError, match=f"gave up after {limits.MIGRATION_TRIES} attempts"):
        inturn.open(tables.address)
    assert tables.version() == FIRST
