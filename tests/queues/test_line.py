"""The line of ready groups, for every store: who fails is tried again, and nobody waits for it."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_harness import STORES, StoreHarness

from inturn.core.errors import InputError
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import GroupAvailability, QueueSettings
from inturn.core.queue.redelivery import retry_ms
from inturn.core.queue.sessions import SessionVerb
from inturn.store import limits

Fail = Callable[[StoreHarness], str]
TURNS = 200


def _nacked(harness: StoreHarness) -> str:
    (delivery,) = harness.receive()
    harness.nack(delivery)
    return str(delivery.message.body)


def _hidden_no_longer(harness: StoreHarness) -> str:
    (delivery,) = harness.receive()
    harness.extend(delivery, s=0)
    return str(delivery.message.body)


def _expired(harness: StoreHarness) -> str:
    (delivery,) = harness.receive(visibility_s=1)
    harness.wait(1)
    return str(delivery.message.body)


def _nacked_with_a_delay(harness: StoreHarness) -> str:
    (delivery,) = harness.receive()
    harness.nack(delivery, s=1)
    harness.wait(1)
    return str(delivery.message.body)


def _nacked_by_a_session(harness: StoreHarness) -> str:
    lock = harness.lock()
    (delivery,) = harness.within(lock)
    harness.nack(delivery)
    harness.hold(lock, SessionVerb.CLOSE)
    return str(delivery.message.body)


def _closed(harness: StoreHarness) -> str:
    lock = harness.lock()
    (delivery,) = harness.within(lock)
    harness.hold(lock, SessionVerb.CLOSE)
    return str(delivery.message.body)


def _lock_expired(harness: StoreHarness) -> str:
    lock = harness.lock(s=1)
    (delivery,) = harness.within(lock)
    harness.wait(1)
    return str(delivery.message.body)


WAYS = [_nacked, _hidden_no_longer, _expired, _nacked_with_a_delay, _nacked_by_a_session, _closed, _lock_expired]


@pytest.mark.parametrize("fail", WAYS)
def test_three_failing_groups_get_equal_numbers_of_attempts(harness: StoreHarness, fail: Fail) -> None:
    harness.send("a1", "b1", "c1", "a2")
    count = TURNS if fail is _nacked else TURNS // 10
    assert [fail(harness) for _ in range(count)] == (["a1", "b1", "c1"] * count)[:count]


@pytest.mark.parametrize("fail", [_nacked, _hidden_no_longer, _expired, _nacked_with_a_delay])
def test_failing_ungrouped_messages_get_equal_numbers_of_attempts(harness: StoreHarness, fail: Fail) -> None:
    harness.send("x", "y", "z", group=None)
    assert [fail(harness) for _ in range(30)] == ["x", "y", "z"] * 10


def test_a_group_that_becomes_ready_later_queues_behind_a_nacked_group(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "b2", "c1", "c2")
    a, b = harness.receive()[0], harness.receive()[0]
    harness.nack(a)
    harness.ack(b)
    harness.send("d1", "x")
    assert [harness.take() for _ in range(5)] == [["c1"], ["a1"], ["b2"], ["d1"], ["x"]]


def test_a_backlog_does_not_delay_a_retry(harness: StoreHarness) -> None:
    harness.send("a1", *("b", "c") * 30)
    harness.nack(*harness.receive())
    seen = [harness.receive()[0] for _ in range(2)]
    harness.ack(*seen)
    assert harness.take() == ["a1"]


def test_new_groups_do_not_delay_a_retry(harness: StoreHarness) -> None:
    harness.send("a1")
    for n in range(20):
        (delivery,) = harness.receive()
        assert delivery.message.body == "a1"
        harness.nack(delivery)
        harness.send(f"{n}", group=f"g{n}")
        (delivery,) = harness.receive()
        assert delivery.message.body == ("a1" if n % 2 == 0 else delivery.message.body)
        harness.nack(delivery) if delivery.message.body == "a1" else harness.ack(delivery)
        harness.ack(*harness.receive())


def test_without_failures_the_oldest_ready_group_is_received_first(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "a2", "b2", "c1")
    for expected in ("a1", "b1", "a2", "b2", "c1"):
        (delivery,) = harness.receive()
        assert delivery.message.body == expected
        harness.ack(delivery)


def test_nacked_messages_join_the_ready_queue_in_order_of_their_nacks(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "c1", "x", "y", group=None)
    deliveries = harness.receive(5)
    for index in (3, 0, 4, 2, 1):
        harness.nack(deliveries[index])
    assert harness.take(10) == ["x", "a1", "y", "c1", "b1"]


def test_expired_leases_join_the_ready_queue_in_order_of_their_deadlines(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "c1")
    for seconds in (5, 3, 4):
        harness.receive(visibility_s=seconds)
    harness.wait(10)
    assert harness.take(10) == ["b1", "c1", "a1"]


def test_a_lease_expired_before_a_nack_precedes_it_in_the_ready_queue(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "c1")
    a, b, c = (harness.receive(visibility_s=seconds)[0] for seconds in (30, 3, 8))
    harness.wait(5)
    harness.nack(a)
    harness.send("d1")
    harness.wait(5)
    assert (b.token, c.token) < (c.token, c.token + 1)
    assert harness.take(10) == ["b1", "a1", "d1", "c1"]


def test_a_nacked_batch_keeps_one_place_and_its_message_order(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1", "a3")
    for _ in range(5):
        deliveries = harness.receive(2)
        harness.nack(*reversed(deliveries))
        deliveries = harness.receive(1)
        assert deliveries[0].message.body == "b1"
        harness.nack(*deliveries)
        assert harness.take(3, visibility_s=0) == ["a1", "a2", "a3"]
        harness.nack(*harness.receive(1, group="b"))


def test_an_acknowledged_group_returns_to_its_normal_order(harness: StoreHarness) -> None:
    harness.send("a1", "a2", "b1", "c1")
    harness.nack(*harness.receive())
    harness.ack(*harness.receive(), *harness.receive(), *harness.receive())
    harness.send("b2")
    assert harness.take(10) == ["a2", "b2"]


def test_a_message_moved_back_queues_behind_a_nacked_group(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.send("a1", "b1", "b2")
    harness.move("dead", harness.read()[0])
    harness.nack(*harness.receive())
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert harness.take(10) == ["b1", "b2", "a1"]


def test_a_resumed_group_queues_behind_a_nacked_group(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    harness.ask("a", SessionVerb.PARK, note="why")
    harness.nack(*harness.receive())
    harness.ask("a", SessionVerb.RESUME)
    assert harness.take(10) == ["b1", "a1"]


def test_nack_moves_a_group_received_by_name_to_the_end_of_the_ready_queue(harness: StoreHarness) -> None:
    harness.send("a1", "b1", "c1")
    harness.nack(*harness.receive(group="b"))
    assert harness.take(10) == ["a1", "c1", "b1"]


def test_purge_empties_the_ready_queue(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    harness.nack(*harness.receive())
    harness.purge()
    harness.send("c1")
    assert harness.take(10) == ["c1"]


def test_failing_groups_do_not_hide_a_long_log(harness: StoreHarness) -> None:
    """PostgreSQL lists the log in pieces: who was given back stands behind what is not listed yet."""
    healthy = limits.LIST_AT_ONCE + 50
    harness.send("x", "y", "z")
    for n in range(0, healthy, 50):
        harness.send(*[f"{n + k}" for k in range(50)][: healthy - n], group=None)
    failed, done = Counter[str](), 0
    for _ in range(healthy + 3):
        (delivery,) = harness.receive()
        if str(delivery.message.body) in "xyz":
            failed[str(delivery.message.body)] += 1
            harness.nack(delivery)
        else:
            harness.ack(delivery)
            done += 1
    assert done == healthy
    assert failed == {"x": 1, "y": 1, "z": 1}


def test_retention_removes_a_group_from_the_ready_queue(harness: StoreHarness) -> None:
    harness.make("q", retention_s=60)
    harness.send("a1")
    harness.wait(30)
    harness.send("a2", "b1")
    harness.nack(*harness.receive())
    assert harness.take(group="nobody") == []  # PostgreSQL notices with a receive what was given back
    harness.wait(30)
    assert harness.take(10) == ["b1", "a2"]


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "memory"])
def test_places_in_the_ready_queue_survive_a_restart_and_hold_across_processes(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""

    def opened() -> StoreHarness:
        return StoreHarness(STORES[kind](tmp_path, lambda: url))

    one = opened()
    one.make("q")
    one.send("a1", "b1", "c1", "c2")
    one.nack(*one.receive())
    one.close()
    one, two = opened(), opened()
    assert [_nacked(harness) for harness in (one, two) * 4] == ["b1", "c1", "a1", "b1", "c1", "a1", "b1", "c1"]
    two.ack(*two.receive(group="c"))
    assert one.take(10) == ["a1", "b1", "c2"]
    one.close()
    two.close()


# --- small scope: everything that can happen, in a few steps ---


def _acknowledged(harness: StoreHarness) -> str:
    deliveries = harness.receive()
    harness.ack(*deliveries)
    return "".join(str(delivery.message.body) for delivery in deliveries)


STEPS: dict[str, Callable[[StoreHarness], Any]] = {
    "nack": _nacked,
    "expire": _expired,
    "ack": _acknowledged,
    "send": lambda harness: harness.send("c"),
    "send b": lambda harness: harness.send("b"),
}


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_no_ready_group_is_passed_twice_by_the_same_group(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whoever is ready when a group is given back is received before that group is again."""
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    harness = StoreHarness(STORES[kind](tmp_path, lambda: url))
    length = {"memory": 4, "sqlite": 4, "postgres": 3}[kind]
    for steps in product(STEPS, repeat=length):
        harness.make("q", visibility_timeout_s=1000)
        harness.send("a", "b", "a")
        waiting: dict[str, set[str]] = {}  # for each group that was given back, those that must come before it
        for step in steps:
            before = {str(view.group) for view in harness.groups() if view.availability == GroupAvailability.READY}
            is_send = step.startswith("send")
            if not before and not is_send:
                continue
            received = STEPS[step](harness)
            if is_send:
                continue
            assert not waiting.pop(received, set()), steps
            for earlier in waiting.values():
                earlier.discard(received)
            if step != "ack":
                waiting[received] = before - {received}
        harness.remove()
    harness.close()


