"""The rows of a pipeline's results, the same in a replay and over every store; those of groups are in inspection.py."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic

from inturn.core.pipeline.type_variables import OutputT
from inturn.core.texts import kept_name, shown, visible


@dataclass(frozen=True, slots=True)
class Output(Generic[OutputT]):
    """One output with its message and its effect id.

    Attributes:
        group: text form of the group.
        epoch: epoch of the message; None where the order has none.
        revision: revision of the message; None where the order has none.
        id: id of the message; None where the pipeline names none.
        index: index among the message's outputs, from 0.
        effect_id: the same in every run; the idempotency key of an external effect.
        output: value from the handler; read from a store, as JSON values.
    """

    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    index: int
    effect_id: str
    output: OutputT


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """One message that will not be applied, with the reason.

    Attributes:
        group: text form of its group; None if unknown.
        reason: reason in one word.
        detail: description of the reason.
        message: the message; in a store, as JSON, or its text if it is not JSON.
        at: when it was rejected; None in a replay, and until it is stored.
    """

    group: str | None
    reason: str
    detail: str
    message: Any
    at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class FailingDelivery:
    """A group whose outputs cannot be delivered.

    Attributes:
        group: its text form.
        outputs: number of its outputs that are not delivered.
        attempts: number of failed attempts to deliver the first of them.
        error: the last error.
        next_try: time of the next attempt; None: its receiver refused it for good, and it waits for an operator.
        status: ``delivering``, or ``refused``.
    """

    group: str
    outputs: int
    attempts: int
    error: str
    next_try: dt.datetime | None
    status: str = "delivering"


@dataclass(frozen=True)
class RejectionSummary:
    """The rejected messages of a group.

    Attributes:
        group: its text form.
        reasons: number of messages, by reason.
        reason: reason of the last one.
        detail: detail of the last one.
        at: when the last one was rejected.
    """

    group: str
    reasons: dict[str, int]
    reason: str
    detail: str
    at: dt.datetime | None

    @classmethod
    def of(cls, group: str, rejected: Iterable[RejectedMessage]) -> "RejectionSummary | None":
        """Count the rejected messages of a group, out of all of them, in order."""
        name, reasons, last = kept_name(group), Counter[str](), None
        for message in rejected:
            if message.group == name:
                reasons[message.reason] += 1
                last = message
        return None if last is None else cls(name, dict(sorted(reasons.items())), last.reason, last.detail, last.at)

    def __str__(self) -> str:
        """Return the summary in plain words."""
        parts = ", ".join(f"{count:,} as {reason}" for reason, count in self.reasons.items())
        count = sum(self.reasons.values())
        outcome = "its only message was rejected" if count == 1 else f"all of its {count:,} messages were rejected"
        time_note = f" at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        name = shown(self.group)
        return f"Group {name} has no state: {outcome}, {parts}. The last rejection{time_note}: {visible(self.detail)}."
