"""Revisions without holes: every small history, in every order of arrival, against the reference."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import (
    BAD,
    Message,
    arrive,
    check_books,
    content,
    cut,
    expected,
    pipeline,
    revisions,
    steps,
    story,
    summed,
    went,
)

from inturn import Gapless
from inturn.core.identity import TimelineEntry, digest
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.journal import Journal

ORDER = Gapless("r")


def small_histories(size: int) -> Iterator[tuple[int, ...]]:
    """Every order of arrival of 1 … size, one of them twice and one missing, or only either of the two."""
    for missing in (0, *range(1, size + 1)):
        numbers = [number for number in range(1, size + 1) if number != missing]
        yield from permutations(numbers) if numbers else ()
        for repeated in numbers:
            yield from sorted(set(permutations([*numbers, repeated])))


def as_groups(histories: list[list[Message]]) -> list[Message]:
    """Each history as a group of its own, their messages dealt out in turn: so one step tries them all."""
    longest = max(len(history) for history in histories)
    return arrive(
        {**history[index], "g": number}
        for index in range(longest)
        for number, history in enumerate(histories)
        if index < len(history)
    )


def check_all(histories: list[list[Message]], order: Gapless = ORDER) -> None:
    """One replay of all of them does with each what the reference says."""
    result = pipeline(order).replay(as_groups(histories))
    check_books([result])
    held, outputs = defaultdict(list), defaultdict(list)
    for entry in result.held:
        held[entry.group].append(entry.message["v"])
    for output in result.outputs:
        outputs[output.group].append(output.output)
    totals: Counter[str] = Counter()
    for number, history in enumerate(histories):
        model = expected(order, history)
        actual = result.states[str(number)], outputs[str(number)], held[str(number)]
        assert actual == (model.applied, model.applied, [message["v"] for message in model.held]), history
        totals += model.counts
    assert went(result.counts) == totals


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_gapless_equals_the_reference_for_every_small_history(size: int) -> None:
    check_all([revisions(*numbers) for numbers in small_histories(size)])


def test_gapless_equals_the_reference_for_every_history_of_six() -> None:
    """As above; but past the reading of messages, which would take most of the time."""
    pipe = pipeline()
    entries = {
        message["r"]: TimelineEntry(message["r"], digest(content(message)), message)
        for message in revisions(*range(1, 7))
    }
    for numbers in small_histories(6):
        group = Group("a", ORDER.timeline(), Fold(pipe, list), Journal(), 0)
        for number in numbers:
            group.process(replace(entries[number]))
        group.journal.counts.received = len(numbers)
        group.finish()
        model = expected(ORDER, [entries[number].message for number in numbers])
        assert group.fold.state == model.applied, numbers
        assert [group.timeline.held[key].message for key in sorted(group.timeline.held)] == model.held, numbers
        assert went(group.journal.counts) == model.counts, numbers
        assert group.journal.counts.balanced, numbers


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_gapless_equals_the_reference_for_every_small_history_with_a_conflict(size: int) -> None:
    """As above, but the second copy of a revision has other content: the first to arrive wins."""
    check_all(
        [
            [{"r": number, "v": f"v{number}, {numbers[:index].count(number)}"} for index, number in enumerate(numbers)]
            for numbers in small_histories(size)
        ]
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_gapless_equals_the_reference_for_every_small_history_with_a_failing_message(size: int) -> None:
    check_all(
        [
            [{**message, "v": BAD if message["r"] == bad else message["v"]} for message in revisions(*numbers)]
            for bad in range(1, size + 1)
            for numbers in small_histories(size)
        ]
    )


@pytest.mark.parametrize("start", [-3, 0, 7])
def test_gapless_start_may_be_any_number(start: int) -> None:
    order = Gapless("r", start=start)
    check_all([revisions(*(start - 1 + number for number in numbers)) for numbers in small_histories(4)], order)
    below = pipeline(order).replay(revisions(start - 1))
    assert [(rejection.reason, rejection.detail) for rejection in below.rejected] == [
        ("invalid", f"r is {start - 1}, below the start {start}")
    ]


def test_gapless_start_first_begins_at_the_first_message() -> None:
    check_all([revisions(*numbers) for numbers in small_histories(4)], Gapless("r", start="first"))
    first, second = steps(pipeline(Gapless("r", start="first")), [revisions(7, 9), revisions(6, 8, 7)])
    assert ([held.message["r"] for held in first.held], first.states) == ([9], {"a": ["v7"]})
    assert second.states == {"a": ["v7", "v8", "v9"]}
    assert (second.counts.stale, second.counts.duplicate) == (1, 1)


def test_gapless_start_first_applies_to_each_epoch() -> None:
    order = Gapless("r", start="first", epoch="e")
    arrivals = [*revisions(5, 6, e=1), *revisions(40, 42, 41, 39, e=2)]
    result = pipeline(order).replay(arrive(arrivals))
    assert (result.states, result.counts.stale) == ({"a": ["v5", "v6", "v40", "v41", "v42"]}, 1)


@pytest.mark.parametrize("numbers", [(1, 2, 4, 5, 3), (2, 1, 5, 6, 4, 3)])
def test_held_messages_are_applied_when_the_gap_closes(numbers: tuple[int, ...]) -> None:
    """Two orders of arrival that have gone wrong elsewhere: a later gap was closed, or not, by an earlier release."""
    result = pipeline().replay(revisions(*numbers))
    assert result.states == {"a": [f"v{number}" for number in sorted(numbers)]}
    assert result.held == []
    for ends in ([1], [2], [3], [4], [1, 2, 3, 4]):
        assert story(steps(pipeline(), cut(revisions(*numbers), ends))) == story([result])


def test_a_released_message_is_counted_once_in_the_step_of_its_release() -> None:
    first, second, third = steps(pipeline(), cut(revisions(3, 2, 4, 1, 1), [2, 3]))
    counts = first.counts
    assert (counts.received, counts.released, counts.applied, counts.held) == (2, 0, 0, 2)
    assert (second.counts.received, second.counts.released, second.counts.held) == (1, 0, 1)
    counts = third.counts
    assert (counts.received, counts.released, counts.applied, counts.duplicate, counts.held) == (2, 3, 4, 1, 0)


def test_a_held_message_has_its_status_and_content() -> None:
    result = pipeline().replay(revisions(5, 3))
    assert [(held.group, held.status, held.message["r"]) for held in result.held] == [
        ("a", "waiting", 3),
        ("a", "waiting", 5),
    ]
    assert result.states == {"a": []}
    assert result.errors == {}


def test_a_conflict_is_rejected_with_its_reason() -> None:
    first, second = {"r": 1, "v": "x"}, {"r": 1, "v": "y"}
    for parts in ([[first, second]], [[first], [second]]):
        last = steps(pipeline(), [arrive(part) for part in parts])[-1]
        assert last.states == {"a": ["x"]}
        [rejected] = last.rejected
        assert (rejected.group, rejected.reason, content(rejected.message)) == ("a", "conflict", {"g": "a", **second})
        assert "different content" in rejected.detail


def test_a_conflict_with_a_held_message_is_detected_on_arrival() -> None:
    result = pipeline().replay(arrive([{"r": 3, "v": "x"}, {"r": 3, "v": "y"}, {"r": 3, "v": "x"}]))
    assert (result.counts.held, result.counts.duplicate, result.counts.rejected) == (1, 1, {"conflict": 1})
    assert [held.message["v"] for held in result.held] == ["x"]


def test_without_arrival_the_digest_decides_a_conflict_within_a_step() -> None:
    """So that a replay decides the same, whatever the order in which the messages are listed."""
    rivals = [{"g": "a", "r": 1, "v": value} for value in "wxyz"]
    outcomes = [pipeline(arrival=None).replay(listed).states for listed in permutations(rivals)]
    assert all(states == outcomes[0] for states in outcomes)


@st.composite
def histories(draw: st.DrawFn, *, conflicts: bool) -> list[Message]:
    """Messages of a few groups in some order of arrival: copies, holes, some that fail."""
    bad = draw(st.sets(st.tuples(st.integers(0, 2), st.integers(1, 8)), max_size=2))
    places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8)), max_size=25))
    contents = [draw(st.integers(0, 1)) if conflicts else 0 for _ in places]
    return arrive(
        {"g": group, "r": revision, "v": BAD if (group, revision) in bad else f"{revision}{'ab'[index]}"}
        for (group, revision), index in zip(places, contents, strict=True)
    )


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size), max_size=5)


@given(st.data(), histories(conflicts=True))
def test_a_gapless_step_equals_the_reference(data: st.DataObject, history: list[Message]) -> None:
    result = pipeline().replay(data.draw(st.permutations(history)))  # the list's order does not count, arrival does
    check_books([result])
    for group in {message["g"] for message in history}:
        model = expected(ORDER, [message for message in history if message["g"] == group])
        assert result.states[str(group)] == model.applied
        assert [held.message for held in result.held if held.group == str(group)] == model.held


@given(st.data(), histories(conflicts=False), st.booleans())
def test_without_conflicts_arrival_order_and_step_boundaries_do_not_change_the_result(
    data: st.DataObject, history: list[Message], arrival: bool
) -> None:
    pipe = pipeline(arrival="o" if arrival else None, ignore=["o"])
    whole = story([pipe.replay(history)])
    shuffled = data.draw(st.permutations(history))
    if arrival:
        shuffled = arrive(shuffled)
    parts = cut(shuffled, data.draw(cuts(len(history))))
    parted = story(steps(pipe, parts))
    for summary in (whole, parted):  # which of several copies is the one that is held, only its arrival tells
        summary["held"] = [(held.group, held.status, content(held.message)) for held in summary["held"]]
    assert parted == whole


@given(st.data(), histories(conflicts=True))
@example(data=None, history=revisions(1, 2, 4, 5, 3))
def test_with_conflicts_step_boundaries_do_not_change_the_result(
    data: st.DataObject | None, history: list[Message]
) -> None:
    ends = data.draw(cuts(len(history))) if data else [2, 4]
    assert story(steps(pipeline(), cut(history, ends))) == story([pipeline().replay(history)])


@given(histories(conflicts=True))
def test_gapless_with_one_message_per_step_gives_the_same_result(history: list[Message]) -> None:
    assert story(steps(pipeline(), [[], *([message] for message in history)])) == story([pipeline().replay(history)])


@given(histories(conflicts=True))
def test_groups_do_not_affect_each_other(history: list[Message]) -> None:
    together = pipeline().replay(history)
    apart = {group: pipeline().replay([message for message in history if message["g"] == group]) for group in range(3)}
    assert together.states == {name: state for result in apart.values() for name, state in result.states.items()}
    assert together.outputs == [output for result in apart.values() for output in result.outputs]
    assert together.held == [held for result in apart.values() for held in result.held]
    total = summed(apart.values())
    assert went(together.counts) == went(total)


def test_a_step_does_not_change_the_result_of_the_step_before() -> None:
    """The state is changed in place by the handler, but only in a copy: a step can be taken again."""
    before = pipeline().replay(revisions(1, 3))
    before_story = story([before])
    once = story([pipeline().replay(revisions(2), after=before)])
    assert story([pipeline().replay(revisions(2), after=before)]) == once
    assert once["states"] == {"a": ["v1", "v2", "v3"]}
    assert story([before]) == before_story
    assert before.states == {"a": ["v1"]}


def test_replay_outputs_are_sorted_by_group_and_revision() -> None:
    pipe = pipeline(handler=lambda state, message: (state, [message["v"]] * 2))
    result = pipe.replay(arrive([{"g": group, "r": revision, "v": revision} for revision in (2, 1) for group in "ba"]))
    places = [(output.group, output.revision, output.index) for output in result.outputs]
    assert places == [(group, revision, index) for group in "ab" for revision in (1, 2) for index in (0, 1)]
    assert len({output.effect_id for output in result.outputs}) == 8
