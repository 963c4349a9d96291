"""Protocols of the stores; the queue above them is the same over every store.

A store selects and writes rows. The rules are in :mod:`inturn.core.queue.delivery` and
:mod:`inturn.core.queue.deduplication`. The memory store (``tests/memory_store``) runs these rules directly and is the
oracle for the other stores. Arguments that are sequences are processed in order, and the results have the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from inturn.core.errors import NoSuchQueue
from inturn.core.queue import sessions
from inturn.core.queue.delivery import Settlement, SettleResult
from inturn.core.queue.kept_log import LogEntry, LogSpan
from inturn.core.queue.messages import (
    Delivery,
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    ReceiveRequest,
    Sent,
    StoredMessage,
)
from inturn.core.queue.sessions import FIRST_PARKED, ParkedGroup
from inturn.store.erasure import ErasureStore
from inturn.store.key_store import KeyStore
from inturn.store.pipeline_store import PipelineStore
from inturn.store.producers import ProducerStore
from inturn.store.servers import ServerStore
from inturn.store.sources import SourceStore


def no_such_queue(name: str, existing: Iterable[str]) -> NoSuchQueue:
    """Return the error for a queue name that is not among the existing ones."""
    return NoSuchQueue(f"no queue {name!r}; existing queues: {', '.join(sorted(existing)) or 'none'}")


class Store(Protocol):
    """The queues of one database.

    All methods but :meth:`transaction` are called inside a transaction, by one caller at a time.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """Open a transaction: commit durably when the block ends, roll back if it raises.

        Raises:
            StoreError: if the database cannot be written: full, read-only, corrupt, or locked for too long.
        """
        ...

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name; changes to an info are written by :meth:`save`."""
        ...

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue.

        Args:
            name: name of the queue.
            info: the new info; its number is 0 for a queue to create. None: remove the queue and all that is in it.
            purge: remove its messages and deduplication ids; readers keep their positions.
        """
        ...

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int = 0) -> list[Sent]:
        """Append messages to a queue, after a number of others that wait for room in it.

        Raises:
            QueueFull: if the queue has no room for them; before anything is written.
        """
        ...

    def room(self, queue: QueueInfo) -> int | None:
        """Return the number of messages for which a queue has room until the transaction ends; None: any number."""
        ...

    def receive(self, queue: QueueInfo, requests: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages for each of several receivers.

        Messages that were received too often are moved to the dead-letter queue first.
        """
        ...

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, nack, move, defer or cancel messages; each change sees the previous ones."""
        ...

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the message counts of a queue."""
        ...

    def read(
        self,
        queue: QueueInfo,
        after: int,
        limit: int,
        *,
        pending: bool = False,
        deferred: bool = False,
        group: str | None = None,
    ) -> list[StoredMessage]:
        """Return the messages after a sequence number, in order.

        Args:
            queue: the queue.
            after: the sequence number before the first message.
            limit: maximum number of messages.
            pending: only messages that are not acknowledged; otherwise all stored ones.
            deferred: only deferred messages; implies ``pending``.
            group: only messages of this group; implies ``pending``.
        """
        ...

    def log(self, queue: QueueInfo, span: LogSpan, limit: int) -> list[LogEntry]:
        """Return messages of a queue's log, acknowledged or not, in the order of their numbers."""
        ...

    def log_time(self, queue: QueueInfo, at_ms: int) -> int:
        """Return the number before the first message sent at a time or later; see :mod:`inturn.core.queue.kept_log`."""
        ...

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str | None] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first; only groups in ``names`` if it is not empty.

        Among the named, None is the first message without a group.
        """
        ...

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a number was given; see :mod:`inturn.core.queue.incarnation`."""
        ...


class SessionStore(Protocol):
    """A store whose groups can be locked and parked and have a state; the rules are in core/queue/sessions.py.

    ``receive`` returns the messages of a session and deferred messages, as its ``ReceiveRequest`` asks.
    """

    def session(
        self, queue: QueueInfo, group: str | None, request: sessions.SessionRequest, now_ms: int
    ) -> sessions.SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        ...

    def parked(self, queue: QueueInfo, limit: int, after: tuple[int, str] = FIRST_PARKED) -> list[ParkedGroup]:
        """Return the parked groups after a time and a name, in the order of parking."""
        ...


class RateStore(Protocol):
    """The stored points of rate limits, by queue and key; the rule is in :mod:`inturn.core.rate`."""

    def read(self, queue: QueueInfo, keys: Sequence[str]) -> dict[str, int]:
        """Return the points of the keys that have one; no other transaction changes them until this one ends."""
        ...

    def save(self, queue: QueueInfo, points: Mapping[str, int], now_us: int) -> None:
        """Write points, and forget some that have passed."""
        ...


class QueueAndPipelineStore(Store, Protocol):
    """A store of queues and pipelines, so that both change in one transaction."""

    @property
    def pipelines(self) -> PipelineStore:
        """The pipelines of the store."""
        ...


class SqlStore(QueueAndPipelineStore, SessionStore, KeyStore, ProducerStore, Protocol):
    """A store in an SQL database, which may contain tables of the caller too."""

    @property
    def identity(self) -> str:
        """Identity of the open database; a copy that is opened elsewhere has another."""
        ...

    @property
    def lineage(self) -> bytes:
        """Identity that a database shares with its copies.

        16 random bytes, created with the database and kept by backup and restore.
        """
        ...

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of the open database, maybe of another store that has it open."""
        ...

    def lasting(self) -> AbstractContextManager[None]:
        """Open a transaction of the caller, which may be long and waits for other long ones."""
        ...

    @property
    def sources(self) -> SourceStore:
        """The sources whose records become messages of these queues."""
        ...

    @property
    def erasure(self) -> ErasureStore:
        """Permanent removal of the rows of a group."""
        ...

    def clean(self) -> None:
        """Rewrite the files of the database, outside any transaction, so that removed content is in none of them.

        Raises:
            StoreError: if other processes use the database for too long, or it is not permitted; nothing is lost then.
        """
        ...

    @property
    def rates(self) -> RateStore:
        """The rate limits of the queues."""
        ...

    @property
    def servers(self) -> ServerStore:
        """The tables that servers use besides the queues."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run an SQL statement of the caller; return a cursor over its rows."""
        ...

    def attempt(self, sql: str, rows: Sequence[Sequence[Any]]) -> bool:
        """Run a statement of the caller for each row, all or none; return False if one was refused or met a lock."""
        ...

    def backup(self, target: str) -> None:
        """Copy the database into a file while it is in use.

        Raises:
            InputError: if the database cannot be copied this way.
        """
        ...

    def close(self) -> None:
        """Close the database."""
        ...
