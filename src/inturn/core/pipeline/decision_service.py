"""Decisions about groups in their present state, one group or many at once, the same over every store."""

import datetime as dt
import hashlib
import json
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Required, TypedDict, Unpack

from inturn.core import limits
from inturn.core.errors import GroupMoved, InputError
from inturn.core.identity import canonical
from inturn.core.pipeline.decision import Decision, DecisionAction, no_gap, overtaken
from inturn.core.pipeline.inspection import GroupStatus, HeldMessageStatus, Inspector
from inturn.core.pipeline.selection import SELECTED, DecisionDraft, DecisionReport, Selection, patterns
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import checked_text
from inturn.core.values.instant import instant_us

_MARK: Final = 32
"""Number of hexadecimal digits of a subject's mark."""
_OF_GROUP: Final = frozenset({DecisionAction.RESUME, DecisionAction.GIVE_UP})
"""The actions on a group as a whole, whether a failed message or a gap blocks it."""


class GroupDecisionArguments(TypedDict, total=False):
    """Options of a decision about one group.

    With any of the last three the decision is void unless the group is still where the operator saw it: at the message
    on which its handler failed, or at the first missing revision.

    Attributes:
        by: name of the operator who decides.
        why: reason, in words.
        if_revision: revision of that message, or the missing one; in an order without revisions, its position.
        if_epoch: its epoch.
        if_digest: digest of that message, as a held message has it.
    """

    by: Required[str]
    why: str
    if_revision: int | None
    if_epoch: int | None
    if_digest: str | None


class DecisionArguments(GroupDecisionArguments, total=False):
    """Options of a decision about several groups; ``if_revision``, ``if_epoch`` and ``if_digest`` need one named group.

    Attributes:
        group: shell pattern of groups, or several of which one must match.
        error: shell pattern of the last line of the group's error.
        all: whether to select all groups to which the action applies.
    """

    group: str | Iterable[str] | None
    error: str | None
    all: bool


class DecisionSubject(NamedTuple):
    """The subject of a decision about a group: the message or the gap that blocks it, or the group as a whole.

    Attributes:
        group: name of the group.
        words: where the group is, in words.
        position: position of the message, or the first missing revision.
        epoch: its epoch.
        head: the message; None: the subject is not a message.
    """

    group: str
    words: str
    position: int | None = None
    epoch: int | None = None
    head: HeldMessageStatus | None = None

    @property
    def mark(self) -> str:
        """A text that changes as soon as another message, other content of it, or another gap blocks the group."""
        head = None if self.head is None else (self.head.digest, self.head.content)
        where = self.words if self.position is None else (self.position, self.epoch)
        return hashlib.sha256(repr((self.group, where, head)).encode()).hexdigest()[:_MARK]


class Precondition(NamedTuple):
    """The place at which an operator saw a group; None: any.

    Attributes:
        revision: see :class:`GroupDecisionArguments`.
        epoch: the same.
        digest: the same.
        mark: the mark of its subject.
    """

    revision: int | None = None
    epoch: int | None = None
    digest: str | None = None
    mark: str | None = None

    @classmethod
    def marked(cls, marks: Mapping[str, str]) -> "dict[str, Precondition]":
        """Return the places of groups by the marks of their subjects."""
        return {name: cls(mark=mark) for name, mark in marks.items()}

    @classmethod
    def of(cls, args: GroupDecisionArguments) -> "Precondition":
        """Return the place that options name.

        Raises:
            InputError: if one is of another type.
        """
        for name, kind in (("if_revision", int), ("if_epoch", int), ("if_digest", str)):
            if not isinstance(value := args.get(name), kind | None):
                raise InputError(f"{name} is {value!r}; expected {'a whole number' if kind is int else 'a string'}")
        return cls(args.get("if_revision"), args.get("if_epoch"), args.get("if_digest"))

    def check(self, subject: DecisionSubject) -> None:
        """Check that a group with this subject has not changed.

        Raises:
            GroupMoved: if it has.
        """
        digest = None if subject.head is None else subject.head.digest
        for label, expected, actual in (
            ("revision", self.revision, subject.position),
            ("epoch", self.epoch, subject.epoch),
            ("the message", self.digest, digest),
        ):
            if expected not in (None, actual):
                raise GroupMoved(overtaken(f"{subject.words}, not at {label} {expected}"))
        if self.mark not in (None, subject.mark):
            raise GroupMoved(overtaken(f"{subject.words}, which is not the state that was shown"))


