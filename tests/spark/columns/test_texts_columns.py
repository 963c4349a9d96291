"""Strings of Spark that are no UTF-8: such a row is invalid, alone, and what is kept of it can be read; and names."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import TEXTS, is_name, is_utf8
from inturn import Arrival, Gapless, Pipeline
from inturn.core.errors import InvalidMessage
from inturn.core.texts import name_fault
from inturn.spark.columns.names import GROUP, HASH
from inturn.spark.columns.unsupported_values import as_texts, unreadable
from inturn.spark.executor.invalid import name_faults
from kernel_harness import Bench

BAD = b"caf\xe9"
PLAIN = pa.schema({"g": pa.string(), "r": pa.int64(), "i": pa.string(), "v": pa.string()})
NESTED = pa.struct({"a": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int64()), "b": pa.binary()})


def strings(values: Sequence[bytes | None]) -> pa.Array:
    """A column of strings of these bytes, as Spark's cast gives it: nobody has looked at them."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


class Raw(Bench):
    """Steps over rows whose strings are given as bytes."""

    def table(self, messages: Sequence[Any], schema: pa.Schema) -> pa.Table:
        readable = [{k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()} for row in messages]
        table = super().table(readable, schema)
        for name in ("g", "i", "v"):
            column = strings([v if isinstance(v := row[name], bytes) else v and v.encode() for row in messages])
            table = table.set_column(table.column_names.index(name), name, column)
        return table


def keep(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return {"seen": [*state.get("seen", []), message["v"]]}, []


def row(g: Any = "a", r: int = 1, i: Any = "i", v: Any = "v") -> dict[str, Any]:
    return {"g": g, "r": r, "i": i, "v": v}


@pytest.mark.parametrize("order", [Gapless("r"), Arrival()], ids=["gapless", "arrival"])
@pytest.mark.parametrize("place", ["g", "i", "v"])
def test_a_string_that_is_not_utf8_makes_only_its_row_invalid(order: Any, place: str) -> None:
    pipeline = Pipeline(name="p", group="g", order=order, id="i", handler=keep)
    with Raw(pipeline, PLAIN) as bench:
        counts = bench.step([row(), row(r=2, i="j"), row("b"), row(r=3, **({"i": "k"} | {place: BAD}))])
        assert (counts.applied, counts.rejected) == (3, {"invalid": 1})
        seen = bench.seen()
        assert seen.states == {"a": {"seen": ["v", "v"]}, "b": {"seen": ["v"]}}
        (((group, _, detail, message), _),) = seen.rejected.items()
        assert detail == f"the text of {place} is not valid UTF-8"
        assert "caf\\\\xe9" in message
        assert group == ("caf\\xe9" if place == "g" else "a")


def test_on_invalid_fail_names_the_column_that_is_not_utf8() -> None:
    pipeline = Pipeline(name="p", group="g", order=Gapless("r"), handler=keep, on_invalid="fail")
    with Raw(pipeline, PLAIN) as bench, pytest.raises(InvalidMessage, match="the text of v is not valid UTF-8"):
        bench.step([row(v=BAD)])


def test_strings_that_are_not_utf8_are_found_in_nested_columns() -> None:
    values: list[Any] = [
        {"a": [b"x", BAD], "m": [(b"k", 1)], "b": BAD},
        None,
        {"a": [b"y"], "m": [(BAD, 2)], "b": b"\0"},
    ]
    as_bytes = pa.struct({"a": pa.list_(pa.binary()), "m": pa.map_(pa.binary(), pa.int64()), "b": pa.binary()})
    column = pa.array(values, as_bytes).view(NESTED)
    table = pa.table({"plain": ["é", "x", "\0"], "nested": column})
    assert unreadable(table) == {
        0: "the text of nested.a[1] is not valid UTF-8",
        2: "the text of a key of nested.m is not valid UTF-8",
    }
    table = as_texts(table)
    assert table["plain"].to_pylist() == ["é", "x", "\0"]
    first, second, third = table["nested"].to_pylist()
    assert (first["a"], first["b"], second, third["m"]) == (["x", "caf\\xe9"], BAD, None, [("caf\\xe9", 2)])
    table.validate(full=True)


def test_readable_columns_are_left_unchanged() -> None:
    table = pa.table({"a": ["é", None], "n": [1, 2], HASH: [1, 2], GROUP: ["a", "b"]})
    assert unreadable(table) == {}
    assert as_texts(table) == table


@given(texts=st.lists(TEXTS.filter(is_utf8) | st.none(), max_size=6), parts=st.integers(1, 3))
def test_name_faults_finds_the_invalid_names_of_a_column(texts: list[str | None], parts: int) -> None:
    chunks = [texts[start::parts] for start in range(parts)]
    column = pa.chunked_array(chunks, pa.string())
    ordered = [text for chunk in chunks for text in chunk]
    expected = {
        index: name_fault("g", text) for index, text in enumerate(ordered) if text is not None and not is_name(text)
    }
    assert name_faults("g", column) == expected
    assert name_faults("g", pa.chunked_array([pa.array([1, 2])])) == {}
