"""Protocols of the stores; the queue above them is the same over every store.

A store selects and writes rows. The rules are in :mod:`inturn.core.queue.delivery` and
:mod:`inturn.core.queue.deduplication`. The memory store runs these rules directly and is the oracle for the others.
Arguments that are sequences are processed in order, and the results have the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from inturn.core.errors import NoSuchQueue, StoreError
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest
from inturn.core.queue import sessions
from inturn.core.queue.delivery import Settlement, SettleResult
from inturn.core.queue.messages import (
    Delivery,
    Depth,
    Draft,
    GroupView,
    ParkedGroup,
    QueueInfo,
    ReceiveRequest,
    Sent,
    StoredMessage,
)
from inturn.store.records import (
    AppliedMark,
    Claim,
    Decided,
    GroupRecord,
    GroupUpdate,
    HeldMessage,
    MadeOutput,
    Outgoing,
    PipelineInfo,
    PipelineSummary,
    RejectedMessage,
    Spot,
)
from inturn.store.servers import ServerStore
from inturn.store.sources import SourceStore


def no_such_queue(name: str, there: Iterable[str]) -> NoSuchQueue:
    """Return the error for a queue name that is not among the existing ones."""
    return NoSuchQueue(f"there is no queue {name!r}; there are: {', '.join(sorted(there)) or 'none'}")


class RunAgain(StoreError):
    """A conflict with another transaction: this one was rolled back and may succeed when run again."""


class Busy(StoreError):
    """A lock held by a possibly long transaction: this one was rolled back and should be retried later.

    Other commands need not wait for it.
    """


class NoRoom(StoreError):
    """A disk that is too full to send; operations that free space still work."""


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
        """Append messages to a queue, behind a number of others that wait for room in it.

        Raises:
            QueueFull: if the queue has no room for them; before anything is written.
        """
        ...

    def room(self, queue: QueueInfo) -> int | None:
        """Return how many messages a queue has room for until the transaction ends; None: any number."""
        ...

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages for each of several receivers.

        Messages that were received too often are moved to the dead-letter queue first.
        """
        ...

    def settle(self, queue: QueueInfo, changes: Sequence[Settlement], now_ms: int) -> list[SettleResult]:
        """Acknowledge, extend, give back, move, defer or cancel messages; each change sees those before it."""
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

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first; only those in ``names`` if any are named."""
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

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Return the parked groups, in the order in which they were parked."""
        ...


