"""The life of one message in each design, on a common time scale: a strip per design, with a description in words."""

import math
from collections.abc import Sequence
from typing import Final

from inturn.lab.page.line_styles import BACK, GREY, INK, LINE, OWN, WRONG
from inturn.lab.page.time_lines import handling
from inturn.lab.page.words import span
from inturn.lab.results import DesignResult, MessageLife
from inturn.pages.svg import Drawing
from inturn.pages.ticks import SECONDS, spaced

_SIZE = (600, 24)
_MIDDLE: Final = _SIZE[1] / 2
_APPLIED: Final = ("applied", "applied_unacked")
_MAX_EVENTS: Final = 7
"""The maximum number of events described in words."""


class LifeScale:
    """A logarithmic scale of the time since the arrival, on which both short and long waits are visible."""

    def __init__(self, designs: Sequence[DesignResult]) -> None:
        lives = [design.life for design in designs if design.life is not None and design.life.events]
        self._most = max((life.events[-1].at_us - life.events[0].at_us for life in lives), default=1)
        self._most = max(self._most, 1000)

    def position(self, since_us: float) -> float:
        """Return the position of a time since the arrival, from 0 to 1."""
        return math.log1p(max(0.0, since_us) / 1000) / math.log1p(self._most / 1000)

    def ticks(self) -> list[tuple[float, str]]:
        """Return round times with their positions, in percent."""
        named = [(0.0, "arrived"), *((seconds * 1e6, name) for seconds, name in SECONDS)]
        places = spaced(named, lambda since_us: 100 * self.position(since_us), 0, self._most, 5)
        return [(round(place, 1), name) for place, name in sorted(places) if place <= 94]


def strip(life: MessageLife, scale: LifeScale) -> str:
    """Draw the life of a message: waits as a line, handlings as boxes, other events as marks."""
    drawing = Drawing(*_SIZE)
    began = life.events[0].at_us

    def x(at_us: int) -> float:
        return 8 + scale.position(at_us - began) * (_SIZE[0] - 16)

    drawing.line([(8, _MIDDLE), (_SIZE[0] - 8, _MIDDLE)], LINE)
    last = max(event.at_us for event in life.events)
    drawing.line([(8, _MIDDLE), (x(last), _MIDDLE)], GREY, 1.5)
    begun: int | None = None
    for event in life.events:
        place = x(event.at_us)
        if event.kind == "began":
            begun = event.at_us
        elif event.kind == "arrived":
            drawing.dot((place, _MIDDLE), 7, BACK, INK, 1.5)
        elif event.kind == "note":
            drawing.line([(place, _MIDDLE - 5), (place, _MIDDLE + 5)], INK, 1.5)
        else:
            left = place if begun is None else x(begun)
            applied, late = event.kind in _APPLIED, event.text.endswith("out of turn")
            draw = handling((WRONG if late else OWN) if applied else INK, has_effect=applied)
            draw(drawing, (left, _MIDDLE - 6), (max(place, left + 3), _MIDDLE + 6))
            begun = None
    return drawing.element()


def life_events(life: MessageLife) -> list[tuple[str, str, bool]]:
    """Return the life in words: the time since the arrival, the event, and whether it was out of turn."""
    began = life.events[0].at_us
    events = [
        event
        for event, after in zip(life.events, [*life.events[1:], None], strict=True)
        if event.kind != "began" and not (after and after.at_us == event.at_us and event.text in after.text)
    ]
    lines = [(span(event.at_us - began), event.text, event.text.endswith("out of turn")) for event in events]
    if len(lines) > _MAX_EVENTS:
        hidden = len(lines) - _MAX_EVENTS + 1
        half = _MAX_EVENTS // 2
        lines = [*lines[:half], ("", f"… {hidden} more events …", False), *lines[half + hidden :]]
    return lines