# --- the retry delay ---


def test_the_retry_delay_grows_with_the_attempts(harness: StoreHarness) -> None:
    harness.make("q", retry_delay_s=1, retry_growth=3, retry_max_s=5, retry_jitter=0)
    harness.send("a1", "a2", "b1")
    for delay_s in (1, 3, 5, 5):
        (delivery,) = harness.receive(group="a")
        number, token = delivery.message.sequence_number, delivery.token
        assert harness.settle(Settlement(number, token, SettleAction.NACK, None)) == [SettleResult.DONE]
        harness.wait(delay_s - 0.001)
        assert harness.take(group="a") == []
        harness.wait(0.001)
    assert harness.take(10) == ["b1", "a1", "a2"]


def test_the_retry_delay_of_an_expired_lease_starts_at_its_deadline(harness: StoreHarness) -> None:
    harness.make("q", retry_delay_s=2, retry_jitter=0)
    harness.send("a1", "a2")
    harness.receive(2, visibility_s=5)
    harness.wait(6)
    assert harness.take() == []
    assert harness.info().due_ms == harness.now + 1000
    harness.wait(1)
    deliveries = harness.receive(2)
    assert [delivery.attempts for delivery in deliveries] == [2, 1]
    harness.wait(60)
    assert harness.take(2) == ["a1", "a2"], "found so late that the delay was over too"


