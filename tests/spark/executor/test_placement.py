"""Spark sends instants in its session's zone: what a handler sees, and what is kept, is UTC at every depth."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from inturn import Gapless, Pipeline
from kernel_harness import Bench

AT = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
DEPTHS: dict[str, tuple[Any, Any, Any]] = {
    "top": (lambda kind: kind, AT, lambda value: value),
    "struct": (lambda kind: pa.struct([("at", kind)]), {"at": AT}, lambda value: value["at"]),
    "list": (pa.list_, [AT], lambda value: value[0]),
    "map": (lambda kind: pa.map_(pa.string(), kind), {"at": AT}, lambda value: value["at"]),
    "deep": (
        lambda kind: pa.list_(pa.struct([("by", pa.map_(pa.string(), pa.list_(kind)))])),
        [{"by": {"at": [AT]}}],
        lambda value: value[0]["by"]["at"][0],
    ),
}


@pytest.mark.parametrize("depth", DEPTHS)
def test_instants_are_utc_at_every_nesting_depth_for_any_session_timezone(depth: str) -> None:
    kind, value, inner = DEPTHS[depth]

    def note(state: list[str], message: dict[str, Any]) -> tuple[list[str], list[str]]:
        return [*state, str(inner(message["at"]))], [str(inner(message["at"]))]

    pipeline = Pipeline(name="p", group="k", order=Gapless("n"), handler=note, state=list)

    def rows(*numbers: int) -> list[dict[str, Any]]:
        return [{"k": "a", "n": number, "at": value} for number in numbers]

    def schema(zone: str) -> pa.Schema:
        return pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", kind(pa.timestamp("us", zone)))])

    with Bench(pipeline, schema("Europe/Berlin")) as bench:
        bench.step(rows(1, 3))  # 3 is held in one zone, and goes on in another
        counts = bench.step(rows(2, 3), schema=schema("America/New_York"))
        assert (counts.applied, counts.duplicate, counts.rejected) == (2, 1, {})
        assert bench.seen().states == {"a": [str(AT)] * 3}
