"""A stop finishes what has begun, gives back what has not, and loses nothing."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from shop import Gate, Row, Shop, expected, ledger, post, row

import inturn
from inturn import Retry, Retryable
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.worker import Worker
from inturn.worker.thread_pool import ThreadPool
from inturn.worker.work_items import Overtaken, WorkRequest, WorkResult
from waiting import DEADLINE_S, until

PROGRAM = Path(__file__).parent / "programs" / "until_stopped.py"


def test_a_stop_finishes_running_tasks_and_returns_the_other_messages(shop: Shop) -> None:
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate("go")
        return post(state, message)

    pipeline = ledger(handler=wait)
    messages = [row(1, 1, account) for account in "abcdef"]
    shop.send(messages)
    with Worker(pipeline, shop.queue, concurrency=2) as worker:
        gate.wait_until(lambda: len(gate.begun) == 2)
        worker.stop_soon()
        time.sleep(0.02)
        gate.let("go")
    assert worker.counts.applied == shop.counts().applied == 2
    assert shop.queue.depth()[:2] == (4, 0), "nothing is leased any more"
    shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay(messages))


def test_a_stop_returns_a_message_that_waits_for_its_retry(shop: Shop) -> None:
    gate = Gate()
    gate.let("tried")

    def fail(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate("tried")
        msg = "not yet"
        raise Retryable(msg)

    shop.send([row(1)])
    with Worker(ledger(handler=fail, retry=Retry(3, "1 hour")), shop.queue):
        gate.wait_until(lambda: bool(gate.begun))
    assert shop.queue.depth()[:2] == (1, 0)
    assert shop.counts().received == 0


def test_a_stop_waits_at_most_its_grace_period(shop: Shop) -> None:
    gate = Gate()

    def hang(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate("go")
        return post(state, message)

    shop.send([row(1)])
    with Worker(ledger(handler=hang), shop.queue, grace_s=0.05):
        gate.wait_until(lambda: bool(gate.begun))
    assert shop.queue.depth()[:2] == (1, 1), "it comes again when the lease is over"
    gate.let("go")


def test_a_thread_that_cannot_start_ends_the_worker_which_returns_the_messages(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(pool: ThreadPool[Any]) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(ThreadPool, "_start", start)
    shop.send([row(1, 1, account) for account in "abc"])
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="can't start"):
        Worker(ledger(), shop.queue, grace_s=20).run(until_empty=True)
    assert time.monotonic() - began < 10, "no task is waited for"
    assert shop.queue.depth()[:2] == (3, 0)


def test_a_stop_does_not_wait_for_decisions_that_have_not_started(shop: Shop) -> None:
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate("go")
        return post(state, message)

    pipeline = ledger(handler=wait)
    shop.send([row(1)])
    with Worker(pipeline, shop.queue, concurrency=1, grace_s=20) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        name = shop.decide(Decision(id="1", action=DecisionAction.RESUME, group="b", by="ann", at_us=1))
        until(lambda: worker._pool.backlog)
        worker.stop_soon()
        assert worker._pool._stopping.wait(DEADLINE_S)
        time.sleep(0.05)
        began = time.monotonic()
        gate.let("go")
    assert time.monotonic() - began < 5
    assert shop.ask(lambda store, number: store.verdicts(number, [name])) == {}, "a later worker takes it"


def test_a_stop_does_not_wait_for_a_task_that_lost_a_version_conflict(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    def wait(state: Row, message: Row) -> tuple[Row, list[Any]]:
        gate("go")
        return post(state, message)

    shop.send([row(1)])
    with Worker(ledger(handler=wait), shop.queue, grace_s=20) as worker:
        gate.wait_until(lambda: bool(gate.begun))
        run, overtaken = worker._unit.run, []

        def run_late(request: WorkRequest) -> WorkResult:
            if request.done and not overtaken:
                overtaken.append(request)
                raise Overtaken([task.group for task in request.done])
            return run(request)

        monkeypatch.setattr(worker._unit, "run", run_late)
        worker.stop_soon()
        assert worker._pool._stopping.wait(DEADLINE_S)
        began = time.monotonic()
        gate.let("go")
    assert overtaken
    assert time.monotonic() - began < 10
    assert shop.queue.depth()[:2] == (1, 0), "a later worker takes it at once"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.thorough
def test_a_worker_process_stops_cleanly_on_sigterm(tmp_path: Path, number: int) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        for account in "ab":
            queue.send({"amount": 1}, group=account, revision=1)
        with subprocess.Popen(
            [sys.executable, PROGRAM, tmp_path / "shop.db"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            out, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        applied = int(out.split()[-1])
        assert applied >= 1
        assert queue.depth()[:2] == (2 - applied, 0)
