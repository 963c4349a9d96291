"""Stuck groups, summed up by reason: the first page."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from inturn.core.pipeline.inspection import GroupBrief, GroupStatus, Inspector
from inturn.core.pipeline.selection import Selection
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import last_line
from inturn.core.words import time_of

SHOWN: Final = 200
_LATEST: Final = 2**63
"""A time after all others, for groups without a waiting message."""


@dataclass
class StuckReason:
    """The groups of one pipeline that stopped for one reason.

    Attributes:
        status: ``failed``, ``gap``, ``waiting`` or ``given up``.
        error: last line of the handler's error; empty if there is no error.
        groups: number of groups.
        held: number of messages that the groups hold.
        oldest: when the longest wait began.
    """

    status: str
    error: str
    groups: int = 0
    held: int = 0
    oldest: dt.datetime | None = None

    @property
    def needs_decision(self) -> bool:
        """Return whether the groups continue only after a decision."""
        return self.status in {Status.FAILED, Status.GAP}


@dataclass(frozen=True)
class FailingOutput:
    """A group whose outputs cannot be delivered, and the last line of the error."""

    group: str
    error: str


@dataclass
class StuckGroups:
    """The stuck groups of one pipeline.

    Attributes:
        title: name of the store.
        reasons: the reasons; first those that need a decision, within them those with the most groups.
        groups: the groups with the longest waits, at most ``SHOWN``.
        failing: the groups whose outputs cannot be delivered, with the error.
    """

    title: str
    reasons: list[StuckReason] = field(default_factory=list)
    groups: list[GroupStatus] = field(default_factory=list)
    failing: list[FailingOutput] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Return the number of all these groups."""
        return sum(reason.groups for reason in self.reasons)


def stuck(inspector: Inspector, title: str, *, group: Sequence[str] = (), error: str | None = None) -> StuckGroups:
    """Sum up the stuck groups of a pipeline.

    Args:
        inspector: the pipeline's store.
        title: name of the store.
        group: shell patterns of which one must match a group's name; none: any name.
        error: shell pattern of the last line of its error.
    """
    selection = Selection((), tuple(group), error, is_all=True)
    is_any = not group and error is None
    chosen = (brief for brief in inspector.briefs() if is_any or selection.matches(brief.group, brief.error or None))
    reasons: dict[tuple[str, str], StuckReason] = {}
    oldest, _ = inspector.longest_waits(_summed(chosen, reasons), SHOWN)
    order = sorted(reasons.values(), key=lambda reason: (not reason.needs_decision, -reason.groups, reason.error))
    failing = [FailingOutput(output.group, last_line(output.error)) for output in inspector.failing()]
    return StuckGroups(title, order, list(oldest), failing)


def _summed(groups: Iterable[GroupBrief], reasons: dict[tuple[str, str], StuckReason]) -> Iterator[GroupBrief]:
    """Add groups to the reasons, and yield them."""
    oldest: dict[tuple[str, str], int] = {}
    for brief in groups:
        key = brief.status, brief.error
        reason = reasons.get(key)
        if reason is None:
            reason = reasons[key] = StuckReason(*key)
        reason.groups += 1
        reason.held += brief.held
        since_us = _LATEST if brief.oldest_us is None else brief.oldest_us
        oldest[key] = min(since_us, oldest.get(key, _LATEST))
        yield brief
    for key, since_us in oldest.items():
        reasons[key].oldest = None if since_us == _LATEST else time_of(since_us)
