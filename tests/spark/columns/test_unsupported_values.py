"""What Spark's columns hold and Python cannot: each such row is invalid alone, and is kept as text."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn import Arrival, Gapless, Pipeline, Timestamp
from inturn.core.errors import InvalidMessage
from inturn.core.identity import canonical
from inturn.core.pipeline.order import Order
from inturn.spark.columns.names import GROUP, HASH
from inturn.spark.columns.unsupported_values import as_texts, unreadable, without_rows
from inturn.spark.columns.years import DAYS_OF_PYTHON, MICROSECONDS_OF_PYTHON, day_text, instant_text
from kernel_harness import Bench

AWARE, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
RAW = {
    pa.string(): pa.binary(),
    pa.date32(): pa.int32(),
    AWARE: pa.int64(),
    NAIVE: pa.int64(),
    pa.duration("us"): pa.int64(),
}
LEAVES = {
    pa.string(): st.sampled_from([b"", b"a", "é".encode(), b"\xe9", b"\xed\xa0\x80"]),
    pa.date32(): st.sampled_from(
        [0, *DAYS_OF_PYTHON, DAYS_OF_PYTHON[0] - 1, DAYS_OF_PYTHON[1] + 1, 2**31 - 1, -(2**31)]
    ),
    AWARE: st.sampled_from([0, *MICROSECONDS_OF_PYTHON, MICROSECONDS_OF_PYTHON[0] - 1, MICROSECONDS_OF_PYTHON[1] + 1]),
    NAIVE: st.sampled_from([1, *MICROSECONDS_OF_PYTHON, -(2**63), 2**63 - 1]),
    pa.int64(): st.sampled_from([0, -(2**63), 2**63 - 1]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.duration("us"): st.sampled_from([0, 1, 2**63 - 1, -(2**63)]),
}
"""Arrow's types of what Spark sends, with values in the raw form in which an array is made of them."""
SET = [kind for kind in LEAVES if kind != pa.null()]


def raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(raw(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(raw(kind.key_type), raw(kind.item_type))
    return pa.list_(raw(kind.value_type)) if pa.types.is_list(kind) else RAW.get(kind, kind)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_map(kind):
        pairs = st.tuples(LEAVES[kind.key_type], values(kind.item_type))
        return st.none() | st.lists(pairs, max_size=3)
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    return st.none() | LEAVES[kind]


kinds = st.recursive(
    st.sampled_from(SET),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, st.sampled_from(SET), inner),
        st.builds(lambda a, b: pa.struct([("a", a), ("b b", b)]), inner, inner),
    ),
    max_leaves=4,
)


def column(kind: pa.DataType, contents: Sequence[Any]) -> pa.Array:
    """An array of values in their raw form, at which nobody has looked."""
    array = pa.array(contents, raw(kind))
    buffers, children = array.buffers(), pa.Array.from_buffers
    return children(kind, len(array), buffers) if not kind.num_fields else viewed(array, kind)


