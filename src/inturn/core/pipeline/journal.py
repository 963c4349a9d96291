"""The records of a step: the counted verdicts on its messages, its outputs and the rejected messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inturn.core import limits
from inturn.core.errors import HandlerError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.timeline import TimelineVerdict
from inturn.core.texts import kept_name, storable

_DETAILS = {
    TimelineVerdict.CONFLICT: "an earlier message has the same place or id but different content{}; "
    "name fields that are not content, such as a time of receipt, in ignore= of the pipeline",
    TimelineVerdict.SKIPPED: "its revision had already been skipped when it arrived",
    TimelineVerdict.LATE: "its time is below the group's watermark",
    TimelineVerdict.GIVEN_UP: "its group had already been given up when it arrived",
}


@dataclass(slots=True)
class Counts:
    """The message counts of a step: ``received + released`` equals the sum of all the others.

    Attributes:
        received: incoming messages.
        released: messages held before this step that left, applied or rejected.
        applied: messages that changed a state.
        duplicate: copies, with the same content, of a message that was applied or is held, or of a conflict.
        stale: copies so old that a duplicate cannot be distinguished from a conflict.
        held: messages newly waiting or parked at the end of the step.
        rejected: messages that will not be applied, by reason.
    """

    received: int = 0
    released: int = 0
    applied: int = 0
    duplicate: int = 0
    stale: int = 0
    held: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        """True if every message is counted exactly once."""
        went = self.applied + self.duplicate + self.stale + self.held + sum(self.rejected.values())
        return self.received + self.released == went

    def reject(self, reason: str) -> None:
        """Count one rejected message."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def add(self, other: "Counts") -> None:
        """Add another's counts to these."""
        for name in ("received", "released", "applied", "duplicate", "stale", "held"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count


@dataclass(slots=True)
class Journal:
    """The results of a step, in the order in which they were decided.

    Attributes:
        counts: message counts.
        outputs: group, message and its outputs, for each message that had some.
        rejected: group, message, reason and detail.
        wrong: error about the first result that was not (state, outputs); None: all results were valid. See
            :func:`inturn.core.pipeline.handler.check_result`.
    """

    counts: Counts = field(default_factory=Counts)
    outputs: list[tuple[str, TimelineEntry, Sequence[Any]]] = field(default_factory=list)
    rejected: list[tuple[str, TimelineEntry, str, str]] = field(default_factory=list)
    wrong: HandlerError | None = None

    def reject(self, group: str, entry: TimelineEntry, reason: str, detail: str) -> None:
        """Record and count a rejected message; the detail and the group's name are made storable."""
        self.counts.reject(reason)
        self.rejected.append((group and kept_name(group), entry, reason, storable(detail)))

    def record_verdict(
        self, group: str, entry: TimelineEntry, verdict: TimelineVerdict, differing: Sequence[str] = ()
    ) -> None:
        """Count a duplicate or stale message, or record it as rejected, according to the verdict.

        ``differing``: for a conflict, the fields in which it differs from the first message, if they are still known.
        """
        match verdict:
            case TimelineVerdict.DUPLICATE:
                self.counts.duplicate += 1
            case TimelineVerdict.STALE:
                self.counts.stale += 1
            case _:
                self.reject(group, entry, verdict.value, _DETAILS[verdict].format(_named(differing)))


def _named(fields: Sequence[str]) -> str:
    """Return which fields differ, in words."""
    names = ", ".join(map(repr, fields[: limits.NAMED_FIELDS]))
    more = f" and {len(fields) - limits.NAMED_FIELDS} more" if len(fields) > limits.NAMED_FIELDS else ""
    return f" (in {names}{more})" if fields else ""
