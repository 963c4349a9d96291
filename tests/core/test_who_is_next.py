"""``Scheduler`` does what a list does that is searched from its beginning, however many are withdrawn."""

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inturn.core import limits
from inturn.core.errors import InputError, QueueFull
from inturn.core.scheduler import Fairness, Scheduler, scheduler

GROUPS = [None, "a", "a", "b", "c"]


class Model:
    """Everything is looked for from the beginning."""

    def __init__(self, max_active: int, max_queued: int) -> None:
        self.max_active, self.max_queued = max_active, max_queued
        self.waiting: list[int] = []  # in the order of arrival
        self.outside: list[int] = []
        self.holds: dict[int, Hashable] = {}
        self.groups: dict[int, Hashable] = {}

    @property
    def queued(self) -> int:
        return len(self.waiting) - len(self.outside)

    def may_go(self, number: int) -> bool:
        group = self.groups[number]
        return len(self.holds) < self.max_active and (group is None or group not in self.holds.values())

    def leave(self, number: int) -> None:
        self.waiting.remove(number)
        if number in self.outside:
            self.outside.remove(number)
        elif self.outside:
            del self.outside[0]

    def next(self) -> int | None:
        number = next(filter(self.may_go, self.waiting), None)
        if number is not None:
            self.leave(number)
            self.holds[number] = self.groups[number]
        return number

    def went(self, number: int | None) -> bool:
        """Return whether this is who is next."""
        return number == self.next()


class UngroupedFirstModel(Model):
    """Who has no group is first, but not too often in a row; of the groups any may be next."""

    overtakings = 0

    def went(self, number: int | None) -> bool:
        eligible = list(filter(self.may_go, self.waiting))
        ungrouped = [task for task in eligible if self.groups[task] is None][:1]
        grouped = [next(task for task in eligible if self.groups[task] == group) for group in self.idle(eligible)]
        is_overtaking = bool(ungrouped) and self.overtakings < limits.BROKER_OVERTAKINGS
        self.overtakings = self.overtakings + 1 if is_overtaking else 0
        right = ungrouped if is_overtaking else grouped or ungrouped or [None]
        if number is not None:
            self.leave(number)
            self.holds[number] = self.groups[number]
        return number in right

    def idle(self, eligible: list[int]) -> set[Hashable]:
        return {self.groups[task] for task in eligible} - {None}


arrivals = st.tuples(
    st.sampled_from(["arrive"]),
    st.sampled_from(GROUPS),
    st.sampled_from(["enter", "wait", "put"]),
    st.sampled_from([1, 3, 50]),
)
departures = st.tuples(
    st.sampled_from(["withdraw", "withdraw", "next", "next", "clear"]),
    st.none(),
    st.integers(0, 1000),
    st.sampled_from([1, 2, 100]),
)


@pytest.mark.parametrize("fairness", ["oldest", "ungrouped-first"])
@given(st.integers(1, 3), st.sampled_from([2, 5, 200]), st.lists(arrivals | departures, max_size=40))
@settings(max_examples=300, deadline=None)
def test_the_scheduler_equals_a_linear_search_model(
    fairness: Fairness, max_active: int, max_queued: int, steps: list[tuple[str, Any, Any, int]]
) -> None:
    slots = scheduler(fairness, max_active, max_queued)
    model = (UngroupedFirstModel if fairness == "ungrouped-first" else Model)(max_active, max_queued)
    places: dict[int, Any] = {}
    let_in: list[int] = []
    for step, group, how, times in steps:
        for _ in range(times):
            before = list(model.outside)
            let_in.clear()
            if step == "arrive":
                _arrive(slots, model, places, let_in, group, how)
            elif step == "withdraw" and (lists := [task for task in model.waiting if isinstance(places[task], list)]):
                number = lists[how % len(lists)]
                slots.withdraw(places[number])
                model.leave(number)
                assert places.pop(number) == []  # it keeps nothing alive
            elif step == "next" and model.holds:
                number = sorted(model.holds)[how % len(model.holds)]
                next_task = slots.next(model.holds.pop(number))
                assert model.went(None if next_task is None else next_task[1])
            elif step == "clear":
                assert sorted(task[1] for task in slots.clear()) == sorted(model.waiting)
                model.waiting.clear()
                model.outside.clear()
            assert (slots.active, slots.queued) == (len(model.holds), model.queued)
            assert let_in == [task for task in before if task not in model.outside]
            standing = [task for tasks in (slots._arrivals, *slots._busy.values()) for task in tasks or ()]
            assert len(standing) <= 2 * len(model.waiting) + max_active + 33
            assert slots._gone == standing.count([])


def _arrive(
    slots: Scheduler[Any], model: Model, places: dict[int, Any], let_in: list[int], group: Hashable, how: str
) -> None:
    number = len(model.groups)
    model.groups[number] = group
    task: Any = (group, number) if how == "enter" else [group, number]
    places[number] = task
    has_slot = model.may_go(number)
    refused = not has_slot and model.queued >= model.max_queued
    if has_slot:
        assert not any(map(model.may_go, model.waiting))
        model.holds[number] = group
    elif not refused or how == "put":
        model.waiting.append(number)
        if refused:
            model.outside.append(number)
    if how == "enter":
        if refused:
            with pytest.raises(QueueFull):
                slots.enter(task)
        else:
            assert slots.enter(task) is has_slot
    elif slots.take(group):
        assert has_slot
    elif refused and how == "wait":
        with pytest.raises(QueueFull):
            slots.wait(task)
    else:
        assert not has_slot
        assert slots.wait(task, (lambda: let_in.append(number)) if how == "put" else None) is refused


@pytest.mark.parametrize("fairness", ["oldest", "ungrouped-first"])
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from([None, "a", "a", "a", "b", "c", "d"]), min_size=1, max_size=60),
    st.sampled_from([None, "e"]),
)
@settings(max_examples=200, deadline=None)
def test_no_waiting_task_starves_under_permanent_load(
    fairness: Fairness, max_active: int, waiting: list[Hashable], load: Hashable
) -> None:
    """Whatever waits has its turn, though others come all the time: without a group, or of another group."""
    slots = scheduler(fairness, max_active, 10_000)
    holds: list[tuple[Hashable, int]] = []
    number = 0

    def arrive(group: Hashable) -> None:
        nonlocal number
        if slots.enter((group, number)):
            holds.append((group, number))
        number += 1

    for _ in range(max_active):
        arrive(None)
    pending = set(range(number, number + len(waiting)))
    for group in waiting:
        arrive(group)
    for _ in range((limits.BROKER_OVERTAKINGS + 1 + max_active) * (len(waiting) + 1)):
        arrive(load)
        task = slots.next(holds.pop(0)[0])
        if task is not None:
            holds.append(task)
            pending.discard(task[1])
    assert not pending


@pytest.mark.parametrize("max_active", [1, 2])
def test_an_unhashable_group_is_refused(max_active: int) -> None:
    slots = Scheduler[Any](max_active, 10)
    slots.take("a")
    with pytest.raises(InputError, match="expected a hashable value"):
        slots.enter(([], 1))
    assert (slots.active, slots.queued) == (1, 0)
