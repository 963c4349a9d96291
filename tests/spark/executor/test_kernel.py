"""The Spark kernel against the pure timeline, on small random histories and without Spark.

The kernel takes another way to the same answer: rows sorted, groups in chunks, runs found with numpy, the rest of a
history on disk. Whatever it makes of a step must be what the pure timeline makes of it.
"""

import datetime as dt
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inturn import Arrival, Gapless, Monotone, Pipeline, Retry, Retryable, Timestamp, Wait
from inturn.core.errors import GapError, HandlerError, InvalidMessage
from inturn.core.identity import canonical
from inturn.core.pipeline.order import Order
from inturn.core.values.instant import instant_us
from inturn.spark.columns.hashing import bucket_bounds
from inturn.spark.tables.table_files import ArrowFiles
from kernel_harness import DAWN, Bench, Bounds, columns_of, expected, total

if TYPE_CHECKING:
    from inturn.core.pipeline.replay import Replay

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "account": pa.string(),
        "epoch": pa.int64(),
        "revision": pa.int64(),
        "time": TIME,
        "id": pa.string(),
        "number": pa.int64(),
        "arrival": pa.int64(),
        "amount": pa.int64(),
    }
)
MINUTE = dt.timedelta(minutes=1)
DAYS = [dt.date(2026, 1, day) for day in (1, 2, 30)]

tiny = st.builds(
    Bounds,
    chunk_rows=st.sampled_from([1, 2, 3, 7, 50_000]),
    sort_rows=st.sampled_from([2, 5, 1_000]),
    merge_rows=st.sampled_from([1, 2, 5]),
    row_group_rows=st.sampled_from([1, 2, 5, 1_000]),
    snapshot_every=st.sampled_from([1, 2, 5, 1_000]),
    remembered=st.sampled_from([1, 3, 64]),
    remembered_ids=st.sampled_from([1, 3, 1_024]),
    remembered_conflicts=st.sampled_from([1, 3, 64]),
    levels=st.sampled_from([2, 2, 3, 8]),
)


