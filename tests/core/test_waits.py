"""What becomes of a gap: it is waited for, and when the wait is over the policy decides."""

import datetime as dt
from itertools import pairwise

import pytest
from reference import BAD, Message, arrive, check_books, pipeline, revisions

from inturn import Gapless, Pipeline, Wait
from inturn.core import limits
from inturn.core.errors import GapError
from inturn.core.pipeline.replay import Replay

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def waiting(then: str, timeout: str | dt.timedelta = "10 seconds") -> Pipeline:
    return pipeline(on_gap=Wait(timeout, then=then))  # type: ignore[arg-type]


def run(pipe: Pipeline, *parts: tuple[float, list[Message]]) -> list[Replay]:
    """A step at each time, with its messages."""
    results: list[Replay] = []
    for seconds, messages in parts:
        results.append(pipe.replay(messages, now=at(seconds), after=results[-1] if results else None))
    check_books(results)
    return results


def statuses(result: Replay) -> set[str]:
    return {held.status for held in result.held}


@pytest.mark.parametrize("line", [pipeline(), pipeline(on_gap=Wait())], ids=["default", "Wait()"])
def test_without_a_timeout_a_gap_waits_forever(line: Pipeline) -> None:
    *_, last, end = run(line, (0, revisions(2)), (1e9, []), (2e9, revisions(3)), (2e9, revisions(1)))
    assert (last.states, statuses(last), last.errors) == ({"a": []}, {"waiting"}, {})
    assert end.states == {"a": ["v1", "v2", "v3"]}


@pytest.mark.parametrize(("seconds", "over"), [(9.999999, False), (10, True), (10.000001, True)])
@pytest.mark.parametrize("then", ["park", "skip", "fail"])
def test_a_wait_ends_exactly_at_its_timeout(then: str, seconds: float, over: bool) -> None:
    pipe = waiting(then)
    before = pipe.replay(revisions(2), now=at(0))
    if then == "fail" and over:
        with pytest.raises(
            GapError, match=r"group 'a': revision 1 is missing and the wait has expired; then='fail' ends"
        ):
            pipe.replay([], now=at(seconds), after=before)
        return
    after = pipe.replay([], now=at(seconds), after=before)
    check_books([before, after])
    expected = {"park": ("gap", []), "skip": ("open", ["v2"])}[then] if over else ("waiting", [])
    assert (after.timelines["a"].status.value, after.states["a"]) == expected


def test_a_message_in_the_step_in_which_the_wait_ends_is_in_time() -> None:
    for then in ("park", "skip", "fail"):
        last = run(waiting(then), (0, revisions(2)), (10, revisions(1)))[-1]
        assert (last.states, last.held, last.errors) == ({"a": ["v1", "v2"]}, [], {})


def test_the_wait_starts_with_the_oldest_held_message() -> None:
    """A newer one before or behind it changes nothing; what has been released does not count any more."""
    for newer in (2, 4):
        early, late = run(waiting("park"), (0, revisions(3)), (5, revisions(newer)), (9, []), (10, []))[2:]
        assert (statuses(early), statuses(late)) == ({"waiting"}, {"gap"})
    results = run(waiting("park"), (0, revisions(2)), (5, revisions(4)), (6, revisions(1)), (14, []), (15, []))
    assert [statuses(result) for result in results[2:]] == [{"waiting"}, {"waiting"}, {"gap"}]
    assert results[-1].errors == {"a": "revision 3 is missing and the wait has expired"}


def test_a_copy_of_a_held_message_does_not_restart_the_wait() -> None:
    assert statuses(run(waiting("park"), (0, revisions(2)), (9, revisions(2)), (10, []))[-1]) == {"gap"}


def test_a_message_failing_on_release_keeps_its_arrival_time() -> None:
    messages = arrive([{"r": 2, "v": BAD}, {"r": 1, "v": "v1"}])
    last = run(waiting("park"), (3, messages[:1]), (5, messages[1:]))[-1]
    noon = int(NOON.timestamp()) * 1_000_000
    assert [entry.since_us for entry in last.timelines["a"].held.values()] == [noon + 3_000_000]


