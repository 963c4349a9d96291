"""The kept log of queues in PostgreSQL, where acknowledged messages have an index by group."""

from collections.abc import Sequence
from typing import Any

from inturn.core.override import override
from inturn.core.queue.kept_log import LogEntry, LogSpan
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.messages import entry_of
from inturn.store.postgres.names import LongNames, as_it_is, named, short
from inturn.store.postgres.statements import Wire
from inturn.store.sql.kept_log import SqlKeptLog


class PostgresKeptLog(SqlKeptLog):
    """Logs of the queues of a database."""

    def __init__(self, wire: Wire, names: LongNames) -> None:
        super().__init__()
        self._wire = wire
        self._names = names

    def read(self, queue: QueueInfo, span: LogSpan, limit: int) -> list[LogEntry]:
        """Return messages of a log, acknowledged or not, in order."""
        begin, end = queue.number_range
        part = max(span.after, begin), end if span.up_to is None else min(span.up_to, end)
        about = limit, span.first_revision, span.last_revision
        if span.group is None:
            rows = self._rows("log_messages", *part, *about)
        else:
            rows = self._rows("log_of_group", *part, *about, queue.number, short(span.group))
        entries = [LogEntry(entry_of(row), row[-1] == 1) for row in rows]
        name = self._names.reader(log_entry.message.group for log_entry in entries)
        if name is as_it_is:  # the usual case
            return entries
        return [log_entry._replace(message=named(log_entry.message, name)) for log_entry in entries]

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove acknowledged messages, wherever they are in a log."""
        self._wire.queue("remove_acknowledged", list(numbers))

    @override
    def _first(self, name: str, *values: Any) -> Any:
        return self._wire.one(name, *values)

    @override
    def _rows(self, name: str, *values: Any) -> Sequence[Any]:
        return self._wire.all(name, *values)

    @override
    def _measure(self, queue: QueueInfo, after: int, last: int) -> None:
        self._wire.queue("measure_log", queue.number, after, last)

    @override
    def _remove_messages(self, queue: QueueInfo, removed: Sequence[tuple[int, str | None]]) -> None:
        self._wire.queue("remove_acknowledged", [number for number, _ in removed])
        self._wire.queue("remove_log_blocks", queue.number, removed[-1][0])
