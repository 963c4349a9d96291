"""The rows of a pipeline's results, the same over every store; those of groups are in inspection.py."""

import datetime as dt
from dataclasses import dataclass
from typing import Any


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
        output: what the handler emitted, as JSON values.
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
        next_try: when it is tried again; None: its receiver refused it for good, and it waits for a person.
        status: ``delivering``, or ``refused``.
    """

    group: str
    outputs: int
    attempts: int
    error: str
    next_try: dt.datetime | None
    status: str = "delivering"
