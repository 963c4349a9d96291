"""The values that a worker and its transactions exchange: requests for work, and the work that was found."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from inturn.core.errors import NoSuchQueue, QueueFull
from inturn.core.queue.messages import Delivery, ReceiveRequest
from inturn.store.records import GroupRecord, OutboxClaim, StoredDecision
from inturn.worker.group_task import GroupTask


class LeaseLost(Exception):
    """Tasks whose leases have expired; the transaction stored nothing, of any task."""

    def __init__(self, tasks: list[GroupTask]) -> None:
        super().__init__(tasks)
        self.tasks = tasks


class Overtaken(Exception):
    """Groups that another worker has changed since their tasks began; the transaction stored nothing, of any task."""

    def __init__(self, groups: list[str]) -> None:
        super().__init__(groups)
        self.groups = groups


class ChainRefused(Exception):
    """Tasks whose outputs the queue of the chain does not accept; the transaction stored nothing, of any task."""

    def __init__(self, tasks: list[GroupTask], reason: QueueFull | NoSuchQueue) -> None:
        super().__init__(tasks, reason)
        self.tasks, self.reason = tasks, reason


@dataclass(eq=False, slots=True)
class DeliveryAttempt:
    """A claim whose outputs are being delivered.

    Attributes:
        claim: the claimed outputs.
        until_ms: the end of the claim.
        began_s: when it was passed to the threads, by the monotonic clock.
        count: the number of outputs delivered.
        error: the error of the first output that failed.
        error_type: the type of that error.
        pause_s: the time until the next attempt.
        is_last_pause: whether the pauses have their final length.
        took_s: how long each call of ``deliver`` took; the last one failed if there is an error.
        is_refused: whether it is not tried again until an operator decides.
    """

    claim: OutboxClaim
    until_ms: int
    began_s: float = 0.0
    count: int = 0
    error: str | None = None
    error_type: str = ""
    pause_s: float = 0.0
    is_last_pause: bool = False
    took_s: list[float] = field(default_factory=list)
    is_refused: bool = False

    @property
    def is_alone(self) -> bool:
        """True if no other is delivered at the same time: it may have killed a process."""
        return self.claim.is_alone


@dataclass(slots=True)
class WorkRequest:
    """The input of one transaction.

    Attributes:
        done: tasks whose results are stored.
        nacked: tasks whose messages are nacked.
        extended: tasks whose leases are extended.
        undone_begins: for groups whose task without messages has ended or gave way: how often such tasks had begun.
        busy: groups whose tasks are running and not in ``done``.
        queued_groups: groups with buffered messages whose previous task has ended.
        adopted: messages that were already received.
        receives: the messages to receive.
        is_receiving: whether to take new work.
        is_final: whether to take groups that wait for a later message too, once the queue is empty.
        is_alone: whether a task runs that is to run alone, so that nothing else begins.
        is_busy: whether a task that is to run alone cannot begin now.
        finished_deliveries: finished claims.
        renewed_claims: claims to be extended.
        claim_limit: the maximum number of new claims.
        asks_unsent: whether to check for undelivered outputs.
    """

    done: Sequence[GroupTask] = ()
    nacked: Sequence[GroupTask] = ()
    extended: Sequence[GroupTask] = ()
    undone_begins: Mapping[str, int] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    queued_groups: Sequence[str] = ()
    adopted: Sequence[Delivery] = ()
    receives: Sequence[ReceiveRequest] = ()
    is_receiving: bool = True
    is_final: bool = False
    is_alone: bool = False
    is_busy: bool = False
    finished_deliveries: Sequence[DeliveryAttempt] = ()
    renewed_claims: Sequence[DeliveryAttempt] = ()
    claim_limit: int = 0
    asks_unsent: bool = False


@dataclass(slots=True)
class WorkResult:
    """The work found by one transaction.

    Attributes:
        now_ms: the time of the transaction.
        deliveries: messages, with their groups.
        is_alone: whether nothing else is to run at the same time: one of them may have killed a process.
        decisions: decisions about groups that are free.
        due: groups whose wait has expired.
        final: the groups of ``due`` that wait for a later message although the input is complete.
        final_after: the last group that was checked for that; empty: all were.
        is_unfinished: whether there were such groups.
        begun: for tasks without messages that begin now: how often they have begun.
        records: the known groups of all these items, as of now.
        claims: outputs to be delivered.
        lost: tasks whose leases could not be extended.
        depth: the number of unacknowledged messages in the queue.
        is_unsent: whether there are outputs to be delivered that were not refused, if the request asked for it.
        drained_count: the number of outputs of the outbox that were sent to the queue of the chain.
        chained_count: the number of all outputs that were sent to it, including those of tasks.
    """

    now_ms: int
    deliveries: list[tuple[str | None, Delivery]] = field(default_factory=list)
    is_alone: bool = False
    decisions: list[StoredDecision] = field(default_factory=list)
    due: list[str] = field(default_factory=list)
    final: frozenset[str] = frozenset()
    final_after: str = ""
    is_unfinished: bool = False
    begun: dict[str, int] = field(default_factory=dict)
    records: dict[str, GroupRecord] = field(default_factory=dict)
    claims: list[OutboxClaim] = field(default_factory=list)
    lost: list[GroupTask] = field(default_factory=list)
    depth: int = 0
    is_unsent: bool = False
    drained_count: int = 0
    chained_count: int = 0


def has_applied(task: GroupTask) -> bool:
    """Return whether the handler has applied a message in a task."""
    return task.result is not None and task.result.journal.counts.applied > 0


T_leased = TypeVar("T_leased", GroupTask, DeliveryAttempt)


def ending(items: Iterable[T_leased], now_ms: int, lease_of: Callable[[T_leased], int]) -> list[T_leased]:
    """Return the items of which less than half of the lease is left."""
    return [item for item in items if item.until_ms is not None and item.until_ms - now_ms < lease_of(item) // 2]
