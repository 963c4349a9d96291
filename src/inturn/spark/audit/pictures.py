"""The pictures of a report, as SVG inside a page.

No text of the log is drawn, only numbers and fixed words: group names stand next to a picture, not in it. Every
picture takes ``words``, its text alternative for readers who cannot see it.
"""

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inturn.core.words import duration
from inturn.pages.svg import FAINT, GREY, INK, WHITE, Drawing, Icon, Place, Plot, Tick, icons
from inturn.pages.ticks import COUNTS, SECONDS, rounds, spaced, times
from inturn.spark.audit.report import (
    Distribution,
    FaultKind,
    GapSummary,
    GroupSizes,
    GroupTimeline,
    HistogramBar,
    RevisionGap,
    TimelinePoint,
)

PALE, QUIET, COPY, LATE, WRONG, OPEN = "#eef1f4", "#6f8fa8", "#7b8590", "#e07b1f", "#c8374d", "#a86a08"
_LOST_BAND, _OPEN_BAND = "#f3c3ca", "#fbf1df"
_HALF, _WIDE, _SMALL = (374, 194), (605, 180), (266, 180)
"""Sizes in points; the page stretches a picture to the available width."""
_NAMED_BARS: Final = 7
"""The greatest number of bars with their range written below; more bars have an axis."""


def histogram(
    values: Distribution, marks: dict[str, float], words: str, *, seconds: bool = False, unit: str = ""
) -> str:
    """Draw the distribution of values, with lines at some of them.

    Each bar covers twice the range of the one before and is drawn equally wide. The values are seconds, or else whole
    numbers of some unit.
    """
    bars, drawing = values.bars, Drawing(*_HALF)
    left, right = _log(bars[0].low), _log(bars[-1].high)
    room = max(0.15, 2 - (right - left) / 2)  # a single bar does not fill the picture
    ends = (left - room, right + room)
    plot = Plot.framed(drawing, ends, (0, 1.6), _ticks(bars, seconds=seconds), names=(unit, ""))
    top = max(bar.count for bar in bars) or 1
    # A single value stays visible beside a million others; its number is written above it.
    tops = [((_log(bar.low) + _log(bar.high)) / 2, max(bar.count / top, 0.012), bar.count) for bar in bars if bar.count]
    for middle, height, _ in tops:
        plot.box((middle - 0.45, 0), (middle + 0.45, height), QUIET)
    for number, (name, value) in enumerate(marks.items()):
        position, row = min(_log(value if seconds else value + 0.5), right), 1.5 - 0.14 * number
        plot.line([(position, 0), (position, row)], INK, 0.9, "2 2")
        label, rightwards = duration(value) if seconds else f"{value:,.0f}", position < (left + right) / 2
        (x, y), anchor = plot.at(position, row), "start" if rightwards else "end"
        drawing.text((x + (4 if rightwards else -4), y), f"{name} {label}", 8.5, INK, anchor, halo=True)
    for middle, height, count in sorted(tops, key=lambda bar: -bar[2]):
        x, y = plot.at(middle, height)
        drawing.label((x, y - 7), _short(count), 8 if len(bars) <= 12 else 6.5, GREY, "middle", halo=True)
    return drawing.element(words)


def _log(value: float) -> float:
    """Return the position of a value on an axis where doubling bars are equally wide; values below 1 are one bar."""
    return math.log2(value) if value >= 1 else max(value, 0.0) - 1


def _short(count: int) -> str:
    for size, unit in ((10**9, "bn"), (10**6, "m"), (10**3, "k")):
        if count >= size:
            return f"{count // size}{unit}" if count >= 100 * size else f"{count / size:.1f}{unit}".replace(".0", "")
    return str(count)


def _ticks(bars: Sequence[HistogramBar], *, seconds: bool) -> list[Tick]:
    """Return the labels below bars: the whole numbers of each; round values for many bars or seconds."""
    if not seconds and len(bars) <= _NAMED_BARS:
        ends = [(int(bar.low), int(bar.high) - 1) for bar in bars]
        names = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in ends]
        return [((_log(bar.low) + _log(bar.high)) / 2, name) for bar, name in zip(bars, names, strict=True)]
    low, high = bars[0].low, bars[-1].high
    named = [(0, "0"), *(SECONDS if seconds else COUNTS)]
    return spaced(named, _log, low, high, 8) or [(_log(low), duration(low) if seconds else f"{low:,.0f}")]


