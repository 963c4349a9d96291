"""What the tests of stores share: a store, a clock that stands until it is moved, and short words for the verbs."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

from inturn.core.errors import InputError, InturnError, QueueFull, RevisionMismatch, WriterHeld
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.kept_log import LogSpan
from inturn.core.queue.lapsed import LapsedRule
from inturn.core.queue.messages import (
    Content,
    Delivery,
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    QueueSettings,
    ReceiveRequest,
    Sent,
    StoredMessage,
)
from inturn.core.queue.sessions import ParkedGroup, SessionAnswer, SessionRequest, SessionVerb
from inturn.core.queue.writers import WriterAnswer, WriterRequest, WriterVerb
from inturn.store.commands import StoreCall
from inturn.store.postgres import PostgresStore
from inturn.store.producers import ProducerStore
from inturn.store.protocols import SessionStore, Store
from inturn.store.sqlite import SqliteStore
from memory_store.store import MemoryStore


class QueueStore(Store, SessionStore, ProducerStore, Protocol):
    """What every store of queues can do."""


def with_table(store: SqliteStore, newest_messages: int = 2) -> SqliteStore:
    """A store that puts messages into the table of pending ones as soon as a few others have come."""
    store.pending.newest_messages = newest_messages
    return store


class Shared:
    """A file that several processes have open, as one store: each transaction is the next one's."""

    def __init__(self, *stores: "SqliteStore | OnCallersConnection") -> None:
        self._stores = stores

    def transaction(self) -> Any:
        self._stores = (*self._stores[1:], self._stores[0])
        return self._stores[0].transaction()

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores[0], name)


