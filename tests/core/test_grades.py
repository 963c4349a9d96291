"""The grades of order without revisions, and epochs: against the reference, and under every cut in order of arrival."""

import datetime as dt
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    BAD,
    Expected,
    Message,
    arrive,
    check_books,
    cut,
    epochs,
    expected,
    keep,
    pipeline,
    steps,
    story,
    summed,
    went,
)

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Timestamp, Wait
from inturn.core.errors import InputError
from inturn.core.identity import effect_id
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def late(seconds: float) -> Timestamp:
    return Timestamp("t", lateness=dt.timedelta(seconds=seconds))


GRADES: dict[str, Order] = {
    "gapless": Gapless("r"),
    "monotone": Monotone("r"),
    "fields": MonotoneFields(("r",)),
    "arrival": Arrival(),
    "timestamp": late(3),
    "punctual": late(0),
    "gapless in epochs": Gapless("r", epoch="e"),
    "monotone in epochs": Monotone("r", epoch="e"),
    "fields in epochs": MonotoneFields(("r",), epoch="e"),
}
grades = pytest.mark.parametrize("order", GRADES.values(), ids=GRADES)


@st.composite
def histories(draw: st.DrawFn, *, bad: bool = True) -> list[Message]:
    """One or two groups; copies and conflicts are as likely as new messages."""
    values = ["x", "y", BAD] if bad else ["x", "y"]
    message = st.fixed_dictionaries(
        {
            "g": st.sampled_from("ab"),
            "r": st.integers(1, 6),
            "e": st.integers(1, 3),
            "t": st.integers(0, 9).map(at),
            "i": st.sampled_from("ijklmn"),
            "v": st.sampled_from(values).filter(lambda value: value != BAD) | st.sampled_from(values),
        }
    )
    messages = draw(st.lists(message, max_size=14))
    repeats = draw(st.lists(st.integers(0, max(0, len(messages) - 1)), max_size=6)) if messages else []
    return arrive(draw(st.permutations([*messages, *(messages[number] for number in repeats)])))


def check(result: Replay, group: str, model: Expected) -> None:
    assert result.states.get(group, []) == model.applied
    assert [held.message for held in result.held if held.group == group] == model.held


@grades
@given(data=st.data())
def test_a_step_equals_the_reference_for_every_order(order: Order, data: st.DataObject) -> None:
    final = isinstance(order, Timestamp) and data.draw(st.booleans())
    in_epochs = order in [grade for name, grade in GRADES.items() if name.endswith("in epochs")]
    # In epochs a failed group also holds what is newer, which the reference does not tell.
    history = data.draw(histories(bad=not in_epochs))
    result = pipeline(order).replay(data.draw(st.permutations(history)), final=final)
    check_books([result])
    counts = went(result.counts)
    for group in "ab":
        part = [message for message in history if message["g"] == group]
        model = epochs(order, part) if in_epochs else expected(order, part, final=final)
        check(result, group, model)
        counts.subtract(model.counts)
    assert not any(counts.values())


@grades
@given(data=st.data())
def test_in_order_of_arrival_step_boundaries_do_not_change_the_result(order: Order, data: st.DataObject) -> None:
    history = data.draw(histories())
    parts = cut(history, data.draw(st.lists(st.integers(0, len(history)), max_size=6)))
    assert story(steps(pipeline(order), parts)) == story([pipeline(order).replay(history)])


@grades
@given(data=st.data())
def test_groups_do_not_affect_each_other(order: Order, data: st.DataObject) -> None:
    history = data.draw(histories())
    together = pipeline(order).replay(history)
    apart = [pipeline(order).replay([message for message in history if message["g"] == group]) for group in "ab"]
    assert together.states == {**apart[0].states, **apart[1].states}
    assert together.outputs == [output for result in apart for output in result.outputs]
    assert together.held == [held for result in apart for held in result.held]
    assert went(together.counts) == went(summed(apart))


@pytest.mark.parametrize("then", ["park", "wait"])
@given(data=st.data())
def test_with_parking_waits_step_boundaries_do_not_change_the_result(then: str, data: st.DataObject) -> None:
    """A group that a gap parked goes on by itself, so a check of the waits more or less makes no difference."""
    pipe = pipeline(on_gap=Wait("3 seconds", then="park") if then == "park" else Wait(), order=Gapless("r", epoch="e"))
    history = data.draw(histories())
    ends = sorted(data.draw(st.lists(st.integers(0, len(history)), min_size=1, max_size=3)))
    times = [at(number) for number in sorted(data.draw(st.lists(st.integers(0, 9), min_size=4, max_size=4)))]
    whole: list[Replay] = []
    parted: list[Replay] = []
    for now, part in zip(times, cut(history, ends), strict=False):
        whole.append(pipe.replay(part, now=now, after=whole[-1] if whole else None))
        for piece in cut(part, data.draw(st.lists(st.integers(0, len(part)), max_size=3))):
            parted.append(pipe.replay(piece, now=now, after=parted[-1] if parted else None))
    check_books(whole)
    check_books(parted)
    assert story(parted) == story(whole)


