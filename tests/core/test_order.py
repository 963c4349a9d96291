"""Durations as people write them, and policies that contradict themselves."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn import Gapless, Retry, Timestamp, Wait
from inturn.core.errors import InturnError, PipelineError
from inturn.core.pipeline.order import StoredOrder
from inturn.core.values.duration import duration_us

UNITS = {"microsecond": 1, "millisecond": 10**3, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
UNITS |= {"day": 24 * UNITS["hour"], "week": 7 * 24 * UNITS["hour"]}


@pytest.mark.parametrize(("unit", "size"), UNITS.items())
@pytest.mark.parametrize("number", [0, 1, 2, 90])
def test_duration_accepts_every_unit_in_singular_and_plural(unit: str, size: int, number: int) -> None:
    for text in (f"{number} {unit}", f"{number} {unit}s", f"{number}{unit}s", f"  {number}  {unit}s "):
        assert duration_us(text, label="it") == number * size


@pytest.mark.parametrize(
    ("text", "us"),
    [("1.5 hours", 5_400_000_000), ("0.5 milliseconds", 500), ("2.5 days", 216_000_000_000), ("0.1 seconds", 10**5)],
)
def test_duration_accepts_fractions_of_a_unit(text: str, us: int) -> None:
    assert duration_us(text, label="it") == us


@given(st.timedeltas(min_value=dt.timedelta(0), max_value=dt.timedelta(days=365_000)))
def test_duration_accepts_a_timedelta(value: dt.timedelta) -> None:
    assert dt.timedelta(microseconds=duration_us(value, label="it")) == value


NO_DURATIONS = ["", "10", "minutes", "10 min", "10 fortnights", "-1 second", "1 second ago", "1e3 seconds", "1 Second"]
NO_DURATIONS += [".5 days", "10 s", "1 second 2 seconds", "1,5 hours", "1 secondss"]


@pytest.mark.parametrize("value", [*NO_DURATIONS, 10, 1.5, None, b"1 second", True])
def test_an_invalid_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(
        PipelineError, match=r"what is meant is .*; expected a text such as '10 minutes' .*second.* or a timedelta"
    ) as raised:
        duration_us(value, label="what is meant")  # type: ignore[arg-type]
    assert repr(value) in str(raised.value)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"it is datetime.timedelta\(.*\); a duration cannot be negative"):
        duration_us(dt.timedelta(microseconds=-1), label="it")


def test_invalid_durations_are_refused_by_wait_retry_and_timestamp() -> None:
    with pytest.raises(PipelineError, match=r"Wait\(timeout\) is 'soon'"):
        Wait("soon")
    with pytest.raises(PipelineError, match=r"Retry\(backoff\) is 'soon'"):
        Retry(1, backoff="soon")
    with pytest.raises(PipelineError, match=r"Timestamp\(lateness=…\) is 'soon'"):
        _ = Timestamp("t", lateness="soon").lateness_us


def test_wait_and_timestamp_convert_durations_to_microseconds() -> None:
    assert Wait().timeout_us is None
    assert Wait("10 minutes").timeout_us == 600_000_000
    assert Wait(dt.timedelta(seconds=1), then="skip").timeout_us == 1_000_000
    assert Timestamp("t").lateness_us == 0
    assert Timestamp("t", "5 minutes").lateness_us == 300_000_000


@pytest.mark.parametrize("then", ["stop", "", None, "Park"])
def test_wait_then_must_be_park_skip_or_fail(then: str) -> None:
    with pytest.raises(PipelineError, match=rf"Wait\(then={then!r}\); expected 'park', 'skip' or 'fail'"):
        Wait("1 minute", then=then)  # type: ignore[arg-type]


@pytest.mark.parametrize("then", ["skip", "fail"])
def test_wait_with_then_needs_a_timeout(then: str) -> None:
    with pytest.raises(PipelineError, match=rf"has no timeout; set one, such as Wait\('10 minutes', then='{then}'\)"):
        Wait(then=then)  # type: ignore[arg-type]


@pytest.mark.parametrize("times", [-1, 1.0, "3", None])
def test_retry_times_must_be_a_whole_number(times: object) -> None:
    with pytest.raises(
        PipelineError, match=r"Retry\(times=.*\); expected a whole number of further attempts, 0 or more"
    ):
        Retry(times)  # type: ignore[arg-type]


def test_orders_and_policies_compare_by_value() -> None:
    assert Wait("1 minute") == Wait("1 minute")
    assert len({Retry(), Retry(0), Retry(1)}) == 2
    assert issubclass(PipelineError, InturnError)


def test_a_stored_order_with_unusual_field_names_is_parsed() -> None:
    for order in (Gapless("v", start=3), Gapless("v, start=7", start=3), Gapless("v", start=3, epoch="e, start=7")):
        assert (StoredOrder.of(repr(order)).start, StoredOrder.of(repr(order)).grade) == (3, Gapless)
