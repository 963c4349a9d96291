"""What a consumer tells: log records, once what they tell is committed."""

import logging
from typing import Any

import pytest

import inturn
from inturn import Retry, telemetry
from inturn.consumer import Consumer, report
from inturn.consumer.rounds import Rounds
from inturn.core import limits
from inturn.core.errors import StoreUnavailable
from inturn.database import Database
from inturn.queue import Message, QueueSettings, draft
from waiting import until

SOON = Retry(1, "1 millisecond")


@pytest.fixture(autouse=True)
def _no_records_before(caplog: pytest.LogCaptureFixture) -> None:
    """No test has used up what may be logged of an event."""
    report._LOG.forget()
    caplog.set_level(logging.INFO, "inturn")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, Any]]:
    return [
        (each.levelname, each.event, getattr(each, "group", None))  # type: ignore[attr-defined]
        for each in caplog.records
        if each.name == "inturn.consumer"
    ]


def fail(message: Message) -> None:
    if "bad" in message.body:
        raise ValueError(f"no {message.body}")


def test_failed_attempts_and_a_parked_group_are_logged_without_their_texts(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue("q")
    queue.send_many([draft(body, group=body) for body in ("a", "bad b")])
    inturn.consume(queue, fail, retry=SOON, until="empty")
    assert told(caplog) == [("INFO", "retry", "bad b"), ("WARNING", "park", "bad b")]
    retry, park = (each.__dict__ for each in caplog.records if each.name == "inturn.consumer")
    assert [(each["queue"], each["sequence_number"], each["attempts"]) for each in (retry, park)] == [
        ("q", queue.peek()[0].sequence_number, attempts) for attempts in (1, 2)
    ]
    assert 0 <= retry["pause_s"] <= 0.001
    assert {each["error"] for each in (retry, park)} == {"ValueError"}
    assert "no bad" not in caplog.text, "the text of an error may quote a message"


def test_the_texts_of_errors_are_logged_if_that_was_asked(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue("q")
    queue.send("bad", group="a")
    telemetry.log_payloads()
    try:
        inturn.consume(queue, fail, retry=SOON, until="empty")
    finally:
        telemetry.log_payloads(False)
    assert ["ValueError: no bad" in each.getMessage() for each in caplog.records if each.name == "inturn.consumer"] == [
        True,
        True,
    ]


def test_deferred_and_dead_lettered_messages_are_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=100))
    queue.send("bad")
    inturn.consume(queue, fail, retry=Retry(0), until="empty")
    queue.send("bad", group="a")
    inturn.consume(queue, fail, retry=Retry(0), then="dead-letter", until="empty")
    assert told(caplog) == [("WARNING", "exhausted", None), ("WARNING", "exhausted", "a")]
    assert [each.outcome for each in caplog.records if each.name == "inturn.consumer"] == [  # type: ignore[attr-defined]
        "deferred",
        "dead-lettered",
    ]


def test_a_lost_lease_is_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue("q")
    queue.send("one", group="a")

    def handle(_message: Message) -> None:
        queue.purge()

    with Consumer(queue, handle) as consumer:
        until(lambda: consumer.counts.lost)
    assert told(caplog) == [("WARNING", "lost_lease", "a")]


def test_a_group_that_cannot_be_parked_yet_is_logged_as_tried_again(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue("q")
    queue.send_many([draft(body, group="a") for body in ("deferred", "bad")])
    (message,) = queue.receive()
    message.defer()
    held = queue.fetch(message.sequence_number)
    assert held is not None
    monkeypatch.setattr(limits, "PARK_AGAIN_MS", 50)
    with Consumer(queue, fail, retry=Retry(0)) as consumer:
        until(lambda: told(caplog)[:1] == [("WARNING", "exhausted", "a")])
        held.ack()
        until(lambda: consumer.counts.parked)
    assert caplog.records[0].outcome == "tried again"  # type: ignore[attr-defined]
    assert told(caplog)[-1] == ("WARNING", "park", "a")


def test_what_was_not_committed_is_not_logged(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue("q")
    queue.send("bad", group="a")
    settle, is_rolled_back = Rounds._settle, []

    def settle_and_fail_once(self: Rounds, store: Any, info: Any, request: Any, found: Any) -> None:
        settle(self, store, info, request, found)
        if request.ended and not is_rolled_back:
            is_rolled_back.append(True)
            assert told(caplog) == []
            raise StoreUnavailable("gone before the commit")

    monkeypatch.setattr(Rounds, "_settle", settle_and_fail_once)
    counts = inturn.consume(queue, fail, retry=Retry(0), until="empty")
    assert is_rolled_back
    assert [each for each in told(caplog) if each[1] == "park"] == [("WARNING", "park", "a")]
    assert (counts.failed, counts.parked) == (1, 1)
