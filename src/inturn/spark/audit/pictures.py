"""The pictures of a report, as SVG inside a page.

No text of the log is drawn, only numbers and our own words: group names stand beside a picture, not in it. Every
picture takes ``words``, its text alternative for readers who cannot see it.
"""

import bisect
import html
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inturn.spark.audit.report import Bar, FaultKind, Gap, Gaps, GroupTimeline, Point, Sizes, Spread
from inturn.spark.audit.words import duration, instant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], object]

INK, GREY, FAINT, PALE = "#1c2530", "#5f6975", "#c9d0d8", "#eef1f4"
QUIET, COPY, LATE, WRONG, OPEN = "#6f8fa8", "#7b8590", "#e07b1f", "#c8374d", "#a86a08"
_STYLE: Final[dict[str, Any]] = (
    {"svg.fonttype": "none", "text.parse_math": False, "font.size": 9, "text.color": INK, "hatch.linewidth": 0.6}
    | {"figure.facecolor": "none", "axes.facecolor": "none", "axes.edgecolor": FAINT, "axes.labelcolor": GREY}
    | {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8.5}
    | {f"{axis}tick.{what}": colour for axis in "xy" for what, colour in (("color", FAINT), ("labelcolor", GREY))}
)
_HALF, _WIDE, _SMALL, _ICON = (5.2, 2.7), (8.4, 2.5), (3.7, 2.5), (0.42, 0.24)
"""Sizes in inches; the page stretches a picture to the available width."""
_ON_WHITE: Final = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
_LOST_BAND: Final[dict[str, Any]] = {"fc": "#f3c3ca", "ec": "none"}
_OPEN_BAND: Final[dict[str, Any]] = {"fc": "#fbf1df", "ec": OPEN, "hatch": "/////", "lw": 0.8, "ls": "--"}
_NAMED_BARS: Final = 7
"""The greatest number of bars with their range written below; more bars have an axis."""
_SECONDS: Final = (
    *((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 day"), (604_800, "1 week"), (31_536_000, "1 year")),
    *((10, "10 s"), (600, "10 min"), (2_592_000, "30 days"), (315_360_000, "10 years"), (3_153_600_000, "100 years")),
    *((30, "30 s"), (300, "5 min"), (1_800, "30 min"), (10_800, "3 h"), (36_000, "10 h"), (259_200, "3 days")),
)
"""Durations for an axis, the most useful first."""
_COUNTS: Final = tuple((unit * 10**power, f"{unit * 10**power:,}") for unit in (1, 2, 5) for power in range(19))
_STEPS: Final = tuple(unit * 10**power for power in range(20) for unit in (1, 2, 5))
"""Distances between round numbers."""
_STEPS_US: Final = (
    *_STEPS[:18],
    *(unit * 1_000_000 for unit in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800)),
    *(unit * 3_600_000_000 for unit in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 2_160, 8_760, 17_520, 87_600)),
)
"""Distances between round times, in microseconds."""


def spread(values: Spread, marks: dict[str, float], words: str, *, seconds: bool = False, unit: str = "") -> str:
    """Draw the distribution of values, with lines at some of them.

    Each bar covers twice the range of the one before and is drawn equally wide. The values are seconds, or else whole
    numbers of some unit.
    """

    def draw(axes: "Axes") -> None:
        bars, row = values.bars, 1.5
        top = max(bar.count for bar in bars) or 1
        look: dict[str, Any] = {"textcoords": "offset points", "bbox": _ON_WHITE | {"alpha": 1}}
        for bar in (bar for bar in bars if bar.count):
            # A single value stays visible beside a million others; its number is written above it.
            height, middle = max(bar.count / top, 0.012), (_log(bar.low) + _log(bar.high)) / 2
            axes.bar(middle, height, width=0.9, color=QUIET)
            size = 8 if len(bars) <= 12 else 6.5
            axes.annotate(_short(bar.count), (middle, height), (0, 3.5), ha="center", size=size, color=GREY, **look)
        left, right = _log(bars[0].low), _log(bars[-1].high)
        for name, value in marks.items():
            at = min(_log(value if seconds else value + 0.5), right)
            axes.plot([at, at], [0, row], color=INK, lw=0.9, ls=(0, (2, 2)))
            told, rightwards = duration(value) if seconds else f"{value:,.0f}", at < (left + right) / 2
            side: dict[str, Any] = {"ha": "left" if rightwards else "right", "va": "center", "size": 8.5}
            axes.annotate(f"{name} {told}", (at, row), (3 if rightwards else -3, 0), **side, **look)
            row -= 0.14
        ticks = _ticks(bars, seconds=seconds)
        axes.set_xticks([at for at, _ in ticks], [name for _, name in ticks])
        room = max(0.15, 2 - (right - left) / 2)  # a single bar does not fill the picture
        axes.set(xlim=(left - room, right + room), ylim=(0, 1.6), xlabel=unit)
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)

    return _svg(draw, words, _HALF)


