"""Priorities between groups: who goes ahead, of whom, and that nobody is left behind; rule 6 of ready_groups.py."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_harness import StoreHarness

import inturn
from inturn.core.errors import InputError
from inturn.queue import QueueSettings
from memory_store.store import MemoryStore

LEAD = 4


@pytest.fixture
def ranked(harness: StoreHarness) -> StoreHarness:
    harness.make("q", priority_lead=LEAD, max_receives=None)
    harness.send("first")  # so that there is something to go ahead of
    harness.drain()
    return harness


def test_a_group_with_higher_priority_is_received_first_in_its_own_order(ranked: StoreHarness) -> None:
    ranked.prioritize("c", 1)
    ranked.send("a1", "b1", "c1", "c2")
    assert ranked.drain() == ["c1", "c2", "a1", "b1"]


def test_priority_lead_bounds_the_number_of_messages_passed(ranked: StoreHarness) -> None:
    ranked.prioritize("c", 1)
    ranked.send("a1")
    bodies = []
    for number in range(10):
        ranked.send(f"c{number}")
        bodies += ranked.take()
        ranked.wait(100)
        ranked.ack(*[])
    assert bodies.index("a1") <= LEAD + 1, bodies


def test_a_new_priority_applies_to_waiting_groups(ranked: StoreHarness) -> None:
    ranked.send("a1", "b1", "c1", "d1")
    ranked.prioritize("d", 2)
    ranked.prioritize("a", -1)
    assert ranked.drain() == ["d1", "b1", "c1", "a1"]
    ranked.send("a1", "b1", "d1")
    ranked.prioritize("d", 0)
    ranked.prioritize("a", 0)
    assert sorted(ranked.drain()) == ["a1", "b1", "d1"]


def test_a_nacked_group_has_no_priority_lead(ranked: StoreHarness) -> None:
    ranked.prioritize("c", 5)
    ranked.send("a1", "c1", "b1")
    (failed,) = ranked.receive()
    assert failed.message.body == "c1"
    ranked.nack(failed)
    ranked.prioritize("c", 6)  # nor by a new priority
    assert ranked.drain() == ["a1", "b1", "c1"]


def test_priorities_are_off_by_default_and_can_be_turned_off_again(harness: StoreHarness) -> None:
    harness.prioritize("c", 9)
    harness.send("a1", "b1", "c1")
    assert harness.drain() == ["a1", "b1", "c1"]
    harness.make("q", priority_lead=100)
    harness.send("a1", "a2", "b1", "c1")
    assert harness.take() == ["c1"]
    harness.send("d1", "d2")
    harness.prioritize("d", 3)
    harness.make("q")
    assert sorted(harness.drain()) == ["a1", "a2", "b1", "d1", "d2"], "none of those that went ahead is forgotten"


def test_a_large_backlog_does_not_hide_a_prioritized_group(ranked: StoreHarness) -> None:
    """The log is looked through as far as a priority reaches."""
    ranked.make("q", priority_lead=1_000)
    ranked.prioritize("z", 1)
    ranked.send(*(f"{group}{n}" for n in range(60) for group in "abcdef"), "z1")
    assert ranked.take() == ["z1"]


@settings(max_examples=60)
@given(
    priorities=st.dictionaries(st.sampled_from("abc"), st.integers(-2, 3)),
    sent=st.lists(st.sampled_from("abc"), min_size=1, max_size=25),
    lead=st.integers(1, 5),
)
def test_priority_lead_bounds_which_messages_may_pass_another(
    priorities: dict[str, int], sent: list[str], lead: int
) -> None:
    """By those alone that were sent up to the difference of the priorities after it, in messages."""
    harness = StoreHarness(MemoryStore())
    harness.make("q", priority_lead=lead)
    for group, priority in priorities.items():
        harness.prioritize(group, priority)
    numbers = [receipt.sequence_number for receipt in harness.send(*sent)]
    order: list[int] = []
    while deliveries := harness.receive(1):
        order += [delivery.message.sequence_number for delivery in deliveries]
        harness.ack(*deliveries)
    assert sorted(order) == numbers
    rank = {number: priorities.get(group, 0) for number, group in zip(numbers, sent, strict=True)}
    for index, number in enumerate(order):
        for other in order[:index]:
            if other > number:
                head = min(
                    candidate
                    for candidate in order[order.index(other) :]
                    if rank[candidate] == rank[number] or candidate == number
                )
                assert other - min(head, number) <= lead * max(0, rank[other] - rank[number]) or head < number


def test_prioritize_and_priority_verbs(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q", QueueSettings(priority_lead=1_000))
        queue.send("x", group="x")
        queue.prioritize("b", 3)
        assert (queue.priority("b"), queue.priority("a")) == (3, 0)
        queue.send("a", group="a")
        queue.send("b", group="b")
        assert [message.body for message in queue.receive(3)] == ["x", "b", "a"]
        for wrong in (101, 1.5, True, "high"):
            with pytest.raises(InputError, match="priority is"):
                queue.prioritize("b", wrong)
        with pytest.raises(InputError, match="priority_lead=1000"):
            db.queue("plain").prioritize("b", 1)
        with pytest.raises(InputError, match="priority_lead is 0"):
            QueueSettings(priority_lead=0)