class DecisionService(Inspector):
    """A view of a pipeline's stored data that also records decisions about its groups; see :class:`GroupDecisions`."""

    @abstractmethod
    def heads(self, names: Sequence[str]) -> Mapping[str, HeldMessageStatus]:
        """Return the first message that each of these groups holds, if it holds one."""

    @abstractmethod
    def append(self, decisions: Sequence[Decision]) -> list[str]:
        """Append decisions, and return their names."""

    @abstractmethod
    def verdicts(self, names: Sequence[str]) -> dict[str, str]:
        """Return why each applied decision of these names is void; an empty text: it was carried out."""

    @abstractmethod
    def groups_of(self, names: Sequence[str]) -> dict[str, str]:
        """Return the groups that the named decisions are about, by the names of those that exist."""

    def batch(self, first: str, count: int) -> list[str]:
        """Return the names of decisions that were recorded together, from the name of the first."""
        stem, _, number = first.rpartition(".")
        return [first] if count == 1 or not number.isdigit() else [f"{stem}.{index:06d}" for index in range(count)]

    @abstractmethod
    def may_apply_automatically(self) -> bool:
        """Return whether a process that applies decisions automatically may be running."""

    def prepare(
        self,
        action: DecisionAction,
        *names: str,
        content: dict[str, Any] | None = None,
        seen: Mapping[str, Precondition] | None = None,
        **args: Unpack[DecisionArguments],
    ) -> DecisionDraft:
        """Prepare decisions about the named or selected groups, and record none.

        Args:
            action: kind of decision.
            names: the groups; without any, ``args`` selects them.
            content: for ``replace``, the new content.
            seen: where the operator saw each group; a group that has changed since is left out.
            args: see :class:`DecisionArguments`.

        Raises:
            InputError: if nothing selects a group, ``by`` is missing, or ``if_revision`` is given for several.
        """
        author = _author(args)
        selection = Selection(names, patterns(args.get("group")), args.get("error"), args.get("all", False))
        place = Precondition.of(args)
        if len(names) != 1 and place != Precondition():
            raise InputError("if_revision, if_epoch and if_digest apply to one group; pass the name of that group only")
        groups, void = self._selected(action, selection)
        batch, at_us = uuid.uuid4().hex, _now_us()
        decisions: list[Decision] = []
        marks: dict[str, str] = {}
        moved: list[str] = []
        heads: Mapping[str, HeldMessageStatus] = {}
        for number, group in enumerate(groups):
            if number % limits.DECIDED_AT_ONCE == 0:
                heads = self.heads([group.group for group in groups[number : number + limits.DECIDED_AT_ONCE]])
            held = [heads[group.group]] if group.group in heads else []
            subject = self.subject(group, held)
            try:
                (seen or {}).get(group.group, place).check(subject)
                about = self._about(action, group, held, content)
            except InputError as error:
                void[group.group] = str(error)
                moved += [group.group] if isinstance(error, GroupMoved) else []
                continue
            about |= {
                "id": f"{batch}.{len(decisions):06d}",
                "at_us": at_us,
                "by": author,
                "why": args.get("why", ""),
            }
            decisions.append(Decision(action=action, group=group.group, **about))
            marks[group.group] = subject.mark
        return DecisionDraft(action, decisions, void, marks, moved)

    def _selected(self, action: DecisionAction, selection: Selection) -> tuple[list[GroupStatus], dict[str, str]]:
        """Return the selected groups, and the named ones that do not exist, with the reason."""
        if not selection.names and action is DecisionAction.UPGRADE:
            older = (group for group in self.groups() if group.old_version is not None)
            return [group for group in older if selection.matches(group.group, group.error)], {}
        if not selection.names:
            statuses = SELECTED[action]
            return [
                group
                for group in self.unsettled()
                if group.status in statuses and selection.matches(group.group, group.error)
            ], {}
        names = [checked_text("group", name) for name in dict.fromkeys(selection.names)]
        known = self.statuses(names)
        unknown = {name: f"{self.title} has no group {name!r}" for name in names if name not in known}
        return [known[name] for name in names if name in known], unknown

    def record(self, draft: DecisionDraft) -> DecisionReport:
        """Append the decisions of a draft, and report their results so far."""
        names = self.append(draft.decisions) if draft.decisions else []
        pending = {decision.group: name for decision, name in zip(draft.decisions, names, strict=True)}
        return DecisionReport(draft.action, [], dict(draft.void), pending)

    def updated(self, report: DecisionReport) -> DecisionReport:
        """Return a report with the current results of its decisions."""
        return report.updated(self.verdicts(list(report.pending.values()))) if report.pending else report

    def decide(self, decision: Decision) -> str:
        """Append a decision and return its name."""
        (name,) = self.append([decision])
        return name

    def verdict(self, name: str) -> str | None:
        """Return None if the decision is not applied yet, an empty text if it was carried out, else why it is void."""
        return self.verdicts([name]).get(name)

    def decision(
        self,
        action: DecisionAction,
        name: str,
        *,
        by: str,
        why: str = "",
        revision: int | None = None,
        message_id: str | None = None,
        new: dict[str, Any] | None = None,
        seen: Precondition = Precondition(),  # noqa: B008 - it does not change
    ) -> Decision:
        """Return a decision about a group in its present state; it is void if the group changes first.

        Args:
            action: kind of decision.
            name: text form of the group.
            by: name of the operator who decides.
            why: reason, in words.
            revision: revision of the message; default is the first that the group holds.
            message_id: id of the message, where the order has no revisions.
            new: for ``replace``, the new content; omitted fields are not changed.
            seen: where the operator saw the group.

        Raises:
            InputError: if the group is not known, holds no such message, or has no gap to skip.
            GroupMoved: if the group is not where the operator saw it.
        """
        group, held = self.group(name), self.held(name)
        seen.check(self.subject(group, held))
        about = self._about(action, group, held, new, revision, message_id)
        return Decision(id=uuid.uuid4().hex, action=action, group=name, by=by, at_us=_now_us(), why=why, **about)

    def subject(self, group: GroupStatus, held: list[HeldMessageStatus]) -> DecisionSubject:
        """Return what blocks a group: the message on which its handler failed, or its gap; else the whole group."""
        if group.status == Status.FAILED and held:
            head = held[0]
            return DecisionSubject(group.group, f"the group is at {self.place(head)}", head.position, head.epoch, head)
        if (gap := self.gap(group, held)) is not None:
            return DecisionSubject(group.group, f"the group waits for revision {gap[0]}", gap[0], group.epoch or 0)
        return DecisionSubject(group.group, f"the group is {group.status}")

    def _about(
        self,
        action: DecisionAction,
        group: GroupStatus,
        held: list[HeldMessageStatus],
        new: dict[str, Any] | None = None,
        revision: int | None = None,
        message_id: str | None = None,
    ) -> dict[str, Any]:
        """Return the fields of a decision that name its subject as it is now.

        Raises:
            InputError: if the group holds no such message, or has no gap to skip.
            GroupMoved: if the group changed while it was read.
        """
        if action is DecisionAction.UPGRADE:
            return {}
        gap, is_failed = self.gap(group, held), group.status == Status.FAILED
        if action is DecisionAction.SKIP and gap is None:
            helps = "" if self.order.grade.has_gaps else f": {no_gap(self.order.grade)}"
            raise InputError(f"group {group.group!r} has no gap; it is {group.status}{helps}")
        if gap is not None and (action is DecisionAction.SKIP or (action in _OF_GROUP and not is_failed)):
            return {"epoch": group.epoch or 0, "position": gap[0], "last": gap[1]}
        if action in _OF_GROUP and not is_failed:
            if group.status == Status.GAP or (group.status == Status.WAITING and self.order.grade.has_gaps):
                raise GroupMoved(f"group {group.group!r} changed while it was read; decide again")
            if action is DecisionAction.GIVE_UP:
                return {}
        for item in held:
            if revision in (None, item.position) and message_id in (None, item.id):
                break
        else:
            holds = f"does not hold this message; held messages: {', '.join(self.place(entry) for entry in held)}"
            raise InputError(f"group {group.group!r} {holds if held else 'holds no messages'}")
        about: dict[str, Any] = {"epoch": item.epoch, "position": item.position}
        about |= {"message_id": item.id, "digest": item.digest}
        if action is DecisionAction.RESUME:
            return about
        old = json.loads(canonical(item.content))
        return about | {"old": old} | ({} if new is None else {"new": {**old, **new}})


