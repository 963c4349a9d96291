"""The consumers at work, as a picture: a row per consumer, a box per handling, the followed group in its own colour."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from inturn.lab.page.line_styles import BACK, GREY, GROUPS, LINE, OWN, WRONG
from inturn.lab.page.words import span
from inturn.lab.results import DesignResult, HandlingSpan, TimeLineWindow
from inturn.pages.svg import Drawing, Icon, Place, Plot, icons, width_of
from inturn.pages.ticks import STEPS_US, rounds

_WIDTH, _ROW, _TOP, _BOTTOM = 374, 17, 10, 18
_ROWS: Final = 8
"""The maximum number of consumers that are drawn."""
_IN_A_ROW: Final = 16
"""The number of typical handlings that fit into a row."""
_LABEL: Final = 8
_NO_EFFECT: Final = ("failed", "crashed", "rejected", "duplicate")


def group_colours(designs: Sequence[DesignResult], followed: str) -> dict[str, str]:
    """Return the colours of the groups in the time lines, the same in every design."""
    names = {attempt.group for design in designs if design.window for attempt in design.window.spans} - {followed}
    return {name: GROUPS[number % len(GROUPS)] for number, name in enumerate(sorted(names))} | {followed: OWN}


def time_lines(design: DesignResult, followed: tuple[str, int], colours: Mapping[str, str]) -> str | None:
    """Draw the time lines around the followed message; None if the design never handled it."""
    window = design.window
    if window is None:
        return None
    begin_us, end_us = _range(window, followed)
    inside = [attempt for attempt in window.spans if attempt.end_us >= begin_us and attempt.begin_us <= end_us]
    rows = _rows(inside, followed[0])
    drawing = Drawing(_WIDTH, _TOP + _ROW * len(rows) + _BOTTOM)
    width = max(1, end_us - begin_us)
    ticks = [(float(tick), span(tick)) for tick in rounds(0, width, 5, STEPS_US)]
    names = [(row + 0.5, f"{consumer + 1}") for row, consumer in enumerate(rows)]
    plot = Plot.framed(drawing, (0, width), (len(rows), 0), ticks, names, top=_TOP, size=8)
    for row, _ in names:
        plot.line([(0, row), (width, row)], LINE)
    for attempt in sorted(inside, key=lambda attempt: (attempt.group == followed[0], attempt.begin_us)):
        if attempt.consumer in rows:
            row = rows.index(attempt.consumer)
            left, top = plot.at(max(0, attempt.begin_us - begin_us), row)
            right, bottom = plot.at(min(width, attempt.end_us - begin_us), row + 1)
            text = f"{attempt.revision}" if attempt.group == followed[0] else ""
            has_effect = attempt.result not in _NO_EFFECT
            draw = handling(
                colours.get(attempt.group, GREY), text, has_effect=has_effect, out_of_turn=attempt.out_of_turn
            )
            draw(drawing, (left, top + 4), (right, bottom - 1))
    return drawing.element(_words(design, inside, rows, followed))


def _range(window: TimeLineWindow, followed: tuple[str, int]) -> tuple[int, int]:
    """Return the times between which handlings are drawn: around all handlings of the message, if they are near."""
    own = [attempt for attempt in window.spans if (attempt.group, attempt.revision) == followed]
    typical = median(attempt.end_us - attempt.begin_us for attempt in window.spans)
    width = max(1, int(_IN_A_ROW * typical))
    begin = min((attempt.begin_us for attempt in own), default=window.from_us)
    last = max((attempt.end_us for attempt in own), default=begin)
    end = max(begin + width * 3 // 4, min(last + width // 8, begin + 2 * width))
    return max(window.from_us, begin - width // 4), min(window.to_us, end)


def _rows(spans: Sequence[HandlingSpan], group: str) -> list[int]:
    """Return the consumers to draw: all, or those with the most handlings of the followed group."""
    counts = Counter[int]()
    for attempt in spans:
        counts[attempt.consumer] += 1000 if attempt.group == group else 1
    return sorted(sorted(counts, key=lambda consumer: (-counts[consumer], consumer))[:_ROWS])


def handling(colour: str, text: str = "", *, has_effect: bool = True, out_of_turn: bool = False) -> Icon:
    """Return a function that draws a handling between two corners, with its text if there is room for it."""

    def draw(drawing: Drawing, start: Place, end: Place) -> None:
        (left, top), bottom = start, end[1]
        right = max(end[0] - 0.4, left + 0.8)
        named = text and width_of(text, _LABEL) * 1.1 + 1 <= right - left
        if has_effect:
            drawing.box(start, (right, bottom), colour)
        else:
            drawing.box(start, (right, bottom), BACK, stroke=colour, stroke_width=1, stroke_dasharray="2 1.2")
        if not (has_effect or named) and right - left > 4:
            drawing.line([(left, bottom), (right, top)], colour, 0.8)
        if out_of_turn:
            drawing.box(start, (right, bottom), "none", stroke=WRONG, stroke_width=1.4)
            drawing.shape("path", d=f"M{(left + right) / 2 - 2.6:.2f} {top - 4:.2f}h5.2l-2.6 4z", fill=WRONG)
        if named:
            ink = BACK if has_effect else colour
            drawing.text(((left + right) / 2, (top + bottom) / 2), text, _LABEL, ink, "middle", bold=True)

    return draw


def _words(design: DesignResult, spans: Sequence[HandlingSpan], rows: Sequence[int], followed: tuple[str, int]) -> str:
    """Return the text alternative: the handlings of the followed group, in the order of their begin."""
    own = sorted((attempt for attempt in spans if attempt.group == followed[0]), key=lambda attempt: attempt.begin_us)[
        :12
    ]
    parts = [
        f"revision {attempt.revision} at consumer {attempt.consumer + 1} {attempt.result.replace('_', ' ')}"
        + (" out of turn" if attempt.out_of_turn else "")
        for attempt in own
    ]
    consumers = (
        f"{len(rows)} of {design.consumers} consumers" if len(rows) < design.consumers else f"{len(rows)} consumers"
    )
    return f"{design.title}: {consumers} at work. Followed group: {'; '.join(parts) or 'no handlings'}."


def legend() -> list[tuple[str, str]]:
    """Return the legend: pairs of a small picture and its text."""
    return icons(
        [
            ("the followed group, with revisions", handling(OWN, "7")),
            ("other groups, one colour each", handling(GROUPS[0])),
            ("applied out of turn", handling(OWN, "7", out_of_turn=True)),
            ("no effect: failed, crashed, requeued, or recognised as a copy", handling(OWN, "7", has_effect=False)),
        ]
    )
