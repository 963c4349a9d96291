"""Sweeps over a knob, with several seeds, in parallel processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.lab.design import Design
from inturn.lab.knobs import Knobs
from inturn.lab.results import DesignResult
from inturn.lab.run import run
from inturn.lab.workload import LabMessage


class SeedInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the seeds: its mean, minimum and maximum."""

    mean: float
    low: float
    high: float


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a design at one value of the knob; shares are from 0 to 1."""

    value: float
    wrong_groups: SeedInterval
    out_of_turn_share: SeedInterval
    p99_us: SeedInterval
    throughput_per_s: SeedInterval
    utilisation: SeedInterval
    wasted_share: SeedInterval


class DesignCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a design against a knob."""

    design: str
    title: str
    points: list[CurvePoint]


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep.

    Attributes:
        over: name of the knob.
        values: its values.
        seeds: number of seeds.
        bound_per_s: maximum throughput if a group's messages are handled one after the other; see ``LabInput``.
        curves: one for each design.
    """

    over: str
    values: list[float]
    seeds: int
    bound_per_s: float
    curves: list[DesignCurve]

    def to_json(self) -> bytes:
        """Return the result as JSON; the same seeds give the same bytes, for any number of processes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def sweep(  # noqa: PLR0913 - keywords with defaults
    messages: Iterable[LabMessage],
    *,
    over: str = "consumers",
    values: Sequence[float] = (1, 2, 4, 8, 16),
    seeds: int = 5,
    pipeline: Pipeline | None = None,
    knobs: Knobs | None = None,
    designs: Sequence[Design] | None = None,
    handlers: Mapping[str, Pipeline] | None = None,
    processes: int | None = None,
) -> SweepResult:
    """Run the designs with several values of a knob and several seeds.

    Args:
        messages: the messages.
        over: name of the knob, such as ``consumers``, ``partitions`` or ``failure_rate``.
        values: its values.
        seeds: number of seeds, starting with the seed of ``knobs``.
        pipeline: pipeline with the handler.
        knobs: the other knobs.
        designs: the designs; None for all.
        handlers: pipelines for designs that need a handler of their own.
        processes: number of processes; None for one per processor. It is 1 on systems without ``fork``.

    Raises:
        InputError: if the knob does not exist or is not a number, or there are no values or seeds.
    """
    inputs, first = list(messages), knobs or Knobs()
    if not isinstance(getattr(first, over, None), int | float):
        numbers = [name for name in Knobs.__struct_fields__ if isinstance(getattr(first, name), int | float)]
        raise InputError(f"over is {over!r}; expected one of {', '.join(numbers)}")
    if not values or seeds < 1:
        raise InputError(f"values are {list(values)!r} and seeds {seeds}; expected at least one of each")

    def one(job: tuple[float, int]) -> bytes:
        value, seed = job
        point_knobs = msgspec.structs.replace(first, **{over: value, "seed": first.seed + seed})
        result = run(inputs, pipeline=pipeline, knobs=point_knobs, designs=designs, handlers=handlers, pictures=False)
        return msgspec.json.encode((result.input.bound_per_s, result.designs))

    jobs = [(value, seed) for value in values for seed in range(seeds)]
    read = msgspec.json.Decoder(tuple[float, list[DesignResult]])
    outcomes = [read.decode(encoded) for encoded in _in_processes(one, jobs, processes)]
    curves = []
    for index, design in enumerate(outcomes[0][1]):
        points = [
            _point(value, [outcomes[number * seeds + seed][1][index] for seed in range(seeds)])
            for number, value in enumerate(values)
        ]
        curves.append(DesignCurve(design=design.design, title=design.title, points=points))
    return SweepResult(over=over, values=list(values), seeds=seeds, bound_per_s=outcomes[0][0], curves=curves)


_WORK: list[Callable[[Any], bytes]] = []
"""The work of forked processes, which inherit it: only the job and the resulting bytes are pickled."""


def _in_processes(work: Callable[[Any], bytes], jobs: Sequence[Any], processes: int | None) -> list[bytes]:
    count = min(len(jobs), processes or os.cpu_count() or 1) if hasattr(os, "fork") else 1
    if count <= 1:
        return [work(job) for job in jobs]
    _WORK[:] = [work]
    try:
        with multiprocessing.get_context("fork").Pool(count) as pool:
            return pool.map(_work, jobs, chunksize=1)
    finally:
        _WORK.clear()


def _work(job: Any) -> bytes:
    return _WORK[0](job)


def _point(value: float, results: Sequence[DesignResult]) -> CurvePoint:
    def over_seeds(figure: Callable[[DesignResult], float]) -> SeedInterval:
        figures = [figure(result) for result in results]
        return SeedInterval(mean=fmean(figures), low=min(figures), high=max(figures))

    return CurvePoint(
        value=value,
        wrong_groups=over_seeds(lambda design: design.wrong_groups),
        out_of_turn_share=over_seeds(lambda design: design.out_of_turn / max(1, design.dispositions["applied"])),
        p99_us=over_seeds(lambda design: design.latency.p99_us),
        throughput_per_s=over_seeds(lambda design: design.throughput_per_s),
        utilisation=over_seeds(lambda design: design.utilisation),
        wasted_share=over_seeds(_wasted_share),
    )


def _wasted_share(result: DesignResult) -> float:
    busy_us = result.utilisation * result.consumers * result.makespan_us
    return result.wasted_us / busy_us if busy_us else 0.0
