"""The demo in one picture: the order of one aircraft's messages, the answers, and the course of the run."""

from collections.abc import Mapping, Sequence

from inturn.core.pipeline.journal import Counts
from inturn.demo.event_log import EventLog
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, REASONS, SPARK, DemoResult, Kill, SampleAircraft
from inturn.pages.svg import GREY, INK, WHITE, Drawing, Place, Plot
from inturn.pages.ticks import rounds

WRONG, HALF, RIGHT, HELD = "#c8374d", "#dd8452", "#157a73", "#a86a08"
RAMP = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58")
"""The colours of places in the timeline, from the first to the last; paler ones would be invisible on white."""
SIZE = (1008, 806)


def draw(result: DemoResult, words: str) -> str:
    """Return the picture as SVG; ``words`` are its text alternative."""
    drawing = Drawing(*SIZE)
    drawing.box((0, 0), SIZE, WHITE)
    _title(drawing, result)
    _sample(Plot(drawing, 30, 145, 585, 452, (0, 1), (-0.03, 1.06)), result.sample)
    _bars(Plot(drawing, 655, 145, 978, 452, (0, 1.35), (-0.25, 2.5)), result)
    _course(drawing, result.course, result.kill)
    _counts(Plot(drawing, 30, 701, 978, 786, (0, 1), (0, 1.1)), {SPARK: result.spark, PROCESS: result.process})
    return drawing.element(words)


def _title(drawing: Drawing, result: DemoResult) -> None:
    """Write the result in one line, and the facts in two."""
    wrong, right = result.wrong[NAIVE].aircraft, result.wrong[SPARK].aircraft
    answer = (f"In order: {right:,}.", 23.0, RIGHT, "bold")
    drawing.text((30, 36), f"In order of arrival: {wrong:,} aircraft wrong.", 23, WRONG, bold=True, suffix=answer)
    input_text = (
        f"{result.messages:,} messages about {result.aircraft:,} aircraft leaving New York, 1 to 14 January 2013, "
        f"sent to one queue by {len(result.producers)} processes at the same time:"
    )
    badly = (
        f"{result.late:,} are hours late, {result.twice:,} arrive twice, 1 arrives again with other content. "
        "Spark is killed in the middle."
    )
    drawing.text((30, 62), input_text, 12.5, GREY)
    drawing.text((30, 81), badly, 12.5, GREY)


def _headed(plot: Plot, title: str, above: float) -> None:
    plot.drawing.text((plot.left, plot.top - above), title, 14.5, INK, bold=True)


def _sample(plot: Plot, sample: SampleAircraft) -> None:
    """Draw three columns: as it happened, as delivered, as applied; a line follows each message."""
    _headed(plot, f"One aircraft, {sample.tail}: out of order on arrival, in order again with inturn", 31)
    drawing, last, last_place = plot.drawing, len(sample.labels) - 1, len(sample.arrivals) - 1
    colours = [_ramp(step / last) for step in range(last + 1)]
    left, middle, right = 0.32, 0.62, 0.92
    dots: list[tuple[Place, str, str]] = []
    for place, revision in enumerate(sample.arrivals):
        arrival, height = plot.at(middle, 1 - place / last_place), 1 - (revision - 1) / last
        colour, copy = colours[revision - 1], revision in sample.arrivals[:place]
        _curve(drawing, plot.at(left, height), arrival, colour, faint=copy)
        dots.append((arrival, WHITE if copy else colour, colour))
        if copy:
            drawing.text((arrival[0] + 14, arrival[1]), "copy", 10, GREY)
        else:
            _curve(drawing, arrival, plot.at(right, height), colour)
    for revision, (colour, label) in enumerate(zip(colours, sample.labels, strict=True), start=1):
        happened, applied = (plot.at(x, 1 - (revision - 1) / last) for x in (left, right))
        dots += [(happened, colour, colour), (applied, colour, colour)]
        drawing.text((happened[0] - 14, happened[1]), label, 11, INK, "end")
        drawing.text((applied[0] + 14, applied[1]), str(revision), 11)
    for dot, colour, edge in dots:  # above all lines
        drawing.dot(dot, 8, colour, edge, 1.6)
    for x, name in ((left, "as it happened"), (middle, "as it arrived"), (right, "as inturn applies")):
        drawing.text((plot.at(x, 1)[0], plot.top - 8), name, 11.5, GREY, "middle")


def _ramp(part: float) -> str:
    """Return the colour at a part of the ramp."""
    index = min(int(part * (len(RAMP) - 1)), len(RAMP) - 2)
    between = part * (len(RAMP) - 1) - index
    ends = [[int(colour[digit : digit + 2], 16) for digit in (1, 3, 5)] for colour in RAMP[index : index + 2]]
    return "#" + "".join(f"{round(low + between * (high - low)):02x}" for low, high in zip(*ends, strict=True))


def _curve(drawing: Drawing, start: Place, end: Place, colour: str, *, faint: bool = False) -> None:
    """Draw an S-shaped line with level ends, so that crossings stand out."""
    half = (start[0] + end[0]) / 2
    path = "M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(*start, half, start[1], half, end[1], *end)
    width, dash = (1.3, "2.6 2.6") if faint else (2.4, "")
    drawing.shape("path", d=path, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dash)


