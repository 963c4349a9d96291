"""Who makes room when what is kept of unfinished requests is too much."""

from hypothesis import given
from hypothesis import strategies as st

from inturn.serving.http.budget import Budget


def test_over_budget_the_oldest_holder_above_its_share_is_evicted() -> None:
    budget: Budget[str] = Budget(1_000, 10)
    assert budget.share == 50
    for name, size in (("small", 50), ("first", 400), ("second", 400), ("third", 100)):
        budget.change(name, 0, size)
        assert budget.next_to_drop() is None
    budget.change("first", 400, 500)
    budget.change("small", 50, 0)
    budget.change("third", 100, 101)
    assert (budget.used, budget.next_to_drop()) == (1_001, "first")
    budget.change("first", 500, 0)
    assert budget.next_to_drop() is None
    budget.change("first", 0, 600)
    assert budget.next_to_drop() == "second", "who begins anew is the newest"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2_000)), max_size=60))
def test_an_evicted_holder_always_has_more_than_its_share(changes: list[tuple[int, int]]) -> None:
    budget: Budget[int] = Budget(1_000, 10)
    held = dict.fromkeys(range(10), 0)
    for holder, size in changes:
        budget.change(holder, held[holder], size)
        held[holder] = size
        while (victim := budget.next_to_drop()) is not None:
            assert held[victim] > budget.share
            budget.change(victim, held[victim], 0)
            held[victim] = 0
        assert budget.used == sum(held.values()) <= 1_000