class OnCallersConnection:
    """A store whose transactions are those of a caller's own connection to its file.

    Each command is done twice: once in a savepoint that the caller rolls back, unseen by inturn.
    """

    def __init__(self, store: SqliteStore, path: str) -> None:
        self._store, self._connection = store, sqlite3.connect(path, isolation_level=None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("begin")
        try:
            yield
        except BaseException:
            self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    @property
    def queues(self) -> dict[str, QueueInfo]:
        return self._run(lambda store: store.queues)

    def close(self) -> None:
        self._connection.close()
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        def verb(*args: Any, **more: Any) -> Any:
            def do(store: Any) -> Any:
                is_own = name != "save"  # else it is what the queue is to become
                own = [
                    store.queues[argument.name] if is_own and isinstance(argument, QueueInfo) else deepcopy(argument)
                    for argument in args
                ]
                return getattr(store, name)(*own, **more)

            self._connection.execute("savepoint own")
            with suppress(InturnError):
                self._run(do)
            self._connection.execute("rollback to own")
            return self._run(do)

        return verb

    def _run(self, do: Callable[[Any], Any]) -> Any:
        return self._store.adopt(self._connection, lambda: 0).run(StoreCall("", lambda store, _now_ms: do(store)))


STORES: dict[str, Callable[[Path, Callable[[], str]], QueueStore]] = {
    "memory": lambda path, url: MemoryStore(),
    "sqlite": lambda path, url: SqliteStore(str(path / "q.db"), durable=False),
    "sqlite, with a table of pending messages": lambda path, url: with_table(
        SqliteStore(str(path / "q.db"), durable=False)
    ),
    "postgres": lambda path, url: PostgresStore(url(), durable=False),
}
"""Makes a store of each kind, of a directory and what gives the address of an empty schema of PostgreSQL."""


class StoreHarness:
    """Every call is a transaction of its own, at the time ``now`` in milliseconds."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store
        self.now = 1_000_000

    def close(self) -> None:
        if isinstance(self.store, SqliteStore | PostgresStore | Shared | OnCallersConnection):
            self.store.close()

    def make(self, name: str, **settings: Any) -> None:
        with self.store.transaction():
            info = self.store.queues.get(name) or QueueInfo(0, name, QueueSettings(), self.now)
            info.settings = QueueSettings(**settings)
            self.store.save(name, info)

    def info(self, name: str = "q") -> QueueInfo:
        with self.store.transaction():
            return deepcopy(self.store.queues[name])

    def send(self, *texts: str, queue: str = "q", group: str | None = "", **more: Any) -> list[Sent]:
        """Send bodies; each in the group that its first letter names, if none is given."""
        drafts = [Draft(text, Content.TEXT, text[0] if group == "" else group, **more) for text in texts]
        with self.store.transaction():
            return self.store.send(self.store.queues[queue], drafts, self.now)

    def offer(self, *texts: str, **more: Any) -> list[Sent] | str:
        """Send, or return why it was refused."""
        try:
            return self.send(*texts, **more)
        except (QueueFull, RevisionMismatch, WriterHeld, InputError) as error:
            return str(error)

    def offer_each(self, *drafts: Draft, queue: str = "q") -> list[Sent] | str:
        """Send different messages at once, or return why they were refused."""
        try:
            with self.store.transaction():
                return self.store.send(self.store.queues[queue], drafts, self.now)
        except (QueueFull, RevisionMismatch, WriterHeld, InputError) as error:
            return str(error)

    def last_revision(self, group: str, *, queue: str = "q") -> int | None:
        with self.store.transaction():
            return self.store.last_revision(self.store.queues[queue], group)

    def begin_numbering(self, group: str, revision: int, *, queue: str = "q") -> str | None:
        """Begin, or return why it was refused."""
        try:
            with self.store.transaction():
                self.store.begin_numbering(self.store.queues[queue], group, revision)
        except RevisionMismatch as error:
            return str(error)
        return None

    def writer(self, group: str, verb: WriterVerb, name: str = "", *, queue: str = "q", **more: Any) -> WriterAnswer:
        """Ask for something about the lease of a group's writer."""
        with self.store.transaction():
            return self.store.writer(self.store.queues[queue], group, WriterRequest(verb, name, **more), self.now)

    def prioritize(self, group: str, priority: int, *, queue: str = "q") -> int:
        with self.store.transaction():
            self.store.set_priority(self.store.queues[queue], group, priority, self.now)
            return self.store.priority(self.store.queues[queue], group)

    def room(self, queue: str = "q") -> int | None:
        with self.store.transaction():
            return self.store.room(self.store.queues[queue])

    def receive(
        self,
        limit: int = 1,
        *,
        queue: str = "q",
        visibility_s: float | None = None,
        group: str | None = None,
        lapsed: LapsedRule = LapsedRule.LAST_ALONE,
    ) -> list[Delivery]:
        visibility_ms = None if visibility_s is None else round(visibility_s * 1000)
        request = ReceiveRequest(limit, visibility_ms, group, lapsed=lapsed)
        return self.receive_each(request, queue=queue)[0]

    def receive_each(self, *requests: ReceiveRequest, queue: str = "q") -> list[list[Delivery]]:
        """Several receivers at once."""
        with self.store.transaction():
            return self.store.receive(self.store.queues[queue], requests, self.now)

    def take(self, limit: int = 1, **more: Any) -> list[str]:
        """The bodies of a receive."""
        return [str(delivery.message.body) for delivery in self.receive(limit, **more)]

    def change(
        self, act: SettleAction, *deliveries: Delivery, queue: str = "q", s: float = 0, to: str | None = None
    ) -> list[SettleResult]:
        """Do the same with all of them."""
        changes = [
            Settlement(delivery.message.sequence_number, delivery.token, act, round(s * 1000), to)
            for delivery in deliveries
        ]
        with self.store.transaction():
            return self.store.settle(self.store.queues[queue], changes, self.now)

    def settle(self, *changes: Settlement, queue: str = "q") -> list[SettleResult]:
        """Different things at once."""
        with self.store.transaction():
            return self.store.settle(self.store.queues[queue], changes, self.now)

    def ack(self, *deliveries: Delivery, **more: Any) -> list[SettleResult]:
        return self.change(SettleAction.ACK, *deliveries, **more)

    def nack(self, *deliveries: Delivery, **more: Any) -> list[SettleResult]:
        return self.change(SettleAction.NACK, *deliveries, **more)

    def extend(self, *deliveries: Delivery, **more: Any) -> list[SettleResult]:
        return self.change(SettleAction.EXTEND, *deliveries, **more)

    def move(self, to: str, *entries: StoredMessage, queue: str = "q") -> list[SettleResult]:
        changes = [Settlement(entry.sequence_number, None, SettleAction.MOVE, to=to) for entry in entries]
        with self.store.transaction():
            return self.store.settle(self.store.queues[queue], changes, self.now)

    def defer(self, *deliveries: Delivery, **more: Any) -> list[SettleResult]:
        return self.change(SettleAction.DEFER, *deliveries, **more)

    def fetch(self, number: int, *, queue: str = "q", lock: SessionAnswer | None = None) -> list[Delivery]:
        """A deferred message, within a session or without."""
        request = (
            ReceiveRequest(1, None, lock.group, lock.group_lock.token, number)
            if lock
            else ReceiveRequest(1, number=number)
        )
        return self.receive_each(request, queue=queue)[0]

    def cancel(self, *numbers: int, queue: str = "q") -> list[SettleResult]:
        return self.settle(*(Settlement(number, None, SettleAction.CANCEL) for number in numbers), queue=queue)

    def ask(
        self, group: str | None, verb: SessionVerb, *, queue: str = "q", s: float = 0, **more: Any
    ) -> SessionAnswer:
        """Ask for something about a group."""
        request = SessionRequest(verb, ms=round(s * 1000), **more)
        with self.store.transaction():
            return self.store.session(self.store.queues[queue], group, request, self.now)

    def lock(self, group: str | None = None, *, queue: str = "q", s: float = 10) -> SessionAnswer:
        return self.ask(group, SessionVerb.LOCK, queue=queue, s=s)

    def hold(self, lock: SessionAnswer, verb: SessionVerb, *, queue: str = "q", **more: Any) -> SessionAnswer:
        """What the holder of a lock asks."""
        return self.ask(lock.group, verb, queue=queue, token=lock.group_lock.token, **more)

    def within(self, lock: SessionAnswer, limit: int = 1, *, queue: str = "q") -> list[Delivery]:
        """What a session receives."""
        return self.receive_each(ReceiveRequest(limit, None, lock.group, lock.group_lock.token), queue=queue)[0]

    def purge(self, queue: str = "q") -> None:
        with self.store.transaction():
            self.store.save(queue, self.store.queues[queue], purge=True)

    def remove(self, queue: str = "q") -> None:
        with self.store.transaction():
            self.store.save(queue, None)

    def parked(self, queue: str = "q") -> list[ParkedGroup]:
        with self.store.transaction():
            return self.store.parked(self.store.queues[queue], 100)

    def wait(self, seconds: float) -> None:
        """Move the clock; back, if negative."""
        self.now += round(seconds * 1000)

    def read(self, after: int = 0, limit: int = 100, *, queue: str = "q", **options: Any) -> list[StoredMessage]:
        with self.store.transaction():
            return self.store.read(self.store.queues[queue], after, limit, **options)

    def log(self, limit: int = 100, *, queue: str = "q", **span: Any) -> list[tuple[str, bool]]:
        """The bodies of the log, and whether each message has left the queue."""
        with self.store.transaction():
            entries = self.store.log(self.store.queues[queue], LogSpan(**span), limit)
        return [(str(entry.message.body), entry.is_done) for entry in entries]

    def log_time(self, at_ms: int, *, queue: str = "q") -> int:
        with self.store.transaction():
            return self.store.log_time(self.store.queues[queue], at_ms)

    def bodies(self, **more: Any) -> list[str]:
        return [str(entry.body) for entry in self.read(**more)]

    def depth(self, queue: str = "q") -> Depth:
        with self.store.transaction():
            return self.store.depth(self.store.queues[queue], self.now)

    def groups(self, *names: str, queue: str = "q") -> list[GroupView]:
        with self.store.transaction():
            return self.store.groups(self.store.queues[queue], 100, self.now, names)

    def readers(self, queue: str = "q", **positions: int | None) -> None:
        """Set readers' positions; None removes one."""
        with self.store.transaction():
            info = self.store.queues[queue]
            for name, position in positions.items():
                info.readers.pop(name, None)
                if position is not None:
                    info.readers[name] = position
            self.store.save(queue, info)

    def drain(self, queue: str = "q") -> Iterable[str]:
        """Receive and acknowledge until nothing is left."""
        bodies = []
        while deliveries := self.receive(10, queue=queue):
            bodies += [str(delivery.message.body) for delivery in deliveries]
            assert set(self.ack(*deliveries, queue=queue)) == {SettleResult.DONE}
        return bodies
