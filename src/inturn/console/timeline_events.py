"""The time line of a group: applied, missing and held messages, in the order of the group."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inturn.core.pipeline.inspection import GroupStatus, HeldMessageStatus, Inspector
from inturn.core.pipeline.timeline import Status
from inturn.core.words import counted

SHOWN = 8
"""Number of held messages that are shown individually; of the rest only the number is shown."""
RANGES = 4
"""Number of the last skipped ranges that are shown individually; of earlier ones only the number is shown."""


class EventKind(StrEnum):
    """The kinds of event on a time line."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    MISSING = "missing"
    FAILED = "failed"
    HELD = "held"
    MORE = "more"
    NEXT = "next"


@dataclass(frozen=True)
class TimeLineEvent:
    """One position on a group's time line.

    Attributes:
        kind: kind of event.
        label: its place in the order, in words.
        about: a further sentence; may be empty.
        content: the message, if the group holds it.
        place: its place in the order, abbreviated for the picture.
        since: when the wait of a held message began.
        positions: the first and the last position; None if the order does not define them.
    """

    kind: EventKind
    label: str
    about: str = ""
    content: dict[str, Any] | None = None
    place: str = ""
    since: dt.datetime | None = None
    positions: tuple[int, int] | None = None


def timeline_events(inspector: Inspector, group: GroupStatus, held: Sequence[HeldMessageStatus]) -> list[TimeLineEvent]:
    """Return the events of a group in its store, in the order of the group.

    Args:
        inspector: the store, for the words of its order.
        group: the group.
        held: the messages that it holds, in order.
    """
    events = [*_past_events(inspector, group), *_pending_events(inspector, group, held)]
    if group.status == Status.OPEN and inspector.order.grade.has_gaps:
        due = inspector.due(group)
        events.append(_range(EventKind.NEXT, due, due, "expected next"))
    return events


def _past_events(inspector: Inspector, group: GroupStatus) -> Iterator[TimeLineEvent]:
    """Yield the applied and the skipped ranges."""
    after = f"after {inspector.unit} {group.step}"
    if group.reached is None or not inspector.order.grade.has_revisions:
        if group.state is not None and not inspector.order.grade.has_revisions:
            yield TimeLineEvent(EventKind.APPLIED, "up to here", after, place="up to here")
        return
    if inspector.order.start is None or not inspector.order.grade.has_gaps:
        label = f"up to {inspector.order.grade.words(group.reached, None, 0)}"
        yield TimeLineEvent(EventKind.APPLIED, label, after, place=label, positions=(group.reached, group.reached))
        return
    first, skipped = inspector.order.start, [span for span in sorted(group.skipped) if span[1] <= group.reached]
    if len(skipped) > RANGES:
        before = skipped[:-RANGES]
        about = f"except {counted(len(before), 'skipped range')}"
        yield _range(EventKind.APPLIED, first, before[-1][1], about)
        first, skipped = before[-1][1] + 1, skipped[-RANGES:]
    for begin, end in skipped:
        if begin > first:
            yield _range(EventKind.APPLIED, first, begin - 1)
        yield _range(EventKind.SKIPPED, begin, end)
        first = end + 1
    if first <= group.reached:
        yield _range(EventKind.APPLIED, first, group.reached, after)


def _pending_events(
    inspector: Inspector, group: GroupStatus, held: Sequence[HeldMessageStatus]
) -> Iterator[TimeLineEvent]:
    """Yield the gaps and the held messages after a group's position."""
    gap = inspector.gap(group, list(held))
    if gap is not None:
        yield _range(EventKind.MISSING, *gap, "not received")
    for number, message in enumerate(held[:SHOWN]):
        if number and inspector.order.grade.has_gaps and (between := _missing_between(held[number - 1], message)):
            yield _range(EventKind.MISSING, *between, "not received")
        is_failed = not number and group.status == Status.FAILED
        yield TimeLineEvent(
            EventKind.FAILED if is_failed else EventKind.HELD,
            inspector.place(message),
            "the handler raised" if is_failed else f"since {message.since:%Y-%m-%d %H:%M:%S} UTC",
            message.content,
            _short_place(inspector, message),
            message.since,
            (message.position, message.position),
        )
    if len(held) > SHOWN:
        last = held[-1]
        label, more = f"{len(held) - SHOWN:,} more", f"up to {inspector.place(last)}"
        yield TimeLineEvent(EventKind.MORE, label, more, place=label, positions=(held[SHOWN].position, last.position))


def _short_place(inspector: Inspector, held: HeldMessageStatus) -> str:
    """Return the place of a held message, abbreviated."""
    if inspector.order.grade.has_revisions:
        return f"{held.position}"
    return held.id or inspector.place(held)


def _missing_between(earlier: HeldMessageStatus, later: HeldMessageStatus) -> tuple[int, int] | None:
    """Return the revisions missing between two held messages of one epoch."""
    if earlier.epoch != later.epoch or later.position - earlier.position < 2:
        return None
    return earlier.position + 1, later.position - 1


def _range(kind: EventKind, first: int, last: int, about: str = "") -> TimeLineEvent:
    is_one = first == last
    label = f"revision {first}" if is_one else f"revisions {first} to {last}"
    place = f"{first}" if is_one else f"{first} to {last}"
    return TimeLineEvent(kind, label, about, place=place, positions=(first, last))
