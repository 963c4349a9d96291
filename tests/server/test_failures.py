"""The log of failures: one line for each kind and minute, and nothing left out without a word."""

import logging

import pytest

from clocks import Clock
from inturn.core.errors import StoreError
from inturn.server import limits
from inturn.server.failures import Failures


@pytest.fixture
def failures(clock: Clock) -> Failures:
    return Failures(clock.s)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Each line, with how many it says were left out."""
    lines = [(record.getMessage(), getattr(record, "others", 0)) for record in caplog.records]
    caplog.clear()
    return lines


def test_each_kind_is_told_once_a_minute_with_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, failures: Failures, clock: Clock
) -> None:
    for number in range(5):
        failures.note("a", f"a {number}", peer="p")
        failures.note("b", f"b {number}")
    assert told(caplog) == [("a 0", 0), ("b 0", 0)]
    clock.forward(limits.FAILURE_TOLD_S)
    failures.note("a", "a 5", peer="p")
    assert told(caplog) == [("a 5", 4)]


def test_those_that_were_left_out_are_told_though_no_other_comes(
    caplog: pytest.LogCaptureFixture, failures: Failures, clock: Clock
) -> None:
    for number in range(3):
        failures.note("a", f"a {number}")
    failures.look()
    clock.forward(limits.FAILURE_TOLD_S)
    failures.look()
    failures.look()
    assert told(caplog) == [("a 0", 0), ("a 2", 1)]
    failures.note("a", "a 3")
    failures.look(is_last=True)
    assert told(caplog) == [("a 3", 0)]
    clock.forward(limits.FAILURE_TOLD_S)
    failures.look()
    assert failures._kinds == {}
    assert told(caplog) == []


def test_what_a_store_cannot_do_is_a_sentence_and_a_bug_has_its_traceback(
    caplog: pytest.LogCaptureFixture, failures: Failures
) -> None:
    def bug(number: int) -> None:
        try:
            int("x" * number)
        except ValueError as error:
            failures.failed("SendMessage failed", error)

    for number in range(3):
        failures.failed("SendMessage failed", StoreError("shop.db: the disk is full"))
        bug(number + 1)
    full, broken = caplog.records
    assert (full.getMessage(), full.levelno, full.exc_info) == (
        *("SendMessage failed: shop.db: the disk is full", logging.ERROR),
        None,
    )
    assert broken.exc_info
    assert broken.getMessage() == "SendMessage failed"


def test_too_many_kinds_are_one(caplog: pytest.LogCaptureFixture, failures: Failures) -> None:
    for number in range(limits.FAILURE_KINDS + 50):
        failures.note(number, "x")
    assert len(told(caplog)) == limits.FAILURE_KINDS + 1
