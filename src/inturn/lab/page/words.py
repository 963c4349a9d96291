"""Figures of the lab as text, the same in the terminal and on the page."""

from typing import Any

from inturn.core.texts import shown
from inturn.core.words import counted
from inturn.lab.knobs import Knobs, LogNormalTime, MeasuredTime, UniformTime
from inturn.lab.results import DesignResult, LabResult

_UNITS = ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))
_ONE_OF_SECONDS = 120
"""The minimum number of seconds that is written as minutes."""
_LEFT_OUT = {"dead_letter": "given up", "refused": "refused as late", "held": "still held"}


def span(value_us: float) -> str:
    """Return a duration in microseconds with three digits: ``12.3 ms``."""
    for size, unit in _UNITS:
        least = _ONE_OF_SECONDS * 1_000_000 if unit == "min" else 2 * size if unit == "h" else size
        if value_us >= least:
            return f"{_three_digits(value_us / size)} {unit}"
    return f"{_three_digits(value_us)} µs" if value_us else "0"


def rate(per_s: float) -> str:
    """Return a number of messages per second with three digits."""
    return _three_digits(per_s)


def share(part: float) -> str:
    """Return a fraction as a percentage; 0% is returned only for 0, and 100% only for 1."""
    if part in (0, 1):
        return f"{part:.0%}"
    if part < 0.0005:
        return "under 0.1%"
    if part > 0.9995:
        return "over 99.9%"
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"


def wasted_share(design: DesignResult) -> float:
    """Return the fraction of the handling time without a new effect."""
    busy_us = design.utilisation * design.consumers * design.makespan_us
    return min(1.0, design.wasted_us / busy_us) if busy_us else 0.0


def left_out(design: DesignResult) -> int:
    """Return the number of messages that were never applied and are not copies."""
    return sum(design.dispositions.get(kind, 0) for kind in _LEFT_OUT)


def left_out_words(design: DesignResult) -> str:
    """Return the number of messages that were never applied by reason, as text; empty if there are none."""
    counts = ((design.dispositions.get(kind, 0), words) for kind, words in _LEFT_OUT.items())
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def is_clean(design: DesignResult) -> bool:
    """Return whether no group has a wrong state and every message was applied."""
    return not design.wrong_groups and not left_out(design)


def ranked(result: LabResult) -> list[DesignResult]:
    """Return the designs, best first: fewest wrong groups, then fewest messages left out, then the shortest p99."""
    return sorted(result.designs, key=lambda design: (design.wrong_groups, left_out(design), design.latency.p99_us))


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a full stop."""
    return text if not text else f"{text[0].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def headline(result: LabResult) -> str:
    """Return the result in one sentence."""
    wrong = sum(1 for design in result.designs if design.wrong_groups)
    stuck = sum(1 for design in result.designs if not design.wrong_groups and left_out(design))
    total = counted(len(result.designs), "design")
    if not wrong and not stuck:
        only = "The design ends" if len(result.designs) == 1 else f"All {total} end"
        return f"{only} with the right states"
    verb = "does" if stuck == 1 else "do"
    if not wrong:
        return f"No design ends with wrong states, but {stuck} of {total} {verb} not apply all messages"
    text = f"{wrong} of {total} end{'s' if wrong == 1 else ''} with wrong states"
    return text + (f", and {stuck} more {verb} not apply all messages" if stuck else "")


def input_words(result: LabResult) -> list[str]:
    """Return sentences about the input."""
    load = result.input
    own = load.messages - load.copies
    sentences = [
        f"{counted(load.messages, 'message')} of {counted(load.groups, 'group')}"
        + (f", {load.copies:,} of them copies" if load.copies else "")
        + (f", {load.late:,} late" if load.late else "")
        + f"; all arrive within {span(load.span_us)}.",
        f"In total they take {span(load.work_us)} of handler time. The hottest group, {shown(load.hottest_group)}, has "
        f"{share(load.hottest_share)} of the work"
        + (
            f": if a group's messages are handled one after the other, the maximum for any number of consumers is "
            f"{rate(load.bound_per_s)} messages per second."
            if load.bound_per_s and own > 1
            else "."
        ),
    ]
    if load.commuting:
        handling = (
            "are handled outside of their group's order" if load.split else "are still handled in their group's order"
        )
        sentences.append(f"The order of {counted(load.commuting, 'message')} does not matter; they {handling}.")
    if load.judged_by == "handler":
        sentences.append(
            "A state is wrong if the handler gives another state in the order of a design than in the right order."
        )
    else:
        sentences.append(
            "There is no handler, so a group counts as wrong if its messages were not applied in order, once each."
        )
    return sentences


def knob_words(knobs: Knobs) -> dict[str, str]:
    """Return the knobs with their values, as text."""
    return {
        "consumers": f"{knobs.consumers:,}",
        "handler time": handler_words(knobs.handler),
        "prefetch": f"{knobs.prefetch:,}",
        "batch": f"{knobs.batch:,}",
        "partitions": f"{knobs.partitions:,}",
        "failing handlings": share(knobs.failure_rate),
        "poison messages": share(knobs.poison_rate),
        "crashing handlings": share(knobs.crash_rate),
        "attempts": f"{knobs.max_attempts:,}",
        "pause before a retry": span(knobs.backoff_s * 1e6),
        "visibility time": span(knobs.visibility_s * 1e6),
        "restart after a crash": span(knobs.restart_s * 1e6),
        "resequencer timeout": span(knobs.reorder_s * 1e6),
        "deduplication window": span(knobs.dedup_s * 1e6),
        "seed": f"{knobs.seed}",
    }


def handler_words(handler: Any) -> str:
    """Return the distribution of the handler times in words."""
    if isinstance(handler, UniformTime):
        low, high = handler.low_ms * 1000, handler.high_ms * 1000
        return span(low) if low == high else f"{span(low)} to {span(high)}"
    if isinstance(handler, LogNormalTime):
        return f"log-normal, median {span(handler.median_ms * 1000)}, sigma {handler.sigma:g}"
    if isinstance(handler, MeasuredTime):
        ordered = sorted(handler.values_us)
        return f"as measured, median {span(ordered[len(ordered) // 2])}" if ordered else "none"
    return repr(handler)


def knob_value(name: str, value: float) -> str:
    """Return a value of a knob for an axis or a table."""
    return share(value) if name.endswith("_rate") else f"{value:g} s" if name.endswith("_s") else f"{value:,g}"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
