"""The curves of a sweep: a figure of each design against a knob, with the range over the seeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from inturn.lab.page.line_styles import line_styles
from inturn.lab.page.words import knob_value, rate, share, span
from inturn.lab.sweep import CurvePoint, DesignCurve, SeedInterval, SweepResult
from inturn.pages.svg import BESIDE, Drawing, Plot, Tick, width_of
from inturn.pages.ticks import SECONDS, round_step, spaced

_SIZE: Final = (340, 236)
_LABEL: Final = 8.5
_NEAR: Final = 0.012
"""Curves share a label if their distance is nowhere greater than this fraction of the height."""


@dataclass(frozen=True)
class CurveFigure:
    """A figure of curves: its name, its interval at a point, its values as text, and whether it has a log scale."""

    title: str
    of: Callable[[CurvePoint], SeedInterval]
    text: Callable[[float], str]
    is_log: bool = False


FIGURES: Final = (
    CurveFigure("groups with a wrong state", lambda point: point.wrong_groups, rate),
    CurveFigure("time from arrival to done, 99th percentile", lambda point: point.p99_us, span, is_log=True),
    CurveFigure("messages per second", lambda point: point.throughput_per_s, rate),
    CurveFigure("wasted work", lambda point: point.wasted_share, share),
)


def pictures(sweep: SweepResult) -> list[tuple[str, str]]:
    """Return the pictures of a sweep with their titles."""
    return [(figure.title, _picture(sweep, figure)) for figure in FIGURES]


def values(sweep: SweepResult, figure: CurveFigure) -> list[tuple[str, list[str]]]:
    """Return the values of a figure as text: one per design and point, with the range if there is one."""
    return [(curve.design, [_interval(figure, figure.of(point)) for point in curve.points]) for curve in sweep.curves]


def _interval(figure: CurveFigure, value: SeedInterval) -> str:
    mean, low, high = (figure.text(number) for number in (value.mean, value.low, value.high))
    return mean if low == high else f"{mean} ({low} to {high})"


def _picture(sweep: SweepResult, figure: CurveFigure) -> str:
    drawing = Drawing(*_SIZE)
    scale, ends, ticks = _scale(sweep, figure)
    xs = [(float(index), knob_value(sweep.over, value)) for index, value in enumerate(sweep.values)]
    last = max(len(xs) - 1, 1)
    height = ends[1] - ends[0]
    labelled = [
        (curve, _label(curve)) for curve in _together(sweep.curves, lambda point: scale(figure.of(point).mean), height)
    ]
    room = max(width_of(label, _LABEL) for _, label in labelled) + BESIDE + 4
    left = max(width_of(name, 9) for _, name in ticks) + 12
    beyond = last * 1.08 * room / (_SIZE[0] - left - room)  # the part of the axis with the labels, in units of the axis
    plot = Plot.framed(drawing, (-0.08 * last, last + beyond), ends, xs, ticks, (sweep.over.replace("_", " "), ""))
    styles = line_styles(curve.design for curve in sweep.curves)
    labels = []
    for together, label in labelled:
        curve = _first(together)
        colour, dash = styles[curve.design]
        places = [(float(index), scale(figure.of(point).mean)) for index, point in enumerate(curve.points)]
        for (x, _), point in zip(places, curve.points, strict=True):
            low, high = scale(figure.of(point).low), scale(figure.of(point).high)
            if high > low:
                plot.line([(x, low), (x, high)], colour, 0.9)
        end = plot.curve(places, colour, 2.2 if curve.design == "inturn" else 1.5, dash)
        labels.append((end, label, colour))
    plot.name_ends(labels, _LABEL)
    return drawing.element(_words(sweep, figure))


def _first(together: Sequence[DesignCurve]) -> DesignCurve:
    return next((curve for curve in together if curve.design == "inturn"), together[0])


def _label(together: Sequence[DesignCurve]) -> str:
    more = f" +{len(together) - 1}" if len(together) > 1 else ""
    return f"{_first(together).design}{more}"


def _scale(sweep: SweepResult, figure: CurveFigure) -> tuple[Callable[[float], float], tuple[float, float], list[Tick]]:
    """Return the scale of the values, its ends, and its ticks."""
    points = [figure.of(point) for curve in sweep.curves for point in curve.points]
    top = max((point.high for point in points), default=0.0) or 1.0
    if not figure.is_log:
        step = round_step(top * 1e9, 4) / 1e9  # a share has steps below 1
        count = math.ceil(top / step - 1e-9)
        ticks = [(step * number, figure.text(step * number)) for number in range(count + 1)]
        return (lambda value: value), (0.0, step * count * 1.06), ticks
    low = max(1.0, min((point.low for point in points if point.low > 0), default=1.0))

    def log(value: float) -> float:
        return math.log10(max(value, low))

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(top) + 1e-9)
    durations = ((seconds * 1e6, name) for seconds, name in SECONDS)
    return log, (float(first), last + 0.06 * (last - first)), spaced(durations, math.log10, 10.0**first, 10.0**last, 7)


def _together(
    curves: Sequence[DesignCurve], value_of: Callable[[CurvePoint], float], height: float
) -> list[list[DesignCurve]]:
    """Return the curves, grouped so that curves which coincide in the picture are together."""
    clusters: list[list[DesignCurve]] = []
    for curve in curves:
        own = [value_of(point) for point in curve.points]
        for cluster in clusters:
            their = (value_of(point) for point in cluster[0].points)
            if all(abs(own_value - other) <= _NEAR * height for own_value, other in zip(own, their, strict=True)):
                cluster.append(curve)
                break
        else:
            clusters.append([curve])
    return clusters


def _words(sweep: SweepResult, figure: CurveFigure) -> str:
    """Return the text alternative: for each design the first and the last value."""
    ends = [knob_value(sweep.over, value) for value in (sweep.values[0], sweep.values[-1])]
    parts = []
    for curve in sweep.curves:
        first, last = (figure.text(figure.of(point).mean) for point in (curve.points[0], curve.points[-1]))
        parts.append(f"{curve.design} {first} to {last}")
    return f"{figure.title}, with {sweep.over.replace('_', ' ')} from {ends[0]} to {ends[1]}: {'; '.join(parts)}"
