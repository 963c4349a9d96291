"""Decisions of operators about a waiting or parked group, and their effect on the group.

An operator decides from an earlier view of the group; the decision is applied later, at the beginning of a step. So it
names its subject, the message or the gap that the operator saw, and is void if the group has changed since. The module
is separate from the timeline because messages never need it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from inturn.core.errors import InputError
from inturn.core.identity import TimelineEntry, canonical
from inturn.core.pipeline.fold import Group
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.core.texts import checked_text, last_line, note, storable, unstorable_path
from inturn.core.values.path import parts, value_at

if TYPE_CHECKING:
    from inturn.core.pipeline.order import Order

Remake: TypeAlias = Callable[[TimelineEntry, dict[str, Any]], TimelineEntry]
"""A function that gives an entry new content (``message`` and ``ref``); raises InputError if the content does not
fit."""
HeldContent: TypeAlias = Callable[[TimelineEntry], Mapping[str, Any] | None]
"""A function that returns the replaced content of a held message, as operators see it; None: it was not replaced."""

_SHORT: Final = 80
"""Maximum number of characters of a value that is not replaced by its digest, which has 73 as JSON."""


class DecisionAction(StrEnum):
    """The kinds of decision."""

    REPLACE = "replace"  # give a held message new content
    DROP = "drop"  # reject a held message
    SKIP = "skip"  # skip a gap
    RESUME = "resume"  # let a parked group continue
    GIVE_UP = "give-up"  # reject the group's held messages, and all later ones
    UPGRADE = "upgrade"  # upgrade the group's state to the version of the pipeline

    @classmethod
    def of(cls, name: str) -> "DecisionAction":
        """Return the kind of this name.

        Raises:
            InputError: if there is none.
        """
        if name not in tuple(cls):
            raise InputError(f"Decision(action={name!r}); expected {', '.join(cls)}")
        return cls(name)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision, in plain JSON values: it is stored as JSON and kept forever.

    Attributes:
        id: unique id; decisions are applied in the order of (at_us, id).
        group: text form of the group.
        by: name of the operator who decided.
        at_us: time of the decision, in microseconds since 1970.
        why: reason, in words.
        epoch: epoch of the message or gap in question, as the operator saw it.
        position: the held message's position; of a gap, the first missing revision.
        last: the last missing revision of a gap; None: the subject is a message.
        message_id: the held message's deduplication id.
        digest: the hexadecimal digest of the message in question; of ``resume`` and ``give-up``, the group's first held
            one. None for a gap. Without it and ``last`` a ``give-up`` is never void.
        old: the content of that message; a replacement keeps its place and digest.
        new: for ``replace``: the new content; fields that it omits are not changed.

    Raises:
        InputError: if there is no such action, or if UTF-8 cannot encode a text of the new content.
    """

    id: str
    action: DecisionAction
    group: str
    by: str
    at_us: int
    why: str = ""
    epoch: int = 0
    position: int | None = None
    last: int | None = None
    message_id: str | None = None
    digest: str | None = None
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name under which it is stored: decisions are applied in the order of their names."""
        return f"{self.at_us:016d}-{self.id}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", DecisionAction.of(self.action))  # a text if read from JSON
        checked_text("group", self.group)
        for name in ("by", "why"):
            object.__setattr__(self, name, note(name, getattr(self, name)))
        if (path := unstorable_path(self.new)) is not None:
            msg = f"the new content has an unpaired surrogate in {path}, which UTF-8 cannot encode; fix the text"
            raise InputError(msg)


def decide(group: Group, decision: Decision, remake: Remake, held_content: HeldContent) -> str | None:
    """Apply a decision about a group, and the messages that it releases; call it before the step's messages.

    Args:
        group: the group.
        decision: decision of an operator.
        remake: returns a held message with new content; only the ``message`` and ``ref`` of its result count. Position,
            id and digest are kept, so that a copy of the old content is a duplicate and not a conflict.
        held_content: returns the content of a held message.

    Returns:
        None if the decision was carried out, else the reason why it is void; nothing has changed then. If the head
            fails again the group is parked again, and the decision still counts as carried out.
    """
    if decision.action is DecisionAction.UPGRADE:  # reading the state has upgraded it, or has failed
        return storable(last_line(group.fold.refused)) or None
    if group.timeline.parked is Status.GIVEN_UP:
        return overtaken("the group was given up")
    if (changed := _changed(group.timeline, decision, held_content)) is not None:
        return changed
    if decision.action is DecisionAction.REPLACE:
        return _replace(group, decision, remake)
    return _RULES[decision.action](group, decision)


def no_gap(grade: type["Order"]) -> str:
    """Return why an order that does not detect gaps has none to skip, and what helps instead."""
    reason = f"{grade.__name__} does not detect gaps, so there is none to skip"
    if not grade.has_times:
        return reason
    return (
        f"{reason}: the group waits for its next message, since its held messages are within the lateness; "
        f"{grade.__name__}(…, idle='lateness') releases them after that time, and --final at the end of the messages"
    )


def overtaken(by: str) -> str:
    """Return the reason why a decision whose subject has changed is void."""
    return f"the group has changed in the meantime: {by}"


def _resume(group: Group, decision: Decision) -> str | None:
    timeline = group.timeline
    if timeline.parked is None:
        return overtaken("the group is not parked")
    if (moved := _moved(timeline, decision)) is not None:
        return moved
    if timeline.parked is Status.GAP:
        for entry in timeline.held.values():
            entry.since_us = group.now_us
    group.continue_group()
    return None


def _replace(group: Group, decision: Decision, remake: Remake) -> str | None:
    timeline, old, new = group.timeline, decision.old or {}, decision.new
    entry = _named(timeline, decision)
    if isinstance(entry, str):
        return entry
    if new is None:
        return "the decision has no new content"
    for name in group.pipeline.placing_fields:
        was, would_be = value_at(old, name), value_at(new, name)
        if parts(name)[0] in new and would_be != was:
            changed = f"{name} would change from {was!r} to {would_be!r}"
            return storable(f"{changed}: fields that place a message cannot be replaced")
    try:
        replacement = remake(entry, _edited(old, new))
    except InputError as error:
        return storable(str(error))  # an error of the message type
    resumes = _fails(timeline, entry)
    timeline.remove_held(entry)
    # Place, identity and digest stay: a copy of the old content is still a duplicate of this message.
    timeline.restore(replace(entry, message=replacement.message, ref=replacement.ref))
    if resumes:
        group.continue_group()
    return None


def _edited(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the operator has changed; the others stay, even if JSON or the type cannot hold them."""
    return {name: value for name, value in new.items() if name not in old or not _is_same(value, old[name])}