class GroupDecisions:
    """The decisions of operators about the groups of a pipeline.

    Groups are named, or selected by patterns. Patterns select only groups to which the action applies, see
    :data:`inturn.core.pipeline.selection.SELECTED`. A decision is applied later, by the process that runs the pipeline.
    It is void if its group has changed by then; the other decisions are not affected.
    """

    def __init__(self, decider: DecisionService) -> None:
        self.inspector = decider

    def resume(self, *names: str, **args: Unpack[DecisionArguments]) -> DecisionReport:
        """Let groups try their first message again, or wait for a gap again.

        Args:
            names: the groups; without any, the options select them.
            args: see :class:`DecisionArguments`.

        Returns:
            The results so far; :meth:`updated` returns the current ones.

        Raises:
            InputError: if nothing selects a group, or ``by`` is missing.
        """
        return self.inspector.record(self.inspector.prepare(DecisionAction.RESUME, *names, **args))

    def drop(self, *names: str, **args: Unpack[DecisionArguments]) -> DecisionReport:
        """Reject the message on which each group is parked, and continue after it; see :meth:`resume`."""
        return self.inspector.record(self.inspector.prepare(DecisionAction.DROP, *names, **args))

    def skip(self, *names: str, **args: Unpack[DecisionArguments]) -> DecisionReport:
        """Skip the missing revisions before the held messages of each group; see :meth:`resume`."""
        return self.inspector.record(self.inspector.prepare(DecisionAction.SKIP, *names, **args))

    def give_up(self, *names: str, **args: Unpack[DecisionArguments]) -> DecisionReport:
        """Reject the held messages of each group and all later ones; see :meth:`resume`."""
        return self.inspector.record(self.inspector.prepare(DecisionAction.GIVE_UP, *names, **args))

    def upgrade(self, *names: str, **args: Unpack[DecisionArguments]) -> DecisionReport:
        """Upgrade states to the version of the pipeline; void where ``upgrade=`` fails. See :meth:`resume`."""
        return self.inspector.record(self.inspector.prepare(DecisionAction.UPGRADE, *names, **args))

    def replace(self, name: str, *, content: dict[str, Any], **args: Unpack[GroupDecisionArguments]) -> DecisionReport:
        """Replace the content of the first held message of a group; fields that ``content`` omits are not changed."""
        return self.inspector.record(self.inspector.prepare(DecisionAction.REPLACE, name, content=content, **args))

    def updated(self, report: DecisionReport) -> DecisionReport:
        """Return a report with the current results of its decisions."""
        return self.inspector.updated(report)


def _author(args: GroupDecisionArguments) -> str:
    """Return the name of the operator who decides.

    Raises:
        InputError: if it is missing or not a text.
    """
    if args.get("by") is None:
        raise InputError('by is missing; pass the name of the person who decides, such as by="alice"')
    return checked_text("by", args["by"])


def _now_us() -> int:
    return instant_us(dt.datetime.now(dt.UTC))
