"""A handler gets the messages of each group in order, one at a time, whatever fails; nothing that fails is lost."""

import asyncio
import threading
from collections import defaultdict
from typing import Any

import pytest

import inturn
from awaited import AWAITED, waiting
from clocks import RunningClock
from hostile import RAISED
from inturn import Retry
from inturn.consumer import Consumer
from inturn.core.errors import HandlerError, InputError, NoSuchQueue, QueueError
from inturn.core.queue.lapsed import LAPSED_RETRIES
from inturn.database import Database
from inturn.queue import Message, QueueSettings, draft
from waiting import until

SOON = Retry(2, "1 millisecond")


class Handled:
    """A handler that notes what it begins and ends, by group, and fails as often as it is told."""

    def __init__(self, fails: dict[Any, int] | None = None) -> None:
        self.fails = fails or {}
        self.log: dict[str | None, list[Any]] = defaultdict(list)
        self.at_once = self.most = 0
        self._mutex = threading.Lock()

    def __call__(self, message: Message) -> None:
        with self._mutex:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.log[message.group].append(("begin", message.body))
        try:
            if message.attempts <= self.fails.get(message.body, 0):
                raise ValueError(f"not {message.body} yet")
        finally:
            with self._mutex:
                self.at_once -= 1
                self.log[message.group].append(("end", message.body))

    def order(self, group: str | None) -> list[Any]:
        """The bodies in the order of their attempts, which must not overlap."""
        log = self.log[group]
        begun, ended = log[::2], log[1::2]
        assert [event for event, _ in begun] == ["begin"] * len(begun), log
        assert [body for _, body in begun] == [body for _, body in ended], log
        return [body for _, body in begun]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_consume_handles_each_group_in_order_one_message_at_a_time(db: Database, concurrency: int) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group=f"g{n % 7}") for n in range(70)])
    handled = Handled({n: n % 3 for n in range(70)})
    counts = inturn.consume(queue, handled, retry=SOON, concurrency=concurrency, until="empty")
    for group in range(7):
        expected = [n for n in range(group, 70, 7) for _ in range(n % 3 + 1)]
        assert handled.order(f"g{group}") == expected, "a failed message is tried again before the next"
    assert (counts.done, counts.failed, counts.lost) == (70, sum(n % 3 for n in range(70)), 0)
    assert handled.most <= concurrency
    assert queue.depth().messages == 0


def test_consume_parks_a_failing_group_with_its_error_and_continues_others(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(body, group=body[0]) for body in ("a1", "b1", "a2", "b2", "a3")])
    handled = Handled({"a2": 99})
    counts = inturn.consume(queue, handled, retry=SOON, until="empty")
    assert handled.order("a") == ["a1", "a2", "a2", "a2"]
    assert handled.order("b") == ["b1", "b2"]
    (parked,) = queue.parked()
    assert parked.group == "a"
    assert "ValueError: not a2 yet" in parked.note
    assert (counts.done, counts.failed, counts.parked) == (3, 3, 1)

    queue.resume("a")
    resumed = Handled({"a2": 2})
    counts = inturn.consume(queue, resumed, retry=SOON, until="empty")
    assert resumed.order("a") == ["a2", "a2", "a2", "a3"], "after a resume all attempts are new"
    assert (counts.done, counts.parked, queue.depth().messages) == (2, 0, 0)


def test_a_group_with_a_fetched_message_is_parked_once_that_is_settled(db: Database, fetched: Message) -> None:
    queue = db.queue("q")
    with Consumer(queue, Handled({"bad": 99}), retry=Retry(0)) as consumer:
        until(lambda: consumer.counts.failed > 1)
        assert queue.parked() == []
        fetched.ack()
        until(lambda: [parked.group for parked in queue.parked()] == ["a"])
    assert (consumer.counts.parked, queue.depth().messages) == (1, 1)


def test_the_backlog_of_a_busy_group_does_not_delay_other_groups(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft("hot", group="hot") for _ in range(900)])
    queue.send_many([draft("other", group=f"g{n}") for n in range(50)])
    seen: list[str] = []
    with Consumer(queue, lambda message: seen.append(message.body), concurrency=2) as consumer:
        until(lambda: seen.count("other") == 50)
        consumer.stop_soon()
    last = max(place for place, body in enumerate(seen) if body == "other")
    assert seen[:last].count("hot") < 300
    hot = seen.count("hot")
    assert queue.depth()[:2] == (900 - hot, 0)