def _drop(group: Group, decision: Decision) -> str | None:
    timeline = group.timeline
    entry = _named(timeline, decision)
    if isinstance(entry, str):
        return entry
    resumes = _fails(timeline, entry)
    if timeline.order.has_gaps and not resumes:
        return "in a gapless order only the message on which the group's handler failed can be dropped"
    if entry.epoch != (timeline.epoch or 0):
        return f"the message belongs to epoch {entry.epoch}, which has not begun"
    timeline.drop(entry)
    group.journal.reject(group.name, entry, "dropped", _words("dropped", decision))
    if resumes:
        group.continue_group()
    return None


def _skip(group: Group, decision: Decision) -> str | None:
    timeline = group.timeline
    if not timeline.order.has_gaps:
        return no_gap(type(timeline.order))
    if timeline.parked is Status.FAILED:
        return "the group does not wait for a missing revision: its handler raised"
    gap = _gap(timeline)
    if gap is None:
        return overtaken("no revision is missing")
    if (decision.epoch, decision.position, decision.last) != (timeline.epoch or 0, *gap):
        return overtaken(_missing(timeline, gap))
    timeline.skip(*gap)
    group.continue_group()
    return None


def _give_up(group: Group, decision: Decision) -> str | None:
    if (moved := _moved(group.timeline, decision)) is not None:
        return moved
    reason = _words("given up", decision)
    for entry in group.timeline.give_up(reason):
        group.journal.reject(group.name, entry, "given up", reason)
    return None


