"""Commands: the operations on a queue as values, of which the writer puts many into one transaction.

A command defines its effect on a store, and the conversion of the store's answer into the caller's result.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from inturn.core.errors import QueueFull
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest, KeyResult, ReleaseKey
from inturn.core.override import override
from inturn.core.queue import sessions
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Delivery, Draft, QueueInfo, ReceiveRequest, Sent
from inturn.core.rate import RateLimits
from inturn.store.protocols import SessionStore, Store, no_such_queue
from inturn.store.rates import receive_within

T = TypeVar("T")


def queue_of(store: Store, name: str) -> QueueInfo:
    """Return a queue by its name, or raise NoSuchQueue."""
    info = store.queues.get(name)
    if info is None:
        raise no_such_queue(name, store.queues)
    return info


@runtime_checkable
class OpenTransaction(Protocol):
    """A transaction of the caller in which commands can run."""

    @property
    def identity(self) -> str:
        """Identity of the open database it belongs to; see :class:`inturn.store.protocols.SqlStore`."""
        ...

    def run(self, command: "Command[T]") -> T:
        """Run a command in the transaction."""
        ...

    async def arun(self, command: "Command[T]") -> T:
        """Run a command in the transaction, from an asyncio task."""
        ...


if TYPE_CHECKING:
    import sqlite3

    import psycopg
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

    from inturn.store.key_store import KeyStore

    class DjangoConnection(Protocol):
        """A connection of Django, such as ``django.db.connection``."""

        @property
        def in_atomic_block(self) -> bool:
            """True within ``transaction.atomic()``."""
            ...

    Transaction: TypeAlias = (
        OpenTransaction
        | sqlite3.Connection
        | psycopg.Connection[Any]
        | psycopg.AsyncConnection[Any]
        | sqlalchemy.Connection
        | sqlalchemy.orm.Session
        | sqlalchemy.orm.scoped_session[Any]
        | sqlalchemy.ext.asyncio.AsyncConnection
        | sqlalchemy.ext.asyncio.AsyncSession
        | sqlalchemy.ext.asyncio.async_scoped_session[Any]
        | DjangoConnection
    )
    """The values of ``tx=``: the result of ``db.transaction()``, or a connection to the same database."""
else:  # they may not be installed
    Transaction = OpenTransaction


class Command(Generic[T]):
    """One operation that runs in a transaction.

    Attributes:
        queue: name of the queue; empty if the command is not about a queue.
        answer: converts the store's answer into the caller's result; may raise the caller's error.
        tx: the caller's transaction in which it runs; None: a transaction of the writer.
        wait_s: the time to wait if nothing is found or there is no room, in seconds.
        waits_for_room: whether it waits for room in its queue, and not for messages.
        is_short: whether its duration depends only on its size, so that an event loop can run it itself.
        is_read: whether it changes nothing, so that it can run concurrently with the writer.
    """

    __slots__ = ("answer", "queue", "tx")
    wait_s: float = 0
    is_short = is_read = waits_for_room = False

    def __init__(self, queue: str, answer: Callable[[Any], T]) -> None:
        self.queue = queue
        self.answer = answer
        self.tx: Transaction | None = None

    def within(self, tx: "Transaction | None") -> Self:
        """Set the caller's transaction in which it runs; return the command."""
        self.tx = tx
        return self

    def run(self, store: Store, now_ms: int) -> Any:
        """Run the command alone, not merged with other commands."""
        raise NotImplementedError

    def keeps_waiting(self, outcome: "Outcome") -> bool:
        """Return whether the command continues to wait, since nothing was found."""
        return outcome == ([], None)

    def compensation(self, result: Any) -> "Command[Any] | None":  # noqa: ARG002 - most have nothing to undo
        """Return the command that returns the messages or lock of a caller that is gone, or None."""
        return None


class Send(Command[T]):
    """A send of messages to a queue."""

    __slots__ = ("drafts",)
    is_short = True

    def __init__(self, queue: str, answer: Callable[[list[Sent]], T], drafts: Sequence[Draft]) -> None:
        # As in Command; super() for each message would cost as much as the rest.
        self.queue, self.answer, self.tx = queue, answer, None
        self.drafts: Final = drafts

    def run(self, store: Store, now_ms: int) -> list[Sent]:
        """Run the command alone, not merged with other commands."""
        return store.send(queue_of(store, self.queue), self.drafts, now_ms)


class WaitingSend(Send[T]):
    """A send that waits for room in its queue.

    Attributes:
        refusal: the error of its last try.
    """

    __slots__ = ("refusal", "wait_s")
    waits_for_room = True

    def __init__(
        self, queue: str, answer: Callable[[list[Sent]], T], drafts: Sequence[Draft], *, wait_s: float
    ) -> None:
        super().__init__(queue, answer, drafts)
        self.wait_s = wait_s
        self.refusal: QueueFull | None = None

    @override
    def keeps_waiting(self, outcome: "Outcome") -> bool:
        """Return whether there was no room."""
        return isinstance(outcome[1], QueueFull)


class Settle(Command[T]):
    """A settlement: messages to acknowledge, extend, nack, move, defer or cancel."""

    __slots__ = ("changes",)
    is_short = True

    def __init__(self, queue: str, answer: Callable[[list[SettleResult]], T], changes: Sequence[Settlement]) -> None:
        # As in Command; super() for each message would cost as much as the rest.
        self.queue, self.answer, self.tx = queue, answer, None
        self.changes: Final = changes

    def run(self, store: Store, now_ms: int) -> list[SettleResult]:
        """Run the command alone, not merged with other commands."""
        return store.settle(queue_of(store, self.queue), self.changes, now_ms)


