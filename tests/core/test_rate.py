"""A rate is never exceeded in any window, whatever the order of the questions, and is reached where there is enough."""

import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inturn import InturnError, Rate
from inturn.core.errors import InputError

RATES = st.builds(
    Rate,
    st.integers(1, 50),
    st.integers(100, 5_000_000).map(lambda us: dt.timedelta(microseconds=us)),
    st.integers(1, 20),
)


@given(RATES, st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 30)), max_size=40))
@example(Rate(3, "1 second", burst=2), [(0, 9), (333_333, 9), (1, 9)])
def test_a_rate_is_never_exceeded_in_any_window(rate: Rate, requests: list[tuple[int, int]]) -> None:
    per_us = rate.per // dt.timedelta(microseconds=1) if isinstance(rate.per, dt.timedelta) else 1_000_000
    next_us, now_us, begun = 0, 10**15, list[int]()
    for pause_us, requested in requests:
        now_us += pause_us
        free = rate.free(next_us, now_us)
        assert (free > 0) == (rate.free_us(next_us, now_us) <= now_us)
        if count := min(requested, free):
            next_us = rate.after(next_us, now_us, count)
            begun += [now_us] * count
    for first in begun:
        assert sum(first <= start < first + per_us for start in begun) <= rate.times + rate.burst - 1


@given(RATES, st.integers(1, 100))
def test_a_rate_is_fully_used_by_immediate_requests(rate: Rate, number: int) -> None:
    next_us, now_us = 0, 10**15
    for _ in range(number):
        now_us = max(now_us, rate.free_us(next_us, now_us))
        assert rate.free(next_us, now_us) >= 1
        next_us = rate.after(next_us, now_us, 1)
    assert now_us - 10**15 == max(0, number - rate.burst) * rate.spacing_us


@given(RATES, st.integers(1, 10**12))
def test_a_clock_set_back_delays_a_rate_by_at_most_the_burst(rate: Rate, back_us: int) -> None:
    now_us = 10**15
    next_us = rate.after(0, now_us, rate.free(0, now_us))
    earlier_us = now_us - back_us
    assert rate.free_us(next_us, earlier_us) - earlier_us <= rate.spacing_us
    if rate.is_astray(next_us, earlier_us):
        next_us = rate.after(next_us, earlier_us, 0)
    assert not rate.is_astray(next_us, earlier_us)
    assert rate.free(next_us, earlier_us + rate.spacing_us) >= 1, "it may begin then, and is not put off again"


@pytest.mark.parametrize(
    ("times", "per", "burst", "text"),
    [
        (0, "1 second", 1, "times=0"),
        (True, "1 second", 1, "times=True"),
        (1, "1 second", 0, "burst=0"),
        (1, "soon", 1, "10 minutes"),
        (1, "0 seconds", 1, "exceeds one message per microsecond; pass a longer per"),
        (11, "10 microseconds", 1, "exceeds one message per microsecond; pass a longer per"),
    ],
)
def test_an_invalid_rate_is_refused(times: int, per: str, burst: int, text: str) -> None:
    with pytest.raises(InputError, match=text) as refused:
        Rate(times, per, burst)
    assert isinstance(refused.value, InturnError)