def _changed(timeline: Timeline, decision: Decision, held_content: HeldContent) -> str | None:
    """Return why the message of a decision is not as the operator saw it: another decision has replaced its content."""
    entry = None if decision.old is None or decision.last is not None else _named(timeline, decision)
    if entry is None or isinstance(entry, str):  # the rule of the action reports a message that is not held
        return None
    content = held_content(entry)
    if content is None:
        return None
    try:
        now, seen = shortened(content), shortened(decision.old or {})
    except InputError:  # a message of a type that has no canonical form
        return None
    # A column added since then is null, and the content of a removed one was not replaced.
    if all(_is_same(value, seen.get(name)) for name, value in now.items()):
        return None
    return overtaken("the content of the message was replaced")


def _is_same(one: Any, other: Any) -> bool:
    return canonical(one) == canonical(other)  # True is not 1


def shortened(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content for a comparison: in JSON values, with a digest in place of each long one.

    Raises:
        InputError: if a value has no canonical form.
    """
    return {name: _short(value) for name, value in content.items()}


def _short(value: Any) -> Any:
    # A decision is kept as JSON, in which there is no NaN; a column may have become one of floats.
    plain = json.loads(canonical(value), parse_constant=lambda _name: None, parse_float=_number)
    if len(text := canonical(plain)) <= _SHORT:
        return plain
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _moved(timeline: Timeline, decision: Decision) -> str | None:
    """Return why a group is no longer where the operator saw it; None: it is, or the decision does not name a place."""
    if decision.last is not None:
        return _moved_from_gap(timeline, decision)
    if decision.digest is None:
        return None
    if not timeline.held:
        return overtaken("the group holds no message")
    if decision.digest == timeline.head().digest.hex():
        return None
    return overtaken("another message is at the group's head")


def _moved_from_gap(timeline: Timeline, decision: Decision) -> str | None:
    """Return why a group no longer waits for the revision that was missing; None: it does."""
    gap = None if timeline.parked is Status.FAILED else _gap(timeline)
    if gap is None:
        return overtaken("the group does not wait for a missing revision")
    # A gap that has become shorter from its end is the same one: the group waits for the same revision.
    if (decision.epoch, decision.position) == (timeline.epoch or 0, gap[0]):
        return None
    return overtaken(_missing(timeline, gap))


def _gap(timeline: Timeline) -> tuple[int, int] | None:
    """Return the first and the last revision that are missing before the held messages of a group."""
    gaps = timeline.gaps()
    return gaps[0][:2] if gaps else None


def _missing(timeline: Timeline, gap: tuple[int, int]) -> str:
    return f"the missing revisions are {gap[0]} to {gap[1]} of epoch {timeline.epoch or 0}"


_RULES: Final[dict[DecisionAction, Callable[[Group, Decision], str | None]]] = {
    DecisionAction.DROP: _drop,
    DecisionAction.SKIP: _skip,
    DecisionAction.RESUME: _resume,
    DecisionAction.GIVE_UP: _give_up,
}


def _named(timeline: Timeline, decision: Decision) -> TimelineEntry | str:
    """Return the held message that a decision names, or why there is none."""
    candidates = [
        entry
        for entry in timeline.held.values()
        if entry.epoch == decision.epoch
        and decision.position in (None, entry.position)
        and decision.message_id in (None, entry.id)
    ]
    if not candidates:
        return overtaken("the message is not held")
    matches = [entry for entry in candidates if decision.digest in (None, entry.digest.hex())]
    if not matches:
        return overtaken("another message is held in its place")
    return (
        matches[0] if len(matches) == 1 else f"the decision does not say which of {len(matches)} held messages is meant"
    )


def _fails(timeline: Timeline, entry: TimelineEntry) -> bool:
    """Return whether the group is parked because its handler raised on this message."""
    return timeline.parked is Status.FAILED and entry is timeline.head()


def _words(action: str, decision: Decision) -> str:
    return f"{action} by {decision.by}" + (f": {decision.why}" if decision.why else "")
