"""A cache of the queues' infos, which is read again when any process has changed a queue."""

from typing import Any, Final

import msgspec
from psycopg.errors import UniqueViolation

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo, QueueSettings, first_number
from inturn.store.failures import RunAgain
from inturn.store.postgres.migrate import check
from inturn.store.postgres.statements import PostgresStatements, Wire

_REMOVALS: Final = (
    "remove_group_locks",
    "remove_session_states",
    "remove_numbering",
    "remove_rechecks",
    "remove_receiver",
    "remove_incarnations",
    "remove_rates",
    "remove_revisions",
    "remove_writers",
    "remove_priorities",
    "remove_queue",
)


def _count(index: int) -> Any:
    """Return a property that reads a count of a queue; to set it does nothing, since the database has it."""
    return property(lambda info: info.catalog.counts(info)[index], lambda _info, _value: None)


class CachedQueueInfo(QueueInfo):
    """A queue info that reads its counts from the database when they are used.

    Most transactions change the counts and few callers read them. A deep copy is a plain ``QueueInfo``.
    """

    catalog: "PostgresCatalog"
    last: int = _count(0)
    depth: int = _count(1)
    last_token: int = _count(2)

    def __deepcopy__(self, memo: dict[int, Any]) -> QueueInfo:
        last, depth, tokens = self.catalog.counts(self)
        known = self.number, self.name, self.settings, self.created_ms, dict(self.readers)
        return QueueInfo(*known, depth, last, tokens, due_ms=self.due_ms)


class PostgresCatalog(PostgresStatements):
    """The queues of one database.

    Attributes:
        queues: infos by name, as seen by the open transaction.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.queues: dict[str, QueueInfo] = {}
        self._version: int | None = None
        self._is_changed = False

    def refresh(self, version: int) -> None:
        """Read the queues again if one was changed since the last transaction; called when a transaction begins."""
        if version != self._version:
            check(*self._one("readable_from"))  # before any table that may have changed its meaning
            due = {info.number: info.due_ms for info in self.queues.values()}
            queues: dict[str, QueueInfo] = {}
            for number, name, settings, readers, created_ms in self._all("queues"):
                known = msgspec.json.decode(settings, type=QueueSettings)
                places = msgspec.json.decode(readers, type=dict[str, int])
                queues[name] = self._known(number, name, known, created_ms, places)
                queues[name].due_ms = due.get(number)
            self.queues = queues  # replaced as a whole, since other threads may be reading it
            self._version = version

    def forget(self) -> None:
        """Invalidate the cache, after a rollback."""
        self._version, self._is_changed = None, False

    def forget_if_changed(self) -> None:
        """Invalidate the cache after a change, since the caller may still roll back."""
        if self._is_changed:
            self.forget()

    def removed(self, queue: QueueInfo) -> RunAgain:
        """Return the error for a queue whose rows were removed, and invalidate the cache."""
        self.forget()
        return RunAgain(f"queue {queue.name!r} was removed concurrently")

    def counts(self, info: QueueInfo) -> tuple[int, int, int]:
        """Return the last sequence number, the number of pending messages and the last token."""
        row = self._one("queue_counts", info.number, limits.SEQUENCE_BITS)
        return row or (first_number(info.number), 0, 0)

    def _known(self, *values: Any) -> CachedQueueInfo:
        known = CachedQueueInfo(*values)
        known.catalog = self
        return known

    def save(self, name: str, info: QueueInfo | None, *, purge: bool) -> None:
        """Create, change or remove a queue.

        Raises:
            RunAgain: if another process has changed a queue since the transaction began; the new info was derived
                from the state at that time.
        """
        (version,) = self._one("change_catalog")
        if self._version is None or version != self._version + 1:
            self.forget()
            raise RunAgain("another process has changed a queue concurrently")
        self._version, self._is_changed = version, True
        if info is None:
            self._purge(self.queues[name])
            number = self.queues.pop(name).number
            for statement in _REMOVALS:
                self._do(statement, number)
            return
        settings, readers = msgspec.json.encode(info.settings).decode(), msgspec.json.encode(info.readers).decode()
        if info.number == 0:
            self._add(info, settings, readers)
        else:
            self._do("save_queue", info.number, settings, readers)
            if purge:
                self._purge(info)
        if not info.settings.keeps_log:
            read_to = min(info.readers.values(), default=first_number(info.number + 1))
            self._do(
                "remove_read_messages", first_number(info.number), read_to, limits.EXPIRE_AT_ONCE
            )  # receives go on

    def _add(self, info: QueueInfo, settings: str, readers: str) -> None:
        (info.number,) = self._one("next_queue_number")
        first = first_number(info.number)
        try:
            self._do("add_queue", info.number, info.name, settings, readers, info.created_ms)
            self._do("add_numbering", info.number, first)
            self._do("add_receiver", info.number, first)
            self.wire.flush()
        except UniqueViolation as error:
            raise RunAgain(f"another process has created queue {info.name!r} concurrently") from error
        self.queues[info.name] = self._known(info.number, info.name, info.settings, info.created_ms, info.readers)

    def _purge(self, info: QueueInfo) -> None:
        number, every = info.number, (first_number(info.number), first_number(info.number + 1))
        self._do("lock_numbering", number)
        self._do("lock_receiver", number)
        self._do("purge_messages", number, *every)
        for table in ("purge_ready", "purge_holds"):
            self._do(table, *every)
        self._do("purge_dedup", number)
        self._do("purge_log_blocks", number)
