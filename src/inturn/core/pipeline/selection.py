"""Selection of groups for decisions about many of them, and the report of the outcome."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from inturn.core.errors import InputError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import last_line

PARKED: Final = frozenset({Status.GAP, Status.FAILED})
SELECTED: Final[Mapping[DecisionAction, frozenset[Status]]] = {
    DecisionAction.RESUME: PARKED,
    DecisionAction.GIVE_UP: PARKED,
    DecisionAction.SKIP: frozenset({Status.GAP, Status.WAITING}),
    DecisionAction.DROP: frozenset({Status.FAILED}),
    DecisionAction.REPLACE: frozenset({Status.FAILED}),
}
"""The statuses of the groups that a pattern selects for an action; a named group may have any status."""


@dataclass(frozen=True)
class Selection:
    """The groups that a decision is about: named ones, or all that match every given pattern.

    Attributes:
        names: names of groups.
        groups: shell patterns, of which a group's name must match one; empty: any name.
        error: shell pattern that the last line of a group's error must match; None: any, or none.
        is_all: whether to select all groups if there is neither a name nor a pattern.

    Raises:
        InputError: if nothing is selected, or names and patterns are mixed.
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    error: str | None = None
    is_all: bool = False

    def __post_init__(self) -> None:
        is_filtered = bool(self.groups) or self.error is not None or self.is_all
        if self.names and is_filtered:
            raise InputError("names of groups exclude group, error and all; pass either names or these")
        if not self.names and not is_filtered:
            raise InputError("no group is selected; pass names of groups, a pattern (group, error) or all")

    def matches(self, name: str, error: str | None) -> bool:
        """Return whether the patterns select a group, by its name and its error."""
        if self.groups and not any(fnmatchcase(name, pattern) for pattern in self.groups):
            return False
        return self.error is None or (error is not None and fnmatchcase(last_line(error), self.error))


def patterns(group_patterns: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return one pattern, several or none as a tuple."""
    if group_patterns is None:
        return ()
    return (group_patterns,) if isinstance(group_patterns, str) else tuple(group_patterns)


@dataclass(frozen=True)
class DecisionDraft:
    """Decisions that are prepared and not yet recorded.

    Attributes:
        action: the kind of decision.
        decisions: one decision for each group.
        void: groups about which nothing can be decided, and why.
        marks: the mark of the subject of each group when its decision was prepared.
        moved: the groups of ``void`` that have changed since the operator saw them.
    """

    action: DecisionAction
    decisions: Sequence[Decision]
    void: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    moved: Sequence[str] = ()


@dataclass(frozen=True)
class DecisionReport:
    """The outcome of decisions about groups.

    Attributes:
        action: the kind of decision.
        done: groups whose decision was carried out.
        void: groups whose decision changed nothing, and why.
        pending: groups whose decision is not applied yet, and the name of the decision.
    """

    action: DecisionAction
    done: list[str]
    void: dict[str, str]
    pending: dict[str, str]

    def updated(self, verdicts: Mapping[str, str]) -> "DecisionReport":
        """Return the report with the verdicts on pending decisions, by their names; an empty text: carried out."""
        known = {group: verdicts[name] for group, name in self.pending.items() if name in verdicts}
        return DecisionReport(
            self.action,
            [*self.done, *(group for group, reason in known.items() if not reason)],
            {**self.void, **{group: reason for group, reason in known.items() if reason}},
            {group: name for group, name in self.pending.items() if group not in known},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)
