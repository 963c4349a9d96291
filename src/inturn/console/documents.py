"""The documents that the JSON API returns, as types; their schemas are in the OpenAPI document.

A record is returned with all its fields, so its own type is used. A document may have more fields than are named here:
clients should ignore unknown fields.
"""

import datetime as dt
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from inturn.console.differences import FieldChange
from inturn.console.forms import FormField
from inturn.console.queues import QueuedMessage, QueueGroup
from inturn.console.rates import QueueRate
from inturn.console.search import FoundMessage
from inturn.console.store_addresses import UnreadStore
from inturn.console.stuck import StuckGroups
from inturn.console.timeline_events import TimeLineEvent
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.inspection import GroupHistory, GroupStatus


class StuckDocument(TypedDict):
    """The stuck groups of all stores or of one."""

    stores: list[StuckGroups]
    unread: list[UnreadStore]
    chosen: dict[str, str | None]


class HeldDocument(TypedDict):
    """A message that a group holds."""

    place: str
    since: dt.datetime
    content: dict[str, Any]


class GroupDocument(TypedDict):
    """One group: its status, time line, held messages, and decisions that are not applied yet."""

    store: str
    group: GroupStatus
    held: list[HeldDocument]
    events: list[TimeLineEvent]
    said: str
    undecided: list[Decision]
    history: GroupHistory
    form: list[FormField]
    can_try: bool
    actions: list[str]
    unit: str
    seen: str | None


class PreviewDocument(TypedDict):
    """The groups that a decision would change; nothing is written."""

    store: str
    action: str
    groups: list[str]
    count: int
    void: dict[str, str]
    can_try: bool
    seen: str
    chosen: dict[str, str | None]


class TrialDocument(TypedDict):
    """One group after a dry run."""

    group: str
    outcome: str
    void: str | None
    state_before: Any
    state: Any
    changes: list[FieldChange]
    error: str | None
    held: int | None
    outputs: list[Any]
    rejected: dict[str, int]


class TryDocument(TypedDict):
    """The effect that a decision would have with the user's handler; nothing is written."""

    store: str
    action: str
    group: str | None
    changes: list[FieldChange]
    content: dict[str, Any] | None
    groups: int
    outcomes: dict[str, int]
    trials: list[TrialDocument]
    error: str
    why: str | None
    by: str | None
    chosen: dict[str, str | None]


class VoidGroupDocument(TypedDict):
    """A group whose decision changed nothing, and the reason."""

    group: str
    why: str


class DecidedDocument(TypedDict):
    """The outcome of a decision, or of a batch of them."""

    store: str
    action: str
    group: str | None
    count: int
    done: int
    pending: int
    void: dict[str, int]
    void_groups: list[VoidGroupDocument]
    left: int
    is_followed: bool
    takes: str


class QueueRowDocument(TypedDict):
    """The figures of a queue."""

    queue: str
    messages: int
    in_flight: int
    delayed: int
    oldest_s: float
    blocked: int
    parked: int
    dead_letter: str | None
    rates: list[QueueRate]


class DatabaseDocument(TypedDict):
    """The queues of a database."""

    title: str
    queues: list[QueueRowDocument]


class QueuesDocument(TypedDict):
    """The figures of all queues."""

    databases: list[DatabaseDocument]
    unread: list[UnreadStore]


class QueueDocument(TypedDict):
    """One queue: its figures, its groups, and its first messages."""

    database: str
    queue: str
    depth: dict[str, int]
    last: int
    dead_letter: str | None
    dead_letters_of: list[str]
    groups: list[QueueGroup]
    messages: list[QueuedMessage]
    next: int | None
    chosen: dict[str, str | None]


class DeadReasonDocument(TypedDict):
    """The number of dead letters of one queue with one reason."""

    came_from: str | None
    note: str
    messages: int


