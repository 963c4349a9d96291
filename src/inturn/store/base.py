"""What a store of queues can do; the queue above it is the same over every store.

A store selects and keeps; what the rules mean is in :mod:`inturn.core.delivery` and :mod:`inturn.core.dedup`. The
memory store runs these as they are and is the oracle for the others. Whatever comes in sets comes in order, and its
answers come in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from inturn.core.delivery import Change, Verdict
from inturn.core.envelope import Delivery, Depth, Draft, Entry, GroupView, QueueInfo, Sent, Want
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
        """Acknowledge, extend, give back or move messages; each for itself, and all see those before them."""
        ...

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """How much is in a queue."""
        ...

    def read(self, queue: QueueInfo, after: int, limit: int, *, pending: bool = False) -> list[Entry]:
        """The messages after a sequence number, in order: all that are kept, or those not acknowledged."""
        ...

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Groups with messages, those whose head is oldest first; only these if some are named."""
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


class SqlStore(Store, KeyStore, Protocol):
    """A store in an SQL database, in which the caller may have tables too."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a statement of the caller's; a cursor over its rows is returned."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
