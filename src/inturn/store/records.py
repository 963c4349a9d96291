"""Stored records of pipelines that run in a process: plain values, with core's objects already encoded.

A store interprets only the fields by which it finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from inturn.core.identity import HeldKey


@dataclass
class PipelineInfo:
    """The stored info of a pipeline.

    Attributes:
        number: unique number in the store; 0 before it has one.
        name: name of the pipeline.
        about: its definition as plain values, by which another pipeline of this name is detected.
        counts: counts of its messages by verdict, as plain values.
        outputs: number of outputs produced so far; also the number of the last one, except in PostgreSQL.
        tokens: last fencing token of its outbox.
    """

    number: int
    name: str
    about: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    outputs: int = 0
    tokens: int = 0


class GroupRecord(NamedTuple):
    """The stored record of a group.

    Attributes:
        group: text form of the group.
        version: number that grows with every change; 0 before the first.
        status: status of the group.
        timeline: encoded position in the group's order.
        state: encoded state of the handler.
        held: number of held messages.
        oldest_us: since when its longest held message is held; None: it holds none.
        due_us: the time at which its wait ends automatically; None: never.
    """

    group: str
    version: int
    status: str
    timeline: bytes
    state: bytes
    held: int
    oldest_us: int | None
    due_us: int | None


class HeldRecord(NamedTuple):
    """A message held by a group.

    Attributes:
        epoch: epoch; 0 if the order has no epochs.
        position: place in the order.
        tie: text that orders it among messages of the same position.
        id: deduplication id; empty where the pipeline names none.
        since_us: since when it is held.
        digest: digest of its original content.
        content: the message as JSON.
    """

    epoch: int
    position: int
    tie: str
    id: str
    since_us: int
    digest: bytes
    content: str

    @property
    def spot(self) -> HeldKey:
        """The position in the group."""
        return self[:4]


class OutputRecord(NamedTuple):
    """An output of a pipeline.

    Attributes:
        number: number among the pipeline's outputs; 0 before it has one.
        group: text form of the group.
        epoch: epoch of the message that caused it; None if the order has no epochs.
        revision: revision of that message; None if the order has no revisions.
        id: id of that message; None where the pipeline names none.
        at: index among the outputs of that message, from 0.
        effect_id: idempotency key, the same in every run.
        output: the value that the handler emitted, as JSON.
        trace: the W3C traceparent of the task that produced it, if it was traced.
    """

    number: int
    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    at: int
    effect_id: str
    output: str
    trace: str | None = None


class AppliedMark(NamedTuple):
    """The permanent record of an applied message.

    Attributes:
        mark: bytes that identify the message.
        digest: first bytes of its digest.
        position: place in the order.
    """

    mark: bytes
    digest: bytes
    position: int


class GroupUpdate(NamedTuple):
    """The changes that a task of a group makes.

    Attributes:
        record: new record of the group, with the version that the task began with.
        held: messages that are newly held or have changed.
        removed: spots of messages that are held no longer.
        outputs: new outputs, in order.
        marks: new marks.
        state: the state that is encoded in the record, for its JSON form; None: it is not at hand.
    """

    record: GroupRecord
    held: Sequence[HeldRecord]
    removed: Sequence[HeldKey]
    outputs: Sequence[OutputRecord]
    marks: Sequence[AppliedMark] = ()
    state: Any = None


class StoredDecision(NamedTuple):
    """A decision of a person about a group.

    Attributes:
        name: unique name; decisions are applied in the order of their names.
        group: text form of the group.
        decision: the decision as JSON.
        verdict: None: not applied yet; empty: carried out; otherwise the reason why it is void.
    """

    name: str
    group: str
    decision: str
    verdict: str | None = None


class OutboxClaim(NamedTuple):
    """A claim: the right to deliver the outputs of a group, for a limited time.

    Attributes:
        group: text form of the group.
        token: fencing token, which grows with every claim.
        attempts: number of failed deliveries of its first output.
        outputs: first outputs of the group, in order; only the first one if there are ``lapses``.
        lapses: number of claims that expired since an output was last delivered or failed: the delivery may have killed
            their process. After an expiry it stays above 0 until all outputs of that claim are delivered.
        is_alone: whether no other is delivered at the same time, since the delivery may have killed a process before.
    """

    group: str
    token: int
    attempts: int
    outputs: Sequence[OutputRecord]
    lapses: int = 0
    is_alone: bool = False


class PendingDelivery(NamedTuple):
    """A group with undelivered outputs.

    Attributes:
        group: text form of the group.
        until_ms: earliest time of the next attempt.
        attempts: number of failed deliveries of its first output.
        error: reason of the last failure.
        depth: number of undelivered outputs.
    """

    group: str
    until_ms: int
    attempts: int
    error: str | None
    depth: int


class PipelineSummary(NamedTuple):
    """The size of a pipeline's results.

    Attributes:
        groups: number of its groups.
        waiting: number of groups that wait for a message.
        parked: number of groups that are parked or given up.
        held: number of messages that groups hold.
        outputs: number of outputs that are not delivered.
    """

    groups: int
    waiting: int
    parked: int
    held: int
    outputs: int
