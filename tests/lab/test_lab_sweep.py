"""Sweeps and recommendations."""

import pytest

from inturn.core.errors import InputError
from inturn.lab import Knobs, LabMessage, UniformTime, recommend, run, scenario, sweep
from inturn.lab.designs import design_named

DESIGNS = [design_named(name) for name in ("competing-classic", "kafka-block", "inturn")]
STORY = scenario("transfers")


@pytest.mark.thorough
def test_a_sweep_gives_the_same_bytes_for_any_number_of_processes() -> None:
    first, second = (
        sweep(STORY.messages, values=(1, 4), seeds=2, pipeline=STORY.pipeline, designs=DESIGNS, processes=processes)
        for processes in (1, 2)
    )
    assert first.to_json() == second.to_json()
    assert [curve.design for curve in first.curves] == ["competing-classic", "kafka-block", "inturn"]


def test_throughput_rises_with_the_consumers_up_to_the_bound() -> None:
    result = sweep(STORY.messages, values=(1, 4, 64), seeds=3, designs=[design_named("key-parallel")], processes=1)
    [curve] = result.curves
    throughputs = [point.throughput_per_s for point in curve.points]
    assert throughputs[0].high < throughputs[1].low
    assert all(interval.low <= interval.mean <= interval.high <= result.bound_per_s * 1.2 for interval in throughputs)


def test_failures_increase_the_out_of_order_share_of_competing_consumers() -> None:
    result = sweep(STORY.messages, over="failure_rate", values=(0.0, 0.2), seeds=2, designs=DESIGNS[:1], processes=1)
    none, many = result.curves[0].points
    assert none.out_of_turn_share.mean < many.out_of_turn_share.mean
    assert none.wasted_share.mean < many.wasted_share.mean


@pytest.mark.parametrize("over", ["handler", "speed"])
def test_an_unknown_sweep_parameter_is_refused_with_the_known_names(over: str) -> None:
    with pytest.raises(InputError, match=f"over is '{over}'; expected one of consumers, prefetch"):
        sweep(STORY.messages, over=over, values=(1,))


def test_the_cheapest_design_is_recommended_and_the_others_are_refused_with_a_reason() -> None:
    results = [STORY.run(consumers=consumers) for consumers in (1, 2, 4)]
    advice = recommend(results, p99_s=0.5)
    assert advice.design is not None
    assert advice.consumers is not None
    refused = {design.design: design.why for design in advice.refused}
    assert "wrong state" in refused["single-active-classic"]
    chosen = next(result for result in results if result.knobs.consumers == advice.consumers).design(advice.design)
    assert chosen.wrong_groups == 0
    assert chosen.latency.p99_us <= 500_000
    cheaper = [result for result in results if result.knobs.consumers < advice.consumers]
    for result in cheaper:
        for figures in result.designs:
            assert figures.wrong_groups or figures.latency.p99_us > 500_000


def test_no_design_is_recommended_for_an_impossible_latency() -> None:
    advice = recommend(STORY.run(), p99_s=1e-6)
    assert (advice.design, advice.consumers, advice.others) == (None, None, [])
    assert {design.design for design in advice.refused} == {design.design for design in STORY.run().designs}
    assert all(design.why for design in advice.refused)


def test_a_design_that_blocks_unrelated_groups_is_not_recommended() -> None:
    messages = [LabMessage(at_us=n, group=f"g{n % 20}", revision=n // 20) for n in range(400)]
    turned = Knobs(partitions=2, poison_rate=0.01, handler=UniformTime(high_ms=1), seed=1)
    result = run(messages, knobs=turned, designs=DESIGNS)
    advice = recommend(result)
    refused = {design.design: design.why for design in advice.refused}
    assert result.design("kafka-block").held_strangers > 0
    assert "never applied, although nothing had failed" in refused["kafka-block"]
    assert result.design("inturn").held_strangers == 0