def _log(value: float) -> float:
    """Return the position of a value on an axis where doubling bars are equally wide; values below 1 are one bar."""
    return math.log2(value) if value >= 1 else max(value, 0.0) - 1


def _short(count: int) -> str:
    for size, unit in ((10**9, "bn"), (10**6, "m"), (10**3, "k")):
        if count >= size:
            return f"{count // size}{unit}" if count >= 100 * size else f"{count / size:.1f}{unit}".replace(".0", "")
    return str(count)


def _ticks(bars: Sequence[Bar], *, seconds: bool) -> list[tuple[float, str]]:
    """Return the labels below bars: the whole numbers of each; round values for many bars or seconds."""
    if not seconds and len(bars) <= _NAMED_BARS:
        ends = [(int(bar.low), int(bar.high) - 1) for bar in bars]
        names = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in ends]
        return [((_log(bar.low) + _log(bar.high)) / 2, name) for bar, name in zip(bars, names, strict=True)]
    low, high = bars[0].low, bars[-1].high
    placed: list[tuple[float, str]] = [(-1, "0")] if low == 0 else []
    for value, name in _SECONDS if seconds else _COUNTS:
        at = _log(value)
        if low <= value <= high and all(abs(at - other) * 8 >= _log(high) - _log(low) for other, _ in placed):
            placed.append((at, name))
    return placed or [(_log(low), duration(low) if seconds else f"{low:,.0f}")]


