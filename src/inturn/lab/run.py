"""The runs of the lab: designs with one input."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import inturn
from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import StoredOrder
from inturn.lab.design import Design, SimulationLog
from inturn.lab.designs import default_designs
from inturn.lab.designs.timeline import OrderGrade
from inturn.lab.draws import Draws
from inturn.lab.judge import Judge
from inturn.lab.knobs import SECOND_US, Knobs
from inturn.lab.measure import EFFECTS, measure
from inturn.lab.results import LabInput, LabResult
from inturn.lab.workload import LabMessage, Workload


def run(  # noqa: PLR0913 - keywords with defaults
    messages: Iterable[LabMessage],
    *,
    pipeline: Pipeline | None = None,
    knobs: Knobs | None = None,
    designs: Sequence[Design] | None = None,
    commutes: Callable[[Any], bool] | None = None,
    split: bool = False,
    follow: tuple[str, int] | None = None,
    handlers: Mapping[str, Pipeline] | None = None,
    scenario: str = "input",
    pictures: bool = True,
) -> LabResult:
    """Run messages through designs in virtual time, and compare the results.

    Args:
        messages: the messages; see :class:`~inturn.lab.workload.LabMessage`.
        pipeline: pipeline with the handler that determines which final states are wrong; None to judge by the order.
        knobs: consumers, failures and other settings.
        designs: the designs; None for all of :func:`~inturn.lab.designs.default_designs`.
        commutes: whether the order of a message in its group does not matter, given its body.
        split: whether commuting messages are handled outside of their group's order.
        follow: group and revision of the message whose life is shown; None for the first message that some design
            applied after a later one, else the first that failed, else the first.
        handlers: pipelines for designs that need a handler of their own, by the name of the design.
        scenario: name of the input.
        pictures: whether the results include the life of the followed message and the consumers' time lines.

    Raises:
        InputError: if there are no messages, the pipeline cannot read one, or the message to follow does not exist.
    """
    knobs = knobs or Knobs()
    load = Workload(messages, start=_start(pipeline), commutes=commutes, split=split)
    judge, draws = Judge(load, pipeline), Draws(load, knobs)
    judges = {name: Judge(load, own) for name, own in (handlers or {}).items()}
    chosen = default_designs(_grade(pipeline)) if designs is None else designs
    logs = [(design, design.simulate(load, draws, knobs)) for design in chosen]
    followed = None
    if pictures:
        followed = _find_followed(load, follow) if follow is not None else _default_followed(load, draws, logs)
    return LabResult(
        version=inturn.__version__,
        scenario=scenario,
        input=describe(load, draws, judge, split=split),
        knobs=knobs,
        followed=None if followed is None else (load.names[load.group[followed]], load.revision[followed]),
        designs=[measure(design, load, log, judges.get(design.name, judge), followed) for design, log in logs],
    )


def describe(load: Workload, draws: Draws, judge: Judge, *, split: bool) -> LabInput:
    """Return the input in figures."""
    work_us = [0] * load.keys
    highest = [-1] * len(load.names)
    copies = late = 0
    for message, first in enumerate(load.first):
        if message != first:
            copies += 1
            continue
        work_us[load.key[message]] += draws.duration_us[message]
        group, rank = load.group[message], load.rank[message]
        late += rank < highest[group]
        highest[group] = max(highest[group], rank)
    most_us = max(work_us)
    hottest = load.group[load.key.index(work_us.index(most_us))]
    total_us = sum(work_us)
    return LabInput(
        messages=len(load),
        copies=copies,
        groups=len(load.names),
        late=late,
        span_us=load.arrival_us[-1],
        work_us=total_us,
        hottest_group=load.names[hottest],
        hottest_share=most_us / total_us if total_us else 0.0,
        bound_per_s=(len(load) - copies) * SECOND_US / most_us if most_us else 0.0,
        commuting=sum(load.commutes),
        split=split,
        judged_by=judge.judged_by,
    )


def _grade(pipeline: Pipeline | None) -> OrderGrade:
    """Return the grade of the messages' order; for an order by time, a sufficient lateness is assumed."""
    if pipeline is None or pipeline.order.has_gaps or pipeline.order.has_times:
        return "gapless"
    return "monotone" if pipeline.order.only_rises or pipeline.order.fields else "arrival"


def _start(pipeline: Pipeline | None) -> int | None:
    """Return the first revision of a group if every revision exists, else None."""
    if pipeline is None or not pipeline.order.has_gaps:
        return None
    return StoredOrder.of(repr(pipeline.order)).start


def _find_followed(load: Workload, follow: tuple[str, int]) -> int:
    for message, (group, revision) in enumerate(zip(load.group, load.revision, strict=True)):
        if (load.names[group], revision) == follow:
            return message
    raise InputError(f"follow is {follow!r}; no message has this group and revision")


def _default_followed(load: Workload, draws: Draws, logs: Sequence[tuple[Design, SimulationLog]]) -> int:
    """Return the first message that some design applied after a later one; else the first that failed."""
    for _, log in logs:
        highest = [-1] * len(load.names)
        for _, _, _, message, result in log.attempts:
            group, rank = load.group[message], load.rank[message]
            if result in EFFECTS:
                if rank < highest[group]:
                    return load.first[message]
                highest[group] = max(highest[group], rank)
    return load.first[min(draws.planned_failures, default=min(draws.poison, default=0))]
