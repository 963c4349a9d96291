"""The documents about groups that the JSON API returns."""

import datetime as dt
from typing import Any, TypedDict


class GroupStatusDocument(TypedDict):
    """The status of a group."""

    group: str
    status: str
    epoch: int | None
    reached: int | None
    error: str | None
    skipped: list[tuple[int, int]]
    held: int
    oldest: dt.datetime | None
    deadline: dt.datetime | None
    step: int
    state: Any


class StuckReasonDocument(TypedDict):
    """The groups of one pipeline that stopped for one reason."""

    status: str
    error: str
    groups: int
    held: int
    oldest: dt.datetime | None


class FailingOutputDocument(TypedDict):
    """A group whose outputs cannot be delivered."""

    group: str
    error: str


class StuckStoreDocument(TypedDict):
    """The stuck groups of one pipeline."""

    title: str
    reasons: list[StuckReasonDocument]
    groups: list[GroupStatusDocument]
    failing: list[FailingOutputDocument]


class HeldDocument(TypedDict):
    """A message that a group holds."""

    place: str
    since: dt.datetime
    content: dict[str, Any]


class TimeLineDocument(TypedDict):
    """One position on a group's time line."""

    kind: str
    label: str
    about: str
    content: dict[str, Any] | None
    place: str
    since: dt.datetime | None
    turns: tuple[int, int] | None


class DecisionDocument(TypedDict):
    """A recorded decision."""

    id: str
    action: str
    group: str
    by: str
    at_us: int
    why: str
    epoch: int
    turn: int | None
    last: int | None
    message_id: str | None
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class TakenDecisionDocument(TypedDict):
    """A decision that was applied; ``void`` is the reason why it changed nothing, or empty."""

    decision: DecisionDocument
    void: str


class RejectedMessageDocument(TypedDict):
    """A message that was rejected."""

    group: str | None
    reason: str
    detail: str
    message: str
    at: dt.datetime


class OutputDocument(TypedDict):
    """An output in the store."""

    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    index: int
    effect_id: str
    output: Any


class DeliveryDocument(TypedDict):
    """The failed delivery of a group's first output."""

    group: str
    outputs: int
    attempts: int
    error: str
    next_try: dt.datetime | None
    status: str


class HistoryDocument(TypedDict):
    """The last events of a group in its store; each list has the newest first."""

    decisions: list[TakenDecisionDocument]
    rejected: list[RejectedMessageDocument]
    outputs: list[OutputDocument]
    undelivered: int | None
    delivery: DeliveryDocument | None


class FormFieldDocument(TypedDict):
    """An input of the form of a failing message."""

    name: str
    kind: str
    text: str
    about: str
    choices: list[str]
    is_none: bool
    takes_none: bool
    is_absent: bool
    is_needed: bool
    is_fixed: bool


class FieldChangeDocument(TypedDict):
    """A field that differs between two values."""

    path: str
    old: Any
    new: Any


class VoidGroupDocument(TypedDict):
    """A group whose decision changed nothing, and the reason."""

    group: str
    why: str
