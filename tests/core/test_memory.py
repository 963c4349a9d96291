"""What a group remembers has an end; past it an old copy is stale or late, but it is never applied again."""

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Message, arrive, content, cut, pipeline, revisions, steps, story, summed

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Timestamp
from inturn.core import limits
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.grades import RECORD
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.timeline import MARK_BYTES

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of two messages."""
    monkeypatch.setattr(limits, "REMEMBERED_REVISIONS", 2)
    monkeypatch.setattr(limits, "REMEMBERED_IDS", 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), MonotoneFields(("r",))], ids=str)
def test_a_forgotten_copy_is_stale_and_a_remembered_one_a_duplicate(order: Order) -> None:
    before, after = steps(pipeline(order), [revisions(1, 2, 3, 4), revisions(1, 2, 3, 4)])
    assert (after.counts.stale, after.counts.duplicate, after.states) == (2, 2, before.states)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), MonotoneFields(("r",))], ids=str)
def test_a_conflict_with_a_forgotten_message_is_stale(order: Order) -> None:
    other = [{**message, "v": "other"} for message in revisions(1, 2, 3, 4)]
    after = steps(pipeline(order), [revisions(1, 2, 3, 4), arrive(other)])[-1]
    assert (after.counts.stale, after.counts.rejected) == (2, {"conflict": 2})


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), MonotoneFields(("r",))], ids=str)
def test_group_memory_is_bounded_across_steps(order: Order) -> None:
    record = MARK_BYTES if isinstance(order, Gapless) else RECORD.size
    reached = 7 if isinstance(order, MonotoneFields) else 0  # the greatest place, with its length
    for result in steps(pipeline(order), cut(revisions(*range(1, 30)), range(1, 30, 5))):
        assert len(result.timelines["a"].memory) <= reached + 2 * record
    assert len(result.timelines["a"].memory) == reached + 2 * record


def test_remembered_revisions_limit_is_exact() -> None:
    size = limits.REMEMBERED_REVISIONS
    pipe = pipeline(handler=lambda state, message: (state, []))
    after = steps(pipe, [revisions(*range(1, size + 11)), revisions(*range(1, size + 11))])[-1]
    assert (after.counts.stale, after.counts.duplicate) == (10, size)


@pytest.mark.usefixtures("few")
def test_arrival_forgets_no_id() -> None:
    history = arrive([{"i": str(number), "v": number} for number in range(20)])
    before, after = steps(pipeline(Arrival()), [history, history])
    assert (after.counts.duplicate, after.states) == (20, before.states)


@pytest.mark.usefixtures("few")
def test_a_forgotten_copy_below_the_watermark_is_late() -> None:
    pipe = pipeline(Timestamp("t", lateness="2 seconds"))
    history = arrive(
        [{"t": NOON + dt.timedelta(seconds=second), "i": str(second), "v": second} for second in range(10)]
    )
    before, after = steps(pipe, [history, history])
    assert before.states == {"a": list(range(8))}
    # 8 and 9 wait, and 7 is at the watermark; of those below it the last are remembered.
    assert (after.counts.duplicate, after.counts.rejected) == (4, {"late": 6})
    assert len(after.timelines["a"].memory) == 2 * RECORD.size


@pytest.mark.usefixtures("few")
def test_all_messages_at_the_watermark_are_remembered() -> None:
    """There a copy would be accepted, so it must be known, however many there are."""
    history = arrive([{"t": NOON, "i": str(number), "v": number} for number in range(20)])
    before, after = steps(pipeline(Timestamp("t")), [history, history])
    assert (after.counts.duplicate, after.states) == (20, before.states)


@pytest.mark.parametrize(
    "order", [Timestamp("t", lateness="2 seconds"), Gapless("r"), Monotone("r"), MonotoneFields(("r",))], ids=str
)
@given(data=st.data(), remembered=st.integers(0, 2), size=st.integers(1, 10))
def test_no_copy_is_applied_twice(order: Order, data: st.DataObject, remembered: int, size: int) -> None:
    delays = data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    places = st.integers(0, size - 1)
    arriving = [
        *data.draw(st.lists(places, max_size=8)),
        *data.draw(st.permutations(range(size))),
        *data.draw(st.lists(places, max_size=8)),
    ]
    messages: list[Message] = [
        {"r": index + 1, "i": str(index), "t": NOON + dt.timedelta(seconds=index + delay), "v": index}
        for index, delay in enumerate(delays)
    ]
    history = arrive(messages[index] for index in arriving)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REMEMBERED_REVISIONS", remembered)
        patch.setattr(limits, "REMEMBERED_IDS", remembered)
        results = steps(pipeline(order), cut(history, data.draw(st.lists(st.integers(0, len(history)), max_size=5))))
        whole = pipeline(order).replay(history)
    [applied] = results[-1].states.values()
    assert max(Counter(applied).values(), default=0) <= 1
    assert len({output.effect_id for output in results[-1].outputs}) == len(results[-1].outputs)
    # There are no conflicts here, so none is seen, whatever has been forgotten.
    assert "conflict" not in summed(results).rejected
    assert story(results)["states"] == story([whole])["states"]
    if isinstance(order, Gapless):
        assert applied == list(range(size))


@pytest.mark.usefixtures("few")
def test_held_messages_are_always_remembered() -> None:
    history = revisions(*range(2, 20))
    before, after = steps(pipeline(), [history, history])
    assert (before.counts.held, after.counts.duplicate, after.counts.held) == (18, 18, 0)
    assert [content(held.message) for held in after.held] == [content(message) for message in history]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("order", "whole_says"),
    [(Gapless("r"), ({"conflict": 1}, 0)), (Monotone("r"), ({}, 1))],
    ids=["gapless", "monotone"],
)
def test_step_boundaries_change_only_the_classification_of_an_old_conflict(
    order: Order, whole_says: tuple[Any, int]
) -> None:
    history = [*revisions(1, 2, 3, 4), {"g": "a", "r": 1, "v": "other", "o": 9}]
    whole = pipeline(order).replay(history)
    last = steps(pipeline(order), cut(history, [4]))[-1]
    assert (whole.counts.rejected, whole.counts.stale) == whole_says
    assert (last.counts.rejected, last.counts.stale) == ({}, 1)
    assert last.states == whole.states


# -- conflicts -----------------------------------------------------------------------------------------------


def identified(*numbers: int) -> list[Message]:
    """Messages that each order can place."""
    return arrive([{**message, "i": str(message["r"]), "t": NOON} for message in revisions(*numbers)])


def others(messages: list[Message], value: str = "other") -> list[Message]:
    """The same messages with other content."""
    return arrive([{**message, "v": value} for message in messages])


GRADES = [Gapless("r"), Monotone("r"), MonotoneFields(("r",)), Timestamp("t", lateness="1 minute"), Arrival()]


@pytest.mark.parametrize("order", GRADES, ids=str)
@pytest.mark.parametrize("cuts", [[], [3], [3, 6], range(1, 9)], ids=str)
def test_a_conflict_is_reported_once(order: Order, cuts: list[int]) -> None:
    first = identified(1, 2, 3)
    history = [*first, *others(first), *others(first)]
    results = steps(pipeline(order), cut(arrive(history), cuts))
    counts = summed(results)
    assert (counts.duplicate, counts.rejected) == (3, {"conflict": 3})
    assert len(results[-1].rejected) == 3


@pytest.mark.parametrize("order", GRADES, ids=str)
def test_each_conflicting_content_is_reported(order: Order) -> None:
    first = identified(1)
    history = [*first, *others(first, "x"), *others(first, "y"), *others(first, "x"), *others(first, "y"), *first]
    counts = summed(steps(pipeline(order), cut(arrive(history), range(1, 6))))
    assert (counts.duplicate, counts.rejected) == (3, {"conflict": 2})


@pytest.mark.parametrize(
    "order", [Gapless("r", epoch="e"), Monotone("r", epoch="e"), MonotoneFields(("r",), epoch="e")], ids=str
)
def test_a_new_epoch_forgets_the_conflicts_of_earlier_ones(order: Order) -> None:
    first, second = revisions(1, e=1), revisions(1, e=2)
    after = steps(pipeline(order), [first, others(first), second])[-1]
    assert after.timelines["a"].conflicts == b""
    counts = summed(steps(pipeline(order), [first, others(first), second, others(second), others(second)]))
    assert (counts.duplicate, counts.rejected) == (1, {"conflict": 2})


@pytest.mark.parametrize("order", GRADES, ids=str)
def test_of_many_conflicts_those_with_the_highest_revisions_are_remembered(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_CONFLICTS", 2)
    first = identified(1, 2, 3, 4)
    results = steps(pipeline(order), [first, others(first), others(first)])
    assert len(results[-1].timelines["a"].conflicts) == 2 * 24
    if order.has_revisions:
        assert [rejection.message["r"] for rejection in results[-1].rejected] == [1, 2, 3, 4, 1, 2]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), MonotoneFields(("r",))], ids=str)
def test_a_conflict_is_forgotten_with_its_revision(order: Order) -> None:
    first = revisions(1, 2)
    results = steps(pipeline(order), [first, others(first), revisions(3), revisions(4)])
    assert [len(result.timelines["a"].conflicts) // 24 for result in results] == [0, 2, 1, 0]


def test_a_given_up_group_remembers_its_conflicts() -> None:
    pipe = pipeline()
    first = revisions(1, 3)
    *_, before = steps(pipe, [first, others(first)])
    give_up = Decision(id="1", action=DecisionAction.GIVE_UP, group="a", by="me", at_us=1)
    after = pipe.replay(others(first), after=before, decisions=[give_up])
    assert (after.counts.duplicate, after.counts.rejected) == (1, {"given up": 2})
