"""The queues of a database, composed of their parts; commands use them in every kind of transaction.

From bottom to top: statements; catalog, names, group locks, incarnations; receiver locks and their rechecks; messages;
the ready list; sends, receives, settlements, sessions and inspection. A part gets those below that it uses.
"""

from collections.abc import Sequence
from typing import Final

from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest
from inturn.store.postgres.catalog import PostgresCatalog
from inturn.store.postgres.clock_skew import PostgresFutureSpans
from inturn.store.postgres.group_locks import PostgresGroupLocks
from inturn.store.postgres.incarnations import PostgresIncarnations
from inturn.store.postgres.inspection import PostgresInspection
from inturn.store.postgres.kept_log import PostgresKeptLog
from inturn.store.postgres.keys import PostgresKeys
from inturn.store.postgres.messages import PostgresMessages
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.pipelines import PostgresPipelines
from inturn.store.postgres.producers import PostgresProducers
from inturn.store.postgres.rates import PostgresRates
from inturn.store.postgres.ready_list import ReadyList
from inturn.store.postgres.receiver_lock import ReceiverLocks
from inturn.store.postgres.receives import PostgresReceives
from inturn.store.postgres.sends import PostgresSends
from inturn.store.postgres.sessions import PostgresSessions
from inturn.store.postgres.settlements import PostgresSettlements
from inturn.store.postgres.statements import Wire
from inturn.store.postgres.texts import check_text, written
from inturn.store.sql.erasure import SqlErasure
from inturn.store.sql.sources import SqlSources


class PostgresQueues:
    """All operations in a transaction, whether begun by the store or by a caller.

    The operations are those of the parts: :class:`inturn.store.protocols.SqlStore` describes them.

    Args:
        wire: wire to the database.
        ends_spans: whether to end holds and locks that have ended by a clock that was set back.
    """

    def __init__(self, wire: Wire, *, ends_spans: bool) -> None:
        self.wire: Final = wire
        self.catalog: Final = PostgresCatalog(wire)
        self.incarnations: Final = PostgresIncarnations(wire)
        self.locks: Final = ReceiverLocks(wire)
        self.spans: Final = PostgresFutureSpans(wire, ends=ends_spans)
        names, group_locks = LongNames(wire), PostgresGroupLocks(wire)
        messages = PostgresMessages(wire, self.catalog, self.locks, self.incarnations)
        producers = PostgresProducers(wire, names)
        self.ready: Final = ReadyList(wire, self.catalog, self.locks, group_locks, messages, self.spans, producers)
        self.sends: Final = PostgresSends(
            wire, self.catalog, self.locks, self.incarnations, names, producers, self.spans
        )
        self._receives = PostgresReceives(wire, self.ready, messages, group_locks, names, self.spans)
        settlements = PostgresSettlements(wire, self.catalog, self.locks, messages, group_locks, self.spans)
        sessions = PostgresSessions(wire, self.locks, self.ready, messages, group_locks, names, self.spans)
        self.kept: Final = PostgresKeptLog(wire, names)
        inspection = PostgresInspection(wire, self.catalog, group_locks, names)
        self.send: Final = self.sends.send
        self.room: Final = self.sends.room
        self.settle: Final = settlements.settle
        self.session: Final = sessions.session
        self.read: Final = inspection.read
        self.log: Final = self.kept.read
        self.log_time: Final = self.kept.time
        self.depth: Final = inspection.depth
        self.groups: Final = inspection.groups
        self.parked: Final = inspection.parked
        self.incarnation: Final = self.incarnations.of
        self.last_revision: Final = producers.last_revision
        self.begin_numbering: Final = producers.begin_numbering
        self.writer: Final = producers.writer
        self.priority: Final = producers.priority
        self.set_priority: Final = self.ready.set_priority
        self.update_key: Final = PostgresKeys(wire).update_key
        self.rates: Final = PostgresRates(wire, self.locks)
        self.pipelines: Final = PostgresPipelines(wire, names)
        self.sources: Final = SqlSources(wire.all, wire.queue)
        self.erasure: Final = SqlErasure(
            wire.all, wire.queue, self.kept.remove, short, lambda group: short(written(group)), written
        )

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self.catalog.queues

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        check_text("the queue's name", name)
        self.catalog.save(name, info, purge=purge)

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages for each of several receivers, and remove the beginning of the log."""
        self.kept.trim(queue, now_ms)
        return self._receives.receive(queue, requests, now_ms)