def test_a_failing_ungrouped_message_is_deferred(db: Database) -> None:
    queue = db.queue("q")
    for body in ("bad", "good"):
        queue.send(body)
    counts = inturn.consume(queue, Handled({"bad": 99}), retry=SOON, until="empty")
    (deferred,) = queue.deferred()
    assert (deferred.body, counts.done, counts.deferred, counts.failed) == ("bad", 1, 1, 3)
    message = queue.fetch(deferred.sequence_number)
    assert message is not None
    message.ack()


def test_then_dead_letter_moves_a_failing_message_and_its_group_continues(db: Database) -> None:
    dead = db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=100))
    queue.send_many([draft(body, group="a") for body in ("a1", "a2", "a3")])
    queue.send("alone")
    handled = Handled({"a2": 99, "alone": 99})
    counts = inturn.consume(queue, handled, retry=SOON, then="dead-letter", until="empty")
    assert handled.order("a") == ["a1", "a2", "a2", "a2", "a3"]
    by_body = {message.body: message for message in dead.peek()}
    assert by_body.keys() == {"a2", "alone"}
    assert "ValueError: not a2 yet" in (by_body["a2"].note or "")
    assert (counts.dead_lettered, counts.done) == (2, 2)


def test_attempts_are_counted_across_consumers(db: Database) -> None:
    queue = db.queue("q")
    queue.send("a1", group="a")
    seen = []
    begun = threading.Event()

    def stop_after_one(message: Message) -> None:
        seen.append(message.attempts)
        begun.set()
        raise ValueError("no")

    with Consumer(queue, stop_after_one, retry=Retry(1, "1 microsecond")) as consumer:
        assert begun.wait(60)
        consumer.stop_soon()
    with Consumer(queue, stop_after_one, retry=Retry(1, "1 microsecond")) as consumer:
        consumer.drain(60)
    assert seen == [1, 2]
    assert [parked.group for parked in queue.parked()] == ["a"]


def test_a_message_returned_by_stop_uses_no_attempt(db: Database) -> None:
    queue = db.queue("q")
    begun, go_on = threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        begun.set()
        assert go_on.wait(60)

    queue.send("waits", group="waits")
    for busy in ("x", "y", "z"):
        queue.send("busy", group=busy)
        (first,) = queue.receive(group="waits")
        with Consumer(queue, hold, concurrency=1) as consumer:
            assert begun.wait(60)
            consumer._pace.ahead = 10  # as if handlers had been short
            queue.nack([first], delay_s=0)
            until(lambda: "waits" in consumer._active)
            consumer.stop_soon()
            until(lambda: "waits" not in consumer._active)
            go_on.set()
        begun.clear()
        go_on.clear()
        assert queue.depth()[:2] == (1, 0)
    (waits,) = queue.receive(1)
    assert waits.attempts == 4, "those of the receives above, and this one"


def test_a_message_whose_process_dies_each_time_is_parked(db: Database, db_clock: RunningClock) -> None:
    queue = db.queue("q", QueueSettings(visibility_timeout_s=60))
    queue.send("poison", group="a")
    for _ in range(LAPSED_RETRIES + 2):
        assert queue.receive()  # and never settled
        db_clock.forward(61)
    handled = Handled()
    counts = inturn.consume(queue, handled, retry=Retry(1, "1 millisecond"), until="empty")
    assert (handled.log, counts.parked) == ({}, 1)
    (parked,) = queue.parked()
    assert "received 6 times" in parked.note
    queue.resume("a")
    assert inturn.consume(queue, handled, until="empty").done == 1


def test_the_lease_is_extended_while_the_handler_runs(db: Database, db_clock: RunningClock) -> None:
    queue = db.queue("q", QueueSettings(visibility_timeout_s=60))
    for body in ("a1", "a2"):
        queue.send(body, group="a")
    begun, go_on = threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        begun.set()
        assert go_on.wait(60)

    with Consumer(queue, hold) as consumer:
        assert begun.wait(60)
        (held,) = consumer._active.values()
        for _ in range(3):  # two leases; what has less than half of one left is prolonged
            db_clock.forward(40)
            until(lambda: (held.until_ms or 0) > db_clock() + 30_000, "the lease is prolonged")
        assert queue.receive() == []
        go_on.set()
        consumer.drain(60)
    assert (consumer.counts.done, consumer.counts.lost) == (2, 0)


