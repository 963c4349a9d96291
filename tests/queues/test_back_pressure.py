"""A queue with a ``max_depth``: what counts, what is refused, who waits for room, and that nothing exceeds it."""

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from store_harness import StoreHarness

import inturn
from inturn.core.errors import InputError, QueueError, QueueFull, StoreError, TaskNotRun
from inturn.core.queue.delivery import SettleAction
from inturn.core.queue.messages import Draft, ReceiveRequest
from inturn.core.queue.sessions import SessionVerb
from inturn.database import Database
from inturn.queue import Queue, QueueSettings, draft
from inturn.store.commands import Receive, Send, WaitingSend
from inturn.store.execution import outcomes_within
from inturn.store.writer.waiters import Waiter
from waiting import DEADLINE_S, until

PROGRAM = Path(__file__).parent / "programs" / "bounded_sender.py"
LONG_S = 120


# --- the rules, in every store ---


def test_max_depth_counts_every_unacknowledged_message(harness: StoreHarness) -> None:
    harness.make("q", max_depth=5)
    harness.send("a", "b", "c", "d", group=None)
    harness.send("e", group="e", delay_ms=60_000)
    leased, deferred, given_back = harness.receive(3)
    harness.defer(deferred)
    harness.nack(given_back)
    harness.ask("e", SessionVerb.PARK, note="so")
    with pytest.raises(QueueFull, match="the queue 'q' has 5 messages with max_depth=5; there is no room for 1 more"):
        harness.send("f")
    harness.ack(leased)
    harness.send("f")
    with pytest.raises(QueueFull):
        harness.send("g")
    assert harness.depth().messages == 5


def test_a_duplicate_send_is_accepted_by_a_full_queue(harness: StoreHarness) -> None:
    harness.make("q", max_depth=2)
    first = harness.send("a", dedup_id="1")[0]
    harness.send("b")
    assert [receipt.duplicate for receipt in harness.send("a", dedup_id="1")] == [True]
    with pytest.raises(QueueFull):
        harness.send("c", dedup_id="3")
    assert harness.send("c", dedup_id="1")[0].sequence_number == first.sequence_number
    harness.ack(*harness.receive(2))
    assert [receipt.duplicate for receipt in harness.send("c", dedup_id="3")] == [False], (
        "the refused one is not remembered"
    )


def test_content_duplicates_do_not_count_against_max_depth(harness: StoreHarness) -> None:
    harness.make("q", max_depth=1, content_dedup=True)
    harness.send("a")
    assert harness.send("a", "a")[0].duplicate
    with pytest.raises(QueueFull):
        harness.send("a", "b")


def test_send_many_over_max_depth_sends_no_message(harness: StoreHarness) -> None:
    harness.make("q", max_depth=3)
    harness.send("a")
    with pytest.raises(QueueFull, match="no room for 3 more"):
        harness.send("b", "c", "d")
    assert harness.bodies() == ["a"]
    harness.send("b", "c")
    with pytest.raises(InputError, match="4 messages at once do not fit into the queue 'q' with max_depth=3"):
        harness.send("d", "e", "f", "g")
    assert harness.bodies() == ["a", "b", "c"]


def test_a_send_refused_with_queue_full_changes_nothing(harness: StoreHarness) -> None:
    harness.make("q", max_depth=1)
    harness.send("a", group="g")
    before = harness.info()
    for more in ({}, {"dedup_id": "1"}, {"delay_ms": 1_000}):
        with pytest.raises(QueueFull):
            harness.send("b", group="g", **more)
    assert harness.info() == before
    assert list(harness.drain()) == ["a"]
    harness.send("b", group="g", dedup_id="1")
    assert list(harness.drain()) == ["b"]


def test_a_dead_letter_is_moved_to_a_full_dead_letter_queue(harness: StoreHarness) -> None:
    harness.make("dead", max_depth=1)
    harness.make("q", dead_letter="dead", max_receives=1)
    harness.send("a", "b", group=None)
    for _ in range(3):
        harness.nack(*harness.receive(2))
    assert harness.depth("dead").messages == 2
    with pytest.raises(QueueFull):
        harness.send("c", queue="dead")


def test_a_rejected_message_is_moved_to_a_full_queue(harness: StoreHarness) -> None:
    harness.make("dead", max_depth=1)
    harness.send("a", "b", group=None)
    harness.change(SettleAction.MOVE, *harness.receive(2), to="dead")
    assert harness.bodies(queue="dead") == ["a", "b"]


def test_a_lowered_max_depth_refuses_sends_until_the_depth_is_below_it(harness: StoreHarness) -> None:
    harness.send("a", "b", "c", "d", group=None)
    harness.make("q", max_depth=2)
    for _ in range(3):
        with pytest.raises(QueueFull):
            harness.send("e")
        harness.ack(*harness.receive())
    harness.send("e")
    harness.make("q")
    harness.send("f", "g", "h")
    assert harness.depth().messages == 5


