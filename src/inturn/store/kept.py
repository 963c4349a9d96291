"""What a store keeps of a pipeline that runs in a process: plain values, in which the rules of core are bytes already.

A store looks at no more of them than it needs to find them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Spot: TypeAlias = tuple[int, int, str]
"""Where a held message lies in its group: epoch, turn and id."""


@dataclass
class PipelineInfo:
    """What a store knows of a pipeline.

    Attributes:
        number: its own among the pipelines of the store; 0 before it has one.
        name: what it is called.
        about: what it is, so that no other is taken for it: plain values.
        counts: where its messages went: plain values.
        outputs: how many outputs it has made; the number of the last.
        tokens: the last fencing token of its outbox.
    """

    number: int
    name: str
    about: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    outputs: int = 0
    tokens: int = 0


class Line(NamedTuple):
    """A group as it was left.

    Attributes:
        group: its text form.
        version: grows with every change; 0 before the first.
        status: where it stands.
        timeline: its place in its order.
        state: what its handler keeps.
        held: how many messages it holds.
        oldest_us: since when the one that waits longest waits.
        due_us: when its wait ends by itself; None if it does not.
    """

    group: str
    version: int
    status: str
    timeline: bytes
    state: bytes
    held: int
    oldest_us: int | None
    due_us: int | None


class HeldMessage(NamedTuple):
    """A message that a group holds.

    Attributes:
        epoch: 0 where the order has none.
        turn: its place.
        id: its deduplication id; empty where the pipeline names none.
        since_us: since when it is held.
        digest: of its content as it came.
        content: the message as JSON.
    """

    epoch: int
    turn: int
    id: str
    since_us: int
    digest: bytes
    content: str


class MadeOutput(NamedTuple):
    """An output.

    Attributes:
        number: its place among the pipeline's outputs; 0 before it has one.
        group: whose it is.
        epoch: the epoch of the message that caused it; None where the order has none.
        revision: the revision of the message; None where the order has none.
        id: the message's id, where the pipeline names one.
        at: which of the message's outputs, from 0.
        effect_id: the same in every run.
        output: what the handler returned, as JSON.
    """

    number: int
    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    at: int
    effect_id: str
    output: str


class RejectedMessage(NamedTuple):
    """A message that will not be applied.

    Attributes:
        group: whose it is, if that is known.
        reason: in a word.
        detail: in more words.
        message: as JSON, or as the text that it is.
        at_ms: when; 0 before it is kept.
    """

    group: str | None
    reason: str
    detail: str
    message: str
    at_ms: int = 0


class Mark(NamedTuple):
    """A message that was applied and is remembered for ever.

    Attributes:
        mark: the bytes by which it is known again.
        digest: the first bytes of its digest.
        turn: its place.
    """

    mark: bytes
    digest: bytes
    turn: int


class Kept(NamedTuple):
    """What a turn of a group leaves behind.

    Attributes:
        line: the group as it is now, with the version that the turn began with.
        held: messages that it holds now and did not, or that are other ones now.
        gone: where messages lie that it held and does not any more.
        outputs: what it put out, in order.
        marks: what is remembered beside the group from now on.
    """

    line: Line
    held: Sequence[HeldMessage]
    gone: Sequence[Spot]
    outputs: Sequence[MadeOutput]
    marks: Sequence[Mark] = ()


class Decided(NamedTuple):
    """What a person decided about a group.

    Attributes:
        name: names it; in the order of names they are taken.
        group: about which.
        decision: as JSON.
        verdict: None: not taken yet; empty: it was done; else why it is void.
    """

    name: str
    group: str
    decision: str
    verdict: str | None = None


class Claim(NamedTuple):
    """A group whose outputs are to be delivered by who has the claim, until it is over.

    Attributes:
        group: which.
        token: grows with every claim.
        attempts: how often its first output could not be delivered.
        outputs: in their order.
    """

    group: str
    token: int
    attempts: int
    outputs: Sequence[MadeOutput]


class Outgoing(NamedTuple):
    """A group with outputs that are not delivered.

    Attributes:
        group: which.
        until_ms: when the next attempt may be.
        attempts: how often its first output could not be delivered.
        error: why, the last time.
        depth: how many outputs there are.
    """

    group: str
    until_ms: int
    attempts: int
    error: str | None
    depth: int
