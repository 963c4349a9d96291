"""The cheapest design that meets a demand, and why the others do not."""

from collections.abc import Sequence

import msgspec

from inturn.lab.knobs import SECOND_US
from inturn.lab.results import DesignResult, LabResult


class RefusedDesign(msgspec.Struct, frozen=True, kw_only=True):
    """A design that does not meet the demand with any number of consumers that was run.

    Attributes:
        design: name of the design.
        consumers: consumers of the run that came nearest.
        why: why it fails there, in words.
    """

    design: str
    consumers: int
    why: str


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest set-up that meets a demand.

    Attributes:
        max_wrong: greatest number of groups that may end wrong.
        p99_s: greatest time within which 99 of 100 messages are done.
        design: name of the chosen design; None if none meets the demand.
        consumers: its consumers.
        why: why it is the cheapest, in words.
        others: designs that meet the demand too, and cost more.
        refused: designs that do not meet it.
    """

    max_wrong: int
    p99_s: float
    design: str | None
    consumers: int | None
    why: str
    others: list[str]
    refused: list[RefusedDesign]


def recommend(results: LabResult | Sequence[LabResult], *, max_wrong: int = 0, p99_s: float = 5.0) -> Recommendation:
    """Return the cheapest set-up that meets a demand: fewest consumers, then the least time of handling.

    A design meets it if at most ``max_wrong`` groups end wrong, the 99th percentile from arrival to done is within
    ``p99_s``, and no message was given up or was held though nothing had happened in its group.

    Args:
        results: a run of the lab, or several with different numbers of consumers.
        max_wrong: greatest number of groups that may end wrong.
        p99_s: greatest 99th percentile, in seconds.
    """
    runs = [results] if isinstance(results, LabResult) else list(results)
    good: list[tuple[int, float, int, DesignResult]] = []
    refused: dict[str, RefusedDesign] = {}
    for given in sorted(runs, key=lambda each: each.knobs.consumers):
        consumers = given.knobs.consumers
        for index, each in enumerate(given.designs):
            why = _why_not(each, max_wrong, p99_s)
            if why is None:
                busy_us = each.utilisation * each.consumers * each.makespan_us
                good.append((consumers, busy_us, index, each))
            else:
                refused[each.design] = RefusedDesign(design=each.design, consumers=consumers, why=why)
    met = {each.design for *_, each in good}
    left = [each for name, each in refused.items() if name not in met]
    if not good:
        why = f"no design has at most {max_wrong} wrong groups and 99% done within {p99_s:g} s"
        return Recommendation(
            max_wrong=max_wrong, p99_s=p99_s, design=None, consumers=None, why=why, others=[], refused=left
        )
    good.sort(key=lambda each: each[:3])
    consumers, _, _, best = good[0]
    others = list(dict.fromkeys(each.design for *_, each in good[1:] if each.design != best.design))
    why = f"{consumers} consumers; {best.wrong_groups} wrong groups; 99% done within {_seconds(best.latency.p99_us)}; "
    why += f"{_seconds(best.wasted_us)} of handling wasted"
    return Recommendation(
        max_wrong=max_wrong,
        p99_s=p99_s,
        design=best.design,
        consumers=consumers,
        why=why,
        others=others,
        refused=left,
    )


def _why_not(result: DesignResult, max_wrong: int, p99_s: float) -> str | None:
    """Return why a design does not meet the demand; None if it does."""
    if result.wrong_groups > max_wrong:
        return result.reasons[0] if result.reasons else f"{result.wrong_groups} groups end wrong"
    if gone := result.dispositions["dead_letter"] + result.dispositions["refused"]:
        return f"{gone} messages were given up, and their groups went on without them"
    if result.held_strangers:
        return f"{result.held_strangers} messages were never applied, though nothing had happened in their groups"
    if result.latency.p99_us > p99_s * SECOND_US:
        return f"99% are done within {_seconds(result.latency.p99_us)}, not {p99_s:g} s"
    return None


def _seconds(value_us: int) -> str:
    return f"{value_us / SECOND_US:.3g} s"