def consumer_costs(sizes: GroupSizes, words: str) -> str:
    """Draw the cost of order by number of consumers: their time as a multiple of equal shares."""
    counts = [cost.consumers for cost in sizes.consumers]
    by_hash, free = [cost.hashed for cost in sizes.consumers], [cost.free for cost in sizes.consumers]
    most = max(*by_hash, *free, 2.0)
    costs = [(1, "equal"), *((2**power, f"{2**power:,} times") for power in range(1, 64))]
    drawing = Drawing(*_HALF)
    plot = Plot.framed(
        drawing,
        (math.log2(counts[0] * 0.85), math.log2(counts[-1]) + max(1.2, 0.34 * math.log2(counts[-1] / counts[0]))),
        (math.log2(0.88), math.log2(most * 1.3)),
        [(math.log2(count), f"{count:,}") for count in counts],
        spaced(costs, math.log2, 1, 1.3 * most, 6),
        ("consumers", ""),
        top=36,
    )
    plot.line([(plot.xs[0], 0), (plot.xs[1], 0)], FAINT)
    lines = (
        (by_hash, LATE, "", "groups assigned by hash"),
        (free, QUIET, "5 3", "each takes the next free group"),
    )
    ends = []
    for heights, colour, dash, _ in lines:
        points = [(math.log2(count), math.log2(height)) for count, height in zip(counts, heights, strict=True)]
        end = plot.curve(points, colour, 2, dash)
        if heights is by_hash or by_hash[-1] > 1.15 * free[-1]:
            ends.append((end, f"{heights[-1]:,.1f} times", colour))
    plot.name_ends(ends, halo=True)
    drawing.legend((plot.left + 4, 8), [(name, _stroke(colour, 2, dash)) for _, colour, dash, name in lines])
    return drawing.element(words)


def gaps(summary: GapSummary, ends_s: tuple[float, float] | None, words: str) -> str:
    """Draw when the gaps in ``over`` opened; ``ends_s`` are the ends of the log's clock in seconds since 1970."""
    ticks: list[Tick]
    low, high = (summary.over[0][0].low, summary.over[-1][0].high) if summary.by_time else (0.0, 100.0)
    if summary.by_time:
        low, high = min(low, *(ends_s or (low,))), max(high, *(ends_s or (high,)))
        instants, names, day = times(round(low * 1e6), round(high * 1e6), 7)
        ticks = [(instant / 1e6 - low, name) for instant, name in zip(instants, names, strict=True)]
        label = f"{day} UTC: when the first message beyond the gap arrived".strip()
    else:
        ticks = [(percent, f"{percent}%") for percent in range(0, 101, 20)]
        label = "of the group's messages had arrived"
    top = max(lost.count + may_come.count for lost, may_come in summary.over)
    drawing, heights = Drawing(*_WIDE), [(count, f"{count:,}") for count in rounds(0, top, 5)]
    width = (high - low) or 1.0  # far from 1970 a float does not tell two microseconds apart
    plot = Plot.framed(drawing, (0, width), (0, top * 1.05 or 1), ticks, heights, (label, "gaps"), top=34)
    for lost, may_come in summary.over:
        middle, half = (lost.low + lost.high) / 2 - low, (lost.high - lost.low) * 0.45
        left, right = max(0, middle - half), min(width, middle + half)
        if lost.count:
            plot.box((left, 0), (right, lost.count), WRONG)
        if may_come.count:
            drawing.hatched(plot.at(left, lost.count), plot.at(right, lost.count + may_come.count), _OPEN_BAND, OPEN)
    drawing.legend((plot.left + 4, 8), [("lost", _box(WRONG)), ("may still arrive", _hatched)])
    return drawing.element(words)


@dataclass(frozen=True)
class _Scale:
    """A mapping from places to heights on the y-axis, from 0 to 1.

    A stretch without messages that would dwarf the rest is drawn shorter (``cuts``): one message a million ahead must
    not press the others into a line.
    """

    places: list[int]
    heights: list[float]
    cuts: list[tuple[int, int]]

    @classmethod
    def of(cls, every: Sequence[int]) -> "_Scale":
        places = sorted(set(every))
        jumps = [high - low for low, high in itertools.pairwise(places)]
        falling = sorted(jumps, reverse=True)
        cut, rest = math.inf, 0
        for count in range(1, min(3, len(jumps) - 2) + 1):
            if falling[count - 1] > 4 * sum(falling[count:]):
                cut, rest = falling[count - 1], sum(falling[count:])
        lengths = [0.35 * rest if jump >= cut else float(jump) for jump in jumps]
        total = sum(lengths) or 1.0
        heights = [height / total for height in itertools.accumulate(lengths, initial=0.0)]
        return cls(places, heights, [ends for ends in itertools.pairwise(places) if ends[1] - ends[0] >= cut])

    def at(self, place: float) -> float:
        """Return the height of a place; beyond the ends it is extrapolated from the nearest two."""
        if len(self.places) == 1:
            return place - self.places[0]
        above = min(max(bisect.bisect_right(self.places, place), 1), len(self.places) - 1)
        low, high = self.places[above - 1], self.places[above]
        return self.heights[above - 1] + (place - low) / (high - low) * (self.heights[above] - self.heights[above - 1])


