"""The statements of PostgreSQL, run by their names.

A statement whose result is not needed at once is queued. It goes to the server together with the next statement whose
result is needed, or at the end: a round trip costs more than most statements.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import waiting
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.generators import fetch_many
from psycopg.pq import ExecStatus, Format
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper
from psycopg.waiting import Ready, Wait

from inturn.store.sql.statements import SHARED, statements

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

_SQL: Final = statements(SHARED, "inturn.store.postgres")
_Key = tuple[str, tuple[int, ...]]
"""The key of a prepared statement: its text and the types of its parameters."""
_INTERRUPTED_S: Final = 0.1
"""The interval at which a wait checks for interrupts."""
_AUTO: Final = PyFormat.AUTO
_EITHER: Final = Wait.RW
_BINARY: Final = Format.BINARY
_ROWS: Final = ExecStatus.TUPLES_OK
_REFUSED: Final = ExecStatus.FATAL_ERROR
_SYNCED: Final = ExecStatus.PIPELINE_SYNC


def text_of(name: str) -> str:
    """Return the text of a statement."""
    return _SQL[name]


class QueuedStatement:
    """A statement and its parameters; once it has run, the rows of its result."""

    __slots__ = ("is_done", "rows", "sql", "values")

    def __init__(self, sql: str, values: Sequence[Any]) -> None:
        self.sql = sql
        self.values = values
        self.rows: list[Any] = []
        self.is_done = False


class _Ours:
    """Adapters of parameters: types do not depend on the value, so that the same plan fits; text is UTF-8."""

    connection = None
    adapters = AdaptersMap(psycopg.adapters)


_Ours.adapters.register_dumper(int, Int8BinaryDumper)
_Ours.adapters.register_dumper(str, StrBinaryDumper)
# In text format, bytes are escaped as the connection says. Without a connection quotes would be doubled.
_Ours.adapters.register_dumper(bytes, BytesBinaryDumper)
_Ours.adapters.register_dumper(list, ListBinaryDumper)  # in text format the type is that of the first list


class Wire:
    """A connection that runs named statements; a lost connection can be replaced.

    It uses libpq directly, since a psycopg cursor costs twice as much processor time.

    Args:
        pg: libpq connection to the server.
        is_own: whether no other code uses the connection: statements are prepared, and transactions are noted.

    Attributes:
        noted: the statement that reads the id of the open transaction; None: it was not asked for.
    """

    def __init__(self, pg: "PGconn", *, is_own: bool = True) -> None:
        self._waiting: list[QueuedStatement] = []
        self._is_own = is_own
        self.noted: QueuedStatement | None = None
        self.use(pg)

    def use(self, pg: "PGconn") -> None:
        """Replace the connection; queued statements are dropped."""
        self.pg = pg
        self._adapt = psycopg.adapt.Transformer(_Ours())
        self._prepared: dict[_Key, bytes] = {}
        self._names = 0
        self._waiting.clear()

    def all(self, name: str, *values: Any) -> list[Any]:
        """Run a statement; return the rows of its result."""
        return self._run_queued(QueuedStatement(_SQL[name], values))

    def one(self, name: str, *values: Any) -> Any:
        """Run a statement; return the first row of its result, None if there is none."""
        rows = self._run_queued(QueuedStatement(_SQL[name], values))
        return rows[0] if rows else None

    def queue(self, name: str, *values: Any) -> QueuedStatement:
        """Queue a statement, to run before the next one whose result is needed, which also raises its error."""
        later = QueuedStatement(_SQL[name], values)
        self._waiting.append(later)
        return later

    def queue_text(self, sql: str) -> QueuedStatement:
        """Queue a statement by its text, such as ``begin``."""
        later = QueuedStatement(sql, ())
        self._waiting.append(later)
        return later

    def note_transaction(self) -> None:
        """Queue a read of the transaction's id, before a write whose outcome must be known.

        If the answer to the commit is lost, the server is asked for the status of the transaction with this id.
        """
        if self.noted is None and self._is_own:
            self.noted = self.queue("transaction_id")

    def flush(self) -> None:
        """Run the queued statements."""
        if self._waiting:
            self._run_queued(self._waiting.pop())

    def forget(self) -> None:
        """Drop the queued statements."""
        self._waiting.clear()

    def _run_queued(self, last: QueuedStatement) -> list[Any]:
        """Run the queued statements and this one; return its rows.

        Raises:
            psycopg.Error: the server's error for the first statement that fails, or if the connection is lost.
        """
        together, self._waiting = [*self._waiting, last], []
        encoded = [self._encode(statement) for statement in together]
        answered: list[QueuedStatement | _Key] = []  # the statement of each result; a key: of a preparation
        self.pg.enter_pipeline_mode()
        try:
            for later, values in zip(together, encoded, strict=True):
                self._send(later, *values, answered)
            self.pg.pipeline_sync()
            results = waiting.wait(_exchange(self.pg), self.pg.socket, _INTERRUPTED_S)
            self.pg.exit_pipeline_mode()
        except BaseException:
            self.pg.finish()  # its protocol state is unknown
            raise
        refused = None
        for item, result in zip(answered, results, strict=False):
            if result.status == _REFUSED:
                refused = result
            if refused is not None:  # the server skips all statements after it
                if isinstance(item, tuple):
                    del self._prepared[item]
            elif isinstance(item, QueuedStatement):
                item.is_done = True
                if result.status == _ROWS:
                    self._adapt.set_pgresult(result)
                    item.rows = self._adapt.load_rows(0, result.ntuples, tuple)
        if refused is not None:
            raise psycopg.errors.error_from_result(refused, encoding="utf-8")
        return last.rows

    def _encode(self, statement: QueuedStatement) -> tuple[Sequence[Any], tuple[int, ...], Sequence[Any]]:
        """Return the encoded parameters of a statement, their types and their formats."""
        if not statement.values:
            return (), (), ()
        data = self._adapt.dump_sequence(statement.values, [_AUTO] * len(statement.values))
        return data, self._adapt.types or (), self._adapt.formats or ()

    def _send(
        self,
        statement: QueuedStatement,
        data: Sequence[Any],
        types: tuple[int, ...],
        formats: Sequence[Any],
        answered: list[QueuedStatement | _Key],
    ) -> None:
        sql = statement.sql.encode()
        if self._is_own:
            key = statement.sql, types
            name = self._prepared.get(key)
            if name is None:
                self._names += 1
                name = self._prepared[key] = b"inturn_%d" % self._names
                self.pg.send_prepare(name, sql, types)
                answered.append(key)
            self.pg.send_query_prepared(name, data, formats, _BINARY)
        else:
            self.pg.send_query_params(sql, data, types, formats, _BINARY)
        answered.append(statement)


def _exchange(pg: "PGconn") -> "PQGen[list[PGresult]]":
    """Send everything and return the result of each statement, up to the sync, which is the last."""
    while pg.flush():
        if (yield _EITHER) & Ready.R:  # the server may stop reading until its results are read
            pg.consume_input()
    results: list[PGresult] = []
    while not results or results[-1].status != _SYNCED:
        results += yield from fetch_many(pg)
    return results


@dataclass(eq=False)
class PostgresStatements:
    """Base class of the parts of a store, which run statements over its wire."""

    wire: Wire

    def __post_init__(self) -> None:
        self._one, self._all, self._do = self.wire.one, self.wire.all, self.wire.queue