def consumers(sizes: Sizes, words: str) -> str:
    """Draw the cost of order by number of consumers: their time as a multiple of equal shares."""

    def draw(axes: "Axes") -> None:
        many = [each.consumers for each in sizes.consumers]
        by_hash, free = [each.hashed for each in sizes.consumers], [each.free for each in sizes.consumers]
        look: dict[str, Any] = {"lw": 2, "marker": "o", "ms": 4}
        axes.axhline(1, color=FAINT, lw=1)
        axes.plot(many, by_hash, color=LATE, label="each has a partition, by hash", **look)
        axes.plot(many, free, "--", color=QUIET, label="each takes the next free group", **look)
        for value, va in ((by_hash[-1], "bottom"), (free[-1], "top")):
            if va == "bottom" or by_hash[-1] > 1.15 * value:
                axes.annotate(f"{value:,.1f} times", (many[-1], value), (5, 0), textcoords="offset points", va=va)
        most = max(*by_hash, *free, 2.0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        heights = [2**power for power in range(math.ceil(math.log2(most)) + 1)]
        heights = heights[:: math.ceil(len(heights) / 6)]
        axes.set_xticks(many, [f"{each:,}" for each in many])
        axes.set_yticks(heights, ["equal" if each == 1 else f"{each:,} times" for each in heights])
        axes.minorticks_off()
        axes.set(xlim=(many[0] * 0.85, many[-1] * 2.2), ylim=(0.88, most * 1.3), xlabel="consumers")
        axes.legend(loc="upper left")

    return _svg(draw, words, _HALF)


def gaps(found: Gaps, ends_s: tuple[float, float] | None, words: str) -> str:
    """Draw when the gaps in ``over`` opened; ``ends_s`` are the ends of the log's clock in seconds since 1970."""
    from matplotlib.patches import Patch

    def draw(axes: "Axes") -> None:
        low, high = (found.over[0][0].low, found.over[-1][0].high) if found.by_time else (0.0, 100.0)
        if found.by_time:
            low, high = min(low, *(ends_s or (low,))), max(high, *(ends_s or (high,)))
            ticks, names, day = _times(round(low * 1e6), round(high * 1e6), 7)
            axes.set_xticks([each / 1e6 - low for each in ticks], names)
            axes.set_xlabel(f"{day} UTC: when the first message beyond the gap came".strip())
        else:
            axes.set_xticks(range(0, 101, 20), [f"{each}%" for each in range(0, 101, 20)])
            axes.set_xlabel("of the group's messages had come")
        lost: dict[str, Any] = {"color": WRONG}
        still = _OPEN_BAND | {"ls": "-"}
        for gone, may_come in found.over:
            middle, width = (gone.low + gone.high) / 2 - low, (gone.high - gone.low) * 0.9
            for count, base, look in ((gone.count, 0, lost), (may_come.count, gone.count, still)):
                if count:
                    axes.bar(middle, count, width, bottom=base, **look)
        top = max(gone.count + may_come.count for gone, may_come in found.over)
        heights = _rounds(0, top, 5)
        axes.set_yticks(heights, [f"{each:,}" for each in heights])
        axes.set(xlim=(0, high - low), ylim=(0, top * 1.3 or 1), ylabel="gaps")
        handles = [Patch(label="lost", **lost), Patch(label="may still come", **still)]
        axes.legend(handles=handles, loc="upper right", ncols=2)

    return _svg(draw, words, _WIDE)


def _rounds(low: int, high: int, most: int, steps: Sequence[int] = _STEPS) -> list[int]:
    """Return about ``most`` round numbers from low to high: multiples of the first step that is wide enough."""
    step = next((each for each in steps if (high - low) / each <= most), steps[-1])
    step *= max(1, math.ceil((high - low) / step / most))
    return list(range(-(-low // step) * step, high + 1, step))


def _times(low_us: int, high_us: int, most: int) -> tuple[list[int], list[str], str]:
    """Return round times from low to high, their labels, and the text that all of them share."""
    ticks = _rounds(low_us, high_us, most, _STEPS_US) if low_us < high_us else []
    if not ticks:
        return [low_us], [f"{instant(low_us):%Y-%m-%d %H:%M}"], ""
    if not any(each % 86_400_000_000 for each in ticks):
        return ticks, [f"{instant(each):%Y-%m-%d}" for each in ticks], ""
    cut = next(many for many in (10, 7, 3, 0) if not any(each % _UNIT_US[many] for each in ticks))
    clocks = [f"{instant(each):%H:%M:%S.%f}"[: 15 - cut] for each in ticks]
    day, last = f"{instant(low_us):%Y-%m-%d}", f"{instant(high_us):%Y-%m-%d}"
    if day == last:
        return ticks, clocks, day
    return ticks, [f"{instant(each):%m-%d} {clock}" for each, clock in zip(ticks, clocks, strict=True)], day[:-6]


_UNIT_US: Final = {10: 60_000_000, 7: 1_000_000, 3: 1_000, 0: 1}
"""The remaining unit of a clock with microseconds, by the number of its characters that are cut off."""


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
        for many in range(1, min(3, len(jumps) - 2) + 1):
            if falling[many - 1] > 4 * sum(falling[many:]):
                cut, rest = falling[many - 1], sum(falling[many:])
        lengths = [0.35 * rest if jump >= cut else float(jump) for jump in jumps]
        whole = sum(lengths) or 1.0
        heights = [at / whole for at in itertools.accumulate(lengths, initial=0.0)]
        return cls(places, heights, [ends for ends in itertools.pairwise(places) if ends[1] - ends[0] >= cut])

    def at(self, place: float) -> float:
        """Return the height of a place; beyond the ends it is extrapolated from the nearest two."""
        if len(self.places) == 1:
            return place - self.places[0]
        above = min(max(bisect.bisect_right(self.places, place), 1), len(self.places) - 1)
        low, high = self.places[above - 1], self.places[above]
        return self.heights[above - 1] + (place - low) / (high - low) * (self.heights[above] - self.heights[above - 1])


def timeline(line: GroupTimeline, words: str, *, is_time: bool) -> str:
    """Draw a group's messages, of which there are some: arrival to the right, place in the order upwards.

    A place is a number, or a time in microseconds.
    """

    def draw(axes: "Axes") -> None:
        first, last, bands = line.points[0].position, line.points[-1].position, _in_view(line)
        scale = _Scale.of([*(point.place for point in line.points), *(gap.first for gap, _, _ in bands)])
        room = (last - first + 1.2) * 0.04
        for below, above in scale.cuts:
            low, high = scale.at(below), scale.at(above)
            away = duration((above - below) / 1e6) if is_time else f"{above - below:,}"
            look: dict[str, Any] = {"va": "center", "size": 7, "color": GREY, "bbox": _ON_WHITE, "zorder": 6}
            axes.axhspan(low, high, color=PALE, lw=0, zorder=0)
            axes.text(first - 0.6, (low + high) / 2, f"axis cut: {away}", **look)
        _bands(axes, bands, scale, room)
        _messages(axes, line.points, scale)
        _places(axes, scale, is_time=is_time)
        arrivals = _rounds(first, last, 5)
        axes.set_xticks(arrivals, [f"{each:,}" for each in arrivals])
        axes.set(xlim=(first - 0.6, last + 0.6 + room), ylim=(-0.1, 1.1) if len(scale.places) > 1 else (-1, 1))
        axes.set_xlabel("order of arrival →", size=7.5)
        axes.set_ylabel("place in the order →", size=7.5)
        axes.tick_params(labelsize=7.5)

    return _svg(draw, words, _SMALL)


def _in_view(line: GroupTimeline) -> list[tuple[Gap, int, int]]:
    """Return the gaps between the messages shown, each with the first and last arrival while it existed."""
    found = []
    for gap in line.gaps:
        own = [point for point in line.points if point.epoch == gap.epoch]
        beyond = [point.position for point in own if point.place > gap.last]
        whole = bool(own) and (own[0].position == 1 or own[0] is not line.points[0])
        if beyond and (whole or any(point.place < gap.first for point in own)):
            found.append((gap, beyond[0], own[-1].position))
    return found


def _bands(axes: "Axes", bands: Sequence[tuple[Gap, int, int]], scale: _Scale, room: float) -> None:
    """Draw missing revisions from the time at which they were missed; the largest bands show the number."""
    from matplotlib.patches import Rectangle

    told: list[float] = []
    for gap, begin, end in sorted(bands, key=lambda band: band[0].first - band[0].last):
        low, high = scale.at(gap.first - 0.5), scale.at(gap.last + 0.5)
        middle, height = (low + high) / 2, max(high - low, 0.014)
        left, right = begin - 0.5, end + 0.5 + room
        band = _OPEN_BAND if gap.open else _LOST_BAND
        axes.add_patch(Rectangle((left, middle - height / 2), right - left, height, zorder=1, **band))
        if all(abs(middle - other) > 0.13 for other in told) and len(told) < 5:
            told.append(middle)
            text = f"{gap.last - gap.first + 1:,} {'may still come' if gap.open else 'missing'}"
            y, va = (middle, "center") if height > 0.09 else (middle - height / 2 - 0.015, "top")
            look: dict[str, Any] = {"size": 7.5, "color": OPEN if gap.open else WRONG, "bbox": _ON_WHITE, "zorder": 6}
            axes.text(right, y, text, ha="right", va=va, **look)


_LOOKS: Final[dict[str, tuple[tuple[FaultKind | None, ...], float, dict[str, Any]]]] = {
    "in order": ((None, FaultKind.RESET), 0.8, {"marker": "o", "color": QUIET, "zorder": 3}),
    "exact copy": ((FaultKind.DUPLICATE,), 1.15, {"marker": "o", "mfc": "white", "mec": COPY, "mew": 1.1, "zorder": 4}),
    "without an id": ((FaultKind.NO_ID,), 1.0, {"marker": "s", "mfc": "white", "mec": INK, "mew": 1.1, "zorder": 4}),
    "late: below the greatest so far": ((FaultKind.LATE,), 1.05, {"marker": "o", "color": LATE, "zorder": 5}),
    "contradicts an earlier one": (
        (FaultKind.CONFLICT, FaultKind.ID_CONFLICT, FaultKind.TWO_WRITERS, FaultKind.TIE),
        *(1.2, {"marker": "x", "mec": WRONG, "mew": 1.6, "zorder": 5}),
    ),
}
"""The appearance of messages: text of the legend, kinds of faults, relative size, style."""


def _messages(axes: "Axes", points: Sequence[Point], scale: _Scale) -> None:
    """Draw the messages, the line of the greatest so far, and a line from it down to each late message."""
    unit = 5.0 if len(points) <= 40 else 3.8 if len(points) <= 80 else 2.8
    tops: dict[int, list[Point]] = {}
    for point in points:
        if tops and point.epoch > max(tops):
            axes.axvline(point.position - 0.5, color=INK, lw=1, ls=(0, (4, 3)), zorder=1.5)
        own = tops.setdefault(point.epoch, [])
        if point.kind == FaultKind.LATE and own:
            axes.vlines(point.position, scale.at(point.place), scale.at(own[-1].place), color=LATE, lw=0.9, zorder=2)
        if not own or point.place >= own[-1].place:
            own.append(point)
    for own in tops.values():
        axes.plot([each.position for each in own], [scale.at(each.place) for each in own], color=FAINT, lw=1, zorder=2)
    for kinds, size, look in _LOOKS.values():
        alike = [point for point in points if point.kind in kinds]
        x, y = [point.position for point in alike], [scale.at(point.place) for point in alike]
        axes.plot(x, y, ls="none", ms=size * unit, **look)


def _places(axes: "Axes", scale: _Scale, *, is_time: bool) -> None:
    """Draw round places on the y-axis, for each part drawn to one scale."""
    ticks: dict[int, str] = {}
    shared: set[str] = set()
    begins, ends = [scale.places[0], *(high for _, high in scale.cuts)], [low for low, _ in scale.cuts]
    for low, high in zip(begins, [*ends, scale.places[-1]], strict=True):
        most = max(1, round(5 * (scale.at(high) - scale.at(low))))
        if is_time:
            values, names, day = _times(low, high, most)
            shared.add(day)
        else:
            values = _rounds(low, high, most) or [low]
            names = [f"{each:,}" for each in values]
        ticks |= dict(zip(values, names, strict=True))
    axes.set_yticks([scale.at(each) for each in ticks], list(ticks.values()))
    if is_time:
        axes.set_title(f"{', '.join(sorted(shared - {''}))} UTC".strip(), loc="left", size=7.5, color=GREY)


def legend(lines: Sequence[GroupTimeline]) -> list[tuple[str, str]]:
    """Return the legend of the marks in some timelines: a small picture and its text each."""
    return [(_svg(draw, words, _ICON, icon=True), words) for words, draw in _marks(lines)]


def _marks(lines: Sequence[GroupTimeline]) -> "Iterator[tuple[str, Draw]]":
    from matplotlib.patches import Rectangle

    def dot(size: float, look: dict[str, Any]) -> "Draw":
        return lambda axes: axes.plot([0.5], [0.5], ls="none", ms=size * 6, **look)

    def band(look: dict[str, Any]) -> "Draw":
        return lambda axes: axes.add_patch(Rectangle((0.04, 0.15), 0.92, 0.7, **look))

    seen = {point.kind for line in lines for point in line.points}
    for words, (kinds, size, look) in _LOOKS.items():
        if seen.intersection(kinds):
            yield words, dot(size, look)
    if any(len({point.epoch for point in line.points}) > 1 for line in lines):
        yield "the numbers start again", lambda axes: axes.axvline(0.5, color=INK, lw=1.2, ls=(0, (4, 3)))
    is_open = {gap.open for line in lines for gap, _, _ in _in_view(line)}
    if False in is_open:
        yield "missing, from when on that shows", band(_LOST_BAND)
    if True in is_open:
        yield "missing, but may still come", band(_OPEN_BAND)


def _svg(draw: "Draw", words: str, size: tuple[float, float], *, icon: bool = False) -> str:
    """Return a picture as an element of a page: without prolog, date or size, and with ids that are unique."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context([{**_STYLE, "svg.hashsalt": f"{words} {size}"}], after_reset=True):
        figure = Figure(figsize=size, layout=None if icon else "constrained")
        axes = figure.add_axes((0, 0, 1, 1)) if icon else figure.add_subplot()
        if icon:
            axes.set_axis_off()
            axes.set(xlim=(0, 1), ylim=(0, 1))
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    head, _, body = text.getvalue().partition("<svg")[2].partition(">")
    box = re.findall(r'viewBox="[^"]*"', head)[0]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body).replace("xlink:href=", "href=")
    label = 'aria-hidden="true"' if icon else f'role="img" aria-label="{html.escape(words)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {label}>{body.strip()}'