class KeyStore(Protocol):
    """A store of idempotency keys; the rules are in :mod:`inturn.core.idempotency_keys`."""

    def decide(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Read the record of a key, decide, and write the new record, atomically.

        Args:
            space: namespace; keys of different spaces are different keys.
            key: the key.
            request: the requested change.
            now_ms: the time; ignored by a store that has a clock of its own.
        """
        ...


class RateStore(Protocol):
    """The stored points of rate limits, by queue and key; the rule is in :mod:`inturn.core.rate`."""

    def read(self, queue: QueueInfo, keys: Sequence[str]) -> dict[str, int]:
        """Return the points of those keys that have one; no other transaction changes them until this one ends."""
        ...

    def save(self, queue: QueueInfo, points: Mapping[str, int], now_us: int) -> None:
        """Write points, and forget some that have passed."""
        ...


class GroupStore(Protocol):
    """The groups of pipelines. A pipeline is identified by its number."""

    def names(self) -> list[str]:
        """Return the names of all pipelines."""
        ...

    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline; changes to it are written by :meth:`save` and :meth:`keep`."""
        ...

    def save(self, info: PipelineInfo) -> None:
        """Create a pipeline (if its number is 0) or change it."""
        ...

    def lines(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of those of the groups that exist."""
        ...

    def listed(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names.

        Args:
            pipeline: number of the pipeline.
            after: the name before the first one.
            limit: maximum number of groups.
            parked: only groups whose status is not open.
        """
        ...

    def summary(self, pipeline: int) -> PipelineSummary:
        """Return the numbers of groups, held messages and undelivered outputs; reads all groups."""
        ...

    def due(self, pipeline: int, now_us: int, limit: int) -> list[str]:
        """Return the groups whose wait has ended, earliest end first."""
        ...

    def held(
        self, pipeline: int, group: str, turns: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldMessage]:
        """Return the held messages of a group: all, or only those with one of these turns or ids."""
        ...

    def held_from(self, pipeline: int, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """Return the held messages of a group from a spot on, in the order of epoch, turn and id."""
        ...

    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldMessage]:
        """Return the first held message of each of these groups, in the order of epoch, turn and id."""
        ...

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Return the times and spots of the messages that a group has held longest, longest first."""
        ...

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the stored marks of a group among these marks, in their order."""
        ...

    def keep(
        self, info: PipelineInfo, kept: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of turns, and the counts.

        Returns:
            The groups that another worker has changed meanwhile; if there is one, nothing is written.
        """
        ...

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages after a number, with their numbers, in order."""
        ...


class OutboxStore(Protocol):
    """Outputs that are not delivered yet; those of a group are delivered in order."""

    def outputs(self, pipeline: int, after: int, limit: int) -> list[MadeOutput]:
        """Return outputs after a number, in the order in which they were made."""
        ...

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[Claim]:
        """Claim the first outputs of unclaimed groups, until ``until_ms``."""
        ...

    def renew(self, pipeline: int, claims: Sequence[Claim], until_ms: int) -> None:
        """Extend claims."""
        ...

    def delivered(self, pipeline: int, claim: Claim, count: int, until_ms: int, error: str | None) -> bool:
        """End a claim and remove its first outputs, which were delivered.

        Args:
            pipeline: number of the pipeline.
            claim: the claim.
            count: number of delivered outputs.
            until_ms: earliest time of the next attempt for the others.
            error: why the next output could not be delivered; None: no failure.

        Returns:
            Whether the claim was still valid; if not, nothing is changed.
        """
        ...

    def outgoing(self, pipeline: int, groups: Sequence[str] | None, limit: int, after: str = "") -> list[Outgoing]:
        """Return groups with undelivered outputs: those named or, for None, those of which one failed, after a name."""
        ...

    def has_unsent(self, pipeline: int) -> bool:
        """Return whether a group has undelivered outputs that were not refused."""
        ...

    def redeliver(self, pipeline: int, groups: Sequence[str] | None) -> int:
        """Let refused outputs of these groups, or of all, be claimed again; return the number of groups."""
        ...


class DecisionStore(Protocol):
    """Decisions of people about groups, kept for ever."""

    def decide(self, pipeline: int, decided: Sequence[Decided]) -> None:
        """Append decisions."""
        ...

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[Decided]:
        """Return the decisions that are not taken yet, in order."""
        ...

    def take(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Mark decisions as taken, with the verdict on each by its name."""
        ...

    def verdicts(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the verdicts on those of the named decisions that are taken, by name."""
        ...


class PipelineStore(GroupStore, OutboxStore, DecisionStore, Protocol):
    """All stored data of pipelines. All methods are called inside a transaction of the store."""


class PipelineKeeper(Store, Protocol):
    """A store of queues and pipelines, so that both change in one transaction."""

    @property
    def pipelines(self) -> PipelineStore:
        """The pipelines of the store."""
        ...


class SqlStore(PipelineKeeper, SessionStore, KeyStore, Protocol):
    """A store in an SQL database, which may contain tables of the caller too."""

    @property
    def identity(self) -> str:
        """Identity of the open database; a copy that is opened elsewhere has another."""
        ...

    @property
    def lineage(self) -> bytes:
        """Identity that a database shares with its copies.

        16 random bytes, made with the database and kept by backup and restore.
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
        """The sources whose records became messages of these queues."""
        ...

    @property
    def rates(self) -> RateStore:
        """The rate limits of the queues."""
        ...

    @property
    def servers(self) -> ServerStore:
        """The tables that servers use beside the queues."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run an SQL statement of the caller; return a cursor over its rows."""
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