def test_waiting_sends_are_served_in_order_and_not_overtaken(harness: StoreHarness) -> None:
    harness.make("q", max_depth=3)
    harness.send("a", "b", dedup_id=None)
    first = harness.send("c", dedup_id="c")[0]

    def drafts(*texts: str, dedup_id: str | None = None) -> list[Draft]:
        return [Draft(text, group="g", dedup_id=dedup_id) for text in texts]

    two = WaitingSend("q", list, drafts("d", "e"), wait_s=9)
    one = WaitingSend("q", list, drafts("f"), wait_s=9)
    late, repeated = Send("q", list, drafts("g")), Send("q", list, drafts("c", dedup_id="c"))

    def tried(*commands: Send[object]) -> list[object]:
        with harness.store.transaction():
            outcomes = outcomes_within(harness.store, commands, harness.now)
        return [type(error) if error else [sent.duplicate for sent in answer] for answer, error in outcomes]

    assert tried(two, one) == [QueueFull, QueueFull]
    harness.ack(*harness.receive(1))
    assert tried(two, one, late, repeated) == [QueueFull, QueueFull, QueueFull, [True]], "room for one; two are first"
    harness.ack(*harness.receive(1))
    assert tried(two, one, late) == [[False, False], QueueFull, QueueFull]
    harness.ack(*harness.receive(1))
    assert tried(one, late) == [[False], QueueFull]
    assert harness.bodies(after=first.sequence_number) == ["d", "e", "f"]


def test_sends_of_one_transaction_succeed_up_to_max_depth(harness: StoreHarness) -> None:
    harness.make("q", max_depth=4)
    with harness.store.transaction():
        sends = [Send("q", list, [Draft(text, group="g")]) for text in "abcdef"]
        outcomes = outcomes_within(harness.store, sends, harness.now)
    assert [error is None for _, error in outcomes] == [True] * 4 + [False] * 2
    assert harness.bodies() == ["a", "b", "c", "d"]


# --- through the queue ---


def test_max_depth_accepts_none_or_a_positive_whole_number(db: Database) -> None:
    for wrong in (0, -1, 1.5, True, "3", 2**45):
        with pytest.raises(InputError, match=r"max_depth is .*; expected a whole number from 1 to 17592186044416"):
            QueueSettings(max_depth=wrong)  # type: ignore[arg-type] # one of them
    queue = db.queue("q", QueueSettings(max_depth=1))
    assert queue.info().settings.max_depth == 1
    assert queue.configure(max_depth=None).max_depth is None


def test_a_full_queue_raises_queue_full(db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))
    queue.send("a")
    for kind in (QueueFull, QueueError, TaskNotRun):
        with pytest.raises(kind):
            queue.send("b")
    with pytest.raises(QueueFull):
        queue.send("b", wait_s=0.01)


def test_a_send_with_tx_does_not_wait_for_room_and_keeps_the_transaction_open(db: Database) -> None:
    queue, other = db.queue("q", QueueSettings(max_depth=1)), db.queue("other")
    with db.transaction() as tx:
        queue.send("a", tx=tx)
        with pytest.raises(QueueFull):
            queue.send("b", wait_s=LONG_S, tx=tx)
        other.send("c", tx=tx)
    assert [queue.depth().messages, other.depth().messages] == [1, 1]


def test_redrive_moves_only_as_many_messages_as_fit_max_depth(db: Database) -> None:
    dead = db.queue("dead")
    queue = db.queue("q", QueueSettings(max_depth=2, dead_letter="dead", max_receives=3))
    queue.send_many([draft("a"), draft("b")])
    for message in queue.receive(2):
        message.reject("why")
    queue.send("c")
    assert dead.redrive() == 1
    assert [message.body for message in queue.peek()] == ["a", "c"]
    assert dead.redrive() == 0
    assert dead.redrive(to="q") == 0
    queue.receive()[0].ack()
    assert dead.redrive(to="q") == 1
    assert dead.depth().messages == 0


def _waiting(queue: Queue, count: int) -> None:
    """Return once so many callers wait with the queue's writer."""
    until(lambda: len(queue.writer._parked) >= count)


def _started(act: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(act())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


def test_waiting_sends_of_threads_get_room_in_order(db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))
    queue.send(0)
    threads = []
    for number in range(1, 6):
        threads.append(_started(lambda number=number: queue.send(number, wait_s=LONG_S))[0])
        _waiting(queue, number)
    bodies = []
    for _ in range(6):
        (message,) = queue.receive(wait_s=LONG_S)
        bodies.append(message.body)
        message.ack()
    for thread in threads:
        thread.join(LONG_S)
    assert bodies == [0, 1, 2, 3, 4, 5]


