"""A group of `Timestamp` that is idle: no message comes, and what it holds is released after a time."""

import datetime as dt
from typing import Any

import pytest

from inturn import Pipeline, Timestamp
from inturn.core.errors import PipelineError
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.replay import Replay

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
Row = dict[str, Any]


def collect(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"seen": [*state.get("seen", []), message["id"]]}, []


def define(idle: Any = "lateness", lateness: Any = "5 seconds") -> Pipeline:
    order = Timestamp("at", lateness=lateness, unit="s", idle=idle)
    return Pipeline(name="idle", group="account", order=order, id="id", handler=collect)


def row(at: int, name: str | None = None) -> Row:
    return {"account": "a", "at": at, "id": name or f"t{at}"}


def run(pipe: Pipeline, *steps: tuple[float, list[Row]]) -> Replay:
    result: Replay | None = None
    for seconds, messages in steps:
        result = pipe.replay(messages, now=NOON + dt.timedelta(seconds=seconds), after=result)
        assert result.counts.balanced
    assert result is not None
    return result


def seen(result: Replay) -> tuple[list[str], int]:
    return result.states["a"].get("seen", []), len(result.held)


def test_idle_releases_held_messages_after_the_lateness_since_the_last_arrival() -> None:
    arrivals = (0, [row(103), row(100)]), (3, [row(101)])
    assert seen(run(define(), *arrivals, (7.999, []))) == ([], 3)
    released = run(define(), *arrivals, (8, []))
    assert seen(released) == (["t100", "t101", "t103"], 0)
    assert released.counts.released == released.counts.applied == 3


def test_without_idle_the_newest_messages_stay_held() -> None:
    assert seen(run(define(None), (0, [row(103), row(100)]), (1e6, []))) == ([], 2)


def test_after_an_idle_release_earlier_messages_are_late_and_others_applied() -> None:
    result = run(define(), (0, [row(103)]), (5, []), (6, [row(102), row(103, "again"), row(104)]), (11, []))
    assert seen(result) == (["t103", "again", "t104"], 0)
    assert [(rejection.reason, rejection.message["id"]) for rejection in result.rejected] == [("late", "t102")]


def test_a_message_in_the_step_in_which_idle_ends_is_in_time() -> None:
    assert seen(run(define(), (0, [row(103)]), (60, [row(100)]), (65, []))) == (["t100", "t103"], 0)


def test_idle_may_be_longer_than_the_lateness() -> None:
    pipe = define("10 minutes")
    assert seen(run(pipe, (0, [row(103)]), (599, [])))[1] == 1
    assert seen(run(pipe, (0, [row(103)]), (600, [])))[1] == 0


@pytest.mark.parametrize("idle", ["4 seconds", "soon", 5, dt.timedelta(-1)])
def test_idle_shorter_than_the_lateness_or_invalid_is_refused(idle: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"Timestamp\(idle=.*expected 'lateness', or a time|expected a text|negative"
    ):
        define(idle)


def test_idle_releases_no_message_of_a_parked_group() -> None:
    def fail(state: Row, message: Row) -> tuple[Row, list[Any]]:
        raise ValueError

    pipe = Pipeline(name="idle", group="account", order=define().order, id="id", handler=fail)
    result = run(pipe, (0, [row(103), row(104)]), (5, []), (50, []))
    assert ({held.status for held in result.held}, len(result.held)) == ({"failed"}, 2)


def test_idle_is_not_part_of_the_stored_order() -> None:
    assert repr(define().order) == repr(define(None).order)
    assert StoredOrder.of(repr(define().order)).grade is Timestamp
