"""Layout of a group's time line as a picture: the coordinates of each box, wait, decision and output.

It computes only coordinates and short texts. The template draws them, and escapes the texts.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from inturn.console.timeline_events import EventKind, TimeLineEvent
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.inspection import GroupHistory
from inturn.core.texts import last_line, shown, visible
from inturn.core.words import counted

_GUTTER, _GAP, _EDGE = 88, 6, 4
_TRACK_Y, _TRACK_H = 34, 40
_WIDTHS: Final = {
    EventKind.APPLIED: 132,
    EventKind.SKIPPED: 84,
    EventKind.MISSING: 108,
    EventKind.FAILED: 108,
    EventKind.HELD: 62,
    EventKind.MORE: 96,
    EventKind.NEXT: 84,
}
_LETTER = 7.3
"""Approximate width of a letter in the picture."""
_LANE_H = 24
_WIDEST, _ERROR, _DECISIONS, _STATE = 1080, 60, 3, 110
_FILLED, _STRETCH = 1040, 1.9
_Mark = tuple[int | None, str, str]
"""The position of a mark (None for the group's position), its kind and its text."""
_BLOCKS: Final = {EventKind.FAILED, EventKind.MISSING}
_WAITS: Final = {EventKind.HELD, EventKind.MORE}


class PictureBox(NamedTuple):
    """A box on the track: the event that it shows, its left edge and its width."""

    event: TimeLineEvent
    x: float
    width: float

    @property
    def middle(self) -> float:
        """Return the middle."""
        return self.x + self.width / 2


class PictureWait(NamedTuple):
    """A bracket under waiting messages: the middles of the first, the last and the box ``to`` come; the text below."""

    first: float
    last: float
    to: float
    text: str


class PicturePin(NamedTuple):
    """A mark in a lane below the track: its middle, the CSS class of its shape, and the text on one side of it."""

    x: float
    y: float
    kind: str
    text: str
    is_left: bool = False


class PictureLane(NamedTuple):
    """A lane below the track: its name in the gutter, the middle of its first line, and its marks."""

    name: str
    y: float
    pins: list[PicturePin]


class TimeLinePicture(NamedTuple):
    """A picture: the track from left to right, the brackets and lanes below it, and ``stop``, the group's position."""

    width: float
    height: float
    boxes: list[PictureBox]
    waits: list[PictureWait]
    lanes: list[PictureLane]
    stop: float


def picture(
    events: Sequence[TimeLineEvent], undecided: Sequence[Decision], history: GroupHistory, unit: str, state: Any
) -> TimeLinePicture:
    """Lay out the picture of a group.

    Args:
        events: the time line.
        undecided: the decisions that are not applied yet.
        history: the applied decisions, the outputs and the rejected messages.
        unit: the unit in which the group's state is counted, such as ``step``.
        state: the state now, as JSON values.
    """
    boxes = list(_boxes(events))
    right = max((box.x + box.width for box in boxes), default=_GUTTER + 200.0)
    processed = [box for box in boxes if box.event.kind in {EventKind.APPLIED, EventKind.SKIPPED}]
    stop = processed[-1].x + processed[-1].width if processed else float(_GUTTER)
    waits = list(_waits(boxes))
    y = float(_TRACK_Y + _TRACK_H + (58 if waits else 28))
    lanes: list[PictureLane] = []
    now = visible(json.dumps(state, ensure_ascii=False, default=str), _STATE)
    every: list[tuple[str, list[_Mark]]] = [
        ("State", [(None, "state", now)]),
        ("Decided", _decision_marks(undecided, history)),
        ("Results", _output_marks(history, unit)),
    ]
    for name, marks in every:
        if marks:
            pins = [
                _pin(_x_of_position(boxes, position, stop), y + number * _LANE_H, kind, text)
                for number, (position, kind, text) in enumerate(marks)
            ]
            lanes.append(PictureLane(name, y, pins))
            y += len(marks) * _LANE_H
    ends = [pin.x + 14 + len(pin.text) * _LETTER for lane in lanes for pin in lane.pins if not pin.is_left]
    ends += [(wait.first + wait.last) / 2 + len(wait.text) * _LETTER / 2 for wait in waits]
    return TimeLinePicture(max(right, float(_FILLED), *ends) + _EDGE, y - 6, boxes, waits, lanes, stop)


def _decision_marks(undecided: Sequence[Decision], history: GroupHistory) -> list[_Mark]:
    """Return the marks of decisions: the pending ones, then the last applied ones."""
    marks: list[_Mark] = [
        (decision.position, "pending", f"{_by(decision)}: not applied yet") for decision in undecided[:_DECISIONS]
    ]
    for decided in history.decisions[: _DECISIONS - len(marks)]:
        kind, outcome = ("void", "void, changed nothing") if decided.void else ("done", "carried out")
        marks.append((decided.decision.position, kind, f"{_by(decided.decision)}: {outcome}"))
    return marks


def _by(decision: Decision) -> str:
    return f"{decision.action} by {shown(decision.by)}"


def _output_marks(history: GroupHistory, unit: str) -> list[_Mark]:
    """Return the marks of outputs and of rejected messages."""
    marks: list[_Mark] = []
    last = history.outputs[0].revision if history.outputs else None
    if history.delivery is not None:
        tries = counted(history.delivery.attempts, "try").replace("trys", "tries")
        text = f"{counted(history.delivery.outputs, 'output')} not delivered after {tries}"
        marks.append((None, "failing", f"{text}: {visible(last_line(history.delivery.error), _ERROR)}"))
    elif history.undelivered:
        marks.append((last, "output", f"{counted(history.undelivered, 'output')} not delivered"))
    elif history.outputs and history.undelivered is None:
        marks.append((last, "output", f"{counted(len(history.outputs), 'output')} of its last {unit}"))
    if history.rejected:
        reasons = Counter(message.reason for message in history.rejected)
        text = ", ".join(f"{count} as {reason}" for reason, count in reasons.most_common(3))
        marks.append((None, "rejected", f"{counted(len(history.rejected), 'message')} rejected: {text}"))
    return marks


def _pin(x: float, y: float, kind: str, text: str) -> PicturePin:
    """Return a mark with its text on the side that has room for it."""
    room = len(text) * _LETTER + 14
    return PicturePin(x, y, kind, text, is_left=x + room > _WIDEST and x - room > _GUTTER)


def _boxes(events: Sequence[TimeLineEvent]) -> Iterator[PictureBox]:
    widths = [max(float(_WIDTHS[event.kind]), len(event.place) * _LETTER + 20) for event in events]
    room = _FILLED - _GUTTER - _GAP * len(widths)
    stretch = min(max(1.0, room / sum(widths)), _STRETCH) if widths else 1.0
    x = float(_GUTTER)
    for event, width in zip(events, widths, strict=True):
        yield PictureBox(event, x, width * stretch)
        x += width * stretch + _GAP


def _waits(boxes: Sequence[PictureBox]) -> Iterator[PictureWait]:
    """Yield a bracket for each run of messages that wait for the same blocking box."""
    to: PictureBox | None = None
    row: list[PictureBox] = []
    for box in (*boxes, None):
        if box is not None and box.event.kind in _WAITS:
            row.append(box)
            continue
        if row and to is not None:
            yield PictureWait(row[0].middle, row[-1].middle, to.middle, _words(row, to))
        if box is not None and box.event.kind in _BLOCKS:
            to = box
        row = []


def _words(row: Sequence[PictureBox], to: PictureBox) -> str:
    verb = "waits" if len(row) == 1 and row[0].event.kind is EventKind.HELD else "wait"
    return f"{verb} for {to.event.place}"


def _x_of_position(boxes: Sequence[PictureBox], position: int | None, stop: float) -> float:
    """Return the x coordinate of a position on the track; for an unknown position, the group's position."""
    for box in boxes:
        if position is None or box.event.positions is None:
            continue
        first, last = box.event.positions
        if first <= position <= last:
            return box.x + box.width * (0.5 if first == last else 0.1 + 0.8 * (position - first) / (last - first))
    return stop