def timeline(group: GroupTimeline, words: str, *, is_time: bool) -> str:
    """Draw a group's messages, of which there are some: arrival to the right, place in the order upwards.

    A place is a number, or a time in microseconds.
    """
    first, last, bands = group.points[0].position, group.points[-1].position, _in_view(group)
    scale = _Scale.of([*(point.place for point in group.points), *(gap.first for gap, _, _ in bands)])
    room, drawing = (last - first + 1.2) * 0.04, Drawing(*_SMALL)
    ticks, shared = _places(scale, is_time=is_time)
    if shared:
        drawing.text((0, 6), shared, 7.5, GREY)
    plot = Plot.framed(
        drawing,
        (first - 0.6, last + 0.6 + room),
        (-0.1, 1.1) if len(scale.places) > 1 else (-1, 1),
        [(position, f"{position:,}") for position in rounds(first, last, 5)],
        ticks,
        ("order of arrival →", "place in the order →"),
        top=14 if shared else 4,
        size=7.5,
    )
    for below, above in scale.cuts:
        plot.box((plot.xs[0], scale.at(below)), (plot.xs[1], scale.at(above)), PALE)
    _bands(plot, bands, scale, room)
    _messages(plot, group.points, scale)
    for below, above in scale.cuts:
        away = duration((above - below) / 1e6) if is_time else f"{above - below:,}"
        x, y = plot.at(plot.xs[0], (scale.at(below) + scale.at(above)) / 2)
        drawing.text((x + 3, y), f"axis cut: {away}", 7, GREY, halo=True)
    return drawing.element(words)


def _in_view(group: GroupTimeline) -> list[tuple[RevisionGap, int, int]]:
    """Return the gaps between the messages shown, each with the first and last arrival while it existed."""
    visible = []
    for gap in group.gaps:
        own = [point for point in group.points if point.epoch == gap.epoch]
        beyond = [point.position for point in own if point.place > gap.last]
        has_start = bool(own) and (own[0].position == 1 or own[0] is not group.points[0])
        if beyond and (has_start or any(point.place < gap.first for point in own)):
            visible.append((gap, beyond[0], own[-1].position))
    return visible


def _bands(plot: Plot, bands: Sequence[tuple[RevisionGap, int, int]], scale: _Scale, room: float) -> None:
    """Draw missing revisions from the time at which they were missed, and name the largest bands."""
    named = 0
    for gap, begin, end in sorted(bands, key=lambda band: band[0].first - band[0].last):
        low, high = max(scale.at(gap.first - 0.5), plot.ys[0]), min(scale.at(gap.last + 0.5), plot.ys[1])
        middle, height = (low + high) / 2, max(high - low, 0.014)
        right = end + 0.5 + room
        corners = plot.at(begin - 0.5, middle - height / 2), plot.at(right, middle + height / 2)
        (_hatched if gap.open else _box(_LOST_BAND))(plot.drawing, *corners)
        if named < 5:
            text = f"{gap.last - gap.first + 1:,} {'may still arrive' if gap.open else 'missing'}"
            x, y = plot.at(right, middle if height > 0.09 else middle - height / 2)
            place, colour = (x - 2, y if height > 0.09 else y + 7), OPEN if gap.open else WRONG
            named += plot.drawing.label(place, text, 7.5, colour, "end", halo=True)


def _hatched(drawing: Drawing, start: Place, end: Place) -> None:
    drawing.hatched(start, end, _OPEN_BAND, OPEN)


def _box(colour: str) -> Icon:
    return lambda drawing, start, end: drawing.box(start, end, colour)


def _stroke(colour: str, width: float, dash: str, *, upright: bool = False) -> Icon:
    def draw(drawing: Drawing, start: Place, end: Place) -> None:
        x, y = _middle(start, end)
        drawing.line([(x, start[1]), (x, end[1])] if upright else [(start[0], y), (end[0], y)], colour, width, dash)

    return draw


def _middle(start: Place, end: Place) -> Place:
    return (start[0] + end[0]) / 2, (start[1] + end[1]) / 2