def test_a_message_with_a_lost_lease_is_counted_as_lost(db: Database) -> None:
    queue = db.queue("q")
    queue.send("a1", group="a")

    def purge(message: Message) -> None:
        queue.purge()

    with Consumer(queue, purge) as consumer:
        consumer.drain(60)
    assert (consumer.counts.done, consumer.counts.lost) == (0, 1)


def test_a_message_whose_lease_expired_before_its_handler_began_is_not_handled(
    db: Database, db_clock: RunningClock
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen = []

    def handle(message: Message) -> None:
        begun.set()
        assert go_on.wait(60)
        seen.append((message.body, message.attempts))

    queue = db.queue("q")
    with Consumer(queue, handle, concurrency=1) as consumer:
        queue.send("first", group="a")
        assert begun.wait(60)
        consumer._pace.ahead = 10  # as if handlers had been short
        queue.send("second", group="b")
        until(lambda: "b" in consumer._active)
        db_clock.forward(100)  # the machine slept
        go_on.set()
        consumer.drain(60)
    assert sorted(seen) == [("first", 1), ("first", 2), ("second", 2)]
    assert (consumer.counts.done, consumer.counts.lost) == (2, 2)


def test_stop_finishes_running_handlers_and_returns_the_rest(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group=f"g{n}") for n in range(6)])
    begun, go_on = threading.Semaphore(0), threading.Event()

    def hold(message: Message) -> None:
        begun.release()
        assert go_on.wait(60)

    with Consumer(queue, hold, concurrency=2) as consumer:
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)
        consumer.stop_soon()
        go_on.set()
    assert consumer.counts.done == 2
    assert queue.depth()[:2] == (4, 0)
    with pytest.raises(InputError, match="is not running"):
        consumer.check()


def test_stop_waits_for_a_handler_no_longer_than_grace_s(db: Database) -> None:
    queue = db.queue("q")
    queue.send("a1", group="a")
    begun, go_on = threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        begun.set()
        go_on.wait(60)

    with Consumer(queue, hold, grace_s=0.05):
        assert begun.wait(60)
    assert queue.depth()[:2] == (1, 1), "it comes again when the lease is over"
    go_on.set()


def test_async_handlers_run_concurrently_in_their_own_loop(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group=f"g{n}") for n in range(4)])
    meeting = asyncio.Barrier(4)

    async def handle(message: Message) -> None:
        await asyncio.wait_for(meeting.wait(), 60)

    assert inturn.consume(queue, handle, concurrency=4, until="empty").done == 4


def test_async_handlers_run_in_the_loop_of_async_with(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group=f"g{n % 3}") for n in range(9)])
    seen: dict[str | None, list[int]] = defaultdict(list)

    async def main() -> Consumer:
        loop = asyncio.get_running_loop()

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            seen[message.group].append(message.body)

        async with Consumer(queue, handle) as consumer:
            await asyncio.to_thread(consumer.drain, 60)
        return consumer

    assert asyncio.run(main()).counts.done == 9
    assert seen == {f"g{n}": [n, n + 3, n + 6] for n in range(3)}


@pytest.mark.parametrize("kind", AWAITED)
def test_an_awaitable_returned_by_a_plain_handler_is_awaited(db: Database, kind: str) -> None:
    queue, done = db.queue("q"), list[int]()
    queue.send_many([draft(n, group="a") for n in range(4)])
    with waiting(kind) as later:
        counts = inturn.consume(queue, lambda message: later(lambda: done.append(message.body)), until="empty")
        assert done == [0, 1, 2, 3]
    assert counts.done == 4


@pytest.mark.parametrize("kind", AWAITED)
@pytest.mark.parametrize("raised", [OSError("not yet"), asyncio.CancelledError()], ids=repr)
def test_an_error_of_a_returned_awaitable_is_a_failed_attempt(db: Database, kind: str, raised: BaseException) -> None:
    queue, failures = db.queue("q"), [raised]
    queue.send(1, group="a")

    def act() -> None:
        if failures:
            raise failures.pop()

    with waiting(kind) as later:
        counts = inturn.consume(queue, lambda message: later(act), retry=SOON, until="empty")
    assert (counts.done, counts.failed) == (1, 1)


@pytest.mark.parametrize("raised", RAISED)
def test_any_exception_of_a_handler_parks_only_its_group(db: Database, raised: str) -> None:
    queue = db.queue("q")
    queue.send_many([draft(group, group=group) for group in ("bad", "good")])

    def handle(message: Message) -> None:
        if message.body == "bad":
            raise RAISED[raised]()

    counts = inturn.consume(queue, handle, retry=SOON, until="empty")
    assert (counts.done, counts.failed, [parked.group for parked in queue.parked()]) == (1, 3, ["bad"])


