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
from inturn.core.errors import NoSuchQueue, StoreError
from inturn.core.idempotency import Answer, Request
from inturn.store.kept import (
    Claim,
    Decided,
    HeldMessage,
    Kept,
    Line,
    MadeOutput,
    Mark,
    Outgoing,
    PipelineInfo,
    RejectedMessage,
    Spot,
)
from inturn.store.servers import ServerStore


def no_such_queue(name: str, there: Iterable[str]) -> NoSuchQueue:
    """What to raise for the name of a queue that is not among those that are there."""
    return NoSuchQueue(f"there is no queue {name!r}; there are: {', '.join(sorted(there)) or 'none'}")


class RunAgain(StoreError):
    """Another transaction was in the way, so this one was rolled back; run again, it may well succeed."""


class Busy(StoreError):
    """A transaction that may last has what this one needs, so this one was rolled back; others need not wait for it."""


class NoRoom(StoreError):
    """The disk is too full to send; what makes room can be done."""


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

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a number was given; see :mod:`inturn.core.incarnation`."""
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


class GroupStore(Protocol):
    """What pipelines keep of their groups. A pipeline is named by its number."""

    def names(self) -> list[str]:
        """The names of all pipelines."""
        ...

    def info(self, name: str) -> PipelineInfo | None:
        """What is known of a pipeline; what is changed in it is kept by :meth:`save` and :meth:`keep`."""
        ...

    def save(self, info: PipelineInfo) -> None:
        """Make a pipeline (one whose number is 0), or change it."""
        ...

    def lines(self, pipeline: int, groups: Iterable[str]) -> list[Line]:
        """Those of the groups that are known."""
        ...

    def listed(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[Line]:
        """Groups in the order of their names; only those that hold something or are parked, if so asked."""
        ...

    def due(self, pipeline: int, now_us: int, limit: int) -> list[str]:
        """Groups whose wait is over, the longest first."""
        ...

    def held(
        self, pipeline: int, group: str, turns: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldMessage]:
        """What a group holds: all of it, or only what has one of these turns or ids."""
        ...

    def held_from(self, pipeline: int, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """What a group holds from a spot on, in the order of epoch, turn and id."""
        ...

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Since when a group holds those messages that wait longest, and where they lie; in that order."""
        ...

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[Mark]:
        """What is remembered beside a group of messages with these marks, in the order of the marks."""
        ...

    def keep(
        self, info: PipelineInfo, kept: Sequence[Kept], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Keep what turns have left behind, and the counts.

        Returns:
            The groups that somebody else has changed meanwhile; nothing is kept if there is one.
        """
        ...

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Rejected messages with their numbers, in order, after a number."""
        ...


class OutboxStore(Protocol):
    """Outputs that are not delivered yet: of each group the first ones first."""

    def outputs(self, pipeline: int, after: int, limit: int) -> list[MadeOutput]:
        """Outputs in the order in which they were made, after a number."""
        ...

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[Claim]:
        """The first outputs of groups that nobody has, until the claim is over."""
        ...

    def renew(self, pipeline: int, claims: Sequence[Claim], until_ms: int) -> None:
        """Have claims for longer."""
        ...

    def delivered(self, pipeline: int, claim: Claim, count: int, until_ms: int, error: str | None) -> bool:
        """The first outputs of a claim were delivered and are forgotten; the claim ends.

        Args:
            pipeline: whose.
            claim: which.
            count: how many.
            until_ms: when the others may be tried again.
            error: why the next could not be delivered, if it could not.

        Returns:
            Whether the claim was still good; if not, nothing is changed.
        """
        ...

    def outgoing(self, pipeline: int, groups: Sequence[str] | None, limit: int) -> list[Outgoing]:
        """Groups with outputs that are not delivered: those that are named, or those that could not be."""
        ...


class DecisionStore(Protocol):
    """What people decided about groups, kept for ever."""

    def decide(self, pipeline: int, decided: Decided) -> None:
        """Append a decision."""
        ...

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[Decided]:
        """Those that are not taken yet, in order."""
        ...

    def take(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Decisions were taken: what has come of each, by its name."""
        ...

    def verdict(self, pipeline: int, name: str) -> str | None:
        """What has come of a decision; None if it is not taken yet."""
        ...


class PipelineStore(GroupStore, OutboxStore, DecisionStore, Protocol):
    """Everything that a pipeline keeps. All of it is called inside a transaction of the store."""


class PipelineKeeper(Store, Protocol):
    """A store of queues that keeps pipelines too, so that both change in one transaction."""

    @property
    def pipelines(self) -> PipelineStore:
        """The pipelines."""
        ...


class SqlStore(PipelineKeeper, SessionStore, KeyStore, Protocol):
    """A store in an SQL database, in which the caller may have tables too."""

    @property
    def identity(self) -> str:
        """Identify the database that is open: a copy of it, opened elsewhere, has another."""
        ...

    @property
    def lineage(self) -> bytes:
        """Identify the database and its copies: 16 random bytes, made with it and kept by backup and restore."""
        ...

    def is_identity(self, identity: str) -> bool:
        """Say whether this is the identity of the database that is open here, maybe by another store."""
        ...

    def lasting(self) -> AbstractContextManager[None]:
        """A transaction of the caller's, which may last, and waits for others that do."""
        ...

    @property
    def servers(self) -> ServerStore:
        """What a server asks of the database beyond its queues."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a statement of the caller's; a cursor over its rows is returned."""
        ...

    def backup(self, target: str) -> None:
        """Copy the database into a file while it is in use.

        Raises:
            InputError: if it is none that can be copied so.
        """
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
