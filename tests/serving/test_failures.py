"""The log of failures: one line for each kind and minute, and nothing left out without a word."""

import logging

import pytest

from clocks import Clock
from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.serving.http.failures import FailureLog


@pytest.fixture
def failures(clock: Clock) -> FailureLog:
    return FailureLog(clock.s)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Each line, with how many it says were left out."""
    lines = [(record.msg.partition(" (")[0], getattr(record, "not_shown", 0)) for record in caplog.records]
    caplog.clear()
    return lines


def test_a_repeated_failure_is_logged_once_a_minute_with_the_count_of_the_rest(
    caplog: pytest.LogCaptureFixture, failures: FailureLog, clock: Clock
) -> None:
    for number in range(5):
        failures.warning("refused", "a", f"a {number}", peer="p")
        failures.warning("refused", "b", f"b {number}")
    assert told(caplog) == [("a 0", 0), ("b 0", 0)]
    clock.forward(limits.LOG_WINDOW_S)
    failures.warning("refused", "a", "a 5", peer="p")
    assert told(caplog) == [("a 5", 4)]


def test_suppressed_failures_are_logged_when_their_window_ends(
    caplog: pytest.LogCaptureFixture, failures: FailureLog, clock: Clock
) -> None:
    for number in range(3):
        failures.warning("refused", "a", f"a {number}")
    failures.flush()
    clock.forward(limits.LOG_WINDOW_S)
    failures.flush()
    failures.flush()
    assert told(caplog) == [("a 0", 0), ("a 2", 1)]
    failures.warning("refused", "a", "a 3")
    failures.flush(is_last=True)
    assert told(caplog) == [("a 3", 0)]
    clock.forward(limits.LOG_WINDOW_S)
    failures.flush()
    assert failures._windows == {}
    assert told(caplog) == []


def test_a_store_error_is_logged_as_a_sentence_and_a_bug_with_its_traceback(
    caplog: pytest.LogCaptureFixture, failures: FailureLog
) -> None:
    def bug(number: int) -> None:
        try:
            int("x" * number)
        except ValueError as error:
            failures.failed("100%s of SendMessage failed", error)

    for number in range(3):
        failures.failed("SendMessage failed", StoreError("shop.db: the disk is full"))
        bug(number + 1)
    full, broken = caplog.records
    assert (full.getMessage(), full.levelno, full.exc_info) == (
        *("SendMessage failed: shop.db: the disk is full", logging.ERROR),
        None,
    )
    assert full.error == "shop.db: the disk is full"  # type: ignore[attr-defined]
    assert broken.exc_info
    assert broken.getMessage() == "100%s of SendMessage failed"