class DeadQueueDocument(TypedDict):
    """A dead-letter queue: its matching messages by reason, and the first ones."""

    database: str
    queue: str
    feeds: list[str]
    depth: int
    last: int
    looked_at: int
    matching: int
    reasons: list[DeadReasonDocument]
    messages: list[QueuedMessage]


class DeadDocument(TypedDict):
    """The dead letters of all databases."""

    queues: list[DeadQueueDocument]
    unread: list[UnreadStore]
    chosen: dict[str, str | None]


class PartitionDocument(TypedDict):
    """A partition of a source."""

    partition: str
    position: str | None
    status: str
    owner: str | None
    received: int
    rejected: int
    moved: int
    lag: int | None
    age_s: float | None
    refusal: str | None


class RejectedRecordDocument(TypedDict):
    """A record that could not be converted to a message."""

    partition: str
    position: str
    reason: str


class SourceDocument(TypedDict):
    """A source: its partitions, and the first records that it rejected."""

    database: str
    source: str
    partitions: list[PartitionDocument]
    rejected: list[RejectedRecordDocument]


class SourcesDocument(TypedDict):
    """All sources."""

    sources: list[SourceDocument]
    unread: list[UnreadStore]


class StepDocument(TypedDict):
    """A step of a store on Spark."""

    step: int
    committed: str
    seconds: float
    counts: dict[str, Any]
    held: int
    parked: int
    decisions: int


class StepsStoreDocument(TypedDict):
    """The latest steps of a store, newest first."""

    title: str
    steps: list[StepDocument]


class StepsDocument(TypedDict):
    """The latest steps of the stores on Spark."""

    stores: list[StepsStoreDocument]
    unread: list[UnreadStore]


class FoundGroupDocument(TypedDict):
    """A group of a pipeline that was found."""

    store: str
    group: str
    status: str
    held: int


class FoundWaitingDocument(TypedDict):
    """A group of a queue that was found."""

    database: str
    queue: str
    group: QueueGroup


class SearchDocument(TypedDict):
    """The groups, messages and outputs that were found; ``cut`` lists the places not searched completely."""

    q: str | None
    groups: list[FoundGroupDocument]
    waiting: list[FoundWaitingDocument]
    unread: list[UnreadStore]
    within: bool
    messages: list[FoundMessage]
    most: int
    cut: list[str]


class ActionLineDocument(TypedDict):
    """An entry of the action log."""

    at: dt.datetime
    by: str
    action: str
    event: str


class ActionsDocument(TypedDict):
    """The latest entries of the action log, newest first."""

    actions: list[ActionLineDocument]


class DecideDocument(TypedDict):
    """A recorded decision: the fields with which ``/api/decided`` returns its outcome."""

    store: str
    action: str
    first: str
    count: str
    group: NotRequired[str]
    left: NotRequired[str]


class DoneDocument(TypedDict):
    """The result of an action, as a sentence."""

    done: str


class ErrorDocument(TypedDict):
    """The reason why a request was refused."""

    error: str


OF_PAGES: Final[dict[str, type]] = {
    "stuck": StuckDocument,
    "group": GroupDocument,
    "preview": PreviewDocument,
    "try": TryDocument,
    "decided": DecidedDocument,
    "queues": QueuesDocument,
    "queue": QueueDocument,
    "sources": SourcesDocument,
    "steps": StepsDocument,
    "search": SearchDocument,
    "dead": DeadDocument,
}
"""The document of each page, by the name of its route."""


def schemas() -> tuple[dict[type, dict[str, Any]], dict[str, Any]]:
    """Return a reference to the schema of each document, and all schemas by name."""
    types = [*OF_PAGES.values(), ActionsDocument, DecideDocument, DoneDocument, ErrorDocument]
    references, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in components.values():
        schema["description"] = schema["description"].split("\n", 1)[0]  # of a record, without its attributes
        if schema.get("type") == "object":  # which is returned with the fields that have their defaults too
            fields = schema["properties"].items()
            schema["required"] = [name for name, field in fields if name in schema["required"] or "default" in field]
    return dict(zip(types, references, strict=True)), components
