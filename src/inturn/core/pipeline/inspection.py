"""Inspection of groups: their status in plain words, the same over every store.

It needs neither Spark nor the user's code. A store supplies its data through :class:`Inspector`; the texts are here.
"""

import datetime as dt
import heapq
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from inturn.core import limits
from inturn.core.errors import InputError, NoSuchGroup
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.results import FailingDelivery, Output, RejectedMessage, RejectionSummary
from inturn.core.pipeline.selection import Selection, patterns
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import checked_text, shown, visible
from inturn.core.words import counted, when

_THEN = {
    "park": "then the group is parked",
    "skip": "then the gap is skipped",
    "fail": "then the run fails",
}


@dataclass(frozen=True)
class HeldMessageStatus:
    """A message that a group holds.

    Attributes:
        epoch: 0 where the order has none.
        position: its place: a revision, a time in microseconds, or a count of arrivals.
        id: its deduplication id, where the pipeline names one.
        since: when the wait began.
        digest: digest of its original content, in hexadecimal digits.
        content: the message.
    """

    epoch: int
    position: int
    id: str | None
    since: dt.datetime
    digest: str
    content: dict[str, Any]


@dataclass(frozen=True)
class GroupStatus:
    """The status of a group.

    Attributes:
        group: its text form.
        status: ``open``, ``waiting``, ``gap``, ``failed`` or ``given up``.
        epoch: the current epoch.
        reached: its position in the order; see ``core/pipeline/grades.py``.
        error: why it is parked, in words, with the handler's traceback.
        skipped: the skipped ranges of revisions.
        held: number of messages that it holds.
        oldest: when its longest wait began.
        deadline: when its wait expires; None if it does not.
        step: the last step, or the group's last task, that changed it.
        state: its state, as JSON values.
        old_version: version of its state, if it is older than the pipeline: not upgraded yet, or ``upgrade`` failed.
    """

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
    old_version: int | None = None


class GroupBrief(NamedTuple):
    """The part of a group's status by which groups are summarized.

    Attributes:
        group: its text form.
        status: as in :class:`GroupStatus`.
        error: last line of its error; empty where there is none.
        held: number of messages that it holds.
        oldest_us: when its longest wait began, in microseconds since 1970; None if it holds none.
    """

    group: str
    status: str
    error: str
    held: int
    oldest_us: int | None


@dataclass(frozen=True)
class AppliedDecision:
    """A decision that was applied.

    Attributes:
        decision: the decision.
        void: why it changed nothing; empty: it was carried out.
    """

    decision: Decision
    void: str


@dataclass(frozen=True)
class GroupHistory:
    """The last events of a group that its store keeps, the last first in each list.

    Attributes:
        decisions: decisions that were applied.
        rejected: messages that were rejected.
        outputs: outputs that the store keeps: in a database those that are not delivered.
        undelivered: number of outputs that are not delivered; None if the store does not deliver.
        delivery: why the first of them could not be delivered; None: no attempt has failed.
    """

    decisions: Sequence[AppliedDecision] = ()
    rejected: Sequence[RejectedMessage] = ()
    outputs: Sequence[Output] = ()
    undelivered: int | None = None
    delivery: FailingDelivery | None = None


