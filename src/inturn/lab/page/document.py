"""The page of a result: the table, the reasons, the curves, the consumers at work, a message's life, the limits."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from inturn.lab.page import curves, lives, time_lines, words
from inturn.lab.page.audit_link import AuditLink
from inturn.lab.page.validation import ValidationReport, ValidationRow, validation_report
from inturn.lab.recommend import Recommendation
from inturn.lab.results import DesignResult, LabResult
from inturn.lab.sweep import SweepResult
from inturn.pages.template import environment, markup


def render(
    result: LabResult,
    *,
    title: str | None = None,
    description: str = "",
    sweeps: Sequence[SweepResult] = (),
    recommendation: Recommendation | None = None,
    audit: AuditLink | None = None,
    checked: ValidationReport | None = None,
) -> str:
    """Return the page.

    Args:
        result: the result.
        title: title of the input; None for its name.
        description: description of the messages, in a few sentences.
        sweeps: sweeps of the same input.
        recommendation: recommendation from the result.
        audit: the audit's page about the same log, for a link.
        checked: comparison of the models with the engines; None for the comparison in this version.

    Raises:
        SetupError: if jinja2 is not installed.
    """
    templates = environment(Path(__file__).parent, "lab")
    templates.filters |= {"span": words.span, "rate": words.rate, "share": words.share, "sentence": words.sentence}
    ordered = words.ranked(result)
    checked = checked or validation_report()
    return templates.get_template("page.html.j2").render(
        result=result,
        title=title or result.scenario,
        description=[paragraph for paragraph in description.split("\n\n") if paragraph.strip()],
        headline=words.headline(result),
        input_words=words.input_words(result),
        knobs=words.knob_words(result.knobs),
        designs=ordered,
        cells=_cells(ordered),
        is_clean=words.is_clean,
        left_out=words.left_out_words,
        failed=_failed(ordered),
        recommendation=recommendation,
        titles={design.design: design.title for design in result.designs},
        sweeps=[_sweep(sweep) for sweep in sweeps],
        legend=[(markup(icon), text) for icon, text in time_lines.legend()],
        at_work=_at_work(result, ordered),
        lives=_lives(ordered),
        ticks=lives.LifeScale(ordered).ticks(),
        checked=checked,
        checks=[] if checked is None else [_check(row, result) for row in checked.rows],
        audit=audit,
    )


def _failed(designs: Sequence[DesignResult]) -> list[tuple[list[str], list[DesignResult]]]:
    """Return the designs that failed, grouped by their reasons."""
    by_reasons: dict[tuple[str, ...], list[DesignResult]] = {}
    for design in designs:
        if design.reasons:
            by_reasons.setdefault(tuple(design.reasons), []).append(design)
    return [(list(reasons), group) for reasons, group in by_reasons.items()]


def _cells(designs: Sequence[DesignResult]) -> dict[str, dict[str, Any]]:
    """Return the bars of the table for each design: percentages of the maximum."""
    slowest = max((design.latency.p99_us for design in designs), default=0) or 1
    fastest = max((design.throughput_per_s for design in designs), default=0.0) or 1.0
    return {
        design.design: {
            "p99": round(100 * design.latency.p99_us / slowest, 1),
            "throughput": round(100 * design.throughput_per_s / fastest, 1),
            "wasted": words.wasted_share(design),
        }
        for design in designs
    }


def _sweep(sweep: SweepResult) -> dict[str, Any]:
    return {
        "over": sweep.over.replace("_", " "),
        "seeds": sweep.seeds,
        "values": [words.knob_value(sweep.over, value) for value in sweep.values],
        "pictures": [(title, markup(picture)) for title, picture in curves.pictures(sweep)],
        "tables": [(figure.title, curves.values(sweep, figure)) for figure in curves.FIGURES],
    }


def _at_work(result: LabResult, designs: Sequence[DesignResult]) -> list[tuple[DesignResult, Any]]:
    if result.followed is None:
        return []
    colours = time_lines.group_colours(designs, result.followed[0])
    pictures = ((design, time_lines.time_lines(design, result.followed, colours)) for design in designs)
    return [(design, markup(picture)) for design, picture in pictures if picture is not None]


def _lives(designs: Sequence[DesignResult]) -> list[tuple[DesignResult, Any, list[tuple[str, str, bool]]]]:
    scale = lives.LifeScale(designs)
    return [
        (design, markup(lives.strip(design.life, scale)), lives.life_events(design.life))
        for design in designs
        if design.life is not None and design.life.events
    ]


_UNITS: Final[dict[str, Callable[[float], str]]] = {"share": words.share, "us": words.span, "per_s": words.rate}


def _check(row: ValidationRow, result: LabResult) -> dict[str, Any]:
    """Return a row of the comparison with the engines as text."""
    show = _UNITS.get(row.unit, words.rate)
    off = row.model_median - row.engine_median
    relative = f" ({off / row.engine_median:+.0%})" if row.engine_median else ""
    titles = {design.design: design.title for design in result.designs}
    measured = show(row.engine_median)
    if row.engine_low != row.engine_high:
        measured += f" ({show(row.engine_low)} to {show(row.engine_high)})"
    return {
        "title": titles.get(row.design, row.design),
        "engine": row.engine,
        "setup": row.setup,
        "measure": row.measure.removesuffix("_us").removesuffix("_share").replace("_", " "),
        "measured": measured,
        "model": show(row.model_median) + relative,
        "role": row.role,
        "holds": row.holds,
    }