class Receive(Command[T]):
    """A receive, which may wait for messages."""

    __slots__ = ("wait_s", "want")
    is_short = True

    def __init__(
        self, queue: str, answer: Callable[[list[Delivery]], T], request: ReceiveRequest, *, wait_s: float = 0
    ) -> None:
        super().__init__(queue, answer)
        self.want: Final = request
        self.wait_s = wait_s

    def run(self, store: Store, now_ms: int) -> list[Delivery]:
        """Lease messages, without waiting."""
        return store.receive(queue_of(store, self.queue), [self.want], now_ms)[0]

    def compensation(self, result: list[Delivery]) -> Settle[Any] | None:
        """Return the command that nacks the messages, so that their leases need not expire."""
        changes = [
            Settlement(delivery.message.sequence_number, delivery.token, SettleAction.NACK) for delivery in result
        ]
        return Settle(self.queue, _unchanged, changes) if changes else None


class StoreCall(Command[T]):
    """Any other change, such as a change of the queue itself."""

    __slots__ = ("function",)

    def __init__(self, queue: str, function: Callable[[Store, int], T], answer: Callable[[T], T] | None = None) -> None:
        super().__init__(queue, answer or _unchanged)
        self.function: Final = function

    def run(self, store: Store, now_ms: int) -> T:
        """Call the function."""
        return self.function(store, now_ms)


class Read(StoreCall[T]):
    """A function that changes nothing."""

    __slots__ = ()
    is_read = True


class SessionCall(Command[T]):
    """A session request for a group, or for the next group that can be locked (None)."""

    __slots__ = ("group", "request")

    def __init__(
        self,
        queue: str,
        group: str | None,
        request: sessions.SessionRequest,
        answer: Callable[[sessions.SessionAnswer], T],
    ) -> None:
        super().__init__(queue, answer)
        self.group: Final = group
        self.request: Final = request

    def run(self, store: Any, now_ms: int) -> sessions.SessionAnswer:
        """Apply the request."""
        sessions: SessionStore = store
        return sessions.session(queue_of(store, self.queue), self.group, self.request, now_ms)


class AcquireSession(Command[T]):
    """A lock of a group, which may wait for a free one; the store's answer is a list of one answer or none."""

    __slots__ = ("ask", "wait_s")

    def __init__(
        self, ask: SessionCall[Any], answer: Callable[[list[sessions.SessionAnswer]], T], *, wait_s: float
    ) -> None:
        super().__init__(ask.queue, answer)
        self.ask: Final = ask
        self.wait_s = wait_s

    def run(self, store: Store, now_ms: int) -> list[sessions.SessionAnswer]:
        """Lock a group, without waiting."""
        answer = self.ask.run(store, now_ms)
        return [answer] if answer.verdict is SettleResult.DONE else []

    def compensation(self, result: list[sessions.SessionAnswer]) -> SessionCall[Any] | None:
        """Return the command that unlocks the group."""
        for answer in result:
            close = sessions.SessionRequest(sessions.SessionVerb.CLOSE, answer.group_lock.token)
            return SessionCall(self.queue, answer.group, close, _unchanged)
        return None


class ReceiveInSession(Receive[T]):
    """A receive in a session; the store's answer is None if the session's lock has expired."""

    __slots__ = ()

    def run(self, store: Any, now_ms: int) -> Any:
        """Lease messages if the lock is still valid, without waiting."""
        request = sessions.SessionRequest(sessions.SessionVerb.LOOK, self.want.token)
        answer = SessionCall(self.queue, self.want.group, request, _unchanged).run(store, now_ms)
        return None if answer.verdict is SettleResult.EXPIRED else super().run(store, now_ms)

    def compensation(self, result: list[Delivery] | None) -> Settle[Any] | None:
        """Return the command that returns the messages to the session."""
        return super().compensation(result or [])


class ReceiveLimited(Receive[T]):
    """A receive within rate limits; at most one message of each group."""

    __slots__ = ("rates",)

    def __init__(
        self,
        queue: str,
        answer: Callable[[list[Delivery]], T],
        request: ReceiveRequest,
        rates: RateLimits,
        *,
        wait_s: float = 0,
    ) -> None:
        super().__init__(queue, answer, request, wait_s=wait_s)
        self.rates: Final = rates

    def run(self, store: Store, now_ms: int) -> list[Delivery]:
        """Lease messages that may begin now, without waiting."""
        return receive_within(store, queue_of(store, self.queue), self.want, self.rates, now_ms).deliveries


class UpdateKey(Command[T]):
    """A request for an idempotency key of a namespace, its space."""

    __slots__ = ("key", "request", "space")

    def __init__(self, space: str, key: str, request: KeyRequest, answer: Callable[[KeyAnswer], T]) -> None:
        super().__init__("", answer)
        self.space: Final = space
        self.key: Final = key
        self.request: Final = request

    def run(self, store: Any, now_ms: int) -> KeyAnswer:  # only databases have keys
        """Apply the request."""
        keys: KeyStore = store
        return keys.update_key(self.space, self.key, self.request, now_ms)

    def compensation(self, result: KeyAnswer) -> "UpdateKey[Any] | None":
        """Return the command that releases the key, if this one has locked it."""
        if result.verdict is not KeyResult.LOCKED or result.record is None:
            return None
        return UpdateKey(self.space, self.key, ReleaseKey(result.record.token), _unchanged)


def _unchanged(value: T) -> T:
    return value


Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The raw answer of a command, or its error."""