def balance(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Depends on the order, changes the state in place, and fails after it has."""
    state.setdefault("seen", []).append(message["amount"])
    state["sum"] = (state.get("sum", 0) * 31 + message["amount"]) % 1_000_003
    if message["amount"] % 10 == 9:
        raise ValueError("refused")
    if message["amount"] % 10 == 8 and len(state["seen"]) % 2:
        raise Retryable("again")
    return state, [{"sum": state["sum"], "at": index} for index in range(message["amount"] % 3)]


def places(pipeline: Pipeline, *, arrival: bool) -> list[str]:
    """The columns that the pipeline's messages have."""
    named = [*pipeline.key_fields, pipeline.id, "amount", "arrival" if arrival else None]
    return [name for name in SCHEMA.names if name in named]


# -- one answer ----------------------------------------------------------------------------------------------

plain = Pipeline(name="plain", group="account", order=Gapless("revision"), handler=balance)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A few groups, with revisions missing; each (group, revision) has one content."""
    messages = []
    for group in draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)):
        last = draw(st.integers(1, 12))
        missing = draw(st.sets(st.integers(1, 12), max_size=2))
        calm = draw(st.booleans())
        for revision in range(1, last + 1):
            if revision not in missing:
                amount = draw(st.integers(0, 7) if calm else st.integers(0, 9))
                messages.append({"account": group, "revision": revision, "amount": amount})
    return messages


@settings(max_examples=settings.default.max_examples // 2)
@given(
    history=histories(),
    data=st.data(),
    bounds=tiny,
    buckets=st.integers(1, 4),
    hashes=st.sampled_from([None, 1, 2]),
)
def test_the_kernel_gives_the_result_of_the_replay_for_any_delivery_and_batch_split(
    history: list[dict[str, Any]], data: st.DataObject, bounds: Bounds, buckets: int, hashes: int | None
) -> None:
    copies = data.draw(st.lists(st.sampled_from(history), max_size=6)) if history else []
    delivered = data.draw(st.permutations(history + copies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(delivered)), max_size=3)))
    with bounds.applied():
        once = plain.replay(delivered)
    with Bench(plain, _schema(plain), buckets=buckets, hashes=hashes, bounds=bounds, seed=len(delivered)) as bench:
        counts = [
            bench.step(delivered[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(delivered)], strict=True)
        ]
        assert bench.seen() == expected(once)
    assert total(counts) == total([once.counts])


def _schema(pipeline: Pipeline, *, arrival: bool = False) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in places(pipeline, arrival=arrival)])


# -- the same as the pure timeline, whatever the grade --------------------------------------------------------

EPOCHS = st.sampled_from([0, 0, 0, 1, 2])
ids = st.sampled_from(["i1", "i2", "i3", "i9", "i10", "é", "\U0001f600"])
messages = st.fixed_dictionaries(
    {
        "account": st.sampled_from("abc"),
        "epoch": EPOCHS,
        "revision": st.integers(1, 5),
        "time": st.integers(0, 7).map(lambda minute: DAWN + minute * MINUTE),
        "id": ids,
        "number": st.sampled_from([-1, 2, 9, 10, 100]),
        "amount": st.sampled_from([0, 1, 2, 8, 9]),
    }
)
steps = st.lists(st.tuples(st.lists(messages, max_size=14), st.integers(0, 12)), min_size=1, max_size=3)

GRADES: dict[str, tuple[Order, dict[str, Any]]] = {
    "gapless": (Gapless("revision"), {}),
    "gapless, park": (Gapless("revision"), {"on_gap": Wait("10 minutes", then="park")}),
    "gapless, skip": (Gapless("revision"), {"on_gap": Wait("10 minutes", then="skip")}),
    "gapless, from the first": (Gapless("revision", start="first"), {"on_gap": Wait("10 minutes", then="skip")}),
    "gapless, epochs": (Gapless("revision", epoch="epoch"), {}),
    "gapless, epochs from the first": (Gapless("revision", start="first", epoch="epoch"), {}),
    "gapless, epochs, skip": (Gapless("revision", epoch="epoch"), {"on_gap": Wait("5 minutes", then="skip")}),
    "gapless, epochs, park": (Gapless("revision", epoch="epoch"), {"on_gap": Wait("5 minutes", then="park")}),
    "gapless, retried": (Gapless("revision"), {"retry": Retry(1, "0 seconds")}),
    "gapless, ids": (Gapless("revision"), {"id": "id"}),
    "monotone": (Monotone("revision"), {}),
    "monotone, epochs": (Monotone("revision", epoch="epoch"), {}),
    "timestamp": (Timestamp("time", "3 minutes"), {"id": "id"}),
    "timestamp, no lateness": (Timestamp("time"), {"id": "id"}),
    "timestamp, numbered": (Timestamp("time", "1 minute"), {"id": "number"}),
    "arrival": (Arrival(), {"id": "id"}),
    "arrival, numbered": (Arrival(), {"id": "number"}),
}


# To shrink these takes minutes; the shortest cases of them are among the tests below.


@pytest.mark.parametrize(
    "grade",
    GRADES,
)
@settings(max_examples=settings.default.max_examples // 5)
@given(
    arrival=st.booleans(),
    history=steps,
    data=st.data(),
    bounds=tiny,
    buckets=st.integers(1, 3),
    hashes=st.sampled_from([None, 1, 2]),
)
@pytest.mark.thorough
def test_the_kernel_decides_like_the_pure_timeline_for_every_order_grade(
    grade: str,
    arrival: bool,
    history: list[tuple[list[dict[str, Any]], int]],
    data: st.DataObject,
    bounds: Bounds,
    buckets: int,
    hashes: int | None,
) -> None:
    order, more = GRADES[grade]
    pipeline = Pipeline(
        name="graded",
        group="account",
        order=order,
        handler=balance,
        arrival="arrival" if arrival else None,
        **more,
    )
    names = places(pipeline, arrival=arrival)
    before: Replay | None = None
    now = DAWN
    with Bench(pipeline, _schema(pipeline, arrival=arrival), buckets=buckets, hashes=hashes, bounds=bounds) as bench:
        for batch, minutes in history:
            now += minutes * MINUTE
            final = isinstance(order, Timestamp) and data.draw(st.booleans(), label="final")
            # Arrival may tie: then the messages' own order decides.
            arrivals = [data.draw(st.integers(0, 2 * len(batch)), label="arrival") for _ in batch] if arrival else []
            numbered = [
                message | {"arrival": number}
                for message, number in zip(batch, arrivals or range(len(batch)), strict=True)
            ]
            rows = [{name: message[name] for name in names} for message in numbered]
            with bounds.applied():
                before = pipeline.replay(rows, now=now, final=final, after=before)
            counts = bench.step(rows, now=now, final=final)
            assert counts == before.counts
            assert bench.seen() == expected(before)


# -- what a message may be ------------------------------------------------------------------------------------


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Purchase:
    account: Any
    revision: int
    placed: dt.datetime
    price: Decimal
    lines: list[Line]
    first: Line
    note: str | None = None
    rate: float = 1.5
    tags: list[str] = field(default_factory=list)


class LineStruct(msgspec.Struct):
    sku: str
    count: int = 1


class PurchaseStruct(msgspec.Struct, kw_only=True):
    account: Any
    revision: int
    placed: dt.datetime
    price: Decimal
    lines: list[LineStruct]
    first: LineStruct
    note: str | None = None
    rate: float = 1.5
    tags: list[str] = []


LINE = pa.struct({"sku": pa.string(), "count": pa.int64()})
PURCHASE = pa.schema(
    {
        "account": pa.string(),
        "revision": pa.int32(),
        "placed": TIME,
        "price": pa.decimal128(10, 2),
        "lines": pa.list_(LINE),
        "first": LINE,
        "note": pa.string(),
    }
)
GROUPS = {"text": (pa.string(), ["", "a", "é", "7"]), "integer": (pa.int64(), [-1, 7, 70]), "date": (pa.date32(), DAYS)}
lines = st.fixed_dictionaries({"sku": st.text(max_size=3), "count": st.integers(-3, 3)})
contents = st.fixed_dictionaries(
    {
        "revision": st.integers(1, 5),
        "placed": st.integers(0, 10**6).map(lambda number: DAWN + number * dt.timedelta(microseconds=77)),
        "price": st.decimals(-99, 99, places=2),
        "lines": st.lists(lines, max_size=2),
        "first": lines,
        "note": st.none() | st.text(max_size=3),
    }
)


def keep(state: dict[str, Any], message: Any) -> tuple[dict[str, Any], list[Any]]:
    """Depends on the whole message."""
    state.setdefault("seen", []).append(canonical(columns_of(message)))
    if len(state["seen"]) == 4:
        raise ValueError("full")
    return state, [message]


def as_record(row: dict[str, Any], record: type, line_type: type) -> Any:
    return record(
        **row | {"lines": [line_type(**fields) for fields in row["lines"]], "first": line_type(**row["first"])}
    )


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("record", [None, Purchase, PurchaseStruct])
@settings(max_examples=settings.default.max_examples // 8)
@given(data=st.data(), bounds=tiny, buckets=st.integers(1, 2), hashes=st.sampled_from([None, 1]))
@pytest.mark.thorough
def test_the_kernel_handles_random_typed_messages_like_the_replay(
    record: type | None, kind: str, data: st.DataObject, bounds: Bounds, buckets: int, hashes: int | None
) -> None:
    arrow, groups = GROUPS[kind]
    pipeline = Pipeline(name="any", group="account", order=Gapless("revision"), handler=keep, message=record)
    schema = PURCHASE.set(0, pa.field("account", arrow))
    before: Replay | None = None
    with Bench(pipeline, schema, buckets=buckets, hashes=hashes, bounds=bounds) as bench, bounds.applied():
        for _ in range(2):
            rows = data.draw(st.lists(st.tuples(st.sampled_from(groups), contents), max_size=8))
            delivered = [{"account": group} | content for group, content in rows]
            if record is not None:
                delivered = [as_record(row, record, Line if record is Purchase else LineStruct) for row in delivered]
            before = pipeline.replay(delivered, after=before)
            assert bench.step(delivered) == before.counts
            assert bench.seen() == expected(before, schema.names)


def test_a_map_column_reaches_the_handler_as_a_dict() -> None:
    def handler(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"tags": message["tags"], "deep": message["deep"]}, []

    pipeline = Pipeline(name="maps", group="account", order=Gapless("revision"), handler=handler)
    tags = pa.map_(pa.string(), pa.int64())
    deep = pa.struct({"tags": tags})
    schema = pa.schema({"account": pa.string(), "revision": pa.int64(), "tags": tags, "deep": deep})
    row = {"tags": {"x": 1}, "deep": {"tags": {"y": 2}}}
    rows = [{"account": "a", "revision": number, **row} for number in (1, 3)]
    with Bench(pipeline, schema) as bench:
        bench.step(rows)
        # A copy is known again by its digest, so that must be of the same content.
        assert bench.seen() == expected(pipeline.replay(rows))
        assert bench.seen().states == {"a": row}


# -- what decides where nothing else does -------------------------------------------------------------------------


def test_the_digest_and_not_the_id_decides_between_two_contents_of_a_revision() -> None:
    pipeline = Pipeline(name="ids", group="account", order=Gapless("revision"), handler=balance, id="id")
    for amount in range(4):  # one of these has the digest that the id contradicts
        rows = [
            {"account": "a", "revision": 1, "id": "x", "amount": amount},
            {"account": "a", "revision": 1, "id": "y", "amount": amount + 10},
        ]
        with Bench(pipeline, _schema(pipeline)) as bench:
            bench.step(rows)
            assert bench.seen() == expected(pipeline.replay(rows))


def test_a_held_message_takes_precedence_over_earlier_arrivals_of_the_step() -> None:
    held = {"account": "a", "revision": 3, "arrival": 0, "amount": 0}
    other, copy = held | {"arrival": 1, "amount": 1}, held | {"arrival": 2}
    pipeline = replace(plain, arrival="arrival")
    with Bench(pipeline, _schema(pipeline, arrival=True)) as bench:
        bench.step([held])
        counts = bench.step([other, copy])
        assert (counts.duplicate, counts.rejected) == (1, {"conflict": 1})


@pytest.mark.parametrize("order", [Arrival(), Timestamp("time")], ids=str)
def test_numeric_ids_break_ties_like_in_the_replay(order: Order) -> None:
    pipeline = Pipeline(name="numbered", group="account", order=order, handler=balance, id="number")
    rows = [{"account": "a", "time": DAWN, "number": number, "amount": number % 7} for number in (100, 9, 10, 2)]
    rows = [{name: row[name] for name in places(pipeline, arrival=False)} for row in rows]
    with Bench(pipeline, _schema(pipeline)) as bench:
        bench.step(rows)
        assert bench.seen() == expected(pipeline.replay(rows))


def test_a_conflict_is_reported_for_any_chunk_size() -> None:
    pipeline = Pipeline(name="rising", group="account", order=Monotone("revision"), handler=balance, arrival="arrival")
    rows = [{"account": "a", "revision": number, "arrival": number, "amount": 1} for number in range(1, 10)]
    rows.append({"account": "a", "revision": 1, "arrival": 10, "amount": 2})
    bounds = Bounds(remembered=3)
    with Bench(pipeline, _schema(pipeline, arrival=True), bounds=bounds) as bench, bounds.applied():
        bench.step(rows)
        assert bench.seen() == expected(pipeline.replay(rows))


# Of three groups the fast path takes the middle one, and one row a chunk leaves all to the slow path.
@pytest.mark.parametrize("bounds", [Bounds(), Bounds(chunk_rows=1, sort_rows=1)], ids=["fast", "slow"])
@pytest.mark.parametrize("revision", [1, 2, 3, 5], ids=["old", "old, skipped to", "in the run", "held"])
def test_a_conflict_is_reported_once(bounds: Bounds, revision: int) -> None:
    first = [(1, 0), (2, 0), (5, 0)]
    other = [(3, 0), *[(revision, 1)] * 3, (revision, 2)]
    with Bench(plain, _schema(plain), buckets=1, bounds=bounds) as bench:
        before: Replay | None = None
        counts = []
        for step in (first, other, other, [(4, 0)], other, other):
            rows = [
                {"account": name, "revision": revision, "amount": amount}
                for name in "abcde"
                for revision, amount in step
            ]
            before = plain.replay(rows, after=before)
            counts.append(bench.step(rows))
            assert counts[-1] == before.counts
            assert bench.seen() == expected(before)
        assert [count.rejected for count in counts] == [{}, {"conflict": 10}, {}, {}, {}, {}]
        assert counts[1].duplicate == 10


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(chunk_rows=1, sort_rows=1)], ids=["fast", "slow"])
def test_a_conflict_is_remembered_as_long_as_its_revision(bounds: Bounds) -> None:
    bounds = replace(bounds, remembered=3, remembered_conflicts=2)
    with Bench(plain, _schema(plain), buckets=1, bounds=bounds) as bench, bounds.applied():
        before: Replay | None = None
        for step in ([(1, 0), (2, 0), (3, 0)], [(1, 1), (2, 1), (3, 1)], [(1, 1), (2, 1), (3, 1)], [(4, 0), (5, 0)]):
            rows = [
                {"account": name, "revision": revision, "amount": amount}
                for name in "abcde"
                for revision, amount in step
            ]
            before = plain.replay(rows, after=before)
            assert bench.step(rows) == before.counts
            assert bench.seen() == expected(before)
        assert {len(timeline.conflicts) for timeline in before.timelines.values()} == {24} if before else False


def test_a_store_without_remembered_conflicts_can_be_continued(tmp_path: Path) -> None:
    rows = [{"account": name, "revision": revision, "amount": 0} for name in "abcde" for revision in (1, 2, 4)]
    conflicting = [row | {"amount": 1} for row in rows]
    with Bench(plain, _schema(plain), root=tmp_path, bounds=Bounds(levels=2)) as bench:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ArrowFiles, "write", _without_conflicts(ArrowFiles.write))
            bench.step(rows)
        (file, *_) = (file for level in bench.store.manifest(1).levels for file in level.groups)
        assert "conflicts" not in bench._arrow(file).column_names
        before = plain.replay(rows)
        for part in (conflicting, conflicting[:3], [{"account": "z", "revision": 1, "amount": 0}], conflicting):
            before = plain.replay(part, after=before)
            assert bench.step(part) == before.counts
        assert bench.seen() == expected(before)
        assert before.counts.duplicate == len(conflicting)


def _without_conflicts(write: Any) -> Any:
    def written(out: Any, table: pa.Table) -> None:
        write(out, table.drop_columns([name for name in table.column_names if name == "conflicts"]))

    return written


# -- two groups with one hash ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(chunk_rows=1, sort_rows=1, row_group_rows=1)], ids=["all", "one"])
def test_groups_with_the_same_hash_are_kept_apart(bounds: Bounds) -> None:
    pipeline = Pipeline(
        name="hashed", group="account", order=Gapless("revision"), handler=balance, on_gap=Wait("1 minute", then="skip")
    )
    rows = [
        {"account": group, "revision": revision, "amount": index * 10}
        for index, group in enumerate("abcd")
        for revision in (1, 2, 4)
    ]
    replayed = pipeline.replay(rows)
    late = [row | {"revision": 3} for row in rows if row["account"] in "ad" and row["revision"] == 4]
    # Groups b and c have no message in the second step: only time.
    replayed = pipeline.replay(late, now=DAWN + MINUTE, after=pipeline.replay(rows, now=DAWN))
    with Bench(pipeline, _schema(pipeline), hashes=1, bounds=bounds) as bench:
        bench.step(rows, now=DAWN)
        assert bench.step(late, now=DAWN + MINUTE) == replayed.counts
        assert bench.seen() == expected(replayed)
        assert replayed.counts.released == 4


# -- groups that only time comes for ----------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["park", "skip"])
@pytest.mark.parametrize(
    ("chunk_rows", "row_group_rows", "hashes"),
    [(2, 4, None), (5, 1, 4), (5, 1_000, None), (50_000, 1, None), (50_000, 4, 4)],
)
@pytest.mark.thorough
def test_a_gap_wait_ends_in_a_step_with_messages_of_other_groups(
    then: Any, hashes: int, row_group_rows: int, chunk_rows: int
) -> None:
    """Groups that wait lie between groups that get messages, in one row group and in one chunk."""
    pipeline = Pipeline(
        name="waits", group="account", order=Gapless("revision"), handler=balance, on_gap=Wait("5 minutes", then=then)
    )
    bounds = Bounds(chunk_rows=chunk_rows, row_group_rows=row_group_rows)
    accounts = [f"account {number}" for number in range(18)]

    def rows(every: int, *revisions: int) -> list[dict[str, Any]]:
        chosen = accounts[::every]
        return [
            {"account": account, "revision": number, "amount": number} for account in chosen for number in revisions
        ]

    # Some wait since the first step, some since the second; some get what they wait for in the third.
    history = [(rows(1, 1) + rows(2, 3, 5), 0), (rows(3, 4), 4), (rows(5, 2), 1), ([], 4), (rows(7, 7), 0)]
    before: Replay | None = None
    now = DAWN
    with Bench(pipeline, _schema(pipeline), buckets=2, hashes=hashes, bounds=bounds) as bench:
        for batch, minutes in history:
            now += minutes * MINUTE
            before = pipeline.replay(batch, now=now, after=before)
            assert bench.step(batch, now=now) == before.counts
            assert bench.seen() == expected(before)


def test_the_manifest_records_the_earliest_wait_of_each_group_file() -> None:
    pipeline = Pipeline(
        name="waits", group="account", order=Gapless("revision"), handler=balance, on_gap=Wait("5 minutes")
    )
    row = {"account": "a", "revision": 2, "amount": 0}
    with Bench(pipeline, _schema(pipeline), buckets=1) as bench:
        bench.step([row | {"account": "b", "revision": 1}], now=DAWN)
        bench.step([row], now=DAWN + MINUTE)
        bench.step([row | {"revision": 3}, row | {"account": "b", "revision": 3}], now=DAWN + 2 * MINUTE)
        last = bench.store.manifest(3)
        since = instant_us(DAWN + MINUTE)
        assert [file.waiting_us for level in last.levels for file in level.groups] == [None, since, since]


@pytest.mark.parametrize("then", ["skip", "park"])
@pytest.mark.parametrize("before", [None, Wait("1 day", then="skip")], ids=str)
def test_a_changed_gap_wait_applies_to_groups_that_already_wait(before: Wait | None, then: Any, tmp_path: Path) -> None:
    first = Pipeline(name="waits", group="account", order=Gapless("revision"), handler=balance, on_gap=before)
    after = replace(first, on_gap=Wait("5 minutes", then=then))
    rows = [{"account": "a", "revision": revision, "amount": 1} for revision in (2, 4)]
    with Bench(first, _schema(first), root=tmp_path / "store") as bench:
        counts = bench.step(rows, now=DAWN)
    replayed = first.replay(rows, now=DAWN)
    assert counts == replayed.counts
    with Bench(after, _schema(after), root=tmp_path / "store") as bench:
        for minutes in (4, 6):
            replayed = after.replay([], now=DAWN + minutes * MINUTE, after=replayed)
            assert bench.step([], now=DAWN + minutes * MINUTE) == replayed.counts
            assert bench.seen() == expected(replayed)
        assert len(bench.seen().states["a"].get("seen", [])) == (2 if then == "skip" else 0)


# -- a state that a failing handler has changed -------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_every", [1, 2, 3, 4, 1_000])
@pytest.mark.parametrize("order", [Gapless("revision"), Monotone("revision")], ids=str)
def test_a_failed_message_leaves_the_state_unchanged(order: Order, snapshot_every: int) -> None:
    pipeline = Pipeline(name="spoilt", group="account", order=order, handler=balance)
    rows = [{"account": "a", "revision": number, "amount": number} for number in range(1, 12)]
    for cut in (0, 3, 8):
        with Bench(pipeline, _schema(pipeline), bounds=Bounds(snapshot_every=snapshot_every)) as bench:
            bench.step(rows[:cut])
            bench.step(rows[cut:])
            # The handler says "again" on the eighth only where it has seen an odd number: here it has not.
            assert bench.seen().states["a"]["seen"] == list(range(1, 9))
            assert bench.seen().errors == {"a"}
            assert len(bench.seen().held) == 3


# -- slices of the hashes ----------------------------------------------------------------------------------------


@given(buckets=st.integers(1, 70_000) | st.sampled_from([1, 2, 3, 7, 8, 65_536]), data=st.data())
def test_every_hash_lies_within_the_bounds_of_its_bucket(buckets: int, data: st.DataObject) -> None:
    bucket = data.draw(st.integers(0, buckets - 1))
    low, high = bucket_bounds(bucket, buckets)
    assert bucket or low == -(2**63)
    assert high == (bucket_bounds(bucket + 1, buckets)[0] - 1 if bucket < buckets - 1 else 2**63 - 1)
    for hash_ in (low, high, data.draw(st.integers(low, high))):
        # As the intake has Spark work it out.
        assert (((hash_ >> 32) + (1 << 31)) * buckets) >> 32 == bucket


# -- orders of delivery that published code has got wrong ------------------------------------------------------


@pytest.mark.parametrize("delivered", [[1, 2, 4, 5, 3], [2, 1, 5, 6, 4, 3], [3, 2, 1], [2, 2, 1, 1]], ids=str)
@pytest.mark.parametrize("chunk_rows", [1, 50_000])
@pytest.mark.thorough
def test_all_held_messages_are_released_for_any_delivery_order(delivered: list[int], chunk_rows: int) -> None:
    rows = [{"account": "a", "revision": revision, "amount": revision} for revision in delivered]
    for cut in range(len(rows)):
        with Bench(plain, _schema(plain), bounds=Bounds(chunk_rows=chunk_rows)) as bench:
            counts = [bench.step(part) for part in (rows[:cut], rows[cut:])]
            assert bench.seen().states["a"]["seen"] == sorted(set(delivered))
            assert bench.seen().held == []
            assert total(counts)["copies"] == len(delivered) - len(set(delivered))


# -- messages that have no place -------------------------------------------------------------------------------


@dataclass
class Deposit:
    account: str
    revision: int
    amount: int


GOOD = {"account": "a", "epoch": 0, "revision": 1, "time": DAWN, "id": "i", "number": 1, "arrival": 5, "amount": 1}
INVALID = {
    "no group": (Gapless("revision"), {"account": None}, "account is null"),
    "no revision": (Gapless("revision"), {"revision": None}, "revision is null"),
    "no number": (Monotone("revision"), {"revision": None}, "revision is null"),
    "no epoch": (Gapless("revision", epoch="epoch"), {"epoch": None}, "epoch is null"),
    "no time": (Timestamp("time"), {"time": None}, "time is null"),
    "no id": (Arrival(), {"id": None}, "id is null"),
    "no arrival": (Gapless("revision"), {"arrival": None}, "arrival is null"),
    "below the start": (Gapless("revision"), {"revision": 0}, "revision is 0, below the start 1"),
    "nothing at all": (Gapless("revision"), dict.fromkeys(GOOD), "account is null"),
}


@pytest.mark.parametrize("chunk_rows", [1, 50_000])
@pytest.mark.parametrize("case", INVALID)
def test_a_message_without_a_valid_group_or_order_is_rejected(case: str, chunk_rows: int) -> None:
    order, wrong, detail = INVALID[case]
    pipeline = Pipeline(name="placed", group="account", order=order, handler=balance, id="id", arrival="arrival")
    bad = GOOD | wrong
    with Bench(pipeline, SCHEMA, bounds=Bounds(chunk_rows=chunk_rows)) as bench:
        counts = bench.step([bad, GOOD, bad], final=isinstance(order, Timestamp))
        assert (counts.received, counts.applied, counts.rejected) == (3, 1, {"invalid": 2})
        assert bench.seen().rejected == {(bad["account"], "invalid", detail, canonical(bad)): 2}
        assert list(bench.seen().states) == ["a"]


@pytest.mark.parametrize("case", INVALID)
def test_a_message_without_a_valid_order_stops_the_step_with_on_invalid_fail(case: str) -> None:
    order, wrong, detail = INVALID[case]
    pipeline = Pipeline(
        name="placed", group="account", order=order, handler=balance, id="id", arrival="arrival", on_invalid="fail"
    )
    with Bench(pipeline, SCHEMA) as bench:
        with pytest.raises(InvalidMessage, match=re.escape(detail)):
            bench.step([GOOD, GOOD | wrong])
        assert bench.store.steps() == []


@pytest.mark.parametrize(
    ("arrow", "amount", "detail"),
    [
        (pa.string(), "much", "amount is 'much': Expected `int | null`, got `str`"),
        (pa.float64(), 1.5, "amount is 1.5: Expected `int | null`, got `float`"),
        (pa.int64(), None, "amount is null, expected int"),
    ],
)
def test_a_message_with_a_field_of_the_wrong_type_is_rejected(arrow: pa.DataType, amount: Any, detail: str) -> None:
    schema = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": arrow})
    handler = lambda state, message: (state | {"sum": state.get("sum", 0) + message.amount}, [])  # noqa: E731
    pipeline = Pipeline(name="typed", group="account", order=Gapless("revision"), handler=handler, message=Deposit)
    valid = {pa.string(): "5", pa.float64(): 5.0, pa.int64(): 5}[arrow]
    rows = [{"account": "a", "revision": 2, "amount": amount}, {"account": "a", "revision": 1, "amount": valid}]
    with Bench(pipeline, schema) as bench:
        assert bench.step(rows).rejected == {"invalid": 1}
        assert bench.seen().rejected == {("a", "invalid", detail, canonical(rows[0])): 1}
        assert bench.seen().states == {"a": {"sum": 5}}
    strict = replace(pipeline, on_invalid="fail")
    with Bench(strict, schema) as bench:
        with pytest.raises(InvalidMessage, match=re.escape(detail)):
            bench.step(rows)
        assert bench.store.steps() == []


def test_an_invalid_message_has_no_epoch_or_revision() -> None:
    pipeline = Pipeline(name="placed", group="account", order=Gapless("revision", epoch="epoch"), handler=balance)
    with Bench(pipeline, SCHEMA) as bench:
        bench.step([GOOD | {"epoch": None}])
        [row] = bench.rows(bench.store.manifest(1).rejected)
        assert (row["group"], row["epoch"], row["revision"]) == ("a", None, None)


def test_the_error_of_an_invalid_message_shows_no_internal_columns() -> None:
    with Bench(replace(plain, on_invalid="fail"), _schema(plain)) as bench, pytest.raises(InvalidMessage) as error:
        bench.step([{"account": "a", "revision": None, "amount": 1}])
    assert "__inturn" not in str(error.value)


# -- what stops a step -----------------------------------------------------------------------------------------

NONSENSE: dict[str, Any] = {
    "nothing": None,
    "only the state": {},
    "no outputs": ({}, None),
    "a text": ({}, "text"),
    "a dict": ({}, {"output": 1}),
    "a number": ({}, 0),
    "three": ({}, [], []),
    "one": ({},),
    "another state": (5, []),
}


def after_one_step(handler: Any, **more: Any) -> tuple[Bench, Any]:
    """A store with one step, and what it holds; the handler is for the next."""
    bench = Bench(replace(plain, **more), _schema(plain))
    bench.step([{"account": "a", "revision": 1, "amount": 1}])
    bench.pipeline = replace(bench.pipeline, handler=handler)
    return bench, bench.seen()


@pytest.mark.parametrize("case", NONSENSE)
def test_an_invalid_handler_result_stops_the_step(case: str) -> None:
    bench, before = after_one_step(lambda state, message: NONSENSE[case])
    with bench:
        with pytest.raises(HandlerError, match="plain"):
            bench.step([{"account": "a", "revision": 2, "amount": 2}])
        assert bench.store.steps() == [1]
        assert bench.seen() == before


@pytest.mark.parametrize("order", [Gapless("revision"), Monotone("revision"), Arrival()], ids=str)
def test_an_invalid_result_parks_its_group_after_the_handler_has_succeeded_once(order: Order) -> None:
    def handler(state: Any, message: Any) -> Any:
        return None if message["amount"] < 0 else (state, [])

    ids = {"id": "id"} if isinstance(order, Arrival) else {}
    pipeline = replace(plain, order=order, handler=handler, **ids)
    schema = _schema(pipeline)
    rows = [
        {"account": account, "revision": 1, "amount": amount, "id": account}
        for account, amount in (("a", 1), ("b", -1), ("c", -1))
    ]
    *first, last = [{name: row[name] for name in schema.names} for row in rows]
    later = [last]
    with Bench(pipeline, schema) as bench:
        bench.step(first)
        bench.step(later)
        replayed = pipeline.replay(later, now=DAWN, after=pipeline.replay(first, now=DAWN))
        assert bench.seen() == expected(replayed, schema.names)
        assert bench.seen().errors == {"b", "c"}


UNSTORABLE: dict[str, Any] = {
    "a set": {"v": {1}},
    "an object": {"v": object()},
    "keys that are numbers": {"v": {1: "x"}},
    "a time": {"v": DAWN},
    "a time without a zone": {"v": dt.datetime(2026, 1, 1)},  # noqa: DTZ001 - the point
    "bytes": {"v": b"x"},
    "a decimal": {"v": Decimal(1)},
    "not a number": {"v": float("nan")},
    "infinity": {"v": -float("inf")},
    "beyond 64 bits": {"v": 2**63},
    "a text that is none": {"v": "\ud800"},
    "a record": {"v": Line("x")},
}
NO_OUTPUTS: dict[str, Any] = {
    "an output that is not JSON": [object()],
    "an output within one": [{"at": [1j]}],
    "an output with a text that is none": ["\ud800"],
    "an output that is not a number": [{"v": float("nan")}],
    "an infinite output": [{"v": [float("inf")]}],
    "bytes in an output": [{"v": b"x"}],
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_a_state_that_cannot_be_restored_parks_its_group(case: str) -> None:
    parks(lambda state, message: (UNSTORABLE[case], []), r"ValueRefused: (a key of )?state\.v is .*")


@pytest.mark.parametrize("case", NO_OUTPUTS)
def test_an_output_that_is_not_json_parks_its_group(case: str) -> None:
    parks(lambda state, message: ({}, NO_OUTPUTS[case]), r"ValueRefused: outputs\[0\][\w.\[\]]* is .* of type")


def parks(wrong: Any, error: str) -> None:
    """A handler that is wrong about one group parks that one, in the kernel as in the pure timeline."""
    handler = lambda state, message: wrong(state, message) if message["amount"] == 2 else (state, [1])  # noqa: E731
    bench, _ = after_one_step(handler)
    with bench:
        rows = [{"account": "a", "revision": 2, "amount": 2}, {"account": "b", "revision": 1, "amount": 3}]
        bench.step(rows)
        first = plain.replay([{"account": "a", "revision": 1, "amount": 1}], now=DAWN)
        pure = bench.pipeline.replay(rows, now=DAWN, after=first)
        assert bench.seen() == expected(pure)
        assert re.search(error, pure.errors["a"])
        assert pure.timelines["b"].status == "open"


def test_an_expired_gap_wait_with_fail_stops_the_step() -> None:
    bench, _ = after_one_step(balance, on_gap=Wait("1 minute", then="fail"))
    with bench:
        bench.step([{"account": "a", "revision": 3, "amount": 1}])
        before = bench.seen()
        with pytest.raises(GapError, match="revision 2 is missing"):
            bench.step([{"account": "b", "revision": 1, "amount": 1}], now=DAWN + MINUTE)
        assert bench.seen() == before


# -- the input changes from step to step ------------------------------------------------------------------------


def by_hash(bench: Bench) -> tuple[str, str]:
    """Two groups, the one with the smaller hash first: so it is written first."""
    first, second = sorted("ab", key=bench.hash_of)
    return first, second


@pytest.mark.parametrize("row_group_rows", [1, 1_000])
def test_held_messages_keep_their_columns_when_the_input_gains_one(row_group_rows: int) -> None:
    def handler(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return state | {str(message["revision"]): message.get("note")}, []

    pipeline = Pipeline(name="gains", group="account", order=Gapless("revision"), handler=handler)
    old = pa.schema({"account": pa.string(), "revision": pa.int64()})
    new = old.append(pa.field("note", pa.string()))
    with Bench(pipeline, old, buckets=1, bounds=Bounds(chunk_rows=1, row_group_rows=row_group_rows, levels=2)) as bench:
        one, two = by_hash(bench)
        bench.step([{"account": one, "revision": revision} for revision in (2, 4)])
        both = [{"account": one, "revision": 1, "note": "n1"}, {"account": two, "revision": 2, "note": "n2"}]
        bench.step(both, schema=new)
        bench.step([{"account": two, "revision": 1, "note": "n1"}], schema=new)
        assert bench.seen().states == {one: {"1": "n1", "2": None}, two: {"1": "n1", "2": "n2"}}


@pytest.mark.parametrize("row_group_rows", [1, 1_000])
@pytest.mark.parametrize(
    ("old", "new"),
    [(pa.int32(), pa.int64()), (pa.int64(), pa.float64()), (pa.int64(), pa.string()), (pa.string(), pa.int64())],
    ids=str,
)
def test_held_messages_are_converted_after_a_change_of_a_column_type(
    old: pa.DataType, new: pa.DataType, row_group_rows: int
) -> None:
    value = {pa.int32(): 2, pa.int64(): 3, pa.float64(): 4.5, pa.string(): "5"}
    handler = lambda state, message: (state | {str(message["revision"]): message["amount"]}, [])  # noqa: E731
    pipeline = Pipeline(name="types", group="account", order=Gapless("revision"), handler=handler)
    first, second = (pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": kind}) for kind in (old, new))
    with Bench(
        pipeline, first, buckets=1, bounds=Bounds(chunk_rows=1, row_group_rows=row_group_rows, levels=2)
    ) as bench:
        one, two = by_hash(bench)
        bench.step([{"account": one, "revision": revision, "amount": value[old]} for revision in (2, 4)])
        keys = [(one, 1), (one, 5), (two, 2), (two, 3)]
        bench.step(
            [{"account": account, "revision": revision, "amount": value[new]} for account, revision in keys],
            schema=second,
        )
        bench.step(
            [
                {"account": account, "revision": revision, "amount": value[new]}
                for account, revision in [(one, 3), (two, 1)]
            ],
            schema=second,
        )
        olds, news = value[old], value[new]
        states = bench.seen().states
        assert states == {one: {"1": news, "2": olds, "3": news, "4": olds, "5": news}, two: dict.fromkeys("123", news)}
        assert {type(value) for value in states[two].values()} == {type(news)}


def test_a_held_message_is_rejected_as_late_after_a_column_type_has_changed() -> None:
    pipeline = Pipeline(name="epochs", group="account", order=Gapless("revision", epoch="epoch"), handler=balance)
    old = pa.schema({name: SCHEMA.field(name).type for name in ("account", "epoch", "revision")} | {"note": pa.int64()})
    new = old.set(3, pa.field("note", pa.string()))
    start = {"account": "a", "epoch": 0, "revision": 1}
    pipeline = replace(pipeline, handler=lambda state, message: (state, []))
    with Bench(pipeline, old) as bench:
        bench.step([start | {"note": 1}, start | {"revision": 3, "note": 3}])
        later = [start | {"note": "copy"}, start | {"epoch": 1, "note": "next"}]
        assert bench.step(later, schema=new).rejected == {"conflict": 1, "late": 1}


@pytest.mark.parametrize("before", [0, 1], ids=["a new group", "a known group"])
@pytest.mark.parametrize("others", ["", "bcd"], ids=["row by row", "by columns"])
def test_a_conflict_within_a_step_names_the_fields_that_differ(before: int, others: str) -> None:
    pipeline = Pipeline(name="p", group="account", order=Gapless("revision"), handler=balance, arrival="arrival")
    first = {"account": "a", "revision": before + 1, "arrival": 5, "amount": 1}
    rows = [first, first | {"arrival": 6, "amount": 2}, *({**first, "account": account} for account in others)]
    with Bench(pipeline, _schema(pipeline, arrival=True)) as bench:
        bench.step([{**row, "revision": 1} for row in rows if before and row["arrival"] == 5])
        bench.step(rows)
        last = bench.store.latest()
        assert last is not None
        (rejected,) = bench.rows(last.rejected)
        assert "(in 'amount'); " in rejected["detail"]
