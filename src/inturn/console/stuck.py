"""Groups that do not go on, summed up by their reason: what a person looks at first."""

import datetime as dt
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from inturn.core.pipeline.inspection import GroupStatus, Inspector
from inturn.core.pipeline.selection import last_line
from inturn.core.pipeline.timeline import Status

SHOWN = 200
_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass
class StuckReason:
    """The groups of one pipeline that stopped for one reason.

    Attributes:
        status: ``failed``, ``gap``, ``waiting`` or ``given up``.
        error: last line of the handler's error; empty where there is none.
        groups: number of groups.
        held: number of messages behind it.
        oldest: when the longest wait began.
    """

    status: str
    error: str
    groups: int = 0
    held: int = 0
    oldest: dt.datetime | None = None

    @property
    def needs_decision(self) -> bool:
        """Return whether the groups go on only if a person decides."""
        return self.status in {Status.FAILED, Status.GAP}


@dataclass
class StuckGroups:
    """The groups of one pipeline that do not go on.

    Attributes:
        title: name of the store.
        reasons: the reasons; those that need a decision first, then the greatest.
        groups: the groups with the longest waits, ``SHOWN`` at most.
        failing: the groups whose outputs cannot be delivered, with the error.
    """

    title: str
    reasons: list[StuckReason] = field(default_factory=list)
    groups: list[GroupStatus] = field(default_factory=list)
    failing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Return the number of all these groups."""
        return sum(each.groups for each in self.reasons)


def stuck(look: Inspector, title: str, *, group: Sequence[str] = (), error: str | None = None) -> StuckGroups:
    """Sum up the groups of a pipeline that do not go on.

    Args:
        look: the pipeline's store.
        title: name of the store.
        group: shell patterns of which one must match a group's name; none: any name.
        error: shell pattern of the last line of its error.
    """
    reasons: dict[tuple[str, str], StuckReason] = {}

    def summed(groups: Iterable[GroupStatus]) -> Iterable[GroupStatus]:
        for each in groups:
            key = each.status, last_line(each.error)
            reason = reasons.setdefault(key, StuckReason(*key))
            reason.groups += 1
            reason.held += each.held
            reason.oldest = min(filter(None, (reason.oldest, each.oldest)), default=None)
            yield each

    oldest = heapq.nsmallest(
        SHOWN,
        summed(look.parked(group=group or None, error=error)),
        key=lambda each: (each.oldest or _LATEST, each.group),
    )
    order = sorted(reasons.values(), key=lambda each: (not each.needs_decision, -each.groups, each.error))
    failing = [(each.group, last_line(each.error)) for each in look.failing()]
    return StuckGroups(title, order, oldest, failing)
