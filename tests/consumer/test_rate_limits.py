"""Rates hold over all processes, in every window; a group that must wait keeps nobody from going on."""

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

import inturn
from clocks import Clock
from inturn import Rate
from inturn.consumer import Consumer
from inturn.core.queue.messages import Delivery, ReceiveRequest
from inturn.core.rate import RateLimits
from inturn.database import Database
from inturn.queue import Message, Queue, draft
from inturn.store.commands import ReceiveLimited
from waiting import until

PROGRAM = Path(__file__).parent / "programs" / "rated.py"


def most_in_a_second(times_ms: list[int]) -> int:
    """The most in any window of a second; the end of a window does not belong to it."""
    return max(sum(first <= time_ms < first + 1000 for time_ms in times_ms) for first in times_ms)


@pytest.mark.thorough
@pytest.mark.parametrize(("overall", "group", "burst"), [(20, 8, 1), (20, 0, 6)])
def test_rate_limits_hold_across_three_processes(
    db: Database, address: str, overall: int, group: int, burst: int
) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group=f"g{n % 5}") for n in range(35)])
    command = [sys.executable, PROGRAM, address, str(overall), str(group), str(burst)]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [program.communicate(timeout=120)[0] for program in programs]
    every = sorted(tuple(row) for answer in answers for row in json.loads(answer))
    assert sorted(body for *_, body in every) == list(range(35)), "each once"
    by_group = defaultdict(list)
    for at_ms, name, body in every:
        by_group[name].append((at_ms, body))
    for handled in by_group.values():
        assert [body for _, body in handled] == sorted(body for _, body in handled)
        if group:
            assert most_in_a_second([at_ms for at_ms, _ in handled]) <= group
    if overall:
        assert most_in_a_second([at_ms for at_ms, *_ in every]) <= overall + burst - 1


def test_a_rate_limited_group_is_not_leased_and_does_not_delay_others(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n, group="limited") for n in range(3)])
    seen = []
    done = threading.Event()

    def handle(message: Message) -> None:
        seen.append((message.group, message.body, message.attempts))
        if len(seen) == 22:
            done.set()

    with Consumer(queue, handle, group_rate_limit=Rate(1, "1 hour")) as consumer:
        queue.send_many([draft(n, group=f"g{n}") for n in range(20)])
        queue.send("alone")
        assert done.wait(60)
        until(lambda: queue.depth()[:3] == (2, 0, 1))  # the next one of the group is hidden, not leased
        rounds = consumer._unit_of_work.run
        calls = []
        consumer._unit_of_work.run = lambda request: calls.append(1) or rounds(request)  # type: ignore[method-assign,func-returns-value]
        time.sleep(0.2)
        assert len(calls) < 200, "it does not look all the time"
    assert [event for event in seen if event[0] == "limited"] == [("limited", 0, 1)]
    queue.configure(visibility_timeout_s=30)
    with db.transaction() as tx:
        tx.execute("delete from inturn_rate")
    (hidden,) = queue.groups("limited")
    assert hidden.attempts == 0, "what waits for the rate has used up no attempt"


def test_a_rate_limited_consumer_begins_as_soon_as_the_rate_allows(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many([draft(n) for n in range(4)])
    leased: list[float] = []
    counts = inturn.consume(
        queue,
        lambda message: leased.append(message.leased_until.timestamp()),
        rate_limit=Rate(10, "1 second"),
        until="empty",
    )
    assert counts.done == 4
    pauses = [round((after - before) * 1000) for before, after in itertools.pairwise(leased)]
    assert min(pauses) >= 100


def test_deleting_a_queue_removes_its_rate_limit_rows(db: Database) -> None:
    queue = db.queue("q")
    queue.send(1, group="a")
    inturn.consume(queue, lambda message: None, group_rate_limit=Rate(1, "1 hour"), until="empty")
    with db.transaction() as tx:
        assert tx.execute("select count(*) from inturn_rate").fetchone()[0] == 1
    queue.delete()
    with db.transaction() as tx:
        assert tx.execute("select count(*) from inturn_rate").fetchone()[0] == 0


def begin(queue: Queue, rates: RateLimits) -> int:
    """Handle what may begin now, and return how many messages that were."""
    request = ReceiveRequest(10, 60_000)
    deliveries = queue.writer.run(ReceiveLimited[list[Delivery]](queue.name, lambda received: received, request, rates))
    for delivery in deliveries:
        Message(delivery, queue.writer, queue.name).ack()
    return len(deliveries)


TEN = Rate(10, "1 second", burst=3)


@pytest.mark.parametrize("rates", [RateLimits(TEN), RateLimits(None, TEN)], ids=["overall", "of each group"])
def test_a_corrected_clock_does_not_block_a_rate_limit(address: str, clock: Clock, rates: RateLimits) -> None:
    with inturn.open(address, durable=False, clock=clock) as db:
        queue = db.queue("q")
        queue.send_many([draft(n, group="a") for n in range(60)])
        assert begin(queue, rates) > 0
        clock.forward(3600)
        while begin(queue, rates):
            pass
        clock.forward(-3600)
        begun = 0
        for _ in range(30):
            clock.forward(0.1)
            begun += begin(queue, rates)
        assert 25 <= begun <= 32
