"""The demo in one picture: the order of one aircraft's messages, the answers, and the course of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inturn.core.pipeline.fold import Counts
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, REASONS, SPARK, DemoResult, Knot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

INK, GREY, FAINT = "#1c2530", "#5f6975", "#c9d0d8"
WRONG, HALF, RIGHT, HELD = "#c8374d", "#dd8452", "#157a73", "#a86a08"
RAMP, RAMP_END = "viridis", 0.82  # colours are places in the timeline; the ramp's end is too pale
SIZE_INCHES, DPI = (14.0, 11.2), 150


def draw(result: DemoResult, path: Path) -> None:
    """Write the picture as a PNG of 2100 x 1680 points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _title(figure.add_axes((0.03, 0.9, 0.94, 0.08)), result)
    _knot(figure.add_axes((0.03, 0.44, 0.55, 0.38)), result.knot)
    _bars(figure.add_axes((0.65, 0.44, 0.32, 0.38)), result)
    _course(figure.add_axes((0.03, 0.2, 0.94, 0.16)), result)
    _counts(figure.add_axes((0.03, 0.025, 0.94, 0.105)), {SPARK: result.spark, PROCESS: result.process})
    figure.savefig(path)


def _title(axes: "Axes", result: DemoResult) -> None:
    """Draw the answer in one line, and the facts in two."""
    axes.set_axis_off()
    wrong, right = result.wrong[NAIVE].aircraft, result.wrong[SPARK].aircraft
    style: dict[str, Any] = {"fontsize": 23, "fontweight": "bold"}
    text = axes.text(0, 0.62, f"Taken as they come: {wrong:,} aircraft wrong.", color=WRONG, **style)
    _beside(axes, text, f"Taken in turn: {right:,}.", (16, 0), color=RIGHT, **style)
    axes.text(
        0,
        0.38,
        f"{result.messages:,} messages about {result.aircraft:,} aircraft leaving New York, 1 to 14 January 2013, "
        f"sent to one queue by {len(result.producers)} processes at once:\n{result.late:,} are hours late, "
        f"{result.twice:,} come twice, 1 comes again and says something else. Spark is killed in the middle.",
        fontsize=12.5,
        linespacing=1.5,
        color=GREY,
        va="top",
    )


def _beside(axes: "Axes", text: "Text", words: str, points: tuple[float, float], **style: Any) -> None:
    """Write words to the right of a text, at a distance in points."""
    axes.annotate(words, (1, 0), points, xycoords=text, textcoords="offset points", va="bottom", **style)


def _bare(axes: "Axes", title: str, pad: float) -> None:
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=14.5, fontweight="bold", color=INK, pad=pad)


def _knot(axes: "Axes", knot: Knot) -> None:
    """Draw three columns: as it happened, as delivered, as applied; a line follows each message."""
    from matplotlib import colormaps

    _bare(axes, f"One aircraft, {knot.tail}: the network ties a knot, inturn unties it", 26)
    last, last_place = len(knot.labels) - 1, len(knot.arrivals) - 1
    colours = [colormaps[RAMP](RAMP_END * at / last) for at in range(last + 1)]
    left, middle, right = 0.32, 0.62, 0.92
    seen: set[int] = set()
    for place, revision in enumerate(knot.arrivals):
        height, turn = 1 - place / last_place, 1 - (revision - 1) / last
        colour, copy = colours[revision - 1], revision in seen
        seen.add(revision)
        _line(axes, (left, turn), (middle, height), colour, faint=copy)
        axes.plot(middle, height, "o", ms=8, mfc="white" if copy else colour, mec=colour, mew=1.6, zorder=3)
        if copy:
            axes.text(middle + 0.025, height, "copy", va="center", fontsize=10, color=GREY)
        else:
            _line(axes, (middle, height), (right, turn), colour)
    for revision, (colour, label) in enumerate(zip(colours, knot.labels, strict=True), start=1):
        turn = 1 - (revision - 1) / last
        axes.plot([left, right], [turn, turn], "o", ms=8, mfc=colour, mec=colour, zorder=3)
        axes.text(left - 0.025, turn, label, ha="right", va="center", fontsize=11, color=INK)
        axes.text(right + 0.025, turn, str(revision), ha="left", va="center", fontsize=11, color=INK)
    for x, name in ((left, "as it happened"), (middle, "as it came"), (right, "as inturn applies")):
        axes.text(x, 1.08, name, ha="center", fontsize=11.5, color=GREY)
    axes.set(xlim=(0, 1), ylim=(-0.03, 1.06))


