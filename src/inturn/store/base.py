"""What a store of queues can do; the queue above it is the same over every store.

A store selects and keeps; what the rules mean is in :mod:`inturn.core.delivery` and :mod:`inturn.core.dedup`. The
memory store runs these as they are and is the oracle for the others. Whatever comes in sets comes in order, and its
answers come in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from inturn.core import session
from inturn.core.delivery import Change, Verdict
from inturn.core.envelope import Delivery, Depth, Draft, Entry, GroupView, ParkedGroup, QueueInfo, Sent, Want
from inturn.core.idempotency import Answer, Request


class Store(Protocol):
    """Queues, in one database. All but :meth:`transaction` is called inside a transaction, by one caller at a time."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is kept, durably, when the block ends; nothing is if it raises.

        Raises:
            StoreError: if the database cannot be written: full, read-only, corrupt, or locked for too long.
        """
        ...

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name. What is changed in an info is kept by :meth:`save`."""
        ...

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Make a queue (one whose number is 0), change it, or remove it with all that is in it (None).

        Args:
            name: of the queue.
            info: what is to be known of it.
            purge: remove its messages and forget its deduplication ids; readers stay where they are.
        """
        ...

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Put messages at the end of a queue."""
        ...

    def receive(self, queue: QueueInfo, wants: Sequence[Want], now_ms: int) -> list[list[Delivery]]:
        """Lease messages for each of several receivers; those that were tried too often are moved away first."""
        ...

    def settle(self, queue: QueueInfo, changes: Sequence[Change], now_ms: int) -> list[Verdict]:
        """Acknowledge, extend, give back, move, defer or cancel messages; all see those before them."""
        ...

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """How much is in a queue."""
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
    ) -> list[Entry]:
        """The messages after a sequence number, in order.

        Args:
            queue: where.
            after: the sequence number.
            limit: how many at most.
            pending: those that are not acknowledged; otherwise all that are kept.
            deferred: those of them that are deferred.
            group: those of them that are in this group. Deferred ones and those of a group are always pending ones.
        """
        ...

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Groups with messages, those whose head is oldest first; only these if some are named."""
        ...


class SessionStore(Protocol):
    """A store of queues whose groups can be locked, parked, and given a state; the rules are in core/session.py.

    What a session receives, and what is deferred, is given out by ``receive``, with what its ``Want`` names.
    """

    def session(self, queue: QueueInfo, group: str | None, request: session.Request, now_ms: int) -> session.Answer:
        """Decide about a group, and do what follows for its messages; None: the next that can be locked."""
        ...

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Groups that are parked, those first that were parked first."""
        ...


class KeyStore(Protocol):
    """A store of idempotency keys; the rules are in :mod:`inturn.core.idempotency`."""

    def decide(self, space: str, key: str, request: Request, now_ms: int) -> Answer:
        """Read what is at a key, decide, and write what is to be there then: at once, whoever else comes.

        Args:
            space: keys of different spaces are different keys.
            key: which one.
            request: what somebody wants.
            now_ms: the time; a store that has a clock of its own does not look at it.
        """
        ...


class SqlStore(Store, SessionStore, KeyStore, Protocol):
    """A store in an SQL database, in which the caller may have tables too."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a statement of the caller's; a cursor over its rows is returned."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
