"""The time line of a group: what was applied, what is missing and what waits for it, in the order of the group."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from inturn.core.pipeline.inspection import GroupStatus, HeldStatus, Inspector, counted
from inturn.core.pipeline.timeline import Status

SHOWN = 12
"""Number of held messages that are shown one by one; the rest is a number."""


class EventKind(StrEnum):
    """The kinds of event on a time line."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    MISSING = "missing"
    FAILED = "failed"
    HELD = "held"
    MORE = "more"


class TimeLineEvent(NamedTuple):
    """One place on a group's time line.

    Attributes:
        kind: kind of event.
        label: its place in the order, in words.
        note: one more sentence; may be empty.
        content: the message, if it is one that the group holds.
    """

    kind: EventKind
    label: str
    note: str = ""
    content: dict[str, Any] | None = None


def time_line(look: Inspector, group: GroupStatus, held: Sequence[HeldStatus]) -> list[TimeLineEvent]:
    """Return the events of a group that its store knows, in the order of the group.

    Args:
        look: the store, for the words of its order.
        group: the group.
        held: the messages that it holds, in order.
    """
    events: list[TimeLineEvent] = []
    if group.reached is not None and look.order.grade.has_revisions:
        events.append(TimeLineEvent(EventKind.APPLIED, f"up to {look.order.grade.words(group.reached, None, 0)}"))
    elif group.state is not None:
        events.append(TimeLineEvent(EventKind.APPLIED, "up to here", f"after {look.unit} {group.step}"))
    events += [TimeLineEvent(EventKind.SKIPPED, _range(*each)) for each in group.skipped]
    return [*events, *_ahead(look, group, held)]


def _ahead(look: Inspector, group: GroupStatus, held: Sequence[HeldStatus]) -> Iterator[TimeLineEvent]:
    """Yield what lies ahead of a group: gaps, and the messages that it holds."""
    gap = look.gap(group, list(held))
    if gap is not None:
        yield TimeLineEvent(EventKind.MISSING, _range(*gap), "has not come")
    for number, each in enumerate(held[:SHOWN]):
        if number and look.order.grade.has_gaps and (between := _between(held[number - 1], each)):
            yield TimeLineEvent(EventKind.MISSING, _range(*between), "has not come")
        is_failed = not number and group.status == Status.FAILED
        note = "the handler raised" if is_failed else f"since {each.since:%Y-%m-%d %H:%M:%S} UTC"
        yield TimeLineEvent(EventKind.FAILED if is_failed else EventKind.HELD, look.place(each), note, each.content)
    if len(held) > SHOWN:
        yield TimeLineEvent(EventKind.MORE, counted(len(held) - SHOWN, "message"), f"up to {look.place(held[-1])}")


def _between(one: HeldStatus, other: HeldStatus) -> tuple[int, int] | None:
    """Return the revisions missing between two held messages of one epoch."""
    if one.epoch != other.epoch or other.turn - one.turn < 2:
        return None
    return one.turn + 1, other.turn - 1


def _range(first: int, last: int) -> str:
    return f"revision {first}" if first == last else f"revisions {first} to {last}"
