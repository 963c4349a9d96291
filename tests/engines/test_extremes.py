"""Revisions, epochs, starts and arrivals at the ends of 64 bits: handled, or invalid alone, in every engine.

A number that wraps around is another place in the order, and one that does not fit ends a step again and again.
"""

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inturn import Gapless, Monotone, Pipeline, Wait
from inturn.core.errors import PipelineError
from inturn.core.pipeline.order import Order
from inturn.testing import same
from kernel_harness import DAWN, Bench, Bounds, expected

if TYPE_CHECKING:
    from inturn.core.pipeline.replay import Replay

LEAST, MOST = -(2**63), 2**63 - 1
ENDS = [LEAST, LEAST + 1, LEAST + 2, -1, 0, 1, 2, MOST - 2, MOST - 1, MOST]
SCHEMA = pa.schema(
    {"account": pa.string(), "epoch": pa.int64(), "revision": pa.int64(), "amount": pa.int64(), "arrival": pa.int64()}
)
ends = st.sampled_from(ENDS)
messages = st.fixed_dictionaries(
    {
        "account": st.sampled_from("ab"),
        "epoch": st.sampled_from([0, 0, LEAST, MOST]),
        "revision": ends,
        "amount": st.integers(0, 1),
        "arrival": ends,
    }
)
starts = st.sampled_from([LEAST + 1, LEAST + 2, -1, 0, 1, MOST - 2, MOST - 1])
orders = st.one_of(
    st.builds(Gapless, st.just("revision"), starts, st.sampled_from([None, "epoch"])),
    st.builds(Monotone, st.just("revision"), st.sampled_from([None, "epoch"])),
)


def keep(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    seen = [*state.get("seen", []), [message["epoch"], message["revision"], message["amount"]]]
    return {"seen": seen}, [message["revision"]]


def pipeline(order: Order, **more: Any) -> Pipeline:
    return Pipeline(name="ends", group="account", order=order, handler=keep, **more)


def row(revision: int, amount: int = 1, **more: Any) -> dict[str, Any]:
    return {"account": "a", "epoch": 0, "revision": revision, "amount": amount, "arrival": 0, **more}


LAST = [[row(MOST - 1)], [row(MOST)], [row(MOST), row(1, account="b")]]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    order=orders,
    skips=st.booleans(),
    steps=st.lists(st.lists(messages, max_size=6), max_size=3),
    chunk_rows=st.sampled_from([1, 2, 50_000]),
    hashes=st.sampled_from([None, 1]),
)
@example(order=Gapless("revision", MOST - 1), skips=False, steps=LAST, chunk_rows=50_000, hashes=None)
@example(
    order=Gapless("revision", LEAST + 1),
    skips=False,
    steps=[[row(LEAST + 1)], [row(LEAST)]],
    chunk_rows=1,
    hashes=None,
)
@pytest.mark.thorough
def test_the_kernel_equals_replay_at_the_ends_of_64_bits(
    order: Order, skips: bool, steps: list[list[dict[str, Any]]], chunk_rows: int, hashes: int | None
) -> None:
    wait = {"on_gap": Wait("1 minute", then="skip")} if skips and isinstance(order, Gapless) else {}
    definition = pipeline(order, arrival="arrival", **wait)
    before: Replay | None = None
    now = DAWN
    with Bench(definition, SCHEMA, hashes=hashes, bounds=Bounds(chunk_rows=chunk_rows)) as bench:
        for rows in steps:
            now += dt.timedelta(minutes=2)
            before = definition.replay(rows, now=now, after=before)
            assert bench.step(rows, now=now) == before.counts
            assert bench.seen() == expected(before)


@settings(max_examples=settings.default.max_examples // 10)
@given(order=orders, came=st.lists(messages, max_size=8))
@example(order=Gapless("revision", MOST - 2), came=[row(MOST), row(MOST - 1), row(MOST - 2)])
@example(
    order=Monotone("revision", "epoch"), came=[row(MOST), row(LEAST), row(LEAST, epoch=LEAST), row(LEAST, epoch=MOST)]
)
@pytest.mark.thorough
def test_the_worker_equals_replay_at_the_ends_of_64_bits(order: Order, came: list[dict[str, Any]]) -> None:
    same(pipeline(order), came)


def test_a_store_that_applied_the_greatest_revision_continues() -> None:
    """One of before the greatest revision was refused."""
    definition = pipeline(Gapless("revision", MOST - 1))
    with Bench(definition, SCHEMA) as bench:
        bench.step([row(MOST - 1)])
        for place in bench.root.glob("data/groups/*.arrow"):  # as if it had applied that too
            table = pa.ipc.open_file(pa.BufferReader(place.read_bytes())).read_all()
            index = table.column_names.index("reached")
            table = table.set_column(index, "reached", pa.array([MOST] * len(table), pa.int64()))
            with pa.ipc.new_file(str(place), table.schema) as sink:
                sink.write_table(table)
        assert bench.step([row(MOST), row(MOST - 1, account="b"), row(MOST - 1)]).rejected == {"invalid": 1}
        assert bench.seen().places["a"][:3] == ("open", 0, MOST)
        assert bench.seen().places["b"][:3] == ("open", 0, MOST - 1)


@pytest.mark.parametrize("start", [LEAST, MOST, MOST + 1])
def test_a_gapless_start_beyond_64_bits_is_refused(start: int) -> None:
    with pytest.raises(PipelineError, match=r"Gapless\(start="):
        pipeline(Gapless("revision", start))
