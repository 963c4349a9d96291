"""The one grammar for paths, and pipelines whose fields lie within others."""

import dataclasses
import datetime as dt
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inturn import Arrival, Gapless, Monotone, Pipeline, Timestamp
from inturn.core.errors import InputError, PipelineError
from inturn.core.values.instant import parsed, read_us
from inturn.core.values.path import joined, parts, put, value_at, without

NAMES = st.lists(st.text(alphabet="ab.`é \n", min_size=1, max_size=4), min_size=1, max_size=4)
Row = dict[str, Any]


@given(NAMES)
@example(["a", "b"])
@example(["a.b", "`"])
def test_joined_path_parts_are_parsed_back(names: list[str]) -> None:
    assert parts(joined(names)) == tuple(names)


@given(NAMES, st.integers())
def test_put_and_without_set_and_remove_a_value_at_a_path(names: list[str], value: int) -> None:
    path = joined(names)
    changed = put({"other": 1}, path, value)
    assert value_at(changed, path) == value
    assert value_at(without(changed, names), path) is None
    assert value_at({}, path) is None


@pytest.mark.parametrize("name", [".", "a.", ".a", "a..b", "`a", "a`", "a`b", "``", "`a`b"])
def test_an_invalid_path_is_a_single_field_name(name: str) -> None:
    assert parts(name) == (name,)
    assert value_at({name: 1}, name) == 1


def test_put_into_a_value_without_fields_is_refused() -> None:
    with pytest.raises(InputError, match="5 has no fields"):
        put({"a": 5}, "a.b", 1)


def collect(state: Row, message: Row) -> tuple[Row, list[Any]]:
    state.setdefault("seen", []).append(message["v"])
    return state, [message["v"]]


FLAT = [
    {"g": "a", "r": 1, "e": 0, "i": "1", "o": 1, "seen": 1, "v": 1},
    {"g": "a", "r": 2, "e": 0, "i": "2", "o": 2, "seen": 2, "v": 2},
    {"g": "a", "r": 2, "e": 0, "i": "2", "o": 3, "seen": 3, "v": 2},
    {"g": "a", "r": 2, "e": 0, "i": "2", "o": 4, "seen": 4, "v": 9},
    {"g": "b", "r": 3, "e": 1, "i": "3", "o": 5, "seen": 5, "v": 3},
    {"g": "b", "r": 1, "e": 1, "i": "4", "o": 6, "seen": 6, "v": 4},
    {"g": None, "r": 1, "e": 1, "i": "5", "o": 7, "seen": 7, "v": 4},
    {"g": "b", "r": None, "e": 1, "i": "6", "o": 8, "seen": 8, "v": 4},
]
ORDERS = {
    "gapless": lambda r, e: Gapless(r, epoch=e),
    "monotone": lambda r, e: Monotone(r, epoch=e),
    "timestamp": lambda r, _: Timestamp(r, "1 second", unit="s"),
    "arrival": lambda *_: Arrival(),
}


def nested(row: Row) -> Row:
    after = {"id.x": row["g"], "version": row["r"], "tx": row["i"]}
    if after["version"] is None:
        del after["version"]  # the same as null
    return {
        "after": after,
        "source": {"epoch": row["e"], "at": {"offset": row["o"], "seen": row["seen"]}},
        "v": row["v"],
    }


@pytest.mark.parametrize("order", ORDERS)
def test_nested_key_fields_give_the_same_result_as_top_level_ones(order: str) -> None:
    flat = Pipeline(
        name="p", group="g", order=ORDERS[order]("r", "e"), id="i", arrival="o", ignore="seen", handler=collect
    )
    within = Pipeline(
        name="p",
        group="after.`id.x`",
        order=ORDERS[order]("after.version", "source.epoch"),
        id="after.tx",
        arrival="source.at.offset",
        ignore="source.at.seen",
        handler=collect,
    )
    one, other = flat.replay(FLAT, final=False), within.replay(map(nested, FLAT))
    assert other.counts == one.counts
    assert other.states == one.states
    assert [output.effect_id for output in other.outputs] == [output.effect_id for output in one.outputs]
    reasons = [(rejection.group, rejection.reason) for rejection in other.rejected]
    assert reasons == [(rejection.group, rejection.reason) for rejection in one.rejected]
    assert one.counts.duplicate + one.counts.stale >= 1