def viewed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers as those of another type."""
    if pa.types.is_struct(kind):
        parts = [viewed(array.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_buffers(kind, len(array), array.buffers()[:1], children=parts)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays(
            [viewed(array.keys, kind.key_type), viewed(array.items, kind.item_type)],
            fields=[kind.key_field, kind.item_field],
        )
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[entries])
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:2], children=[viewed(array.values, kind.value_type)]
        )
    return pa.Array.from_buffers(kind, len(array), array.buffers())


def is_readable(row: pa.Table) -> bool:
    """Whether Arrow makes Python values of a row."""
    try:
        row.to_pylist(maps_as_pydicts="strict")
    except (OverflowError, ValueError, KeyError):
        return False
    return True


@given(data=st.data(), kind=kinds | st.just(pa.null()))
def test_unreadable_finds_exactly_the_rows_that_arrow_cannot_convert(data: st.DataObject, kind: pa.DataType) -> None:
    given_ = data.draw(st.lists(values(kind), min_size=1, max_size=6))
    cut = data.draw(st.integers(0, len(given_)))
    table = pa.table({"c": column(kind, given_)}).slice(cut)
    reasons = unreadable(table)
    rows = [table.slice(index, 1) for index in range(len(table))]
    assert reasons.keys() == {index for index, row in enumerate(rows) if not is_readable(row)}
    assert all(
        reason.startswith(("c", "the text of c", "a key of c", "the text of a key of c")) for reason in reasons.values()
    )
    converted = as_texts(table)
    converted.validate(full=True)
    for index, row in enumerate(converted.to_pylist()):
        if index not in reasons:  # what can be read is told as it is told of other messages
            assert canonical(row) == canonical(table.slice(index, 1).to_pylist()[0])
    assert len(without_rows(table, reasons)) == len(table) - len(reasons)
    assert unreadable(without_rows(table, reasons)) == {}


@given(days=st.integers(*DAYS_OF_PYTHON), us=st.integers(*MICROSECONDS_OF_PYTHON))
def test_dates_and_instants_in_the_python_range_have_iso_texts(days: int, us: int) -> None:
    assert day_text(days) == (dt.date(1970, 1, 1) + dt.timedelta(days)).isoformat()
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)
    assert instant_text(us, utc=True) == moment.isoformat()
    assert instant_text(us, utc=False) == moment.replace(tzinfo=None).isoformat()


def test_dates_and_instants_beyond_the_python_range_have_texts_like_spark() -> None:
    """As Spark writes them, but for the T."""
    assert [day_text(days) for days in (2**31 - 1, -719_163, -719_528, -(2**31))] == [
        "+5881580-07-11",
        "0000-12-31",
        "0000-01-01",
        "-5877641-06-23",
    ]
    assert instant_text(2**63 - 1, utc=True) == "+294247-01-10T04:00:54.775807+00:00"
    assert instant_text(-(2**63), utc=False) == "-290308-12-21T19:59:05.224192"


class Times(Bench):
    """Steps over rows whose days and times are given as numbers."""

    def table(self, messages: Sequence[Any], schema: pa.Schema) -> pa.Table:
        table = pa.table({f.name: column(f.type, [row[f.name] for row in messages]) for f in schema})
        groups = [day_text(row["g"]) for row in messages]
        hashes = pa.array(map(self.hash_of, groups), pa.int64())
        return table.append_column(GROUP, pa.array(groups)).append_column(HASH, hashes)


SCHEMA = pa.schema(
    {"g": pa.date32(), "r": pa.int64(), "i": pa.date32(), "at": AWARE, "came": NAIVE, "v": pa.list_(pa.date32())}
)
FINE: dict[str, Any] = {"g": 0, "r": 1, "i": 0, "at": 0, "came": 0, "v": [0, None]}
BEYOND = {"g": 2**31 - 1, "i": -(2**31), "at": 2**63 - 1, "came": -(2**63), "v": [0, -719_163]}


def count(state: dict[str, Any], message: Any) -> tuple[dict[str, Any], list[Any]]:
    return {"count": state.get("count", 0) + 1}, []


@pytest.mark.parametrize("order", [Gapless("r"), Arrival(), Timestamp("at", lateness="1 day")], ids=str)
def test_a_year_beyond_the_python_range_makes_only_its_row_invalid(order: Order) -> None:
    pipeline = Pipeline(name="p", group="g", order=order, id="i", arrival="came", handler=count)
    with Times(pipeline, SCHEMA) as bench:
        rows = [FINE, FINE | {"g": 1}, *(FINE | {place: value} for place, value in BEYOND.items())]
        counts = bench.step(rows, final=isinstance(order, Timestamp))
        assert (counts.applied, counts.rejected) == (2, {"invalid": len(BEYOND)})
        seen = bench.seen()
        assert seen.states == {"1970-01-01": {"count": 1}, "1970-01-02": {"count": 1}}
        rejected = {detail.split(";")[0]: message for _, _, detail, message in seen.rejected}
        assert rejected.keys() == {
            "g is +5881580-07-11",
            "i is -5877641-06-23",
            "at is +294247-01-10T04:00:54.775807+00:00",
            "came is -290308-12-21T19:59:05.224192",
            "v[1] is 0000-12-31",
        }
        assert '"v":["1970-01-01","0000-12-31"]' in rejected["v[1] is 0000-12-31"]
        assert ("+5881580-07-11", "invalid") in {(group, reason) for group, reason, _, _ in seen.rejected}


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_map_with_a_repeated_key_makes_only_its_row_invalid(depth: int) -> None:
    """At any depth; what is kept of it has both."""
    kind, repeated = pa.map_(pa.string(), pa.int64()), [(b"k", 1), (b"k", 2)]
    value, path, text = repeated, "v", '[["k",1],["k",2]]'
    for _ in range(depth):
        kind, value, path, text = pa.struct([("s", kind)]), {"s": value}, f"{path}.s", f'{{"s":{text}}}'
    schema = SCHEMA.set(SCHEMA.get_field_index("v"), pa.field("v", kind))
    pipeline = Pipeline(name="p", group="g", order=Gapless("r"), handler=count)
    with Times(pipeline, schema) as bench:
        counts = bench.step([FINE | {"v": None}, FINE | {"g": 1, "v": value}, FINE | {"g": 2**31 - 1, "v": None}])
        assert (counts.applied, counts.rejected) == (1, {"invalid": 2})
        rejected = {detail: message for _, _, detail, message in bench.seen().rejected}
        assert f'"v":{text}' in rejected[f"{path} has the key 'k' twice"]


def test_on_invalid_fail_names_the_unreadable_value() -> None:
    pipeline = Pipeline(name="p", group="g", order=Gapless("r"), handler=count, on_invalid="fail")
    with Times(pipeline, SCHEMA) as bench, pytest.raises(InvalidMessage, match=r"v\[1\] is 0000-12-31; Python"):
        bench.step([FINE | {"v": BEYOND["v"]}])
