"""The rows of a pipeline's results, the same over every store; the rows of groups are in inspection.py."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inturn.core.texts import kept_name, shown, visible


@dataclass(frozen=True, slots=True)
class OutputRow:
    """An output.

    Attributes:
        group: text form of its group.
        epoch: epoch of the message that caused it; None where the order has none.
        revision: revision of that message; None where the order has none.
        id: deduplication id of that message; None where the pipeline names none.
        index: its index among the outputs of that message, from 0.
        effect_id: its idempotency key.
        output: the value that the handler emitted, as JSON values.
    """

    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    index: int
    effect_id: str
    output: Any


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A message that will not be applied.

    Attributes:
        group: text form of its group; None if unknown.
        reason: reason in one word.
        detail: description of the reason.
        message: the message as JSON, or its text if it is not JSON.
        at: when it was rejected.
    """

    group: str | None
    reason: str
    detail: str
    message: str
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class FailingRow:
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
class RejectedStatus:
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
    def of(
        cls, group: str, rejected: Iterable[tuple[str | None, str, str, dt.datetime | None]]
    ) -> "RejectedStatus | None":
        """Count the rejected messages of a group, out of (group, reason, detail, time) of all of them, in order."""
        wanted, found = kept_name(group), [each for each in rejected if each[0] == kept_name(group)]
        if not found:
            return None
        reasons = dict(sorted(Counter(reason for _, reason, _, _ in found).items()))
        return cls(wanted, reasons, *found[-1][1:])

    def __str__(self) -> str:
        """Return the summary in plain words."""
        parts = ", ".join(f"{count:,} as {reason}" for reason, count in self.reasons.items())
        count = sum(self.reasons.values())
        what = "its only message was rejected" if count == 1 else f"all of its {count:,} messages were rejected"
        at = f" at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        name = shown(self.group)
        return f"Group {name} has no state: {what}, {parts}. The last rejection{at}: {visible(self.detail)}."