def test_a_timeout_of_zero_does_not_wait() -> None:
    [result] = run(waiting("skip", "0 seconds"), (0, revisions(3, 5)))
    assert (result.states, result.counts.held) == ({"a": ["v3", "v5"]}, 0)


def test_the_first_step_may_have_no_time() -> None:
    pipe = waiting("park", "1 second")
    assert statuses(pipe.replay([], after=pipe.replay(revisions(2)))) == {"waiting"}


# -- park ----------------------------------------------------------------------------------------------------


def test_a_group_parked_at_a_gap_names_the_missing_revision_and_holds_messages() -> None:
    last = run(waiting("park"), (0, revisions(4, 6)), (10, []), (11, revisions(5, 5)), (12, revisions(9)))[-1]
    assert last.errors == {"a": "revision 1 is missing and the wait has expired"}
    assert [(held.status, held.message["r"]) for held in last.held] == [("gap", number) for number in (4, 5, 6, 9)]


def test_the_error_at_a_gap_names_no_revision_that_has_come() -> None:
    expired, partly = run(waiting("park"), (0, revisions(5)), (10, []), (11, revisions(3)))[1:]
    assert expired.errors == partly.errors == {"a": "revision 1 is missing and the wait has expired"}


def test_a_group_parked_at_a_gap_continues_when_the_gap_closes() -> None:
    results = run(
        waiting("park"), (0, revisions(3)), (10, []), (11, revisions(1)), (12, revisions(2)), (13, revisions(4))
    )
    assert statuses(results[1]) == {"gap"}
    # The first half of the gap came: the group runs, and the other half has been waited for long enough.
    assert (results[2].states, statuses(results[2])) == ({"a": ["v1"]}, {"gap"})
    assert results[2].errors == {"a": "revision 2 is missing and the wait has expired"}
    assert results[3].states == {"a": ["v1", "v2", "v3"]}
    assert (results[3].errors, results[3].counts.released) == ({}, 1)
    assert results[4].states == {"a": ["v1", "v2", "v3", "v4"]}


def test_a_group_continuing_after_a_gap_may_fail() -> None:
    bad = arrive([{"r": 1, "v": BAD}])
    last = run(waiting("park"), (0, revisions(2)), (10, []), (11, bad), (50, []))[-1]
    assert (last.states, statuses(last)) == ({"a": []}, {"failed"})
    assert "a bad message" in last.errors["a"]


def test_a_failed_group_does_not_wait_for_a_gap() -> None:
    """It is parked already, and its error says what is to be decided."""
    messages = arrive([{"r": 1, "v": BAD}, {"r": 3, "v": "z"}])
    for then in ("park", "skip", "fail"):
        last = run(waiting(then), (0, messages), (100, []))[-1]
        assert statuses(last) == {"failed"}
        assert "a bad message" in last.errors["a"]


# -- skip ----------------------------------------------------------------------------------------------------


def test_a_skipped_revision_arriving_later_is_rejected_as_skipped() -> None:
    results = run(waiting("skip"), (0, revisions(1, 4)), (10, []), (11, revisions(2, 3, 2, 1, 4, 5)))
    assert results[1].states == {"a": ["v1", "v4"]}
    last = results[-1]
    assert last.states == {"a": ["v1", "v4", "v5"]}
    assert [(rejection.reason, rejection.message["r"]) for rejection in last.rejected] == [
        ("skipped", number) for number in (2, 3, 2)
    ]
    assert last.rejected[0].detail == "its revision had already been skipped when it arrived"
    assert (last.counts.duplicate, last.counts.stale) == (2, 0)


def test_skip_applies_to_every_gap_whose_wait_ended_and_no_other() -> None:
    results = run(waiting("skip"), (0, revisions(2, 4)), (5, revisions(7)), (10, []), (14, []), (15, []))
    states = [result.states["a"] for result in results]
    assert states == [[], [], ["v2", "v4"], ["v2", "v4"], ["v2", "v4", "v7"]]
    assert results[2].timelines["a"].skipped == [(1, 1), (3, 3)]
    assert results[4].timelines["a"].skipped == [(1, 1), (3, 3), (5, 6)]


