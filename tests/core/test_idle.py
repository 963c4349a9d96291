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


def run(line: Pipeline, *steps: tuple[float, list[Row]]) -> Replay:
    result: Replay | None = None
    for seconds, messages in steps:
        result = line.replay(messages, now=NOON + dt.timedelta(seconds=seconds), after=result)
        assert result.counts.balanced
    assert result is not None
    return result


def seen(result: Replay) -> tuple[list[str], int]:
    return result.states["a"].get("seen", []), len(result.held)


def test_what_is_held_is_released_so_long_after_the_newest_message_came() -> None:
    came = (0, [row(103), row(100)]), (3, [row(101)])
    assert seen(run(define(), *came, (7.999, []))) == ([], 3)
    released = run(define(), *came, (8, []))
    assert seen(released) == (["t100", "t101", "t103"], 0)
    assert released.counts.released == released.counts.applied == 3


def test_without_idle_the_newest_messages_wait_for_the_next_one() -> None:
    assert seen(run(define(None), (0, [row(103), row(100)]), (1e6, []))) == ([], 2)


def test_what_comes_after_a_release_is_late_if_it_is_earlier_and_is_applied_if_it_is_not() -> None:
    result = run(define(), (0, [row(103)]), (5, []), (6, [row(102), row(103, "again"), row(104)]), (11, []))
    assert seen(result) == (["t103", "again", "t104"], 0)
    assert [(each.reason, each.message["id"]) for each in result.rejected] == [("late", "t102")]


def test_a_message_in_the_step_in_which_the_time_is_over_is_in_time() -> None:
    assert seen(run(define(), (0, [row(103)]), (60, [row(100)]), (65, []))) == (["t100", "t103"], 0)


def test_a_longer_time_may_be_named() -> None:
    line = define("10 minutes")
    assert seen(run(line, (0, [row(103)]), (599, [])))[1] == 1
    assert seen(run(line, (0, [row(103)]), (600, [])))[1] == 0


@pytest.mark.parametrize("idle", ["4 seconds", "soon", 5, dt.timedelta(-1)])
def test_a_time_that_is_shorter_than_the_lateness_is_refused_and_what_is_no_time(idle: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"Timestamp\(idle=.*expected 'lateness', or a time|expected a text|negative"
    ):
        define(idle)


def test_a_parked_group_releases_nothing_until_it_goes_on() -> None:
    def fail(state: Row, message: Row) -> tuple[Row, list[Any]]:
        raise ValueError

    line = Pipeline(name="idle", group="account", order=define().order, id="id", handler=fail)
    result = run(line, (0, [row(103), row(104)]), (5, []), (50, []))
    assert ({each.status for each in result.held}, len(result.held)) == ({"failed"}, 2)


def test_the_name_of_an_order_in_stores_does_not_say_it_so_it_may_be_changed() -> None:
    assert repr(define().order) == repr(define(None).order)
    assert StoredOrder.of(repr(define().order)).grade is Timestamp
