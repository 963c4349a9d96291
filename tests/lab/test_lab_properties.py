"""What holds of every design, whatever the messages: counted once, one thing at a time, and the bounds of order."""

from collections.abc import Sequence
from itertools import pairwise, permutations, product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.lab import AttemptResult, Design, Disposition, Knobs, LabMessage, SimulationLog, UniformTime, run
from inturn.lab.designs import DESIGNS, design_named
from inturn.lab.designs.timeline import Inturn, Resequencer
from inturn.lab.draws import Draws
from inturn.lab.judge import Judge
from inturn.lab.measure import measure
from inturn.lab.workload import Workload

NAMES = [design.name for design in DESIGNS]
FAST = UniformTime(low_ms=0, high_ms=3)
EFFECTS = {AttemptResult.APPLIED, AttemptResult.APPLIED_UNACKED}


@st.composite
def inputs(draw: st.DrawFn, *, in_order: bool = False) -> list[LabMessage]:
    """Messages of a few groups, out of order and with copies unless they are to be in order."""
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    pairs = [(f"g{group}", place) for group, count in enumerate(counts) for place in range(1, count + 1)]
    if in_order:
        dealt = draw(st.permutations([group for group, _ in pairs]))
        revisions = {f"g{group}": iter(range(1, count + 1)) for group, count in enumerate(counts)}
        pairs = [(group, next(revisions[group])) for group in dealt]
    else:
        copies = draw(st.lists(st.sampled_from(pairs), max_size=3))
        pairs = draw(st.permutations(pairs + copies))
    gaps = draw(st.lists(st.integers(0, 4000), min_size=len(pairs), max_size=len(pairs)))
    times = [sum(gaps[: number + 1]) for number in range(len(pairs))]
    return [LabMessage(at_us=arrival_us, group=g, revision=r) for arrival_us, (g, r) in zip(times, pairs, strict=True)]


troubles = st.builds(
    Knobs,
    consumers=st.integers(1, 4),
    prefetch=st.integers(1, 4),
    batch=st.integers(1, 4),
    partitions=st.integers(1, 4),
    handler=st.just(FAST),
    failure_rate=st.sampled_from([0.0, 0.1, 0.4]),
    poison_rate=st.sampled_from([0.0, 0.0, 0.1]),
    crash_rate=st.sampled_from([0.0, 0.0, 0.1]),
    crash_after_effect=st.sampled_from([0.0, 0.5, 1.0]),
    restart_s=st.sampled_from([0.0, 0.01, 1.0]),
    visibility_s=st.sampled_from([0.005, 1.0]),
    max_attempts=st.integers(1, 4),
    backoff_s=st.sampled_from([0.0, 0.01]),
    reorder_s=st.sampled_from([0.001, 10.0]),
    seed=st.integers(0, 50),
)


def simulated(
    design: Design, messages: Sequence[LabMessage], knobs: Knobs, start: int | None = 1
) -> tuple[Workload, SimulationLog]:
    load = Workload(messages, start=start)
    return load, design.simulate(load, Draws(load, knobs), knobs)


def check(load: Workload, log: SimulationLog) -> None:
    """One thing at a time for each consumer, and a message's place agrees with what happened to it."""
    for consumer in range(log.consumers):
        spans = sorted((begin, end) for begin, end, who, _, _ in log.attempts if who == consumer)
        assert all(earlier[1] <= other[0] for earlier, other in pairwise(spans)), spans
    assert {who for _, _, who, _, _ in log.attempts} <= set(range(log.consumers))
    ends = [end for _, end, _, _, _ in log.attempts]
    assert ends == sorted(ends)
    applied = {message for _, _, _, message, result in log.attempts if result in EFFECTS}
    for message, kind in enumerate(log.disposition):
        assert (kind == Disposition.APPLIED) == (message in applied)
        if kind == Disposition.DUPLICATE:
            assert load.first.count(load.first[message]) > 1
    for begin, _, _, message, _ in log.attempts:
        assert begin >= load.arrival_us[message]


@pytest.mark.parametrize("name", NAMES)
@given(messages=inputs(), knobs=troubles)
def test_each_message_has_one_outcome_and_a_consumer_handles_one_message_at_a_time(
    name: str, messages: list[LabMessage], knobs: Knobs
) -> None:
    check(*simulated(design_named(name), messages, knobs))