def test_a_younger_message_before_an_older_one_does_not_extend_the_wait() -> None:
    """What is behind a gap waits since the oldest of it: 9 has waited long enough for all before it to be skipped."""
    last = run(waiting("skip"), (0, revisions(9)), (8, revisions(4)), (10, []))[-1]
    assert last.states == {"a": ["v4", "v9"]}
    assert last.timelines["a"].skipped == [(1, 3), (5, 8)]


def test_skipping_stops_at_a_failing_message() -> None:
    messages = arrive([{"r": 2, "v": BAD}, {"r": 4, "v": "v4"}])
    last = run(waiting("skip"), (0, messages), (10, []))[-1]
    assert (last.states, [held.message["r"] for held in last.held]) == ({"a": []}, [2, 4])
    assert last.timelines["a"].skipped == [(1, 1)]


def test_messages_applied_before_a_skip_are_remembered() -> None:
    results = run(waiting("skip"), (0, revisions(1, 2, 5)), (10, []), (11, revisions(1, 2, 5)))
    assert results[-1].counts.duplicate == 3
    other = run(waiting("skip"), (0, revisions(1, 2, 5)), (10, []), (11, arrive([{"r": 2, "v": "other"}])))[-1]
    assert other.counts.rejected == {"conflict": 1}


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 5, 1000])
def test_skipped_revisions_count_against_the_remembered_revisions(
    missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REVISIONS", 4)
    far = 3 + missing
    results = run(waiting("skip"), (0, revisions(1, 2, far)), (10, []), (11, revisions(1, 2, far, far - 1)))
    last = results[-1].counts
    remembered = sum(far - revision < 4 for revision in (1, 2, far))
    assert (last.duplicate, last.stale, last.rejected) == (remembered, 3 - remembered, {"skipped": 1})
    assert len(results[-1].timelines["a"].memory) <= 4 * 8


# -- fail ----------------------------------------------------------------------------------------------------


def test_then_fail_ends_the_run_and_keeps_the_step_before() -> None:
    pipe = waiting("fail")
    before = pipe.replay(revisions(1, 4), now=at(0))
    with pytest.raises(GapError, match="revisions 2 to 3 are missing"):
        pipe.replay(revisions(9), now=at(10), after=before)
    repeated = pipe.replay(revisions(2, 3), now=at(11), after=before)
    assert repeated.states == {"a": ["v1", "v2", "v3", "v4"]}


# -- several groups ------------------------------------------------------------------------------------------


def test_each_group_has_its_own_wait() -> None:
    pipe = waiting("park")
    first = arrive([{"g": "a", "r": 2, "v": 2}, {"g": "c", "r": 1, "v": 1}])
    results = run(
        pipe, (0, first), (5, arrive([{"g": "b", "r": 2, "v": 2}])), (10, arrive([{"g": "c", "r": 2, "v": 2}]))
    )
    assert {group: timeline.status.value for group, timeline in results[-1].timelines.items()} == {
        "a": "gap",
        "b": "waiting",
        "c": "open",
    }
    assert results[-1].states == {"a": [], "b": [], "c": [1, 2]}


def test_gaps_lists_the_missing_revisions_with_their_age() -> None:
    results = run(pipeline(Gapless("r", start=0)), (0, revisions(3)), (5, revisions(8, 4)), (7, revisions(2)))
    timeline = results[-1].timelines["a"]
    noon = int(NOON.timestamp()) * 1_000_000
    assert timeline.gaps() == [(0, 1, noon), (5, 7, noon + 5_000_000)]  # type: ignore[attr-defined]
    assert timeline.since_us() == noon  # type: ignore[attr-defined]


def test_time_going_back_ends_no_wait() -> None:
    results = run(waiting("park"), (100, revisions(2)), (0, []), (109, []), (110, []))
    assert [before.errors == after.errors for before, after in pairwise(results)] == [True, True, False]