def _bars(plot: Plot, result: DemoResult) -> None:
    _headed(plot, f"Aircraft with a wrong answer, of {result.aircraft:,}", 31)
    bars = (
        (NAIVE, "last write wins", WRONG),
        (DISTINCT, "last write wins, after dropDuplicates", HALF),
        (SPARK, "inturn, on Spark and in process", RIGHT),
    )
    longest = max(result.wrong[key].aircraft for key, _, _ in bars) or 1
    for index, (key, name, colour) in enumerate(bars):
        wrong, base = result.wrong[key], 2 - index
        width = wrong.aircraft / longest
        plot.box((0, base - 0.17), (max(width, 0.012), base + 0.17), colour)
        plot.drawing.text(plot.at(0, base + 0.3), name, 13)
        share = (f"{wrong.aircraft / result.aircraft:.0%}", 13.0, GREY, "normal") if wrong.aircraft else None
        plot.drawing.text(plot.at(width + 0.03, base), f"{wrong.aircraft:,}", 22, colour, bold=True, suffix=share)
        if wrong.aircraft:
            parts = (
                f"place {wrong.location:,} · flights {wrong.legs:,} · minutes {wrong.minutes:,} · "
                f"phantom landings {wrong.phantoms:,}"
            )
            plot.drawing.text(plot.at(0, base - 0.28), parts, 10.5, GREY)


def _course(drawing: Drawing, course: EventLog, kill: Kill) -> None:
    """Draw a lane for each process: messages of the airlines, steps of Spark, outputs of the worker."""
    lanes = [(f"from {name}", counts, GREY) for name, counts in course.producers.items()]
    lanes.append((PROCESS, course.process, RIGHT))
    end = max(course.steps[-1][1], course.killed_s, *(len(counts) * course.width_s for _, counts, _ in lanes))
    base, died = -len(lanes), course.killed_s
    plot = Plot(drawing, 30, 516, 978, 645, (-0.13 * end, end), (base - 0.75, 1))
    _headed(plot, "Messages sent and processed, in seconds", 14)
    for lane, (name, counts, colour) in enumerate(lanes):
        _lane(plot, -lane, name, counts, colour, course.width_s)
    _name(plot, base, "inturn on Spark")
    for number, (begin, until) in enumerate(course.steps, start=1):
        plot.box((begin, base), (until - 0.001 * end, base + 0.62), RIGHT)
        label = f"{number}, again" if number == kill.step else str(number)
        drawing.text(plot.at((begin + until) / 2, base + 0.3), label, 9, WHITE, "middle")
    plot.line([(died, base - 0.1), (died, base + 0.7)], WRONG, 2.5)
    label = f"kill -9 in step {kill.step}, before its commit"
    drawing.text(plot.at(died + 0.005 * end, base + 0.3), label, 10, WRONG)
    for second in rounds(0, int(end), 10):
        drawing.text(plot.at(second, base - 0.45), str(second), 9.5, GREY, "middle")


def _lane(plot: Plot, base: float, name: str, counts: Sequence[int], colour: str, width_s: float) -> None:
    """Draw a lane of small bars, one for each interval."""
    highest = max(counts, default=0) or 1
    for interval, count in enumerate(counts):
        plot.box((interval * width_s, base), ((interval + 1) * width_s, base + 0.8 * count / highest), colour)
    _name(plot, base, name)


def _name(plot: Plot, base: float, name: str) -> None:
    x, y = plot.at(0, base + 0.3)
    plot.drawing.text((x - 8, y), name, 11, INK, "end")


def _counts(plot: Plot, engines: Mapping[str, Counts]) -> None:
    """Write a line for each engine: incoming messages left of the equals sign, outgoing ones right of it."""
    _headed(plot, "Counts of both engines: each message has exactly one outcome", 14)
    text = plot.drawing.text
    columns = {"received": 0.2, "released": 0.31, "applied": 0.42, "duplicate": 0.53, "stale": 0.6, "held": 0.7}
    columns["rejected"] = 0.79
    for name, x in columns.items():
        text(plot.at(x, 0.97), name, 11.5, GREY, "end")
    for row, (engine, counts) in enumerate(engines.items()):
        y = 0.6 - 0.46 * row
        text(plot.at(0, y), engine, 12, GREY)
        for (name, x), sign in zip(columns.items(), (*"+=++++", ""), strict=True):
            number = sum(counts.rejected.values()) if name == "rejected" else getattr(counts, name)
            colour = HELD if name in ("held", "released") and number else INK
            text(plot.at(x, y), f"{number:,}", 17, colour, "end")
            text(plot.at(x + 0.015, y), sign, 14, GREY)
        reasons = ", ".join(f"{count} {REASONS.get(reason, reason)}" for reason, count in counts.rejected.items())
        text(plot.at(columns["rejected"] + 0.015, y), reasons, 10.5, GREY)
