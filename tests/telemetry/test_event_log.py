"""Events as log records: their fields, their rate, and what they keep to themselves."""

import json
import logging
from collections.abc import Iterator

import pytest

from clocks import Clock
from inturn import telemetry
from inturn.core import limits
from inturn.serving.logs import JsonLines, TextLines
from inturn.telemetry.events import EventLogger

FORGED = "\r\n2026 error root: \x1b[31m\x7f\u2028fake"
ESCAPED = repr(FORGED)[1:-1]


@pytest.fixture
def events(clock: Clock, caplog: pytest.LogCaptureFixture) -> EventLogger:
    caplog.set_level(logging.INFO, "inturn")
    return EventLogger("worker", clock.s)


@pytest.fixture
def payloads() -> Iterator[None]:
    telemetry.log_payloads()
    yield
    telemetry.log_payloads(False)


def test_an_event_record_has_a_message_and_fields(events: EventLogger, caplog: pytest.LogCaptureFixture) -> None:
    events.warning("park", "ledger", "group %(group)r is parked", payload="secret", group="a\n", pipeline="ledger")
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "inturn.worker",
        "WARNING",
        "group 'a\\n' is parked",
    )
    assert (record.event, record.group, record.pipeline) == ("park", "a\n", "ledger")  # type: ignore[attr-defined]
    assert "secret" not in JsonLines().format(record)
    assert json.loads(JsonLines().format(record))["group"] == "a\n"


def test_a_payload_is_logged_if_enabled(payloads: None, events: EventLogger, caplog: pytest.LogCaptureFixture) -> None:
    events.info("reject", "ledger", "a message is rejected", payload='{"amount": 5}')
    assert caplog.messages == ['a message is rejected: {"amount": 5}']
    assert caplog.records[0].payload == '{"amount": 5}'  # type: ignore[attr-defined]


def test_the_log_rate_is_limited_per_event_and_pipeline(
    events: EventLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(limits.LOG_EVENTS + 7):
        events.warning("reject", "ledger", "rejected")
    events.warning("park", "ledger", "parked")
    events.warning("reject", "orders", "rejected of orders")
    assert caplog.messages == ["rejected"] * limits.LOG_EVENTS + ["parked", "rejected of orders"]
    caplog.clear()
    clock.forward(limits.LOG_WINDOW_S)
    events.warning("reject", "ledger", "rejected")
    events.warning("reject", "ledger", "rejected")
    assert caplog.messages == ["rejected (7 similar records were suppressed)", "rejected"]
    assert caplog.records[0].not_shown == 7  # type: ignore[attr-defined]


def test_an_event_below_the_log_level_does_not_count_towards_the_rate(
    events: EventLogger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "inturn")
    for _ in range(limits.LOG_EVENTS + 1):
        events.info("retry", "ledger", "again")
    caplog.set_level(logging.INFO, "inturn")
    events.info("retry", "ledger", "again")
    assert caplog.messages == ["again"]


def test_the_number_of_rate_limit_windows_is_bounded(
    events: EventLogger, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "LOG_NAMES", 3)
    for n in range(3 + limits.LOG_EVENTS + 5):
        events.info("retry", f"p{n}", "again")
    assert len(caplog.messages) == 3 + limits.LOG_EVENTS, "those without a window of their own share one"
    assert len(events._windows) == 4
    clock.forward(limits.LOG_WINDOW_S)
    events.info("retry", "p30", "again")
    assert len(events._windows) == 1, "ended windows make room"


def test_a_log_line_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError(f"y{FORGED}")

    try:
        fail()
    except ValueError:
        logging.getLogger("inturn.test").exception("x%s", FORGED, extra={"peer": f"z{FORGED} b=1"})
    (record,) = caplog.records
    line, *trace = TextLines().format(record).splitlines()
    assert line.endswith(f" error   inturn.test: x{ESCAPED} peer='z{ESCAPED} b=1'")
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    (document,) = JsonLines().format(record).splitlines()
    assert document.isprintable()
    assert document.isascii()
    assert json.loads(document)["peer"] == f"z{FORGED} b=1"


def test_text_logs_show_only_fields_not_in_the_message(events: EventLogger, caplog: pytest.LogCaptureFixture) -> None:
    events.info("retry", "ledger", "group %(group)r is tried again", group="a", pause_s=0.5, error="", note='a "b"')
    logging.getLogger("inturn.test").warning("port %d", 5, extra={"port": 5})
    event, plain = [TextLines().format(record).partition(": ")[2] for record in caplog.records]
    assert event == """group 'a' is tried again pause_s=0.5 error='' note='a "b"'"""
    assert plain == "port 5 port=5"
    assert list(json.loads(JsonLines().format(caplog.records[0]))) == [
        *("time", "level", "logger", "message", "event", "group", "pause_s", "error", "note")
    ]


def test_text_and_json_logs_include_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("no")
    except ValueError:
        logging.getLogger("inturn.test").exception("it failed")
    (record,) = caplog.records
    assert TextLines().format(record).splitlines()[-1].startswith("  ValueError: ")
    assert json.loads(JsonLines().format(record))["exception"].startswith("Traceback")


def test_the_library_logger_has_only_a_null_handler() -> None:
    handlers = logging.getLogger("inturn").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
