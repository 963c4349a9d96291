"""Null and absent are the same in every engine, also within: the default, else None, else the message is invalid."""

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inturn import Gapless, Pipeline
from inturn.testing import same
from kernel_harness import Bench


@dataclass
class Line:
    sku: str
    count: int = 1
    note: str | None = None


@dataclass
class Order:
    account: str
    revision: int
    amount: int = 7
    note: str | None = "none"
    rate: float | None = None
    paid: bool | None = field(kw_only=True)
    line: Line | None = None
    lines: list[Line] = field(default_factory=list)


class LineStruct(msgspec.Struct):
    sku: str
    count: int = 1
    note: str | None = None


class OrderStruct(msgspec.Struct, kw_only=True):
    account: str
    revision: int
    amount: int = 7
    note: str | None = "none"
    rate: float | None = None
    paid: bool | None
    line: LineStruct | None = None
    lines: list[LineStruct] = []


LINE = pa.struct({"sku": pa.string(), "count": pa.int64(), "note": pa.string()})
SCHEMA = pa.schema(
    {
        "account": pa.string(),
        "revision": pa.int64(),
        "amount": pa.int64(),
        "note": pa.string(),
        "rate": pa.float64(),
        "paid": pa.bool_(),
        "line": LINE,
        "lines": pa.list_(LINE),
    }
)
lines = st.fixed_dictionaries(
    {"sku": st.just("x")}, optional={"count": st.none() | st.just(2), "note": st.none() | st.just("n")}
)
orders = st.fixed_dictionaries(
    {"account": st.sampled_from("ab"), "revision": st.integers(1, 3)},
    optional={
        "amount": st.none() | st.just(5),
        "note": st.none() | st.just("n"),
        "rate": st.none() | st.just(1.5),
        "paid": st.none() | st.booleans(),
        "line": st.none() | lines,
        "lines": st.none() | st.lists(lines, max_size=2),
    },
)


def keep(state: dict[str, Any], message: Any) -> tuple[dict[str, Any], list[Any]]:
    return {"last": msgspec.to_builtins(message)}, [message]


def pipeline(message: type) -> Pipeline:
    return Pipeline(name="orders", group="account", order=Gapless("revision"), message=message, handler=keep)


@pytest.mark.parametrize("message", [Order, OrderStruct])
@settings(max_examples=settings.default.max_examples // 5)
@given(came=st.lists(orders, max_size=5))
@example(came=[{"account": "a", "revision": 1, "amount": None}, {"account": "a", "revision": 1}])
@example(came=[{"account": "a", "revision": 1, "lines": [{"sku": "x", "count": None}], "note": None}])
@pytest.mark.thorough
def test_null_and_absent_fields_give_the_same_result_in_every_engine(message: type, came: list[dict[str, Any]]) -> None:
    tested = pipeline(message)
    pure = tested.replay(came)
    assert pure.states == tested.replay(map(nulled, came)).states
    assert pure.counts == tested.replay([*map(nulled, came)]).counts
    same(tested, came)
    same(tested, [*map(nulled, came)])
    with Bench(tested, SCHEMA) as bench:
        counts = bench.step(came)
        assert bench.seen().states == pure.states
    assert (counts.applied, counts.duplicate) == (pure.counts.applied, pure.counts.duplicate)


def nulled(row: dict[str, Any]) -> dict[str, Any]:
    """The row with null in place of every field that it has not."""
    row = copy.deepcopy(row)
    for item in (row.get("line"), *(row.get("lines") or ())):
        if item is not None:
            item |= {name: item.get(name) for name in ("count", "note")}
    return {name: row.get(name) for name in SCHEMA.names}


@pytest.mark.parametrize("message", [Order, OrderStruct])
def test_a_message_instance_with_none_is_handled_like_its_dict(message: Any) -> None:
    tested = pipeline(message)
    sent = message(account="a", revision=1, amount=None, note=None, paid=None)
    assert tested.replay([sent]).states["a"]["last"]["amount"] == 7
    assert same(tested, [sent]).states["a"]["last"]["note"] == "none"


@pytest.mark.parametrize("absent", [{}, {"sku": None}])
def test_a_missing_required_field_makes_only_its_message_invalid(absent: dict[str, Any]) -> None:
    tested = dataclasses.replace(pipeline(Order), group="sku", message=SkuOrder)
    story = same(tested, [{"revision": 1, **absent}, {"revision": 1, "sku": "x", "count": None}, {"revision": 2}])
    assert story.counts.rejected == {"invalid": 3}
    assert {rejection.detail for rejection in tested.replay([{"revision": 1, "sku": "x"}]).rejected} == {
        "count is null, expected int"
    }


@dataclass
class SkuOrder:
    sku: str
    revision: int
    count: int
