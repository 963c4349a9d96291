"""The rules that brokers document, in the designs that model them."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from inturn.lab import AttemptResult, Design, Disposition, Knobs, LabMessage, SimulationLog, UniformTime
from inturn.lab.designs import CompetingConsumers, QuorumConsumers, design_named
from inturn.lab.designs.kafka import KafkaBlocking, KafkaSkipping, PollTimes, murmur2
from inturn.lab.designs.rabbitmq import LimitedQuorumConsumers, QuorumSingleActiveConsumer, SingleActiveConsumer
from inturn.lab.designs.sqs import ReceiveTimes, SqsFifo
from inturn.lab.draws import Draws
from inturn.lab.scenarios import scenario
from inturn.lab.workload import Workload


def messages(
    *names: str, gap_us: int = 0, duration_us: int = 1000, fails: dict[str, int] | None = None
) -> list[LabMessage]:
    """Messages such as ``a1 b1 a2``; the letter is the group, the number the revision."""
    return [
        LabMessage(
            at_us=number * gap_us,
            group=name[0],
            revision=int(name[1:]),
            duration_us=duration_us,
            failures=(fails or {}).get(name, 0),
        )
        for number, name in enumerate(names)
    ]


class Simulated:
    """A run of a design, with the names of its messages."""

    def __init__(self, design: Design, sent: Sequence[LabMessage], **knobs: Any) -> None:
        turned, load = Knobs(**knobs), Workload(sent)
        self.names = [f"{load.names[g]}{r}" for g, r in zip(load.group, load.revision, strict=True)]
        self.log: SimulationLog = design.simulate(load, Draws(load, turned), turned)

    def handled(self, consumer: int | None = None) -> str:
        """The handlings in the order in which they ended; ``!`` has no effect, ``+`` no acknowledgement."""
        marks = {AttemptResult.APPLIED: "", AttemptResult.APPLIED_UNACKED: "+"}
        own = [attempt for attempt in self.log.attempts if consumer in {None, attempt[2]}]
        return " ".join(self.names[m] + marks.get(AttemptResult(r), "!") for _, _, _, m, r in own)

    def spans(self, name: str) -> list[tuple[int, int]]:
        return [(begin, end) for begin, end, _, m, _ in self.log.attempts if self.names[m] == name]

    def disposition(self, name: str) -> Disposition:
        return Disposition(self.log.disposition[self.names.index(name)])


FIVE = ("a1", "a2", "a3", "a4", "a5")


@pytest.mark.parametrize(
    ("design", "prefetch", "expected"),
    [
        (CompetingConsumers(), 1, "a1! a1 a2 a3 a4 a5"),  # to its original place
        (CompetingConsumers(), 3, "a1! a2 a3 a1 a4 a5"),  # behind what had been delivered, before what had not
        (LimitedQuorumConsumers(), 3, "a1! a2 a3 a1 a4 a5"),
        (QuorumConsumers(), 1, "a1! a2 a3 a4 a5 a1"),  # to the back
        (SingleActiveConsumer(), 1, "a1! a1 a2 a3 a4 a5"),
        (QuorumSingleActiveConsumer(), 1, "a1! a2 a3 a4 a5 a1"),
    ],
)
def test_rabbitmq_requeues_a_message_at_its_documented_place(design: Design, prefetch: int, expected: str) -> None:
    run = Simulated(design, messages(*FIVE, fails={"a1": 1}), consumers=1, prefetch=prefetch)
    assert run.handled() == expected


def test_a_quorum_queue_without_a_limit_requeues_failed_messages_at_the_end() -> None:
    run = Simulated(
        QuorumSingleActiveConsumer(), messages(*FIVE, fails=dict.fromkeys(FIVE, 1)), consumers=2, prefetch=1
    )
    assert run.handled() == "a1! a2! a3! a4! a5! a1 a2 a3 a4 a5"


def test_a_quorum_queue_with_a_delivery_limit_dead_letters_a_failing_message() -> None:
    run = Simulated(LimitedQuorumConsumers(), messages(*FIVE, fails={"a2": 5}), consumers=1, prefetch=1, max_attempts=3)
    assert run.handled() == "a1 a2! a2! a2! a3 a4 a5"
    assert run.disposition("a2") == Disposition.DEAD_LETTER


def test_a_dead_single_active_consumer_is_replaced_without_overlap() -> None:
    knobs = {"consumers": 2, "prefetch": 2, "crash_rate": 0.3, "crash_after_effect": 0.0, "seed": 1, "restart_s": 0.001}
    run = Simulated(SingleActiveConsumer(), messages(*(f"a{n}" for n in range(1, 20))), **knobs)
    assert {who for _, _, who, _, _ in run.log.attempts} == {0, 1}
    spans = sorted((begin, end) for begin, end, *_ in run.log.attempts)
    assert all(earlier[1] <= other[0] for earlier, other in itertools.pairwise(spans))
    assert run.log.disposition.count(Disposition.APPLIED) == 19


def test_sqs_fifo_delivers_the_auctions_in_the_batches_of_the_article() -> None:
    story = scenario("auctions")
    run = Simulated(SqsFifo(), story.messages, consumers=2, batch=10)
    first, second = run.handled(0).split(), run.handled(1).split()
    assert first[:11] == [f"A{n}" for n in range(1, 12)]  # ten, and then A11 alone
    assert second[:10] == [f"B{n}" for n in range(1, 11)]
    [(_, tenth)], [(eleventh, _)] = run.spans("A10"), run.spans("A11")
    [(_, other)] = run.spans("B10")
    assert tenth < eleventh < other  # while B was in flight
    assert run.spans("B11")[0][0] > other


def test_sqs_fifo_fills_a_batch_from_the_oldest_group_first() -> None:
    run = Simulated(SqsFifo(), messages("b1", "a1", "b2", "a2", "b3", "a3"), consumers=1, batch=10)
    assert run.handled() == "b1 b2 b3 a1 a2 a3"


def test_sqs_fifo_blocks_a_group_while_its_batch_is_in_flight() -> None:
    names = [f"a{n}" for n in range(1, 12)]
    run = Simulated(SqsFifo(), messages(*names), consumers=2, batch=10)
    assert run.handled() == " ".join(names)
    assert run.spans("a11")[0][0] > run.spans("a10")[0][1]


def test_a_failed_message_of_an_sqs_fifo_batch_blocks_only_its_group() -> None:
    run = Simulated(SqsFifo(), messages("a1", "b1", "a2", "b2", "a3", "b3", fails={"a2": 1}), consumers=1, batch=10)
    assert run.handled() == "a1 a2! b1 b2 b3 a2 a3"


def test_sqs_fifo_moves_a_group_with_a_returned_message_to_the_end_of_the_ready_queue() -> None:
    sent = messages("a1", "b1", "c1", fails={"a1": 1})
    run = Simulated(SqsFifo(), sent, consumers=1, batch=1)
    assert run.handled() == "a1! b1 c1 a1"


def test_sqs_fifo_redelivers_a_batch_that_exceeds_its_visibility_timeout() -> None:
    run = Simulated(SqsFifo(), messages("a1", duration_us=40_000_000), consumers=2, visibility_s=30, max_attempts=2)
    [first, other] = run.spans("a1")
    assert first[0] < other[0] < first[1]  # both at once
    assert other[0] == 30_000_000 + ReceiveTimes().receive_us
    assert run.handled() == "a1+ a1+"


@pytest.mark.parametrize(("after_s", "expected"), [(299, "a1"), (301, "a1 a1")])
def test_sqs_fifo_drops_duplicates_within_five_minutes(after_s: int, expected: str) -> None:
    copy = LabMessage(at_us=after_s * 1_000_000, group="a", revision=1, duration_us=1000)
    assert Simulated(SqsFifo(), [*messages("a1"), copy]).handled() == expected


def test_sqs_fifo_receives_are_limited_to_300_calls_per_second() -> None:
    many_messages = messages(*(f"{chr(97 + n % 26)}{n // 26 + 1}" for n in range(520)), duration_us=0)
    run = Simulated(SqsFifo(), many_messages, consumers=50, batch=1)
    assert run.log.attempts[-1][1] > 1_000_000 * 519 // 300


def test_sqs_high_throughput_limits_a_partition_to_3000_messages_per_second() -> None:
    many_messages = messages(*(f"a{n}" for n in range(1, 601)), *(f"b{n}" for n in range(1, 601)), duration_us=0)
    fast = ReceiveTimes(receive_us=1, delete_us=1, calls_per_s=None, partition_messages_per_s=3_000)
    ends_us = [
        Simulated(SqsFifo(fast), many_messages, consumers=4, partitions=partitions).log.attempts[-1][1]
        for partitions in (1, 64)
    ]
    assert ends_us[0] >= 1_000_000 * 1180 // 3000  # both groups in one partition
    assert ends_us[0] > 1.8 * ends_us[1] >= 1.8 * 1_000_000 * 580 // 3000


@pytest.mark.parametrize(("key", "partition"), [("acct-1", 2), ("acct-2", 2), ("acct-3", 2), ("acct-4", 1)])
def test_the_kafka_partition_is_chosen_by_the_java_murmur2_hash(key: str, partition: int) -> None:
    assert murmur2(key.encode()) % 3 == partition


def poisoned(design: Design) -> Simulated:
    """One partition each for a and b; a2 always fails, as the first of many draws does with this seed."""
    run = None
    for seed in range(500):
        knobs = {"consumers": 1, "partitions": 3, "poison_rate": 0.2, "max_attempts": 3, "seed": seed}
        run = Simulated(design, messages("a1", "b1", "a2", "b2", "a3", "b3"), **knobs)
        failed = {run.names[m] for _, _, _, m, r in run.log.attempts if r == AttemptResult.FAILED}
        if failed == {"a2"}:
            return run
    raise AssertionError("no seed poisons a2 alone")


def test_a_poison_record_blocks_only_its_kafka_partition() -> None:
    assert murmur2(b"a") % 3 != murmur2(b"b") % 3
    run = poisoned(KafkaBlocking())
    assert run.disposition("a2") == run.disposition("a3") == Disposition.HELD
    assert [run.disposition(f"b{n}") for n in (1, 2, 3)] == [Disposition.APPLIED] * 3
    assert run.handled().split().count("a2!") == 3


def test_a_skipped_poison_record_does_not_block_its_kafka_partition() -> None:
    run = poisoned(KafkaSkipping())
    assert run.disposition("a2") == Disposition.DEAD_LETTER
    assert run.disposition("a3") == Disposition.APPLIED


def test_the_batch_of_a_dead_kafka_consumer_is_read_again() -> None:
    for seed in range(100):
        knobs = {"consumers": 2, "partitions": 1, "crash_rate": 0.1, "crash_after_effect": 1.0, "seed": seed}
        run = Simulated(KafkaBlocking(PollTimes(session_us=100_000)), messages(*FIVE), restart_s=10, **knobs)
        if run.handled() == "a1 a2 a3+ a1 a2 a3 a4 a5":
            assert run.handled(0) == "a1 a2 a3+"
            assert run.handled(1) == "a1 a2 a3 a4 a5"  # the group gave it the partition
            return
    raise AssertionError("no seed lets the first consumer die at a3 alone")


def test_an_empty_session_is_released_for_the_next_group() -> None:
    sent = messages("a1", "b1", "c1", "a2", "b2", "c2", duration_us=5_000)
    run = Simulated(design_named("sessions"), sent, consumers=2)
    assert run.handled(0).split()[:2] == ["a1", "a2"]
    assert run.handled(1).split()[:2] == ["b1", "b2"]
    assert run.spans("c1")[0][0] > run.spans("a2")[0][1]


def test_the_session_of_a_dead_consumer_stays_locked_until_its_lock_expires() -> None:
    for seed in range(100):
        knobs = {"consumers": 2, "crash_rate": 0.2, "crash_after_effect": 0.0, "visibility_s": 60.0, "seed": seed}
        run = Simulated(design_named("sessions"), messages("a1", "b1"), **knobs)
        if run.handled() == "a1! b1 a1":
            assert run.spans("a1")[1][0] >= 60_000_000
            return
    raise AssertionError("no seed lets the first consumer die at a1 alone")


def test_key_parallel_pauses_a_failed_key_and_continues_with_others() -> None:
    sent = messages("a1", "b1", "a2", "b2", fails={"a1": 1})
    run = Simulated(design_named("key-parallel"), sent, consumers=1, backoff_s=1.0)
    assert run.handled() == "a1! b1 b2 a1 a2"


def test_a_resequencer_skips_a_missing_revision_after_its_wait_and_refuses_it_later() -> None:
    sent = [*messages("a1", "a3"), LabMessage(at_us=20_000_000, group="a", revision=2, duration_us=1000)]
    run = Simulated(design_named("resequencer"), sent, reorder_s=10)
    assert run.handled() == "a1 a3"
    assert run.spans("a3")[0][0] >= 10_000_000
    assert run.disposition("a2") == Disposition.REFUSED


def test_roulette_requeues_early_messages_until_the_expected_revision_comes() -> None:
    sent = messages("a3", "a2", "a1", gap_us=10, duration_us=5_000)
    run = Simulated(design_named("roulette"), sent, consumers=1, prefetch=1)
    assert [name for name in run.handled().split() if "!" not in name] == ["a1", "a2", "a3"]
    assert "a3!" in run.handled()


def test_roulette_with_a_missing_revision_ends_and_counts_the_requeue_loop() -> None:
    sent = [*messages("a2", "b1"), LabMessage(at_us=60_000_000, group="b", revision=2, duration_us=1000)]
    turned, load = Knobs(consumers=1, handler=UniformTime()), Workload(sent, start=1)
    log = design_named("roulette").simulate(load, Draws(load, turned), turned)
    assert [Disposition(value) for value in log.disposition] == [0, 1, 1]
    assert log.unlogged > 60_000_000 / 1000  # more than one a millisecond
    assert len(log.attempts) < 100


def test_inturn_parks_only_the_group_of_a_poison_message() -> None:
    run = poisoned(design_named("inturn"))
    assert run.disposition("a1") == run.disposition("b3") == Disposition.APPLIED
    assert run.disposition("a2") == run.disposition("a3") == Disposition.HELD
