"""Messages of the same time: the order of the finer digits, of arrival, and of ids as numbers."""

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn import Pipeline, Timestamp
from inturn.core.values.instant import Unit, read_ns, read_us
from inturn.core.values.sortable import sortable, sortable_integer

Row = dict[str, Any]


def append(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"ids": [*state.get("ids", []), message["id"]]}, []


def line(unit: Unit = "us", **more: Any) -> Pipeline:
    return Pipeline(
        name="ties", group="g", order=Timestamp("at", lateness="1 hour", unit=unit), id="id", handler=append, **more
    )


def rows(ids: Sequence[Any], times: Sequence[Any] = ("2026-05-01T12:00:00Z",)) -> list[Row]:
    return [{"g": "a", "at": times[n % len(times)], "id": ident, "n": n} for n, ident in enumerate(ids)]


def order_of(pipeline: Pipeline, messages: Sequence[Row], cuts: Sequence[int] = ()) -> list[Any]:
    """The ids in the order of application, with the messages in steps that end at these places."""
    replay = None
    for begin, end in pairwise([0, *cuts, len(messages)]):
        replay = pipeline.replay(messages[begin:end], after=replay, final=end == len(messages))
    assert replay is not None
    ids: list[Any] = replay.states["a"]["ids"]
    return ids


def test_equal_times_are_ordered_by_arrival_before_id() -> None:
    """A trade feed with 63, 64 and 65 items at once: as texts, its ids put 9 behind 11."""
    assert order_of(line(arrival="n"), rows(["9", "10", "11"])) == ["9", "10", "11"]
    assert order_of(line(arrival="n"), rows(["b", "a", "c"])) == ["b", "a", "c"]


def test_equal_times_without_arrival_are_ordered_by_id_with_integers_as_numbers() -> None:
    assert order_of(line(), rows(["10", 9, "-1", "x2", "x10"])) == ["x10", "x2", "-1", 9, "10"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("arrival", ["n", None])
def test_step_boundaries_do_not_change_the_order_of_equal_times(seed: int, arrival: str | None) -> None:
    chance = random.Random(seed)
    messages = rows(chance.sample(range(-50, 50), 30), ["2026-05-01T12:00:00.000001", "2026-05-01T12:00:00.0000012"])
    cuts = sorted(chance.sample(range(1, 30), 4))
    assert order_of(line(arrival=arrival), messages, cuts) == order_of(line(arrival=arrival), messages)


def test_messages_without_the_arrival_field_are_numbered_across_steps() -> None:
    messages = [{name: value for name, value in row.items() if name != "n"} for row in rows("cabd")]
    assert order_of(line(arrival="n"), messages, cuts=[2]) == list("cabd")


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("us", [f"2026-05-01T12:00:00.123456{finer}Z" for finer in ("", "05", "1", "789")]),
        ("ns", [1_700_000_000_123_456_000 + finer for finer in (0, 50, 100, 789)]),
        ("ns", [f"17000000001234567{finer}" for finer in ("00", "05", "10", "89")]),
        ("s", [Decimal("1700000000.123456") + finer * Decimal("1e-9") for finer in (0, 50, 100, 789)]),
        ("ms", [-1_000 + finer for finer in (0.0, 0.00025, 0.0005, 0.00075)]),
    ],
)
def test_timestamps_are_ordered_by_nanoseconds(unit: Unit, times: list[Any]) -> None:
    assert len({read_us(moment, unit) for moment in times}) == 1
    assert order_of(line(unit), rows(["d", "c", "b", "a"], times)) == ["d", "c", "b", "a"]
    assert order_of(line(unit, arrival="n"), rows(["d", "c", "b", "a"], times)[::-1]) == ["d", "c", "b", "a"]


@given(
    st.one_of(
        st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans())),
        st.lists(st.floats(allow_nan=False, allow_infinity=False)),
        st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=6)),
        st.lists(st.datetimes()),
        st.lists(st.datetimes(timezones=st.just(dt.UTC))),
        st.lists(st.dates()),
        st.lists(st.timedeltas()),
        st.lists(st.text(st.characters(min_codepoint=3, exclude_categories=["Cs"]), max_size=100)),
    )
)
def test_sortable_texts_sort_like_their_values(values: list[Any]) -> None:
    texts = [sortable(value) for value in sorted(values)]
    assert texts == sorted(texts)


def test_a_time_text_sorts_like_a_time() -> None:
    times = ["2026-05-01T14:00:00+02:00", "2026-05-01T12:00:00.0001Z", "2026-05-01T12:00:00.5Z", "2026-05-01 12:00:01"]
    assert [sortable(time) for time in times] == sorted(sortable(time) for time in times)
    assert sortable(times[2]) == sortable(dt.datetime(2026, 5, 1, 12, 0, 0, 500_000, tzinfo=dt.UTC))


@pytest.mark.parametrize("value", [Decimal("sNaN"), Decimal("-Infinity"), float("nan"), float("inf"), b"x", "\0"])
def test_every_value_has_a_sortable_text_without_nul(value: Any) -> None:
    assert "\0" not in sortable(value)


@given(st.lists(st.integers(-(10**30) + 1, 10**30 - 1), unique=True))
def test_sortable_integers_sort_like_integers(numbers: list[int]) -> None:
    texts = [sortable_integer(str(number)) for number in sorted(numbers)]
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) <= 1


@pytest.mark.parametrize("text", ["", "-", "1.0", "1e5", "x1", "١", "1\n", "9" * 31])  # noqa: RUF001 - a digit
def test_sortable_integer_returns_an_empty_text_for_other_texts(text: str) -> None:
    assert sortable_integer(text) == ""


@pytest.mark.parametrize("value", [None, "soon", dt.date(2026, 5, 1), dt.datetime(2026, 5, 1), True, 7, float("nan")])  # noqa: DTZ001 - naive
def test_read_ns_is_zero_without_finer_digits(value: Any) -> None:
    assert read_ns(value) == 0