@dataclass(frozen=True)
class _Mark:
    """The appearance of messages with some kinds of faults; its size is relative to that of other marks."""

    kinds: tuple[FaultKind | None, ...]
    size: float
    fill: str
    edge: str
    shape: str = "dot"

    def draw(self, drawing: Drawing, place: Place, unit: float) -> None:
        size, (x, y) = self.size * unit, place
        half = size / 2
        if self.shape == "dot":
            drawing.dot(place, size, self.fill, self.edge, 1.1)
        elif self.shape == "square":
            drawing.box((x - half, y - half), (x + half, y + half), self.fill, stroke=self.edge, stroke_width=1.1)
        else:
            drawing.line([(x - half, y - half), (x + half, y + half)], self.edge, 1.6)
            drawing.line([(x - half, y + half), (x + half, y - half)], self.edge, 1.6)

    def icon(self, drawing: Drawing, start: Place, end: Place) -> None:
        self.draw(drawing, _middle(start, end), 6)


_RIVALS = (FaultKind.CONFLICT, FaultKind.ID_CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE)
_LOOKS: Final[dict[str, _Mark]] = {
    "in order": _Mark((None, FaultKind.RESET), 0.6, QUIET, QUIET),
    "exact copy": _Mark((FaultKind.DUPLICATE,), 1.0, WHITE, COPY),
    "without an id": _Mark((FaultKind.NO_ID,), 0.9, WHITE, INK, "square"),
    "late: below the greatest so far": _Mark((FaultKind.LATE,), 0.85, LATE, LATE),
    "contradicts an earlier message": _Mark(_RIVALS, 1.2, "", WRONG, "cross"),
}
"""The appearance of messages by the text of the legend."""
_RESTART_DASH: Final = "4 3"


def _messages(plot: Plot, points: Sequence[TimelinePoint], scale: _Scale) -> None:
    """Draw the messages, the line of the greatest so far, and a line from it down to each late message."""
    unit = 5.0 if len(points) <= 40 else 3.8 if len(points) <= 80 else 2.8
    tops: dict[int, list[TimelinePoint]] = {}
    for point in points:
        if tops and point.epoch > max(tops):
            border = point.position - 0.5
            plot.line([(border, plot.ys[0]), (border, plot.ys[1])], INK, 1, _RESTART_DASH)
        own = tops.setdefault(point.epoch, [])
        if point.kind == FaultKind.LATE and own:
            ends = [(point.position, scale.at(end.place)) for end in (point, own[-1])]
            plot.line(ends, LATE, 0.9)
        if not own or point.place >= own[-1].place:
            own.append(point)
    for own in tops.values():
        plot.line([(dot.position, scale.at(dot.place)) for dot in own], FAINT)
    for mark in _LOOKS.values():
        for point in points:
            if point.kind in mark.kinds:
                mark.draw(plot.drawing, plot.at(point.position, scale.at(point.place)), unit)


def _places(scale: _Scale, *, is_time: bool) -> tuple[list[Tick], str]:
    """Return labels for round places, for each part drawn to one scale, and the text that all of them share."""
    ticks: dict[int, str] = {}
    shared: set[str] = set()
    begins, ends = [scale.places[0], *(high for _, high in scale.cuts)], [low for low, _ in scale.cuts]
    for low, high in zip(begins, [*ends, scale.places[-1]], strict=True):
        most = max(1, round(5 * (scale.at(high) - scale.at(low))))
        if is_time:
            values, names, day = times(low, high, most)
            shared.add(day)
        else:
            values = rounds(low, high, most) or [low]
            names = [f"{value:,}" for value in values]
        ticks |= dict(zip(values, names, strict=True))
    days = f"{', '.join(sorted(shared - {''}))} UTC".strip() if is_time else ""
    return [(scale.at(value), name) for value, name in ticks.items()], days


def legend(groups: Sequence[GroupTimeline]) -> list[tuple[str, str]]:
    """Return the legend of the marks in some timelines: a small picture and its text each."""
    return icons(_marks(groups))


def _marks(groups: Sequence[GroupTimeline]) -> Iterator[tuple[str, Icon]]:
    seen = {point.kind for group in groups for point in group.points}
    for words, mark in _LOOKS.items():
        if seen.intersection(mark.kinds):
            yield words, mark.icon
    if any(len({point.epoch for point in group.points}) > 1 for group in groups):
        yield "the numbers start again", _stroke(INK, 1.2, _RESTART_DASH, upright=True)
    is_open = {gap.open for group in groups for gap, _, _ in _in_view(group)}
    if False in is_open:
        yield "missing, drawn from the first message beyond the gap", _box(_LOST_BAND)
    if True in is_open:
        yield "missing, but may still arrive", _hatched