@pytest.mark.parametrize("name", NAMES)
def test_a_message_that_always_fails_is_never_applied(name: str) -> None:
    messages = [
        LabMessage(at_us=1000 * number, group=f"g{number % 2}", revision=1 + number // 2) for number in range(6)
    ]
    rates = {"failure_rate": 0.2, "poison_rate": 0.5, "crash_rate": 0.4, "crash_after_effect": 1.0}
    for seed in range(20):
        knobs = Knobs(consumers=2, handler=FAST, max_attempts=2, backoff_s=0.0, visibility_s=0.005, seed=seed, **rates)
        load, log = simulated(design_named(name), messages, knobs)
        bad = Draws(load, knobs).poison
        assert bad
        assert all(result not in EFFECTS for _, _, _, message, result in log.attempts if message in bad)


@pytest.mark.parametrize("name", NAMES)
@given(messages=inputs(in_order=True), seed=st.integers(0, 9), prefetch=st.integers(1, 5))
def test_one_consumer_without_failures_gives_the_right_states(
    name: str, messages: list[LabMessage], seed: int, prefetch: int
) -> None:
    knobs = Knobs(consumers=1, prefetch=prefetch, batch=prefetch, handler=FAST, seed=seed)
    [result] = run(messages, knobs=knobs, designs=[design_named(name)]).designs
    assert (result.wrong_groups, result.out_of_turn, result.applied_twice) == (0, 0, 0)
    assert result.dispositions["applied"] == len(messages)


@given(messages=inputs(), knobs=troubles)
def test_inturn_never_gives_a_wrong_state(messages: list[LabMessage], knobs: Knobs) -> None:
    load, log = simulated(Inturn(), messages, knobs)
    result = measure(Inturn(), load, log, Judge(load, None))
    assert (result.wrong_groups, result.out_of_turn, result.applied_twice, result.overlaps) == (0, 0, 0, 0)
    assert result.dispositions["dead_letter"] == result.dispositions["refused"] == 0
    if not knobs.poison_rate and knobs.failure_rate == 0:
        assert result.dispositions["held"] == 0


@pytest.mark.parametrize("grade", ["monotone", "arrival"])
@given(messages=inputs(), knobs=troubles)
def test_inturn_applies_each_message_once_with_every_order_grade(
    grade: Any, messages: list[LabMessage], knobs: Knobs
) -> None:
    load, log = simulated(Inturn(grade=grade), messages, knobs)
    check(load, log)
    result = measure(Inturn(), load, log, Judge(load, None))
    assert (result.applied_twice, result.overlaps) == (0, 0)
    if grade == "arrival":
        assert result.dispositions["refused"] == 0
    else:  # what is older than the last one is refused, so the order is that of the revisions
        for group in range(len(load.names)):
            ranks = [load.rank[m] for *_, m, r in log.attempts if r in EFFECTS and load.group[m] == group]
            assert ranks == sorted(set(ranks))


@given(messages=inputs(), knobs=troubles)
def test_a_resequencer_that_waits_long_enough_never_gives_a_wrong_state(
    messages: list[LabMessage], knobs: Knobs
) -> None:
    quiet = msgspec.structs.replace(knobs, poison_rate=0.0, crash_rate=0.0, max_attempts=99, reorder_s=1000.0)
    load, log = simulated(Resequencer(), messages, quiet)
    result = measure(Resequencer(), load, log, Judge(load, None))
    assert (result.wrong_groups, result.out_of_turn, result.applied_twice) == (0, 0, 0)


@pytest.mark.parametrize("name", [design.name for design in DESIGNS if design.keeps_order])
@given(messages=inputs(in_order=True), knobs=troubles)
def test_ordered_designs_do_not_exceed_the_throughput_bound_of_the_hottest_group(
    name: str, messages: list[LabMessage], knobs: Knobs
) -> None:
    quiet = msgspec.structs.replace(knobs, poison_rate=0.0, visibility_s=9.0, max_attempts=99)
    result = run(messages, knobs=quiet, designs=[design_named(name)], pictures=False)
    [figures] = result.designs
    assert figures.overlaps == 0
    assert not result.input.bound_per_s or figures.throughput_per_s <= result.input.bound_per_s * (1 + 1e-9)


SMALL = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_every_design_keeps_its_guarantees_in_all_small_histories(name: str) -> None:
    """Every order of arrival of four messages, every one that fails once, one or two consumers, at once or spread."""
    design = design_named(name)
    for order, bad, consumers, prefetch, gap in product(permutations(SMALL), [None, *SMALL], (1, 2), (1, 3), (0, 700)):
        messages = [
            LabMessage(at_us=n * gap, group=g, revision=r, duration_us=500, failures=(g, r) == bad)
            for n, (g, r) in enumerate(order)
        ]
        knobs = Knobs(consumers=consumers, prefetch=prefetch, batch=prefetch, partitions=2, backoff_s=0.001)
        load, log = simulated(design, messages, knobs)
        check(load, log)
        assert log.disposition.count(Disposition.APPLIED) == 4, (order, bad, consumers, prefetch, gap)
        result = measure(design, load, log, Judge(load, None))
        assert result.applied_twice == 0
        if name in {"inturn", "resequencer", "roulette"}:
            assert result.out_of_turn == 0
        elif name in {"kafka-block", "kafka-skip", "key-parallel", "sqs-fifo", "sessions"}:
            for group in (0, 1):  # in the order of arrival, whatever fails
                arrived = [message for message in range(4) if load.group[message] == group]
                done = [attempt[3] for attempt in log.attempts if attempt[4] == 0 and load.group[attempt[3]] == group]
                assert done == arrived
