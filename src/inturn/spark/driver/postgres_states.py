"""The states of a store's groups in a table of PostgreSQL: a row per group, upserted after each step.

The table is a projection of committed steps. One transaction writes the changes of a step and the step's number, which
is the fence: a step that is published again, by any process, changes nothing.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from inturn.core.address import is_address, shown
from inturn.core.errors import InputError, SetupError, StoreError, StoreMismatch
from inturn.spark.tables.changes import StepChanges, changes_after, stored_rows
from inturn.spark.tables.delta_table import PublishProgress
from inturn.spark.tables.group_status import status_of
from inturn.spark.tables.manifest import SparkStore

if TYPE_CHECKING:
    from psycopg import Connection

_COLUMNS: Final = {
    "group": "text primary key",
    "status": "text not null",
    "epoch": "bigint",
    "revision": "bigint",
    "held": "bigint not null",
    "state": "jsonb",
    "step": "bigint not null",
}
_STEPS: Final = """create table if not exists inturn_steps (
    pipeline text, "table" text, step bigint not null, writer text not null, primary key (pipeline, "table")
)"""
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class StatesTable(NamedTuple):
    """A table of PostgreSQL for states.

    Attributes:
        address: the database, perhaps with a password.
        table: name of the table, perhaps with its schema.
    """

    address: str
    table: str

    @classmethod
    def of(cls, target: str) -> Self:
        """Return the table that a target names, such as ``postgresql://me@host/shop#balances``.

        Raises:
            InputError: if it names none.
        """
        address, _, table = target.partition("#")
        if not is_address(address) or not table or not all(table.split(".")) or table.count(".") > 1:
            msg = f"states_to is {shown(target)!r}; expected postgresql://…#TABLE, e.g. postgresql://me@host/shop#balances"
            raise InputError(msg)
        return cls(address, table)

    @property
    def display_name(self) -> str:
        """The target without its password."""
        return f"{shown(self.address)}#{self.table}"


def publish_to_postgres(store: SparkStore, pipeline: str, target: StatesTable) -> PublishProgress:
    """Write the states that missing steps of a pipeline's store changed; the table is created if it is absent.

    Each step is a transaction. The first call writes all groups as the last step left them. In texts of a state NUL
    becomes U+FFFD, since ``jsonb`` cannot hold it.

    Raises:
        SetupError: if psycopg is not installed.
        StoreError: if the store cannot be read or the table cannot be written; the next call continues.
        StoreMismatch: if the table has a step that the store lacks.
    """
    try:
        import psycopg
    except ImportError as error:
        msg = f"PostgreSQL needs psycopg; install it with: pip install 'inturn[postgres]' ({error})"
        raise SetupError(msg) from error
    last = store.latest()
    if last is None:
        return PublishProgress(target.display_name, 0, 0)
    try:
        with psycopg.connect(target.address, autocommit=True) as db:
            _create_tables(db, pipeline, target)
            before = done = _last_published(db, store, pipeline, target, last.step)
            for changes in changes_after(store, done, last):
                with db.transaction():
                    if _last_published(db, store, pipeline, target, last.step) < changes.manifest.step:
                        _write(db, store, pipeline, target, changes)
    except psycopg.Error as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        msg = f"cannot write the states to {target.display_name}: {reason}; the store is complete, and the next step "
        raise StoreError(msg + "adds the rest") from error
    return PublishProgress(target.display_name, before, last.step)


def _create_tables(db: "Connection", pipeline: str, target: StatesTable) -> None:
    from psycopg import sql

    columns = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(k)) for n, k in _COLUMNS.items())
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(hashtext('inturn_steps'))")  # concurrent creation of a table fails
        db.execute(_STEPS)
        db.execute(sql.SQL("create table if not exists {} ({})").format(_name(target), columns))
        has = db.execute(sql.SQL("select * from {} limit 0").format(_name(target))).description or ()
        if missing := [name for name in _COLUMNS if name not in {column.name for column in has}]:
            remedy = "name a table that inturn created, or one that does not exist yet"
            raise InputError(f"{target.display_name} has no column {missing[0]!r}; {remedy}")
        db.execute("insert into inturn_steps values (%s, %s, 0, '') on conflict do nothing", (pipeline, target.table))


def _last_published(db: "Connection", store: SparkStore, pipeline: str, target: StatesTable, last: int) -> int:
    """Return the last published step, locked until the end of the transaction."""
    query = 'select step, writer from inturn_steps where pipeline = %s and "table" = %s for update'
    step, writer = db.execute(query, (pipeline, target.table)).fetchone() or (0, "")
    if step and (step > last or store.manifest(step).writer != writer):
        raise StoreMismatch(
            f"{target.display_name} has the states of step {step} of another run than {store.location}: the store was "
            f"restored from an older copy, or is a different one. To start over, drop the table {target.table}, "
            "and delete its row in inturn_steps"
        )
    return int(step)


def _write(db: "Connection", store: SparkStore, pipeline: str, target: StatesTable, changes: StepChanges) -> None:
    from psycopg import sql

    names = [sql.Identifier(name) for name in _COLUMNS]
    changed = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names[1:])
    parts = {"table": _name(target), "names": sql.SQL(", ").join(names), "changed": changed}
    new = "create temporary table inturn_new on commit drop as select {names} from {table} limit 0"
    db.execute(sql.SQL(new).format(**parts))
    with db.cursor() as cursor, cursor.copy(sql.SQL("copy inturn_new ({names}) from stdin").format(**parts)) as copy:
        for row in _rows(store, changes):
            copy.write_row(row)
    upsert = (
        'insert into {table} ({names}) select {names} from inturn_new on conflict ("group") do update set {changed}'
    )
    db.execute(sql.SQL(upsert).format(**parts))
    db.execute(
        'update inturn_steps set step = %s, writer = %s where pipeline = %s and "table" = %s',
        (changes.manifest.step, changes.manifest.writer, pipeline, target.table),
    )


def _rows(store: SparkStore, changes: StepChanges) -> Iterator[tuple[Any, ...]]:
    for table in stored_rows(store, changes):
        for row in table.to_pylist():
            current = status_of(row, changes.manifest)
            state = msgspec.json.encode(current.state).decode()
            if "\\u0000" in state:
                state = _NUL.sub(r"\1\\ufffd", state)
            status = current.status if current.status in ("open", "waiting") else "parked"
            yield current.group, status, current.epoch, current.reached, current.held, state, current.step


def _name(target: StatesTable) -> Any:
    from psycopg import sql

    return sql.Identifier(*target.table.split("."))
