"""Who only looks shortens nothing, whatever its clock says; and a clock that went back makes nothing last for ever."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clocks import SkewedClocks
from inturn.core.errors import LeaseExpired
from inturn.core.queue.clock_skew import ClockSkew, Span
from inturn.queue import Message, Queue, draft

HOUR = 3_600


def bodies(messages: list[Message]) -> list[object]:
    return [message.body for message in messages]


def look(queue: Queue) -> None:
    """All that only looks, and all that changes something else."""
    queue.groups()
    queue.groups("a")
    queue.info()
    queue.peek(10)
    assert queue.receive(10, group="a") == []
    queue.send("other", group="z")
    queue.ack(queue.receive(10))


def test_a_read_with_a_slow_clock_does_not_shorten_a_lease(clocks: SkewedClocks) -> None:
    queue = clocks.queue()
    queue.send("a1", group="a")
    queue.send("single")
    held = queue.receive(10, visibility_timeout_s=60)
    slow_queue = clocks.queue(-HOUR)
    for _ in range(2):
        look(slow_queue)
        clocks.now += 29
        assert queue.receive(10) == []
    queue.ack(held)
    assert slow_queue.depth().messages == 0


def test_a_read_with_a_slow_clock_does_not_shorten_a_partly_settled_lease(clocks: SkewedClocks) -> None:
    queue = clocks.queue()
    queue.send_many([draft(f"a{number}", group="a") for number in range(3)])
    first, *rest = queue.receive(3, visibility_timeout_s=60)
    slow_queue = clocks.queue(-HOUR)
    look(slow_queue)
    queue.ack([first])
    clocks.now += 59
    look(slow_queue)
    queue.extend(rest, 60)
    clocks.now += 59
    look(slow_queue)
    queue.ack(rest)


def test_a_read_with_a_slow_clock_does_not_shorten_a_group_lock(clocks: SkewedClocks) -> None:
    queue = clocks.queue()
    queue.send("a1", group="a")
    queue.send("a2", group="a")
    session = queue.session("a", lock_s=60)
    assert session is not None
    (first,) = session.receive()
    slow_queue = clocks.queue(-HOUR)
    for _ in range(2):
        look(slow_queue)
        assert slow_queue.session("a") is None
        clocks.now += 29
        assert queue.receive(10) == []
    first.ack()
    session.renew(60)
    look(slow_queue)
    clocks.now += 59
    look(slow_queue)
    assert bodies(session.receive()) == ["a2"]


def test_a_read_with_a_slow_clock_does_not_shorten_a_delay(clocks: SkewedClocks) -> None:
    queue = clocks.queue()
    queue.send("a1", group="a", delay_s=60)
    slow_queue = clocks.queue(-HOUR)
    look(slow_queue)
    clocks.now += 59
    look(slow_queue)
    assert queue.receive(10) == []
    clocks.now += 1
    assert bodies(queue.receive(10)) == ["a1"]


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened later"])
def test_leases_locks_and_delays_last_their_own_length_after_the_clock_was_set_back(
    clocks: SkewedClocks, *, is_open: bool
) -> None:
    """Nobody else is there any more: what was an hour ahead is over after its own time."""
    before = clocks.queue(HOUR)
    for group in "abc":
        before.send_many([draft(f"{group}{number}", group=group) for number in (1, 2)])
    before.send("d1", group="d", delay_s=50)
    first, _ = before.receive(2, visibility_timeout_s=30, group="a")
    before.ack([first])
    before.receive(2, visibility_timeout_s=30, group="b")
    assert before.session("c", lock_s=40) is not None
    clocks.now -= HOUR
    queue = before if is_open else clocks.queue(HOUR)
    assert queue.receive(10) == []
    clocks.now += 29
    assert queue.receive(10) == []
    clocks.now += 1
    assert sorted(map(str, bodies(queue.receive(10, visibility_timeout_s=HOUR)))) == ["a2", "b1", "b2"]
    clocks.now += 10
    assert bodies(queue.receive(10, visibility_timeout_s=HOUR)) == ["c1", "c2"]
    clocks.now += 10
    assert bodies(queue.receive(10)) == ["d1"]


def test_a_process_with_a_slow_clock_sees_another_process_lease_expire_on_time(tmp_path: Path) -> None:
    """Its owner is dead, and nobody else is there. (Over PostgreSQL all go by the server's clock.)"""
    with ExitStack() as stack:
        clocks = SkewedClocks(tmp_path / "shop.db", stack)
        queue, slow_queue = clocks.queue(), clocks.queue(-HOUR)
        assert slow_queue.receive(10) == []
        queue.send("a1", group="a")
        (held,) = queue.receive(visibility_timeout_s=60)
        assert slow_queue.receive(10) == []
        clocks.now += 59
        assert slow_queue.receive(10) == []
        clocks.now += 1
        assert bodies(slow_queue.receive(10)) == ["a1"]
        with pytest.raises(LeaseExpired):
            held.ack()


@given(
    offset=st.integers(-10_000, 0),
    lengths=st.lists(st.integers(1, 5_000), min_size=1),
    looks=st.lists(st.tuples(st.integers(0, 6_000), st.booleans())),
)
def test_clock_skew_with_a_steady_slow_clock_ends_no_span_early(
    offset: int, lengths: list[int], looks: list[tuple[int, bool]]
) -> None:
    spans = [Span("hold", 1, number, 0, length) for number, length in enumerate(lengths)]
    skew = ClockSkew()
    for time, is_lost in sorted(looks):
        now = time + offset
        expired_spans = skew.end_spans(now, lambda now: [span for span in spans if span.since_ms > now])
        for expired in expired_spans:
            assert expired.span.until_ms <= time
            assert expired.since_ms + expired.span.until_ms - expired.span.since_ms == expired.until_ms <= now
        skew.rolled_back() if is_lost else skew.committed()


@given(times=st.lists(st.integers(-10_000, 10_000), min_size=1), length=st.integers(1, 100))
def test_clock_skew_ends_a_span_after_its_length_once_the_clock_is_steady(times: list[int], length: int) -> None:
    span, skew = Span("lock", 1, "a", 20_000, 20_000 + length), ClockSkew()
    for now in times:
        for expired in skew.end_spans(now, lambda _: [span]):
            assert now >= expired.until_ms
            return
        skew.committed()
    (ended,) = skew.end_spans(times[-1] + length, lambda _: [span])
    assert ended.span == span
    assert skew.end_spans(times[-1] + length, lambda _: [span]) == []
    skew.rolled_back()
    assert skew.end_spans(times[-1] + length, lambda _: [span]) == [ended], "what was rolled back is told again"
