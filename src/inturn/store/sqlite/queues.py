"""The queues of a file, composed of their parts; commands use them in every kind of transaction."""

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from inturn.core.queue import back_pressure
from inturn.core.queue.delivery import Settlement, SettleResult
from inturn.core.queue.messages import Delivery, Draft, QueueInfo, ReceiveRequest, Sent
from inturn.core.queue.sessions import SessionAnswer, SessionRequest
from inturn.store.sql.erasure import SqlErasure
from inturn.store.sql.sources import SqlSources
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.clock_skew import FutureSpans
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.group_locks import SqliteGroupLocks
from inturn.store.sqlite.incarnations import SqliteIncarnations
from inturn.store.sqlite.inspection import SqliteInspection
from inturn.store.sqlite.kept_log import SqliteKeptLog
from inturn.store.sqlite.keys import SqliteKeys
from inturn.store.sqlite.leases import Leases
from inturn.store.sqlite.pipelines import SqlitePipelines
from inturn.store.sqlite.producers import SqliteProducers
from inturn.store.sqlite.rates import SqliteRates
from inturn.store.sqlite.ready_groups import ReadyGroups
from inturn.store.sqlite.receives import Receives
from inturn.store.sqlite.sends import Sends
from inturn.store.sqlite.servers import SqliteServers
from inturn.store.sqlite.sessions import SqliteSessions
from inturn.store.sqlite.settlements import Removals, Settlements
from inturn.store.sqlite.statements import NamedStatements


class SqliteQueues:
    """All operations in a transaction, whether begun by the store or by a caller.

    Args:
        connection: to the file.
        index: type of the index of pending messages.

    Attributes:
        connection: to the file.
        catalog: the queues.
        pending: the pending messages of groups.
        incarnations: the incarnations of queues.
        producers: the state for producers.
        kept: the logs of queues.
    """

    def __init__(self, connection: sqlite3.Connection, index: type[GroupIndex] = GroupIndex) -> None:
        to = self.connection = connection
        self.catalog: Final = SqliteCatalog(to)
        self.pending: Final = index(to, self.catalog)
        self._spans = FutureSpans(to)
        self.incarnations: Final = SqliteIncarnations(to)
        self.kept: Final = SqliteKeptLog(to)
        locks = SqliteGroupLocks(to)
        leases = Leases(to, self.pending)
        producers = self.producers = SqliteProducers(to)
        ready_groups = ReadyGroups(to, self.pending, locks, leases, producers)
        removals = Removals(to, self.catalog, self.pending, leases, ready_groups, self.incarnations, self.kept)
        self._sends = Sends(to, self.catalog, self.pending, self.incarnations, producers)
        self._receives = Receives(to, self.catalog, self.pending, locks, leases, ready_groups, removals, self._spans)
        self._settlements = Settlements(to, self.catalog, self.pending, locks, leases, ready_groups, removals)
        self._sessions = SqliteSessions(to, self.catalog, self.pending, locks, leases, ready_groups, self._receives)
        inspection = SqliteInspection(to, self.pending, locks, leases)
        self.read: Final = inspection.read
        self.log: Final = self.kept.read
        self.log_time: Final = self.kept.time
        self.depth: Final = inspection.depth
        self.groups: Final = inspection.groups
        self.parked: Final = self._sessions.parked
        self.last_revision: Final = producers.last_revision
        self.begin_numbering: Final = producers.begin_numbering
        self.writer: Final = producers.writer
        self.priority: Final = producers.priority
        self.set_priority: Final = ready_groups.set_priority
        self.update_key: Final = SqliteKeys(to).update_key
        self.rates: Final = SqliteRates(to)
        self.pipelines: Final = SqlitePipelines(to)
        statements = NamedStatements(to)
        self.sources: Final = SqlSources(statements.read, statements.do)
        self.erasure: Final = SqlErasure(statements.read, statements.do, self.kept.remove)
        self.servers: Final = SqliteServers(self)

    def transaction(self) -> AbstractContextManager[None]:
        """Return an empty context: the creator of this object begins and ends the transaction."""
        return nullcontext()

    def refresh(self) -> bool:
        """Read the changes of other processes, at the beginning of a transaction; return whether there were any."""
        is_stale = self.catalog.refresh()
        if is_stale:
            self.pending.refresh()
            self.producers.forget()
            self.kept.trim_due()
            if self.catalog.has_lost:
                self.incarnations.renew()
        return is_stale

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        self.pending.nonempty.clear()
        self.producers.forget()
        if name in self.queues and (info is None or purge):
            self.pending.forget(self.queues[name].number)
        self.catalog.save(name, info, purge=purge)

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        return self.incarnations.of(queue.number, number)

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        """Append messages to a queue."""
        self._check_clock(now_ms)
        return self._sends.send(queue, drafts, now_ms, ahead)

    def room(self, queue: QueueInfo) -> int | None:
        """Return the number of messages for which a queue has room; None: any number."""
        return back_pressure.room(queue)

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        self._check_clock(now_ms)
        self.kept.trim(queue, now_ms)
        return self._receives.receive(queue, requests, now_ms)

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, nack, move, defer or cancel messages."""
        self._check_clock(now_ms)
        return self._settlements.settle(queue, changes, now_ms)

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Run a session request on a group, with its effects on messages; None: the next group that can be locked."""
        self._check_clock(now_ms)
        return self._sessions.session(queue, group, request, now_ms)

    def _check_clock(self, now_ms: int) -> None:
        """End spans that a clock set back would keep open for too long; only the store knows past times."""
