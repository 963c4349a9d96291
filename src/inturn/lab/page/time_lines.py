"""The consumers at work, as a picture: a row per consumer, a box per handling, the followed group in its own colour."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from inturn.lab.page.looks import BACK, GREY, GROUPS, LINE, OWN, WRONG
from inturn.lab.page.words import span
from inturn.lab.results import DesignResult, HandlingSpan, TimeLineWindow
from inturn.pages.svg import Drawing, width_of

_WIDTH, _ROW, _TOP, _BOTTOM, _LEFT = 374, 17, 10, 24, 16
_ROWS: Final = 8
"""The maximum number of consumers that are drawn."""
_IN_A_ROW: Final = 16
"""The number of typical handlings that fit into a row."""
_LABEL: Final = 8
_NO_EFFECT: Final = ("failed", "crashed", "rejected", "duplicate")
_STEPS_US: Final = tuple(unit * 10**power for power in range(12) for unit in (1, 2, 5))


def group_colours(designs: Sequence[DesignResult], followed: str) -> dict[str, str]:
    """Return the colours of the groups in the time lines, the same in every design."""
    names = {each.group for design in designs if design.window for each in design.window.spans} - {followed}
    return {name: GROUPS[number % len(GROUPS)] for number, name in enumerate(sorted(names))} | {followed: OWN}


def time_lines(design: DesignResult, followed: tuple[str, int], colours: Mapping[str, str]) -> str | None:
    """Draw the time lines around the followed message; None if the design never handled it."""
    window = design.window
    if window is None:
        return None
    begin_us, end_us = _range(window, followed)
    inside = [each for each in window.spans if each.end_us >= begin_us and each.begin_us <= end_us]
    rows = _rows(inside, followed[0])
    drawing = Drawing(_WIDTH, _TOP + _ROW * len(rows) + _BOTTOM)
    right = _WIDTH - 4
    scale = (right - _LEFT) / max(1, end_us - begin_us)

    def at(time_us: int) -> float:
        return max(_LEFT, min(right, _LEFT + (time_us - begin_us) * scale))

    for row, consumer in enumerate(rows):
        y = _TOP + _ROW * (row + 0.5)
        drawing.line([(_LEFT, y), (right, y)], LINE)
        drawing.text((_LEFT - 5, y), f"{consumer + 1}", 8, GREY, "end")
    for each in sorted(inside, key=lambda each: (each.group == followed[0], each.begin_us)):
        if each.consumer in rows:
            top = _TOP + _ROW * rows.index(each.consumer)
            _box(drawing, each, (at(each.begin_us), top + 4, at(each.end_us), top + _ROW - 1), colours, followed[0])
    _axis(drawing, begin_us, end_us, scale)
    return drawing.element(_words(design, inside, rows, followed))


def _range(window: TimeLineWindow, followed: tuple[str, int]) -> tuple[int, int]:
    """Return the times between which handlings are drawn: around all handlings of the message, if they are near."""
    own = [each for each in window.spans if (each.group, each.revision) == followed]
    typical = median(each.end_us - each.begin_us for each in window.spans)
    width = max(1, int(_IN_A_ROW * typical))
    begin = min((each.begin_us for each in own), default=window.from_us)
    last = max((each.end_us for each in own), default=begin)
    end = max(begin + width * 3 // 4, min(last + width // 8, begin + 2 * width))
    return max(window.from_us, begin - width // 4), min(window.to_us, end)


def _rows(spans: Sequence[HandlingSpan], group: str) -> list[int]:
    """Return the consumers to draw: all, or those with the most handlings of the followed group."""
    counts: dict[int, int] = {}
    for each in spans:
        counts[each.consumer] = counts.get(each.consumer, 0) + (1000 if each.group == group else 1)
    return sorted(sorted(counts, key=lambda each: (-counts[each], each))[:_ROWS])


def _box(
    drawing: Drawing,
    handling: HandlingSpan,
    place: tuple[float, float, float, float],
    colours: Mapping[str, str],
    followed: str,
) -> None:
    left, top, right, bottom = place
    right = max(right - 0.4, left + 0.8)
    colour = colours.get(handling.group, GREY)
    text = f"{handling.revision}"
    named = handling.group == followed and width_of(text, _LABEL) * 1.1 + 1 <= right - left
    if handling.result in _NO_EFFECT:
        drawing.box((left, top), (right, bottom), BACK, stroke=colour, stroke_width=1, stroke_dasharray="2 1.2")
        if not named:
            drawing.line([(left, bottom), (right, top)], colour, 0.8)
    else:
        drawing.box((left, top), (right, bottom), colour)
    if handling.out_of_turn:
        drawing.box((left, top), (right, bottom), "none", stroke=WRONG, stroke_width=1.4)
        middle = (left + right) / 2
        drawing.shape("path", d=f"M{middle - 2.6:.2f} {top - 4:.2f}h5.2l-2.6 4z", fill=WRONG)
    if named:
        ink = colour if handling.result in _NO_EFFECT else BACK
        drawing.text(((left + right) / 2, (top + bottom) / 2), text, _LABEL, ink, "middle", bold=True)


def _axis(drawing: Drawing, begin_us: int, end_us: int, scale: float) -> None:
    y = drawing.height - _BOTTOM + 3
    step = next(each for each in _STEPS_US if each * scale >= 62)
    taken = 0.0
    for at_us in range(0, end_us - begin_us + 1, step):
        x = _LEFT + at_us * scale
        drawing.line([(x, y), (x, y + 3)], GREY)
        text = span(at_us)
        half = width_of(text, 8) / 2
        left = max(1, min(x - half, drawing.width - 1 - 2 * half))
        if left > taken:
            drawing.text((x, y + 10), text, 8, GREY, "middle")
            taken = left + 2 * half + 4


def _words(design: DesignResult, spans: Sequence[HandlingSpan], rows: Sequence[int], followed: tuple[str, int]) -> str:
    """Return the text alternative: the handlings of the followed group, in the order of their begin."""
    own = sorted((each for each in spans if each.group == followed[0]), key=lambda each: each.begin_us)[:12]
    told = [
        f"revision {each.revision} at consumer {each.consumer + 1} {each.result.replace('_', ' ')}"
        + (" out of turn" if each.out_of_turn else "")
        for each in own
    ]
    drawn = f"{len(rows)} of {design.consumers} consumers" if len(rows) < design.consumers else f"{len(rows)} consumers"
    return f"{design.title}: {drawn} at work. Followed group: {'; '.join(told) or 'no handlings'}."


def legend() -> list[tuple[str, str]]:
    """Return the legend: pairs of a small picture and its text."""
    size, place = (22, 17), (3.0, 4.0, 19.0, 16.0)

    def drawn(group: str, result: str = "applied", *, out: bool = False, revision: int = 7) -> str:
        drawing = Drawing(*size)
        each = HandlingSpan(
            consumer=0,
            message=0,
            group=group,
            revision=revision,
            begin_us=0,
            end_us=0,
            attempt=1,
            result=result,
            out_of_turn=out,
        )
        _box(drawing, each, place, {"": OWN, "b": GROUPS[0]}, "")
        return drawing.element()

    return [
        (drawn(""), "the followed group, with revisions"),
        (drawn("b"), "other groups, one colour each"),
        (drawn("", out=True), "applied out of turn"),
        (drawn("", "failed"), "no effect: failed, crashed, requeued, or recognised as a copy"),
    ]