# -- Monotone ------------------------------------------------------------------------------------------------


def numbers(*values: int) -> list[Message]:
    return arrive([{"r": number, "v": f"v{number}"} for number in values])


def test_monotone_applies_newer_revisions_and_counts_stale_and_duplicate_ones() -> None:
    result = pipeline(Monotone("r")).replay(numbers(3, 7, 5, 7, -1, 20))
    assert result.states == {"a": ["v3", "v7", "v20"]}
    assert (result.counts.applied, result.counts.duplicate, result.counts.stale) == (3, 1, 2)
    assert result.held == []


def test_monotone_accepts_negative_revisions() -> None:
    result = pipeline(Monotone("r")).replay(numbers(-7, -9, -7, 0))
    assert (result.states, result.counts.duplicate, result.counts.stale) == ({"a": ["v-7", "v0"]}, 1, 1)


def test_monotone_distinguishes_a_conflict_from_a_duplicate() -> None:
    history = arrive([{"r": 1, "v": "x"}, {"r": 2, "v": "x"}, {"r": 1, "v": "y"}, {"r": 1, "v": "x"}])
    result = pipeline(Monotone("r")).replay(history)
    assert (result.counts.duplicate, result.counts.rejected) == (1, {"conflict": 1})


def test_monotone_holds_messages_behind_a_failed_one_in_order() -> None:
    history = arrive([{"r": 1, "v": BAD}, *({"r": number, "v": f"v{number}"} for number in (4, 9, 7, 4, 1))])
    result = pipeline(Monotone("r")).replay(history)
    assert [(held.status, held.message["r"]) for held in result.held] == [("failed", 1), ("failed", 4), ("failed", 9)]
    # 7 came after 9: it is old, as it would be in a group that runs; the other 1 is another message.
    assert (result.counts.stale, result.counts.duplicate, result.counts.rejected) == (1, 1, {"conflict": 1})


# -- Timestamp -----------------------------------------------------------------------------------------------


def timed(*places: tuple[float, str]) -> list[Message]:
    return arrive([{"t": at(seconds), "i": name, "v": name} for seconds, name in places])


def test_timestamp_applies_a_message_once_the_watermark_reaches_its_time() -> None:
    pipe = pipeline(late(10))
    one, two, three = steps(pipe, cut(timed((0, "a"), (9.999999, "b"), (10, "c")), [1, 2]))
    assert one.states == two.states == {"a": []}
    assert three.states == {"a": ["a"]}
    assert [held.message["i"] for held in three.held] == ["b", "c"]
    assert {held.status for held in three.held} == {"waiting"}


def test_timestamp_accepts_a_message_exactly_at_the_lateness_limit() -> None:
    result = pipeline(late(10)).replay(timed((10, "a"), (0, "b"), (-0.000001, "c")))
    assert result.states == {"a": ["b"]}
    assert [(rejection.reason, rejection.message["i"]) for rejection in result.rejected] == [("late", "c")]


def test_timestamp_orders_held_messages_by_time_then_arrival() -> None:
    history = timed((3, "z"), (2, "y"), (3, "a"), (2, "b"), (1, "q"), (100, "end"))
    assert pipeline(late(10)).replay(history).states == {"a": ["q", "y", "b", "z", "a"]}


@pytest.mark.parametrize("names", list(permutations("abc")), ids="".join)
def test_timestamp_without_lateness_applies_equal_times_in_order_of_arrival(names: tuple[str, ...]) -> None:
    """None of them is below the watermark, so none is late, and none waits for the others."""
    history = timed(*((5, name) for name in names), (4.9, "late"), (5, names[0]))
    result = pipeline(late(0)).replay(history)
    assert result.states == {"a": list(names)}
    assert (result.counts.duplicate, result.counts.rejected) == (1, {"late": 1})


def test_timestamp_watermarks_are_per_group() -> None:
    """One wrong clock harms no stranger: a message of the far future makes only its own group's others late."""
    wrong = {"g": "a", "t": at(1e8), "i": "wrong", "v": "wrong"}
    rest = [{"g": group, "t": at(1), "i": "x", "v": "x"} for group in "ab"]
    result = pipeline(late(10)).replay(arrive([wrong, *rest]), final=True)
    assert result.states == {"a": ["wrong"], "b": ["x"]}
    assert [rejection.group for rejection in result.rejected] == ["a"]


def test_final_releases_held_messages_in_order() -> None:
    pipe = pipeline(late(10))
    before = pipe.replay(timed((3, "c"), (2, "b"), (1, "a")))
    assert before.states == {"a": []}
    after = pipe.replay([], after=before, final=True)
    assert (after.states, after.held) == ({"a": ["a", "b", "c"]}, [])
    assert (after.counts.received, after.counts.released, after.counts.applied) == (0, 3, 3)
    assert pipe.replay(timed((3, "c"), (2, "b"), (1, "a")), final=True).states == after.states