def test_an_explicit_nack_delay_overrides_the_retry_delay(harness: StoreHarness) -> None:
    harness.make("q", retry_delay_s=2)
    harness.send("a1")
    harness.nack(*harness.receive())
    assert harness.take() == ["a1"]


def test_closing_a_session_applies_the_retry_delay_to_unsettled_messages(harness: StoreHarness) -> None:
    harness.make("q", retry_delay_s=2, retry_jitter=0)
    harness.send("a1", "b1")
    lock = harness.lock("a")
    harness.within(lock)
    harness.hold(lock, SessionVerb.CLOSE)
    assert harness.take(10) == ["b1"]
    harness.wait(2)
    assert harness.take(10) == ["a1"]


def test_deferred_messages_have_no_retry_delay(harness: StoreHarness) -> None:
    harness.make("q", retry_delay_s=2)
    (sent,) = harness.send("a1")
    harness.defer(*harness.receive())
    (delivery,) = harness.fetch(sent.sequence_number)
    harness.settle(Settlement(delivery.message.sequence_number, delivery.token, SettleAction.NACK, None))
    assert len(harness.fetch(sent.sequence_number)) == 1


@given(
    st.floats(0.001, 1000), st.floats(1, 1000), st.floats(0, 1000), st.floats(0, 1), st.integers(1, 2**62),
    st.integers(1, 10_000),
)  # fmt: skip
def test_every_retry_delay_is_within_its_bounds(
    delay: float, growth: float, most: float, jitter: float, number: int, attempts: int
) -> None:
    settings = QueueSettings(retry_delay_s=delay, retry_growth=growth, retry_max_s=most, retry_jitter=jitter)
    delay_ms = retry_ms(settings, number, attempts)
    full_ms = retry_ms(
        QueueSettings(retry_delay_s=delay, retry_growth=growth, retry_max_s=most, retry_jitter=0), 1, attempts
    )
    assert (1 - jitter) * full_ms - 1 <= delay_ms <= full_ms <= round(most * 1000)
    assert retry_ms(settings, number, attempts) == delay_ms


def test_retry_jitter_spreads_retry_delays() -> None:
    settings = QueueSettings(retry_delay_s=10, retry_jitter=0.5)
    delays = {retry_ms(settings, number, 1) for number in range(1000)}
    assert min(delays) < 5_100
    assert max(delays) > 9_900
    assert len(delays) > 800
    assert retry_ms(QueueSettings(), 1, 1) == 0


@pytest.mark.parametrize(
    "wrong", [{"retry_delay_s": -1}, {"retry_growth": 0.5}, {"retry_max_s": "1"}, {"retry_jitter": 1.5}]
)
def test_invalid_retry_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        QueueSettings(**wrong)
