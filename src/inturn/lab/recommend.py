"""The cheapest design that meets a requirement, and why the other designs do not."""

from collections.abc import Sequence

import msgspec

from inturn.lab.knobs import SECOND_US
from inturn.lab.results import DesignResult, LabResult


class RefusedDesign(msgspec.Struct, frozen=True, kw_only=True):
    """A design that did not meet the requirement with any tested number of consumers.

    Attributes:
        design: name of the design.
        consumers: number of consumers in its run with the most consumers.
        why: why it fails in this run, in words.
    """

    design: str
    consumers: int
    why: str


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest set-up that meets a requirement.

    Attributes:
        max_wrong: maximum number of groups with a wrong state.
        p99_s: maximum time within which 99 of 100 messages must be done.
        design: name of the chosen design; None if no design meets the requirement.
        consumers: its number of consumers.
        why: its figures, in words.
        others: other designs that meet the requirement at a higher cost.
        refused: designs that do not meet the requirement.
    """

    max_wrong: int
    p99_s: float
    design: str | None
    consumers: int | None
    why: str
    others: list[str]
    refused: list[RefusedDesign]


def recommend(results: LabResult | Sequence[LabResult], *, max_wrong: int = 0, p99_s: float = 5.0) -> Recommendation:
    """Return the cheapest set-up that meets a requirement: fewest consumers, then the shortest handling time.

    A design meets it if at most ``max_wrong`` groups have a wrong state, the 99th percentile of the time from arrival
    to done is at most ``p99_s``, no message was given up, and no message of an unaffected group was held.

    Args:
        results: a run of the lab, or several with different numbers of consumers.
        max_wrong: maximum number of groups with a wrong state.
        p99_s: maximum 99th percentile, in seconds.
    """
    runs = [results] if isinstance(results, LabResult) else list(results)
    suitable: list[tuple[int, float, int, DesignResult]] = []
    refused: dict[str, RefusedDesign] = {}
    for lab_result in sorted(runs, key=lambda lab_result: lab_result.knobs.consumers):
        consumers = lab_result.knobs.consumers
        for index, design in enumerate(lab_result.designs):
            reason = _refusal_reason(design, max_wrong, p99_s)
            if reason is None:
                busy_us = design.utilisation * design.consumers * design.makespan_us
                suitable.append((consumers, busy_us, index, design))
            else:
                refused[design.design] = RefusedDesign(design=design.design, consumers=consumers, why=reason)
    met = {design.design for *_, design in suitable}
    unmet = [design for name, design in refused.items() if name not in met]
    if not suitable:
        reason = f"no design has at most {max_wrong} wrong groups and 99% of the messages done within {p99_s:g} s"
        return Recommendation(
            max_wrong=max_wrong, p99_s=p99_s, design=None, consumers=None, why=reason, others=[], refused=unmet
        )
    suitable.sort(key=lambda entry: entry[:3])
    consumers, _, _, best = suitable[0]
    others = list(dict.fromkeys(design.design for *_, design in suitable[1:] if design.design != best.design))
    reason = (
        f"{consumers} consumers; {best.wrong_groups} wrong groups; 99% done within {_seconds(best.latency.p99_us)}; "
    )
    reason += f"{_seconds(best.wasted_us)} of handling wasted"
    return Recommendation(
        max_wrong=max_wrong,
        p99_s=p99_s,
        design=best.design,
        consumers=consumers,
        why=reason,
        others=others,
        refused=unmet,
    )


def _refusal_reason(result: DesignResult, max_wrong: int, p99_s: float) -> str | None:
    """Return why a design does not meet the requirement; None if it does."""
    if result.wrong_groups > max_wrong:
        return result.reasons[0] if result.reasons else f"{result.wrong_groups} groups end with a wrong state"
    if given_up := result.dispositions["dead_letter"] + result.dispositions["refused"]:
        return f"{given_up} messages were given up, and their groups continued without them"
    if result.held_strangers:
        return f"{result.held_strangers} messages were never applied, although nothing had failed in their groups"
    if result.latency.p99_us > p99_s * SECOND_US:
        return f"99% of the messages are done within {_seconds(result.latency.p99_us)}; the limit is {p99_s:g} s"
    return None


def _seconds(value_us: int) -> str:
    return f"{value_us / SECOND_US:.3g} s"