def test_final_does_not_release_messages_behind_a_failed_one() -> None:
    history = arrive([{"t": at(number), "i": str(number), "v": BAD if number == 1 else number} for number in range(3)])
    result = pipeline(late(10)).replay(history, final=True)
    assert result.states == {"a": [0]}
    assert [held.message["i"] for held in result.held] == ["1", "2"]


@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), Arrival()])
def test_final_is_refused_for_orders_without_times(order: Order) -> None:
    with pytest.raises(InputError, match=rf"final=True .* {type(order).__name__} has no times"):
        pipeline(order).replay([], final=True)


def test_timestamp_detects_copies_of_a_held_message() -> None:
    history = timed((1, "a"), (2, "b"), (1, "a"))
    other = {**history[1], "v": "other", "o": 9}
    result = pipeline(late(10)).replay([*history, other])
    assert (result.counts.held, result.counts.duplicate, result.counts.rejected) == (2, 1, {"conflict": 1})


def test_a_time_without_a_zone_is_utc() -> None:
    history = timed((1, "a"), (0, "b"))
    history[1]["t"] = history[1]["t"].replace(tzinfo=None)
    assert pipeline(late(10)).replay(history, final=True).states == {"a": ["b", "a"]}


def test_final_applies_only_to_its_step() -> None:
    pipe = pipeline(late(10))
    before = pipe.replay(timed((0, "a")), final=True)
    after = pipe.replay(timed((20, "y"), (15, "x")), after=before)
    assert after.states == {"a": ["a"]}
    assert len(after.held) == 2


def test_a_message_earlier_than_a_released_one_is_late() -> None:
    pipe = pipeline(late(10))
    before = pipe.replay(timed((20, "b")), final=True)
    after = pipe.replay(timed((15, "a")), after=before, final=True)
    assert (after.states, after.counts.rejected) == ({"a": ["b"]}, {"late": 1})


def test_final_advances_the_watermark_to_the_greatest_time() -> None:
    pipe = pipeline(late(10))
    first = pipe.replay(timed((0, "a")), final=True)
    second = pipe.replay(timed((1, "b")), after=first, final=True)
    third = pipe.replay(timed((5, "c"), (1, "d"), (0.9, "e")), after=second, final=True)
    assert third.states == {"a": ["a", "b", "d", "c"]}
    assert [(rejection.reason, rejection.message["i"]) for rejection in third.rejected] == [("late", "e")]


def test_final_without_held_messages_changes_nothing() -> None:
    pipe = pipeline(late(10))
    before = pipe.replay(timed((0, "a"), (20, "b"), (10, "c")), final=True)
    repeated = pipe.replay([], after=pipe.replay([], after=before, final=True), final=True)
    assert story([repeated])["states"] == {"a": ["a", "c", "b"]}
    assert pipe.replay(timed((20, "d")), after=repeated, final=True).states == {"a": ["a", "c", "b", "d"]}


# -- Arrival -------------------------------------------------------------------------------------------------


def test_arrival_applies_messages_in_order_of_arrival_and_remembers_every_id() -> None:
    history = [{"g": "a", "i": name, "v": f"{name}{o}", "o": o} for o, name in enumerate(["z", "b", "a"])]
    pipe = pipeline(Arrival())
    result = pipe.replay([*history[::-1], {**history[0], "o": 7}, {**history[1], "v": "other", "o": 8}])
    assert result.states == {"a": ["z0", "b1", "a2"]}
    assert (result.counts.duplicate, result.counts.rejected) == (1, {"conflict": 1})


def test_arrival_effect_ids_use_the_message_id() -> None:
    [output] = pipeline(Arrival()).replay([{"g": "a", "i": 7, "v": "x", "o": 0}]).outputs
    assert (output.revision, output.epoch, output.id) == (None, None, "7")
    assert output.effect_id == effect_id("p", "a", None, "7", 0)


def test_arrival_holds_messages_behind_a_failed_one_in_order_of_arrival() -> None:
    pipe = pipeline(Arrival())
    values: list[Any] = ["x", BAD, "c", "a", "b"]
    history = arrive([{"i": str(9 - number), "v": value} for number, value in enumerate(values)])
    for parts in product([[], [1]], [[], [2]], [[], [4]]):
        result = steps(pipe, cut(history, [end for part in parts for end in part]))[-1]
        assert result.states == {"a": ["x"]}
        assert [held.message["v"] for held in result.held] == [BAD, "c", "a", "b"]


def test_arrival_without_an_arrival_field_sorts_each_step_by_id() -> None:
    pipe = pipeline(Arrival(), arrival=None, handler=keep)
    history = [{"g": "a", "i": name, "v": name} for name in "cab"]
    assert pipe.replay(history).states == {"a": ["a", "b", "c"]}
    assert steps(pipe, cut(history, [1, 2]))[-1].states == {"a": ["c", "a", "b"]}


def test_messages_without_the_arrival_field_are_applied_as_listed() -> None:
    history = [{"g": "a", "i": name, "v": name} for name in "cab"]
    assert pipeline(Arrival(), arrival="o").replay(history).states == {"a": ["c", "a", "b"]}