def test_a_cancelled_waiting_async_send_sends_no_message(db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))

    async def main() -> list[object]:
        await queue.send.aio("a")
        tasks = []
        for place, text in enumerate("bcd", 1):
            tasks.append(asyncio.ensure_future(queue.send.aio(text, wait_s=LONG_S)))
            await asyncio.to_thread(_waiting, queue, place)
        tasks[1].cancel()
        bodies = []
        while len(bodies) < 3:
            (message,) = await queue.receive.aio(wait_s=LONG_S)
            bodies.append(message.body)
            await message.ack.aio()
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [False, True, False]
        return bodies

    assert asyncio.run(main()) == ["a", "b", "d"]


def test_a_waiting_receive_and_a_waiting_send_each_get_their_result(db: Database) -> None:
    full, empty = db.queue("full", QueueSettings(max_depth=1)), db.queue("empty")
    full.send("a")
    receiver, received = _started(lambda: [message.body for message in empty.receive(wait_s=LONG_S)])
    sender, sent = _started(lambda: full.send("b", wait_s=LONG_S).duplicate)
    _waiting(full, 2)
    empty.send("c")
    receiver.join(LONG_S)
    full.receive()[0].ack()
    sender.join(LONG_S)
    assert (received, sent) == ([["c"]], [False])


def test_a_waiting_send_notices_room_made_by_another_database_object(address: str, db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))
    queue.send("a")
    thread, outcomes = _started(lambda: queue.send("b", wait_s=LONG_S).duplicate)
    _waiting(queue, 1)
    with inturn.open(address, durable=False) as other:
        other.queue("q").receive()[0].ack()
        assert [message.body for message in other.queue("q").receive(wait_s=LONG_S)] == ["b"]
    thread.join(LONG_S)
    assert outcomes == [False]


def test_a_due_message_does_not_wake_a_waiting_send(db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))
    queue.send("a", delay_s=60)
    assert queue.receive() == []
    send = Waiter(WaitingSend("q", list, [Draft("b")], wait_s=1))
    receive = Waiter(Receive("q", list, ReceiveRequest(1), wait_s=1))
    assert queue.writer._due([send]) == math.inf
    assert queue.writer._due([send, receive]) < math.inf


def test_a_waiting_send_fails_when_the_database_is_closed(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q", QueueSettings(max_depth=1))
        queue.send("a")
        thread, outcomes = _started(lambda: queue.send("b", wait_s=LONG_S))
        _waiting(queue, 1)
    thread.join(LONG_S)
    assert isinstance(outcomes[0], StoreError)


def test_purge_lets_a_waiting_send_continue(db: Database) -> None:
    queue = db.queue("q", QueueSettings(max_depth=1))
    queue.send("a")
    thread, outcomes = _started(lambda: queue.send("b", wait_s=LONG_S).duplicate)
    _waiting(queue, 1)
    queue.purge()
    thread.join(LONG_S)
    assert outcomes == [False]


@pytest.mark.thorough
def test_concurrent_processes_do_not_exceed_max_depth(address: str, db: Database) -> None:
    bound, per_sender = 5, 30
    queue = db.queue("q", QueueSettings(max_depth=bound))
    command = [sys.executable, PROGRAM, address]
    senders = [subprocess.Popen([*map(str, command), name, str(per_sender)]) for name in "abc"]
    seen: dict[str, list[int]] = {name: [] for name in "abc"}
    while sum(map(len, seen.values())) < 3 * per_sender:
        for message in queue.receive(3, wait_s=LONG_S):
            assert queue.depth().messages <= bound
            name, number = message.body
            seen[name].append(number)
            message.ack()
    assert [sender.wait(LONG_S) for sender in senders] == [0, 0, 0]
    assert seen == {name: list(range(per_sender)) for name in "abc"}
    assert queue.depth().messages == 0


@pytest.mark.thorough
def test_concurrent_redrive_and_sends_do_not_exceed_max_depth(address: str, db: Database) -> None:
    bound = 10
    db.queue("dead")
    queue = db.queue("q", QueueSettings(max_depth=bound, dead_letter="dead", max_receives=3))
    for _ in range(5):
        queue.send_many([draft(place) for place in range(bound)])
        for message in queue.receive(bound):
            message.reject("why")
    begin = threading.Barrier(3, timeout=DEADLINE_S)

    def redrive() -> int:
        with inturn.open(address, durable=False) as own:
            begin.wait(LONG_S)
            return sum(own.queue("dead").redrive(2) for _ in range(bound))

    def send() -> int:
        sent = 0
        with inturn.open(address, durable=False) as own:
            begin.wait(LONG_S)
            for _ in range(bound):
                try:
                    own.queue("q").send_many([draft("new"), draft("new")])
                    sent += 2
                except QueueFull:
                    pass
        return sent

    started = [_started(redrive), _started(send), _started(send)]
    for thread, _ in started:
        thread.join(LONG_S)
    assert sum(outcomes[0] for _, outcomes in started) == queue.depth().messages <= bound  # type: ignore[misc] # numbers
