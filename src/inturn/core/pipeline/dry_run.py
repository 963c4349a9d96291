"""Dry runs: the effect that decisions would have on groups with the handler as it is now; nothing is written."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from inturn.core.pipeline.inspection import GroupStatus
from inturn.core.pipeline.selection import PARKED
from inturn.core.texts import last_line, shown, visible
from inturn.core.words import counted


@dataclass(frozen=True)
class DryRun:
    """The effect that a decision would have on a group, if it were applied now.

    Earlier decisions about the group that are not applied yet come first. Messages that the pipeline has not received
    yet do not count.

    Attributes:
        group: its text form.
        void: why the decision would change nothing; None if it would be carried out.
        before: the group as it is; None if it does not exist.
        after: the group as it would be; None if it does not exist.
        outputs: the outputs that would be emitted, as JSON values, in order.
        rejected: the number of messages that would be rejected, by reason.
    """

    group: str
    void: str | None
    before: GroupStatus | None
    after: GroupStatus | None
    outputs: list[Any] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """``void``, or the status that the group would have."""
        return "void" if self.void is not None or self.after is None else self.after.status

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        after, before = self.after, self.before
        return {
            "group": self.group,
            "outcome": self.outcome,
            "void": self.void,
            "state": after and after.state,
            "state_before": before and before.state,
            "error": after and after.error,
            "held": after and after.held,
            "outputs": self.outputs,
            "rejected": self.rejected,
        }

    def __str__(self) -> str:
        """Return the result in plain words."""
        name, after = f"Group {shown(self.group)}", self.after
        if self.void is not None or after is None:
            return f"{name}: void, {shown(self.void or 'the group does not exist')}."
        status = f"parked ({after.status})" if after.status in PARKED else after.status
        lines = [f"{name} would be {status}: {_changed(self.before, after)}"]
        if after.status in PARKED:
            lines.append(f"    {visible(last_line(after.error))}")
        more = [f"{counted(len(self.outputs), 'output')} emitted"] if self.outputs else []
        more += [f"{counted(count, 'message')} rejected as {reason}" for reason, count in self.rejected.items()]
        more += [f"{counted(after.held, 'message')} held"] if after.held else []
        lines += [f"    {', '.join(more)}"] if more else []
        return "\n".join([*lines, *(f"    output {_json(output)}" for output in self.outputs)])


@dataclass
class DryRunSummary:
    """The number of groups by outcome, and some of each in full.

    Attributes:
        most: maximum number of groups of each outcome in the sample.
        outcomes: number of groups by outcome.
        sample: the results of these groups.
    """

    most: int
    outcomes: Counter[str] = field(default_factory=Counter)
    sample: list[DryRun] = field(default_factory=list)

    def add(self, results: Iterable[DryRun]) -> None:
        """Count results."""
        for result in results:
            self.outcomes[result.outcome] += 1
            if self.outcomes[result.outcome] <= self.most:
                self.sample.append(result)


def _changed(before: GroupStatus | None, after: GroupStatus) -> str:
    if before is not None and before.state == after.state:
        return f"its state would not change: {_json(after.state)}"
    return f"its state would change from {_json(before and before.state)} to {_json(after.state)}"


def _json(value: Any) -> str:
    return visible(json.dumps(value, default=str, ensure_ascii=False))