@dataclasses.dataclass
class After:
    account: str
    version: int | None = None


@dataclasses.dataclass
class Change:
    after: After
    v: int = 0


def note(state: Row, change: Change) -> tuple[Row, list[Any]]:
    return {**state, str(change.after.version): change.v}, []


def test_nested_dataclass_fields_can_be_key_fields() -> None:
    pipeline = Pipeline(name="p", group="after.account", order=Gapless("after.version"), message=Change, handler=note)
    result = pipeline.replay([Change(After("a", 1), 5), Change(After("a", 2), 6), Change(After("a"), 7)])
    assert result.states == {"a": {"1": 5, "2": 6}}
    assert [rejection.reason for rejection in result.rejected] == ["invalid"]
    with pytest.raises(PipelineError, match="After has no field 'revision'; existing fields: account, version"):
        Pipeline(name="p", group="after.account", order=Gapless("after.revision"), message=Change, handler=note)


def test_a_key_field_inside_an_ignored_field_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"'meta\.id' places messages"):
        Pipeline(name="p", group="meta.id", order=Gapless("r"), ignore=["meta"], handler=collect)


def test_an_unquoted_field_name_with_a_dot_is_reported() -> None:
    pipeline = Pipeline(name="p", group="a.b", order=Gapless("r"), handler=collect)
    with pytest.raises(InputError, match=r"write '`a\.b`' in the pipeline"):
        pipeline.replay([{"a.b": "x", "r": 1, "v": 1}])


MOMENT = dt.datetime(2014, 10, 22, 11, 15, 41, 5_000, tzinfo=dt.UTC)
SINCE_1970 = 1_413_976_541_005_000


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        (MOMENT, "us"),
        (MOMENT.replace(tzinfo=None), "us"),
        ("2014/10/22 11:15:41.005", "us"),
        ("2014-10-22T11:15:41.005Z", "us"),
        ("2014-10-22 13:15:41,005 +02:00", "us"),
        ("2014-10-22T06:45:41.005000-0430", "us"),
        (SINCE_1970, "us"),
        (SINCE_1970 // 1_000, "ms"),
        (str(SINCE_1970 // 1_000), "ms"),
        (SINCE_1970 * 1_000 + 999, "ns"),
        (SINCE_1970 / 1_000, "ms"),
    ],
)
def test_timestamp_accepts_times_as_texts_numbers_and_datetimes(given: Any, unit: Any) -> None:
    assert read_us(given, unit) == SINCE_1970
    pipeline = Pipeline(name="p", group="g", order=Timestamp("at", unit=unit), id="i", handler=collect)
    result = pipeline.replay([{"g": "a", "at": given, "i": "1", "v": 1}], final=True)
    assert (result.counts.applied, result.timelines["a"].reached) == (1, SINCE_1970)


@pytest.mark.parametrize(
    "text", ["soon", "", "2014/10-22 11:15", "2014-13-01 00:00", "2014-01-01 24:00", "0000-01-01 00:00:00", "1e9"]
)
def test_an_invalid_time_text_rejects_only_its_message(text: str) -> None:
    assert parsed(text) is None
    pipeline = Pipeline(name="p", group="g", order=Timestamp("at"), id="i", handler=collect)
    valid = {"g": "a", "at": "2014-10-22 11:15", "i": "1", "v": 1}
    result = pipeline.replay([valid, {**valid, "at": text}], final=True)
    assert (result.counts.applied, result.counts.rejected) == (1, {"invalid": 1})


@given(st.datetimes())
def test_iso_time_texts_are_parsed_like_datetime_fromisoformat(moment: dt.datetime) -> None:
    assert parsed(moment.isoformat()) == moment
    assert parsed(moment.isoformat(" ").replace("-", "/", 2)) == moment


def test_timestamp_unit_is_checked_and_omitted_from_the_stored_order_by_default() -> None:
    with pytest.raises(PipelineError, match="expected one of 's', 'ms', 'us', 'ns'"):
        Timestamp("at", unit="minutes")  # type: ignore[arg-type]
    assert repr(Timestamp("at")) == "Timestamp(column='at', lateness='0 seconds')"
    assert repr(Timestamp("at", unit="ms")) == "Timestamp(column='at', lateness='0 seconds', unit='ms')"
