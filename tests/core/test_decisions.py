"""What people decide about groups that wait or are parked: each action on each order, done and void, and the books."""

import dataclasses
import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import BAD, Message, arrive, check_books, cut, pipeline, revisions, steps, story

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Pipeline, Timestamp, Wait
from inturn.core.errors import GapError, InputError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.decision import Decision, DecisionAction, decide
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.grades import GaplessTimeline
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay
from inturn.core.pipeline.timeline import Status

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
FOREVER: Order = Gapless("r")
KEYED: dict[str, Order] = {
    "monotone": Monotone("r"),
    "fields": MonotoneFields(("r",)),
    "arrival": Arrival(),
    "timestamp": Timestamp("t"),
}
GRADES: dict[str, Order] = {"gapless": FOREVER, **KEYED}
every_grade = pytest.mark.parametrize("order", GRADES.values(), ids=GRADES)
other_grades = pytest.mark.parametrize("order", KEYED.values(), ids=KEYED)


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def history(*values: Any, first: int = 1, **more: Any) -> list[Message]:
    """Messages with these contents one after the other, placed in every order alike."""
    places = enumerate(values, start=first)
    return arrive([{"r": n, "t": at(n), "i": f"i{n}", "v": value, **more} for n, value in places])


def about(result: Replay, action: DecisionAction, number: int = 0, *, new: Any = None, **changes: Any) -> Decision:
    """A decision about the ``number``-th held message of group a, or about the gap in front, as it is seen now."""
    timeline = result.timelines["a"]
    held = [timeline.held[key] for key in sorted(timeline.held)]
    seen: dict[str, Any] = {"id": action.value, "action": action, "group": "a", "by": "ann", "at_us": 0}
    if action is DecisionAction.SKIP and isinstance(timeline, GaplessTimeline):
        first, last, _ = timeline.gaps()[0]
        seen |= {"epoch": timeline.epoch or 0, "position": first, "last": last}
    elif number < len(held):
        seen |= names(held[number], new)
    return Decision(**(seen | changes))


def names(entry: TimelineEntry, new: Any) -> dict[str, Any]:
    return {
        "epoch": entry.epoch,
        "position": entry.position,
        "message_id": entry.id,
        "digest": entry.digest.hex(),
        "old": entry.message,
        "new": {**entry.message, "v": new},
    }


def take(pipe: Pipeline, before: Replay, *decisions: Decision, messages: Sequence[Message] = (), **more: Any) -> Replay:
    """A step with these decisions; its books must balance."""
    result = pipe.replay(messages, after=before, decisions=decisions, **more)
    assert result.counts.balanced, result.counts
    assert len(before.held) + result.counts.held - result.counts.released == len(result.held)
    assert len(before.rejected) + sum(result.counts.rejected.values()) == len(result.rejected)
    return result


def done(pipe: Pipeline, before: Replay, decision: Decision, **more: Any) -> Replay:
    result = take(pipe, before, decision, **more)
    assert result.verdicts == {decision.id: None}
    return result


def void(pipe: Pipeline, before: Replay, decision: Decision) -> str:
    """Why it is void; nothing may have changed."""
    result = take(pipe, before, decision)
    assert story([result]) == story([dataclasses.replace(before, counts=result.counts)])
    assert result.timelines == before.timelines
    assert result.counts.released == result.counts.held == 0
    reason = result.verdicts[decision.id]
    assert reason is not None
    return reason


def failed(order: Order, *later: Any) -> tuple[Pipeline, Replay]:
    """A group that failed at its second message."""
    pipe = pipeline(order)
    before = pipe.replay(history("x", BAD, *later))
    assert before.timelines["a"].status is Status.FAILED
    return pipe, before


def status(result: Replay) -> Status:
    return result.timelines["a"].status


def reasons(result: Replay) -> list[tuple[str, Any]]:
    return [(rejection.reason, rejection.message["v"]) for rejection in result.rejected]