class Inspector(ABC):
    """A view of a pipeline's stored data; a context manager.

    Attributes:
        title: name of the store, or of the pipeline in it, for sentences.
        pipeline: name of the pipeline.
        order: the order of the pipeline.
        policy: policy for a gap whose wait has expired.
        version: version of the pipeline that ran last, to which states are upgraded.
        shape: shape of its state type, see :func:`inturn.core.pipeline.versions.shape_of`; None: not known.
        unit: unit in which the changes of a group's state are counted, such as a step.
        applied_when: when a decision is applied, in words.
    """

    title: str
    pipeline: str
    order: StoredOrder
    policy: str
    version: int
    shape: Any = None
    unit = "step"
    applied_when = "the next step applies it"

    def __enter__(self) -> Self:
        """Return the view itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the view."""

    def parked(self, *, group: str | Iterable[str] | None = None, error: str | None = None) -> Iterator[GroupStatus]:
        """Return the groups that are parked, given up or waiting.

        Args:
            group: shell pattern of their names, or several of which one must match.
            error: shell pattern of the last line of their error.
        """
        selection = Selection((), patterns(group), error, is_all=True)
        return (group for group in self.unsettled() if selection.matches(group.group, group.error))

    def longest_waits(
        self, chosen: Iterable[GroupBrief], limit: int | None = None
    ) -> tuple[Iterator[GroupStatus], int]:
        """Return groups, the longest wait first, and their number; states are read ``limits.RESULT_ROWS`` at a time.

        Args:
            chosen: some of :meth:`briefs`.
            limit: how many groups at most; the number counts the others too. None: all.
        """
        never = math.inf  # holds nothing, so it is last
        waits = [(never if group.oldest_us is None else group.oldest_us, group.group) for group in chosen]
        first = sorted(waits) if limit is None else heapq.nsmallest(limit, waits)
        return self._in_order([group for _, group in first]), len(waits)

    def _in_order(self, names: Sequence[str]) -> Iterator[GroupStatus]:
        """Yield the status of those of the groups that are not open, in the order of the names."""
        is_one = len(names) <= limits.RESULT_ROWS  # of several, each would pass over all that is not open on Spark
        for first in range(0, len(names), limits.RESULT_ROWS):
            part = names[first : first + limits.RESULT_ROWS]
            statuses = {group.group: group for group in self.unsettled(part)} if is_one else self.statuses(part)
            yield from (statuses[name] for name in part if name in statuses and statuses[name].status != Status.OPEN)

    @abstractmethod
    def unsettled(self, names: Sequence[str] | None = None) -> Iterator[GroupStatus]:
        """Return the groups that are not open: all, or those with one of these names."""

    @abstractmethod
    def briefs(self) -> Iterator[GroupBrief]:
        """Return the same groups in brief, which is much cheaper where there are thousands."""

    @abstractmethod
    def statuses(self, names: Sequence[str]) -> dict[str, GroupStatus]:
        """Return the status of the groups with these names that exist in the store."""

    def group(self, name: str) -> GroupStatus:
        """Return the status of one group.

        Raises:
            NoSuchGroup: if the store has no such group.
        """
        checked_text("group", name)
        status = self.statuses([name]).get(name)
        if status is None:
            raise NoSuchGroup(f"{self.title} has no group {name!r}")
        return status

    @abstractmethod
    def groups(self) -> Iterator[GroupStatus]:
        """Return all groups."""

    @abstractmethod
    def outputs(self) -> Iterator[Output]:
        """Return the stored outputs, those of each group in the order in which they were emitted."""

    @abstractmethod
    def rejected(self) -> Iterator[RejectedMessage]:
        """Return the rejected messages, in the order of their rejection."""

    def failing(self) -> Iterator[FailingDelivery]:
        """Return the groups whose outputs cannot be delivered; none if the store does not deliver."""
        return iter(())

    def redeliver(self, groups: Sequence[str] | None) -> int:  # noqa: ARG002 - a hook
        """Let refused outputs of these groups, or of all, be delivered again; return the number of groups."""
        return 0

    def rejection_summary(self, name: str) -> RejectionSummary | None:
        """Return the rejected messages of a group; None if it has none. Reads the rejected messages of all groups."""
        return RejectionSummary.of(name, self.rejected())

    @abstractmethod
    def held(self, name: str) -> list[HeldMessageStatus]:
        """Return the messages that a group holds, in the order in which they would be applied."""

    @abstractmethod
    def pending_decisions(self, name: str) -> list[Decision]:
        """Return the decisions about a group that are not applied yet."""

    def history(self, name: str, limit: int) -> GroupHistory:  # noqa: ARG002 - a hook
        """Return the last events of a group, at most ``limit`` of each kind."""
        return GroupHistory()

    def stray_files(self) -> list[tuple[str, str]]:
        """Return the files in the place of decisions that are not decisions, and why each is not."""
        return []

    def move_stray_files(self) -> list[tuple[str, str]]:
        """Move such files aside, and return them."""
        return []

    def counts(self) -> Counts | None:
        """Return the message counts of all steps together; None if every step has its own counts."""
        return None

    def further_sentences(self, name: str) -> list[str]:  # noqa: ARG002 - a hook
        """Return further sentences about a group."""
        return []

    def explain(self, name: str) -> str:
        """Return a group's status in plain words, with the reason and the start of its wait, or why it has no state.

        Raises:
            NoSuchGroup: if no message of the group was ever received or rejected.
        """
        try:
            group = self.group(name)
        except InputError:
            refused = self.rejection_summary(name)
            if refused is None:
                raise
            return str(refused)
        held = self.held(name)
        now = dt.datetime.now(dt.UTC)
        lines = [_status_sentence(self, group, held, now)]
        if group.error and group.status == Status.FAILED:
            lines += ["Its error:", *(f"    {visible(line)}" for line in group.error.rstrip().split("\n"))]
        if group.skipped:
            lines.append("Skipped: " + ", ".join(_range(first, last) for first, last in group.skipped) + ".")
        if held:
            places = ", ".join(self.place(message) for message in held[:5]) + (" …" if len(held) > 5 else "")
            lines.append(f"It holds {counted(len(held), 'message')}: {places}.")
        lines += [
            f"Decided by {shown(decision.by)}, not yet applied: {decision.action}."
            for decision in self.pending_decisions(name)
        ]
        lines += self.further_sentences(name)
        if group.old_version is not None:
            lines.append(
                f"Its state has version {group.old_version}, the pipeline has version {self.version}: the state is "
                "upgraded with the group's next change, or by `inturn upgrade`."
            )
        lines.append(
            f"Its state after {self.unit} {group.step}: {json.dumps(group.state, default=str, ensure_ascii=False)}"
        )
        return "\n".join(lines)

    def versions(self) -> dict[int, int]:
        """Return the number of groups by the version of their states; it reads all groups."""
        counts = Counter(group.old_version or self.version for group in self.groups())
        return dict(sorted(counts.items()))

    def place(self, message: HeldMessageStatus) -> str:
        """Return a message's place in words."""
        return self.order.grade.words(message.position, message.id, message.epoch)

    def gap(self, group: GroupStatus, held: list[HeldMessageStatus]) -> tuple[int, int] | None:
        """Return the first and the last missing revision before the held messages of a group."""
        if not self.order.grade.has_gaps:
            return None
        revisions = [message.position for message in held if message.epoch == (group.epoch or 0)]
        due = self.due(group)
        return (due, min(revisions) - 1) if revisions and min(revisions) > due else None

    def due(self, group: GroupStatus) -> int:
        """Return the next revision to apply."""
        start = 1 if self.order.start is None else self.order.start  # before the first message it is not known
        return start if group.reached is None else group.reached + 1