def _line(
    axes: "Axes", start: tuple[float, float], end: tuple[float, float], colour: Any, *, faint: bool = False
) -> None:
    """Draw an S-shaped line with level ends, so that crossings stand out."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    half = (start[0] + end[0]) / 2
    curve = Curve([start, (half, start[1]), (half, end[1]), end], [Curve.MOVETO, *[Curve.CURVE4] * 3])
    look: dict[str, Any] = {"lw": 1.3, "ls": (0, (2, 2))} if faint else {"lw": 2.4}
    axes.add_patch(PathPatch(curve, fc="none", ec=colour, zorder=2, **look))


def _bars(axes: "Axes", result: DemoResult) -> None:
    _bare(axes, f"Aircraft with a wrong answer, of {result.aircraft:,}", 26)
    named = ((NAIVE, "last write wins", WRONG), (DISTINCT, "last write wins, after dropDuplicates", HALF))
    bars = (*named, (SPARK, "inturn, on Spark and in process", RIGHT))
    longest = max(result.wrong[key].aircraft for key, _, _ in bars) or 1
    for at, (key, name, colour) in enumerate(bars):
        wrong, base = result.wrong[key], 2 - at
        width = wrong.aircraft / longest
        axes.barh(base, width, height=0.34, color=colour)
        if not wrong.aircraft:
            axes.plot([0, 0], [base - 0.17, base + 0.17], color=colour, lw=3, solid_capstyle="butt")
        axes.text(0, base + 0.24, name, fontsize=13, color=INK, va="bottom")
        style: dict[str, Any] = {"fontsize": 22, "fontweight": "bold"}
        text = axes.text(width + 0.025, base, f"{wrong.aircraft:,}", color=colour, va="center", **style)
        if wrong.aircraft:
            _beside(axes, text, f"{wrong.aircraft / result.aircraft:.0%}", (7, 2), color=GREY, fontsize=13)
            parts = (
                f"place {wrong.location:,} · flights {wrong.legs:,} · minutes {wrong.minutes:,} · "
                f"phantom landings {wrong.phantoms:,}"
            )
            axes.text(0, base - 0.24, parts, fontsize=10.5, color=GREY, va="top")
    axes.set(xlim=(0, 1.35), ylim=(-0.25, 2.5))


def _course(axes: "Axes", result: DemoResult) -> None:
    """Draw a lane for each process: messages of the airlines, steps of Spark, outputs of the worker."""
    course, kill = result.course, result.kill
    _bare(axes, "Who sent and who took, in seconds", 12)
    lanes = [(f"from {name}", counts, GREY) for name, counts in course.producers.items()]
    lanes.append((PROCESS, course.process, RIGHT))
    end = max(course.steps[-1][1], course.killed_s, *(len(counts) * course.width_s for _, counts, _ in lanes))
    for lane, (name, counts, colour) in enumerate(lanes):
        _lane(axes, -lane, name, counts, colour, course.width_s)
    base = -len(lanes)
    axes.text(-0.01 * end, base + 0.3, "inturn on Spark", ha="right", va="center", fontsize=11, color=INK)
    for number, (begin, until) in enumerate(course.steps, start=1):
        axes.barh(base + 0.3, until - begin, left=begin, height=0.62, color=RIGHT, ec="white", lw=1)
        again = number == kill.step
        said = f"{number}, again" if again else str(number)
        axes.text((begin + until) / 2, base + 0.3, said, ha="center", va="center", fontsize=9, color="white")
    died = course.killed_s
    axes.plot([died, died], [base - 0.1, base + 0.7], color=WRONG, lw=2.5)
    said = f"kill -9 in step {kill.step}, before its commit"
    axes.text(died + 0.005 * end, base + 0.3, said, va="center", fontsize=10, color=WRONG)
    axes.set(xlim=(-0.13 * end, end), ylim=(base - 0.75, 1))
    for second in range(0, int(end) + 1, 5):
        axes.text(second, base - 0.25, str(second), ha="center", va="top", fontsize=9.5, color=GREY)


def _lane(axes: "Axes", base: float, name: str, counts: Sequence[int], colour: str, width_s: float) -> None:
    """Draw a lane of small bars, one for each interval."""
    highest = max(counts, default=0) or 1
    places = [at * width_s for at in range(len(counts))]
    axes.bar(places, [0.8 * count / highest for count in counts], width_s, bottom=base, align="edge", color=colour)
    axes.annotate(name, (0, base + 0.3), (-8, 0), textcoords="offset points", ha="right", va="center", fontsize=11)


def _counts(axes: "Axes", engines: Mapping[str, Counts]) -> None:
    """Draw a line for each engine: incoming messages left of the equals sign, outgoing ones right of it."""
    _bare(axes, "Every message is in exactly one place, and both engines say so", 12)
    places = (0.22, 0.33, 0.44, 0.55, 0.62, 0.72, 0.81)
    columns = dict(zip(("received", "released", "applied", "duplicate", "stale", "held"), places, strict=False))
    columns["rejected"] = places[-1]
    for name, x in columns.items():
        axes.text(x, 0.97, name, ha="right", va="center", fontsize=11.5, color=GREY)
    for line, (engine, counts) in enumerate(engines.items()):
        y = 0.6 - 0.46 * line
        axes.text(0, y, engine, va="center", fontsize=12, color=GREY)
        for name, x in columns.items():
            number = sum(counts.rejected.values()) if name == "rejected" else getattr(counts, name)
            colour = HELD if name in ("held", "released") and number else INK
            axes.text(x, y, f"{number:,}", ha="right", va="center", fontsize=17, color=colour)
        for x, sign in zip(places, "+=++++", strict=False):
            axes.text(x + 0.015, y, sign, ha="left", va="center", fontsize=14, color=GREY)
        reasons = ", ".join(f"{count} {REASONS.get(reason, reason)}" for reason, count in counts.rejected.items())
        axes.text(places[-1] + 0.015, y, reasons, ha="left", va="center", fontsize=10.5, color=GREY)
    axes.set(xlim=(0, 1), ylim=(0, 1.1))