class Mended:
    """A handler whose code fails on bad messages until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def __call__(self, state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
        if message["v"] == BAD and not self.mended:
            raise ValueError(BAD)
        return [*state, message["v"]], [message["v"]]


# -- resume --------------------------------------------------------------------------------------------------


@every_grade
def test_resume_retries_the_first_held_message_and_continues(order: Order) -> None:
    handler = Mended()
    pipe = pipeline(order, handler=handler)
    before = pipe.replay(history("x", BAD, "y"))
    handler.mended = True
    result = done(pipe, before, about(before, DecisionAction.RESUME))
    assert (status(result), result.states["a"], result.errors) == (Status.OPEN, ["x", BAD, "y"], {})
    assert (result.counts.released, result.counts.applied) == (2, 2)


@every_grade
def test_resume_parks_the_group_again_if_the_first_message_fails_again(order: Order) -> None:
    pipe, before = failed(order, "y")
    result = done(pipe, before, about(before, DecisionAction.RESUME))
    assert status(result) is Status.FAILED
    assert (result.states, result.held) == (before.states, before.held)
    assert (result.counts.released, result.counts.held, result.counts.applied) == (0, 0, 0)


@every_grade
def test_resume_of_a_group_that_is_not_parked_is_void(order: Order) -> None:
    pipe = pipeline(order)
    before = pipe.replay(history("x"))
    assert "not parked" in void(pipe, before, about(before, DecisionAction.RESUME))


@every_grade
def test_resume_is_void_if_the_first_held_message_changed(order: Order) -> None:
    pipe, before = failed(order, BAD)
    seen = about(before, DecisionAction.RESUME)
    after = done(pipe, before, about(before, DecisionAction.REPLACE, new="mended"))
    assert (status(after), after.states["a"]) == (Status.FAILED, ["x", "mended"])
    assert "another message is at the group's head" in void(pipe, after, seen)


def test_resume_of_a_group_parked_at_a_gap_restarts_the_wait() -> None:
    pipe = pipeline(on_gap=Wait("10 seconds", then="park"))
    first = pipe.replay(revisions(1, 4), now=at(0))
    before = pipe.replay([], now=at(10), after=first)
    assert status(before) is Status.GAP
    result = done(pipe, before, about(before, DecisionAction.RESUME), now=at(100))
    assert (status(result), result.errors) == (Status.WAITING, {})
    assert status(pipe.replay([], now=at(109), after=result)) is Status.WAITING
    assert status(pipe.replay([], now=at(110), after=result)) is Status.GAP


@pytest.mark.parametrize("action", [DecisionAction.RESUME, DecisionAction.GIVE_UP])
def test_a_decision_about_a_gap_is_void_once_another_revision_is_missing(action: DecisionAction) -> None:
    pipe = pipeline(on_gap=Wait("10 seconds", then="park"))
    before = pipe.replay([], now=at(10), after=pipe.replay(revisions(1, 5), now=at(0)))
    assert status(before) is Status.GAP
    seen = {"epoch": 0, "position": 2, "last": 4, "digest": None}
    shorter = pipe.replay(revisions(4), now=at(11), after=before)
    done(pipe, shorter, about(shorter, action, **seen))  # it still waits for revision 2
    further = pipe.replay(revisions(2), now=at(11), after=before)
    assert status(further) is Status.GAP
    assert "the missing revisions are 3 to 4 of epoch 0" in void(pipe, further, about(further, action, **seen))
    open_ = pipe.replay(revisions(3, 4), now=at(31), after=further)
    assert status(open_) is Status.OPEN
    assert void(pipe, open_, about(open_, action, **seen)).startswith("the group has changed")


@every_grade
@pytest.mark.parametrize("action", [DecisionAction.DROP, DecisionAction.REPLACE, DecisionAction.GIVE_UP])
def test_a_decision_about_replaced_content_is_void(order: Order, action: DecisionAction) -> None:
    """Each saw the same message; the first decision was not taken yet when the second was recorded."""
    pipe, before = failed(order)
    first = about(before, DecisionAction.REPLACE, new=[BAD, "again"], id="1")
    second = about(before, action, new="mine", id="2")

    def fails(state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
        if BAD in message["v"]:
            raise ValueError(BAD)
        return [*state, message["v"]], [message["v"]]

    pipe = pipeline(order, handler=fails)
    result = take(pipe, before, first, second)
    assert result.verdicts == {
        "1": None,
        "2": "the group has changed in the meantime: the content of the message was replaced",
    }
    assert (status(result), [held.message["v"] for held in result.held]) == (Status.FAILED, [[BAD, "again"]])
    assert done(pipe, result, about(result, action, new="mine", id="3")).verdicts == {"3": None}


@pytest.mark.parametrize(
    ("was", "now", "is_same"),
    [
        ({"v": 1}, {"v": 1}, True),
        ({"v": 1}, {"v": 1.0}, True),  # of a column that has become one of floats
        ({"v": 1}, {"v": True}, False),
        ({"v": {"k": 0}}, {"v": {"k": False}}, False),
        ({}, {"v": None}, True),  # of a column that has come since
        ({}, {"v": 5}, False),
        ({"v": 1, "w": 2}, {"v": 1}, True),  # of a column that is gone
        ({"v": None}, {"v": math.nan}, True),  # JSON has no NaN
        ({"v": [None, 1]}, {"v": [math.inf, 1]}, True),
        ({"v": "long " * 50}, {"v": "long " * 50}, True),
        ({"v": "long " * 50}, {"v": "long " * 50 + "!"}, False),
        ({"v": [1.5] * 50}, {"v": [1.5] * 50}, True),
        ({"v": [1] * 50}, {"v": [1.0] * 50}, True),
        ({"v": dt.date(2026, 1, 2)}, {"v": "2026-01-02"}, True),
    ],
)
def test_decide_compares_message_content_by_value(was: Message, now: Message, is_same: bool) -> None:
    pipe, before = failed(Monotone("r"))
    held = before.timelines["a"]
    group = Group("a", held, Fold(pipe, pipe.state), Journal(), now_us=7)
    head = held.head()
    about_it = {"epoch": 0, "position": head.position, "digest": head.digest.hex(), "old": was}
    drop = Decision(id="1", action=DecisionAction.DROP, group="a", by="ann", at_us=1, **about_it)
    reason = decide(group, drop, lambda entry, new: entry, lambda entry: now)
    assert reason == (
        None if is_same else "the group has changed in the meantime: the content of the message was replaced"
    )


def test_a_message_changed_by_the_handler_does_not_void_a_decision() -> None:
    def apply(state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
        message["v"] = f"{message['v']}!"
        raise ValueError("as ever")

    pipe = pipeline(Monotone("r"), handler=apply)
    before = pipe.replay(history("x"))
    old = before.timelines["a"].head().message | {"v": "x"}
    drop = about(before, DecisionAction.DROP, old=old, id="2")
    assert take(pipe, before, about(before, DecisionAction.RESUME, id="1"), drop).verdicts == {"1": None, "2": None}
    replaced = take(pipe, before, about(before, DecisionAction.REPLACE, new="y", old=old, id="1"), drop)
    assert replaced.verdicts["2"] == "the group has changed in the meantime: the content of the message was replaced"


def test_replace_changes_only_the_changed_fields() -> None:
    pipe, before = failed(Monotone("r"))
    group = Group("a", before.timelines["a"], Fold(pipe, pipe.state), Journal(), now_us=7)
    contents: list[Message] = []

    def remake(entry: TimelineEntry, new: Message) -> TimelineEntry:
        contents.append(new)
        return entry

    old = before.timelines["a"].head().message | {"unknown to the type": 1, "nan": None, "flag": 0}
    decision = about(before, DecisionAction.REPLACE, old=old, new=None)
    decision = dataclasses.replace(decision, new={**old, "v": "mended", "flag": False})
    assert decide(group, decision, remake, lambda entry: None) is None
    assert contents == [{"v": "mended", "flag": False}]
    assert contents[0]["flag"] is False


@every_grade
def test_give_up_is_void_if_the_first_held_message_changed(order: Order) -> None:
    pipe, before = failed(order, BAD)
    seen = about(before, DecisionAction.GIVE_UP)
    after = done(pipe, before, about(before, DecisionAction.REPLACE, new="mended"))
    assert status(after) is Status.FAILED
    assert "another message is at the group's head" in void(pipe, after, seen)
    last = done(pipe, after, about(after, DecisionAction.REPLACE, new="mended"))
    assert status(last) is Status.OPEN
    assert "the group holds no message" in void(pipe, last, seen)


@pytest.mark.parametrize("order", [Gapless("r", epoch="e"), Monotone("r", epoch="e")], ids=["gapless", "monotone"])
def test_resume_continues_through_the_held_epochs(order: Order) -> None:
    handler = Mended()
    pipe = pipeline(order, handler=handler)
    early = 5 if isinstance(order, Gapless) else 2
    places = [(1, 1, BAD), (1, early, "left"), (3, 1, "z"), (2, 1, "y"), (2, 2, "y2"), (3, 2, "z2")]
    before = pipe.replay(arrive([{"e": e, "r": r, "v": v} for e, r, v in places]))
    assert len(before.held) == 6
    handler.mended = True
    result = done(pipe, before, about(before, DecisionAction.RESUME))
    leftover = [] if isinstance(order, Gapless) else ["left"]
    assert result.states["a"] == [BAD, *leftover, "y", "y2", "z", "z2"]
    assert reasons(result) == ([] if leftover else [("late", "left")])
    assert (status(result), result.timelines["a"].epoch) == (Status.OPEN, 3)


# -- replace -------------------------------------------------------------------------------------------------


@every_grade
def test_replace_of_the_failed_message_continues_the_group(order: Order) -> None:
    pipe, before = failed(order, "y")
    result = done(pipe, before, about(before, DecisionAction.REPLACE, new="mended"))
    assert (status(result), result.states["a"]) == (Status.OPEN, ["x", "mended", "y"])
    assert (result.counts.released, result.counts.applied, result.rejected) == (2, 2, [])


@every_grade
def test_replace_of_a_later_held_message_keeps_the_group_parked(order: Order) -> None:
    pipe, before = failed(order, BAD, "z")
    result = done(pipe, before, about(before, DecisionAction.REPLACE, 1, new="mended"))
    assert status(result) is Status.FAILED
    assert [held.message["v"] for held in result.held] == [BAD, "mended", "z"]
    assert (result.counts.released, result.counts.held) == (0, 0)
    last = done(pipe, result, about(result, DecisionAction.REPLACE, new="too"))
    assert last.states["a"] == ["x", "too", "mended", "z"]


@every_grade
def test_replace_with_content_that_fails_parks_the_group_again(order: Order) -> None:
    pipe, before = failed(order)
    result = done(pipe, before, about(before, DecisionAction.REPLACE, new=BAD))
    assert status(result) is Status.FAILED
    assert len(result.held) == 1


@every_grade
@pytest.mark.parametrize("number", [0, 1], ids=["applied", "held"])
def test_after_replace_a_copy_of_the_old_content_is_a_duplicate_and_of_the_new_a_conflict(
    order: Order, number: int
) -> None:
    pipe, before = failed(order, "old")
    old = before.held[number].message
    result = done(pipe, before, about(before, DecisionAction.REPLACE, number, new="new"))
    repeated = pipe.replay([old], after=result)
    assert (repeated.counts.duplicate, repeated.rejected, repeated.states) == (1, [], result.states)
    other = pipe.replay([{**old, "v": "new"}], after=result)
    assert other.counts.rejected == {"conflict": 1}


def test_replace_changes_a_message_waiting_for_its_predecessor() -> None:
    pipe = pipeline(on_gap=Wait("10 seconds"))
    before = pipe.replay(revisions(3), now=at(0))
    result = done(pipe, before, about(before, DecisionAction.REPLACE, new="new"), now=at(5))
    assert (status(result), result.held[0].message["v"]) == (Status.WAITING, "new")
    assert status(pipe.replay([], after=result, now=at(10))) is Status.GAP, "it still waits since it came"
    assert pipe.replay(revisions(1, 2), after=result).states == {"a": ["v1", "v2", "new"]}


@every_grade
@pytest.mark.parametrize("field", ["g", "place"])
def test_replace_is_void_if_it_changes_a_key_field(order: Order, field: str) -> None:
    pipe, before = failed(order)
    name = field if field == "g" else pipe.key_fields[-1]
    decision = about(before, DecisionAction.REPLACE, new="mended")
    other = dataclasses.replace(decision, new={"v": "mended", name: "b"})
    assert f"{name} would change from" in void(pipe, before, other)
    assert f"{name} would change from None to 'b'" in void(pipe, before, dataclasses.replace(other, old=None))


@every_grade
def test_replace_keeps_fields_that_the_new_content_omits(order: Order) -> None:
    pipe, before = failed(order, "y")
    decision = dataclasses.replace(about(before, DecisionAction.REPLACE, 1), old=None, new={"v": "new"})
    result = done(pipe, before, decision)
    assert result.held[1].message == {**before.held[1].message, "v": "new"}


def test_replace_without_new_content_is_void() -> None:
    pipe, before = failed(FOREVER)
    assert "no new content" in void(pipe, before, dataclasses.replace(about(before, DecisionAction.REPLACE), new=None))


def test_replace_is_void_if_the_content_does_not_fit_the_message_type() -> None:
    @dataclasses.dataclass
    class Typed:
        g: str
        r: int
        v: str
        at: int = 0

    def handler(state: list[Any], message: Typed) -> tuple[list[Any], list[Any]]:
        if message.v == BAD:
            raise ValueError(BAD)
        return [*state, [message.v, message.at]], []

    pipe = pipeline(message=Typed, handler=handler, arrival=None, ignore=["at"])
    before = pipe.replay([Typed("a", 1, BAD, at=7)])
    entry = before.timelines["a"].held[0, 1]
    old = {"g": "a", "r": 1, "v": BAD}
    seen = {"position": 1, "digest": entry.digest.hex(), "old": old}
    decision = Decision(id="1", action=DecisionAction.REPLACE, group="a", by="ann", at_us=0, **seen)  # type: ignore[arg-type]
    assert "no field 'w'; existing fields: g, r, v, at" in void(
        pipe, before, dataclasses.replace(decision, new={"w": 1})
    )
    result = done(pipe, before, dataclasses.replace(decision, new={**old, "v": "mended"}))
    assert result.states == {"a": [["mended", 7]]}, "what is no content is as it was"


@every_grade
def test_replace_takes_only_the_content_of_the_new_entry(order: Order) -> None:
    pipe, before = failed(order)
    held = before.timelines["a"]
    group = Group("a", held, Fold(pipe, pipe.state), Journal(), now_us=7)
    changed, head = about(before, DecisionAction.REPLACE, new=BAD), held.head()

    def remake(entry: TimelineEntry, new: Message) -> TimelineEntry:
        message = {**entry.message, **new}
        return TimelineEntry(position=99, digest=b"", message=message, epoch=9, id="other", since_us=1, ref="there")

    assert decide(group, changed, remake, lambda entry: entry.message) is None
    assert held.head() == dataclasses.replace(head, message=changed.new, ref="there")


# -- drop ----------------------------------------------------------------------------------------------------


@every_grade
def test_drop_of_the_failed_message_continues_the_group(order: Order) -> None:
    pipe, before = failed(order, "y")
    result = done(pipe, before, about(before, DecisionAction.DROP, why="it is spoilt"))
    assert (status(result), result.states["a"]) == (Status.OPEN, ["x", "y"])
    assert reasons(result) == [("dropped", BAD)]
    assert result.rejected[0].detail == "dropped by ann: it is spoilt"
    assert (result.counts.released, result.counts.applied) == (2, 1)


@every_grade
def test_a_copy_of_a_dropped_message_is_not_applied(order: Order) -> None:
    pipe, before = failed(order, "y")
    result = done(pipe, before, about(before, DecisionAction.DROP))
    for value in (BAD, "other"):
        repeated = pipe.replay([{**before.held[0].message, "v": value}], after=result)
        assert (repeated.states, repeated.held, repeated.counts.applied) == (result.states, [], 0)
        if isinstance(order, Gapless):
            assert repeated.counts.rejected == {"skipped": 1}
        else:
            assert (repeated.counts.duplicate, repeated.counts.rejected.get("conflict", 0)) == (
                value == BAD,
                value != BAD,
            )


@other_grades
def test_without_revisions_any_held_message_can_be_dropped(order: Order) -> None:
    pipe, before = failed(order, "y", "z")
    result = done(pipe, before, about(before, DecisionAction.DROP, 1))
    assert (status(result), reasons(result)) == (Status.FAILED, [("dropped", "y")])
    last = done(pipe, result, about(result, DecisionAction.REPLACE, new="mended"))
    assert last.states["a"] == ["x", "mended", "z"]


def test_a_message_waiting_for_the_watermark_can_be_dropped() -> None:
    pipe = pipeline(Timestamp("t", "1 hour"))
    before = pipe.replay(history("x", "y"))
    result = done(pipe, before, about(before, DecisionAction.DROP))
    repeated = pipe.replay(history("x"), after=result, final=True)
    assert (repeated.states["a"], repeated.counts.duplicate, repeated.counts.applied) == (["y"], 1, 1)


@pytest.mark.parametrize("number", range(6))
def test_drop_keeps_the_order_of_the_other_held_messages(number: int) -> None:
    pipe = pipeline(Timestamp("t", "1 hour"))
    messages = history(*"abcdef")
    before = pipe.replay(arrive([messages[index] for index in (0, 4, 1, 5, 3, 2)]))
    result = done(pipe, before, about(before, DecisionAction.DROP, number), final=True)
    assert result.states["a"] == [value for value in "abcdef" if value != "abcdef"[number]]


def test_with_revisions_only_the_failed_message_can_be_dropped() -> None:
    pipe, before = failed(FOREVER, "y")
    assert "only the message on which" in void(pipe, before, about(before, DecisionAction.DROP, 1))
    waiting = pipe.replay(revisions(3))
    assert "only the message on which" in void(pipe, waiting, about(waiting, DecisionAction.DROP))


def test_drop_of_a_message_of_a_later_epoch_is_void() -> None:
    pipe = pipeline(Monotone("r", epoch="e"))
    before = pipe.replay(arrive([{"e": 1, "r": 1, "v": BAD}, {"e": 2, "r": 1, "v": "y"}]))
    assert "has not begun" in void(pipe, before, about(before, DecisionAction.DROP, 1))


def test_drop_of_the_first_message_leaves_the_gap_behind_it() -> None:
    pipe = pipeline(on_gap=Wait("10 seconds", then="park"))
    before = pipe.replay(arrive([*history(BAD), *revisions(5)]), now=at(0))
    result = done(pipe, before, about(before, DecisionAction.DROP), now=at(9))
    assert status(result) is Status.WAITING
    assert pipe.replay([], now=at(10), after=result).errors == {"a": "revision 2 is missing and the wait has expired"}


@every_grade
@pytest.mark.parametrize("action", [DecisionAction.DROP, DecisionAction.REPLACE])
def test_a_decision_about_a_missing_or_different_message_is_void(order: Order, action: DecisionAction) -> None:
    pipe, before = failed(order, "y")
    decision = about(before, action, new="new")
    other = dataclasses.replace(decision, digest="00" * 32)
    assert "another message is held in its place" in void(pipe, before, other)
    assert "not held" in void(pipe, before, dataclasses.replace(decision, epoch=7))
    anyone = dataclasses.replace(decision, position=None, message_id=None, digest=None)
    assert "which of 2 held messages" in void(pipe, before, anyone)
    replaced = done(pipe, before, about(before, DecisionAction.REPLACE, new="mended"))
    assert "not held" in void(pipe, replaced, decision)


# -- skip ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parked", [False, True], ids=["waiting", "parked"])
def test_skip_decision_equals_a_skip_by_wait_policy(parked: bool) -> None:
    messages = revisions(1, 4, 5, 7)
    pipe = pipeline(on_gap=Wait("10 seconds", then="park"))
    before = pipe.replay(messages, now=at(0))
    if parked:
        before = pipe.replay([], now=at(10), after=before)
    assert status(before) is (Status.GAP if parked else Status.WAITING)
    result = done(pipe, before, about(before, DecisionAction.SKIP))
    assert (result.states["a"], status(result), result.errors) == (["v1", "v4", "v5"], Status.WAITING, {})
    late = pipe.replay(revisions(2), after=result)
    assert late.counts.rejected == {"skipped": 1}
    last = done(pipe, late, about(late, DecisionAction.SKIP))
    by_itself = pipeline(on_gap=Wait("10 seconds", then="skip"))
    skipped = by_itself.replay([], now=at(10), after=by_itself.replay(messages, now=at(0)))
    assert (last.states, last.timelines) == (skipped.states, skipped.timelines)


def test_skip_is_void_if_the_missing_revisions_differ() -> None:
    pipe = pipeline()
    before = pipe.replay(revisions(1, 5))
    seen = about(before, DecisionAction.SKIP)
    assert (seen.position, seen.last) == (2, 4)
    for number in (2, 4):
        assert "missing revisions are" in void(pipe, pipe.replay(revisions(number), after=before), seen)
    assert "no revision is missing" in void(pipe, pipe.replay(revisions(2, 3, 4), after=before), seen)
    assert "of epoch 0" in void(pipe, before, dataclasses.replace(seen, epoch=1))


def test_skip_of_a_failed_group_is_void() -> None:
    pipe = pipeline()
    before = pipe.replay(arrive([*history("x", BAD), *revisions(5)]))
    assert "its handler raised" in void(pipe, before, about(before, DecisionAction.SKIP))


@other_grades
def test_skip_is_void_for_orders_without_gap_detection(order: Order) -> None:
    pipe, before = failed(order)
    assert "does not detect gaps" in void(pipe, before, about(before, DecisionAction.SKIP))


def test_skip_parks_the_group_if_the_next_message_fails() -> None:
    pipe = pipeline()
    before = pipe.replay([history("x", "y", BAD)[2]])
    result = done(pipe, before, about(before, DecisionAction.SKIP))
    assert (status(result), result.counts.released, result.counts.held) == (Status.FAILED, 0, 0)


def test_decisions_are_applied_before_the_gap_check_that_ends_the_run() -> None:
    pipe = pipeline(on_gap=Wait("10 seconds", then="fail"))
    before = pipe.replay(revisions(2), now=at(0))
    with pytest.raises(GapError):
        pipe.replay([], now=at(10), after=before)
    assert done(pipe, before, about(before, DecisionAction.SKIP), now=at(10)).states == {"a": ["v2"]}


# -- give up -------------------------------------------------------------------------------------------------


@every_grade
def test_give_up_rejects_held_and_later_messages(order: Order) -> None:
    pipe, before = failed(order, "y")
    result = done(pipe, before, about(before, DecisionAction.GIVE_UP, why="closed"))
    assert (status(result), result.held, result.states) == (Status.GIVEN_UP, [], before.states)
    assert reasons(result) == [("given up", BAD), ("given up", "y")]
    assert {rejection.detail for rejection in result.rejected} == {"given up by ann: closed"}
    assert result.errors == {"a": "given up by ann: closed"}
    assert (result.counts.released, result.counts.rejected) == (2, {"given up": 2})
    later = pipe.replay([*history("z", first=9), *history("x"), *history("not x")], after=result)
    check_books([before, result, later])
    assert (later.counts.duplicate, later.counts.rejected) == (1, {"given up": 1, "conflict": 1})
    assert (later.states, later.held, status(later)) == (before.states, [], Status.GIVEN_UP)


def test_an_open_or_waiting_group_can_be_given_up() -> None:
    pipe = pipeline()
    for messages in (revisions(1), revisions(3), revisions(1, 3)):
        before = pipe.replay(messages)
        result = done(pipe, before, about(before, DecisionAction.GIVE_UP))
        assert (status(result), result.held) == (Status.GIVEN_UP, [])
        assert result.counts.released == len(before.held)


@pytest.mark.parametrize("order", [Gapless("r", epoch="e"), Monotone("r", epoch="e")], ids=["gapless", "monotone"])
def test_a_higher_epoch_does_not_reopen_a_given_up_group(order: Order) -> None:
    pipe = pipeline(order)
    before = pipe.replay(history("x", BAD, e=1))
    result = done(pipe, before, about(before, DecisionAction.GIVE_UP))
    for epoch, reason in ((2, "given up"), (1, "given up"), (0, None)):
        later = pipe.replay(history("z", first=3, e=epoch), after=result)
        assert (status(later), later.states, later.held) == (Status.GIVEN_UP, before.states, [])
        assert (later.counts.rejected, later.counts.stale) == (({reason: 1}, 0) if reason else ({}, 1))


def test_final_releases_no_message_of_a_given_up_group() -> None:
    pipe = pipeline(Timestamp("t", "1 hour"))
    before = pipe.replay(history("x", "y"))
    result = done(pipe, before, about(before, DecisionAction.GIVE_UP))
    last = pipe.replay(history("x"), after=result, final=True)
    assert (last.states["a"], last.counts.rejected) == ([], {"given up": 1})


@every_grade
@pytest.mark.parametrize("action", [action for action in DecisionAction if action is not DecisionAction.UPGRADE])
def test_a_decision_about_a_given_up_group_is_void(order: Order, action: DecisionAction) -> None:
    pipe, before = failed(order, "y")
    if action is DecisionAction.SKIP and isinstance(order, Gapless):
        pipe = pipeline(order)
        before = pipe.replay(history("x", "y")[1:])
    result = done(pipe, before, about(before, DecisionAction.GIVE_UP))
    assert "was given up" in void(pipe, result, about(before, action, new="new"))


# -- several decisions ---------------------------------------------------------------------------------------


def test_decisions_are_applied_in_order_of_time_and_id() -> None:
    pipe, before = failed(FOREVER, "y")
    drop = about(before, DecisionAction.DROP, id="b", at_us=1)
    replace = about(before, DecisionAction.REPLACE, new="mended", id="a", at_us=1)
    assert take(pipe, before, drop, replace).states["a"] == ["x", "mended", "y"]
    result = take(pipe, before, replace, dataclasses.replace(drop, at_us=0))
    assert (result.states["a"], list(result.verdicts)) == (["x", "y"], ["b", "a"])
    assert result.verdicts["b"] is None
    assert "not held" in (result.verdicts["a"] or "")


def test_decisions_are_applied_before_the_messages_of_the_step() -> None:
    pipe = pipeline()
    before = pipe.replay(revisions(1, 4))
    result = done(pipe, before, about(before, DecisionAction.SKIP), messages=revisions(2, 3, 5))
    assert (result.states["a"], result.counts.rejected) == (["v1", "v4", "v5"], {"skipped": 2})


def test_a_decision_about_an_unknown_group_is_void() -> None:
    pipe, before = failed(FOREVER)
    decision = about(before, DecisionAction.GIVE_UP, group="b")
    assert void(pipe, before, decision) == "no group 'b'"
    assert take(pipe, before, decision, messages=history("x", g="b")).states["b"] == ["x"]


def test_a_decision_action_may_be_a_text_and_must_exist() -> None:
    assert Decision(id="1", action="give-up", group="a", by="b", at_us=0).action is DecisionAction.GIVE_UP  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected replace, drop"):
        Decision(id="1", action="shrug", group="a", by="b", at_us=0)  # type: ignore[arg-type]


# -- any history ---------------------------------------------------------------------------------------------

ANY: dict[str, Order] = {
    **GRADES,
    "lateness": Timestamp("t", "3 seconds"),
    "gapless in epochs": Gapless("r", epoch="e"),
    "monotone in epochs": Monotone("r", epoch="e"),
    "fields in epochs": MonotoneFields(("r",), epoch="e"),
}
any_grade = pytest.mark.parametrize("order", ANY.values(), ids=ANY)


def note(state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
    """Notes in the state which message it was; changes it in place before it may fail."""
    state.append(message["o"])
    if message["v"] == BAD:
        raise ValueError(BAD)
    return state, []


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    message = st.fixed_dictionaries(
        {
            "g": st.sampled_from("aab"),
            "r": st.integers(1, 5),
            "e": st.sampled_from([1, 1, 1, 2, 3]),
            "t": st.integers(0, 6).map(at),
            "i": st.sampled_from("ijklmn"),
            "v": st.sampled_from(["x", "y", BAD]),
        }
    )
    return arrive(draw(st.lists(message, min_size=4, max_size=14)))


@st.composite
def decided(draw: st.DrawFn, seen: Replay, number: int) -> list[Decision]:
    """Up to three decisions about group a, from what is seen or was seen."""
    timeline = seen.timelines.get("a")
    decisions = []
    for at_us in range(draw(st.integers(0, 3)) if timeline else 0):
        assert timeline is not None
        action = draw(
            st.sampled_from([*DecisionAction, DecisionAction.RESUME, DecisionAction.REPLACE, DecisionAction.DROP])
        )
        if action is DecisionAction.SKIP and not (isinstance(timeline, GaplessTimeline) and timeline.gaps()):
            action = DecisionAction.RESUME
        held_index = draw(st.integers(0, max(0, len(timeline.held) - 1)))
        new = draw(st.sampled_from(["x", "new", BAD]))
        name = f"{number}.{at_us}"
        decisions.append(about(seen, action, held_index, new=new, id=name, at_us=at_us))
    return decisions


@any_grade
@settings(max_examples=max(25, settings().max_examples // 4))
@given(data=st.data())
def test_counts_balance_and_other_groups_are_unaffected_after_random_decisions(
    order: Order, data: st.DataObject
) -> None:
    wait = data.draw(st.sampled_from([Wait("2 seconds", then="park"), Wait("2 seconds", then="skip")]))
    pipe = pipeline(order, handler=note, on_gap=wait if isinstance(order, Gapless) else None)
    messages = data.draw(histories())
    parts = cut(messages, data.draw(st.lists(st.integers(0, len(messages)), min_size=1, max_size=4)))
    results: list[Replay] = []
    plain, seen = Replay(), Replay()
    for number, part in enumerate([*parts, []]):
        before = results[-1] if results else Replay()
        decisions = data.draw(decided(seen, number))
        results.append(pipe.replay(part, after=before, now=at(number), decisions=decisions))
        plain = pipe.replay(part, after=plain, now=at(number))
        assert set(results[-1].verdicts) == {decision.id for decision in decisions}
        if data.draw(st.booleans()):  # else the next decisions are made from what was seen longer ago
            seen = results[-1]
    check_books(results)
    last = results[-1]
    each_once(messages, results)
    assert of_stranger(last) == of_stranger(plain)
    for group, applied in last.states.items():
        places = [(messages[o]["e"] if pipe.epoch else 0, messages[o].get(pipe.position or "o")) for o in applied]
        assert places == sorted(places), group


def each_once(messages: Sequence[Message], results: Sequence[Replay]) -> None:
    """Every message is in one place; copies are only counted."""
    last = results[-1]
    places = [o for applied in last.states.values() for o in applied]
    places += [rejection.message["o"] for rejection in last.rejected] + [held.message["o"] for held in last.held]
    copies = sum(result.counts.duplicate + result.counts.stale for result in results)
    assert len(places) == len(set(places)) == len(messages) - copies


def of_stranger(result: Replay) -> list[Any]:
    return [
        result.states.get("b"),
        result.timelines.get("b"),
        [held for held in result.held if held.group == "b"],
        [rejection for rejection in result.rejected if rejection.group == "b"],
    ]


@any_grade
@settings(max_examples=max(25, settings().max_examples // 4))
@given(data=st.data())
def test_step_boundaries_between_decisions_do_not_change_the_result(order: Order, data: st.DataObject) -> None:
    pipe = pipeline(order, handler=note)
    messages = data.draw(histories())
    middle = data.draw(st.integers(1, len(messages)))
    halves = [messages[:middle], messages[middle:]]
    whole = pipe.replay(halves[0])
    decisions = data.draw(decided(whole, 0))
    last = pipe.replay(halves[1], after=whole, decisions=decisions)
    first, second = (cut(half, data.draw(st.lists(st.integers(0, len(half)), max_size=3))) for half in halves)
    parts = steps(pipe, first)
    for number, part in enumerate(second):
        parts.append(pipe.replay(part, after=parts[-1], decisions=() if number else decisions))
    check_books(parts)
    assert story(parts) == story([whole, last])