def _status_sentence(store: Inspector, group: GroupStatus, held: list[HeldMessageStatus], now: dt.datetime) -> str:
    """Return the first sentence of an explanation."""
    name, since = (
        f"Group {shown(group.group)}",
        f" since {when(group.oldest, now)}" if group.oldest else "",
    )
    reached = f"; it has reached revision {group.reached}" if group.reached is not None else ""
    gap = store.gap(group, held)
    missing = f"revision{'s' if gap and gap[0] != gap[1] else ''} {_range(*gap)}" if gap else "its predecessor"
    match group.status:
        case Status.OPEN:
            return f"{name} is open: nothing is held{reached if store.order.grade.has_gaps else ''}."
        case Status.WAITING if gap:
            consequence = _THEN.get(store.policy, "")
            ends = "until the gap is skipped, without a time limit"
            if group.deadline:
                ends = f"until {when(group.deadline, now)}; {consequence}"
            return f"{name} waits for {missing}{since}{reached}. It waits {ends}."
        case Status.WAITING:
            ends = f", until {when(group.deadline, now)}" if group.deadline else "; set idle= of its order to end that"
            return f"{name} waits for a later message{since}: its held messages are within the lateness{ends}."
        case Status.GAP:
            return (
                f"{name} is parked: it waited for {missing}{since}, and the wait has expired{reached}. "
                "It continues automatically if the message still arrives; or skip the gap, or resume to wait again."
            )
        case Status.FAILED:
            head = f" {store.place(held[0])}" if held else ""
            return (
                f"{name} is parked{since}: the handler raised on{head}. It continues only after a decision: resume it "
                "when the handler is fixed, replace or drop the message, or give the group up."
            )
    return f"{name} is given up: its further messages are rejected. {group.error or ''}".rstrip()


def as_json(value: GroupStatus | HeldMessageStatus | RejectionSummary | FailingDelivery) -> dict[str, Any]:
    """Return a status, a held message, a summary of rejected ones or a failing delivery as JSON values."""
    # Not asdict(), which copies states: that took longer than all the rest.
    fields = ((name, getattr(value, name)) for name in value.__dataclass_fields__)
    return {name: field.isoformat() if isinstance(field, dt.datetime) else field for name, field in fields}


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