WRONG: dict[str, tuple[Any, str]] = {
    "a bool": (lambda message: False, "returned False; expected None"),
    "a response": (lambda message: {"status": 500}, "returned dict with 1 key; expected None"),
    "a generator": (lambda message: (item for item in [1]), "is a generator, which would never run"),
    "a coroutine with a plain tx": (lambda message, tx: asyncio.sleep(0), "define it with `async def`"),
}


@pytest.mark.parametrize(("handler", "why"), WRONG.values(), ids=WRONG)
def test_an_invalid_handler_stops_the_consumer_and_the_message_stays(db: Database, handler: Any, why: str) -> None:
    queue = db.queue("q")
    queue.send("a1", group="a")
    with pytest.raises(HandlerError, match=why):
        inturn.consume(queue, handler)
    assert queue.depth().messages == 1
    assert queue.parked() == []


def test_a_message_with_an_invalid_handler_result_parks_its_group(db: Database) -> None:
    """At last also if every consumer begins with it: then each ends, and its attempts are used up."""
    queue = db.queue("q")
    queue.send("a1", group="a")
    for _ in range(3):
        with pytest.raises(HandlerError, match="returned str of 2 characters"):
            inturn.consume(queue, lambda message: "no", retry=SOON)
        until(lambda: queue.depth().delayed == 0)
    assert [parked.group for parked in queue.parked()] == ["a"]
    queue.send_many([draft("b1", group="b"), draft("c1", group="c")])
    counts = inturn.consume(
        queue, lambda message: "no" if message.body == "c1" else None, retry=SOON, concurrency=1, until="empty"
    )
    assert counts.done == 1
    assert [parked.group for parked in queue.parked()] == ["a", "c"]
    assert "HandlerError: the handler returned" in queue.parked()[1].note


def test_a_generator_handler_is_refused(db: Database) -> None:
    def handle(message: Message) -> Any:
        yield message

    async def ahandle(message: Message) -> Any:
        yield message

    for handler in (handle, ahandle):
        with pytest.raises(InputError, match=f"handler is .*{handler.__name__}, a generator"):
            inturn.consume(db.queue("q"), handler)


def test_system_exit_in_a_handler_stops_the_consumer_and_the_message_stays(db: Database) -> None:
    queue = db.queue("q")
    queue.send("a1", group="a")

    async def aleave(message: Message) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        inturn.consume(queue, aleave)

    def leave(message: Message) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        inturn.consume(queue, leave)
    (message,) = queue.receive()
    assert message.attempts == 1, "given back as if it had not been received"


def test_invalid_consume_arguments_are_refused_before_any_receive(db: Database) -> None:
    db.queue("dead")
    queue, lettered = db.queue("q"), db.queue("l", QueueSettings(dead_letter="dead", max_receives=3))

    def handle(message: Message) -> None:
        raise AssertionError

    for options, text in (
        ({"then": "dead-letter"}, "has no dead-letter queue"),
        ({"then": "drop"}, "'park' or 'dead-letter'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"grace_s": float("nan")}, "grace_s is nan"),
        ({"until": "tomorrow"}, "'stopped' or 'empty'"),
        ({"transaction": db.transaction}, r"expected handler\(message, tx\)"),
    ):
        with pytest.raises(InputError, match=text):
            inturn.consume(queue, handle, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot be completed"):
        inturn.consume(lettered, handle, retry=Retry(3))
    with pytest.raises(InputError, match=r"or handler\(message, tx\)"):
        inturn.consume(queue, lambda one, two, three: None)
    lettered.delete()
    with pytest.raises(NoSuchQueue):
        inturn.consume(lettered, handle)


def test_a_verb_in_the_handler_is_its_own_transaction_unless_given_tx(db: Database) -> None:
    queue, out = db.queue("q"), db.queue("out")
    queue.send("a1", group="a")

    def handle(message: Message, tx: Any) -> None:
        out.send("own")
        out.send("within", tx=tx)
        with pytest.raises(QueueError, match="tx=tx"):
            out.send("it would wait for itself")
        if message.attempts == 1:
            raise ValueError("no")

    counts = inturn.consume(queue, handle, retry=SOON, until="empty")
    assert (counts.done, counts.failed) == (1, 1)
    assert [message.body for message in out.peek()] == ["own", "own", "within"]
