"""The sort inside a task: the same order as Python's own sort, in bounded memory, with nothing left on disk.

The reference is ``sorted()`` over rows. Each row carries its place in the input, so that the order of equal rows
is held too.
"""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.core.errors import InturnError, SetupError
from inturn.spark.executor import sort
from inturn.spark.executor.sort import sorted_chunks
from inturn.spark.executor.sort_key import RowKey, assert_sorted
from inturn.spark.executor.spill import MERGE_RUNS
from waiting import PROGRAM_S

Row = tuple[Any, ...]

BY: dict[str, Any] = {"hash": "h", "group": "g", "keys": ["revision", "at", "text"]}
SCHEMA = pa.schema(
    {
        "place": pa.int64(),
        "h": pa.int64(),
        "g": pa.string(),
        "revision": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "text": pa.string(),
    }
)
WORDS = ["", "a", "aa", "b", "Z", "é", "\uffff", "\U0001f600"]  # UTF-16 would order the last two the other way
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)

rows = st.lists(
    st.tuples(
        st.sampled_from([None, -(2**63), -1, 0, 7, 2**63 - 1]),  # few hashes, so that groups collide
        st.sampled_from([*WORDS, None]),
        st.none() | st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
        st.none() | st.integers(-2, 2).map(lambda hours: NOON + timedelta(hours=hours)),
        st.none() | st.sampled_from(WORDS),
    ),
    max_size=40,
)


def table_of(data: list[Row]) -> pa.Table:
    numbered = [(place, *row) for place, row in enumerate(data)]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in numbered], schema=SCHEMA)


def key_of(row: Row) -> RowKey:
    return tuple((value is not None, value) for value in row)


def sorted_places(data: list[Row]) -> list[int]:
    return sorted(range(len(data)), key=lambda place: key_of(data[place]))


def places(chunks: Iterator[pa.Table]) -> list[int]:
    return [place for chunk in chunks for place in chunk["place"].to_pylist()]


def mixed(count: int) -> list[Row]:
    """Rows of seven groups in turn, each with its revisions going down."""
    return [(place % 7 - 3, f"group-{place % 7}", -place, None, None) for place in range(count)]


@given(
    data=rows,
    batch_rows=st.integers(1, 9),
    chunk_rows=st.integers(1, 9),
    sort_rows=st.integers(1, 50),
    sort_bytes=st.sampled_from([1, 300, 2_000, 20_000, 1_000_000]),
    merge_rows=st.integers(1, 6),
)
def test_sorted_chunks_gives_the_order_of_the_python_sort(
    data, batch_rows, chunk_rows, sort_rows, sort_bytes, merge_rows
):
    table = table_of(data)
    batches = [*table.to_batches(max_chunksize=batch_rows), pa.RecordBatch.from_pylist([], schema=SCHEMA)]
    bounds = {
        "chunk_rows": chunk_rows,
        "sort_rows": sort_rows,
        "sort_bytes": sort_bytes,
        "merge_rows": merge_rows,
    }
    chunks = list(sorted_chunks(batches, **BY, **bounds))
    assert pa.concat_tables([SCHEMA.empty_table(), *chunks]).equals(
        table.take(pa.array(sorted_places(data), pa.int64()))
    )
    assert all(1 <= chunk.num_rows <= chunk_rows for chunk in chunks)
    assert all(column.num_chunks == 1 for chunk in chunks for column in chunk.columns)


@given(data=rows, cuts=st.lists(st.integers(0, 40)), swap=st.none() | st.integers(0, 40))
def test_assert_sorted_accepts_exactly_sorted_rows(data, cuts, swap):
    data = sorted(data, key=key_of)
    if swap is not None and len(data) > 1:
        index = swap % (len(data) - 1)
        data[index : index + 2] = data[index + 1], data[index]
    table = table_of(data)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    def check() -> RowKey | None:
        last = None
        for start, end in pairwise(edges):
            last = assert_sorted(table.slice(start, end - start), last, **BY)
        return last

    if sorted_places(data) == list(range(len(data))):
        assert (check() is None) == (not data)
    else:
        with pytest.raises(InturnError, match="out of order"):
            check()


def test_assert_sorted_names_the_rows_out_of_order():
    first, second = table_of([(1, "a", 8, NOON, "x")]), table_of([(1, "a", 7, NOON, "x")])
    last = assert_sorted(first, None, **BY)
    with pytest.raises(InturnError, match=r"h=1, g='a', revision=7.*follows.*h=1, g='a', revision=8"):
        assert_sorted(second, last, **BY)


def test_sorting_no_rows_gives_no_chunks():
    assert list(sorted_chunks([], **BY)) == []
    assert list(sorted_chunks(table_of([]).to_batches(), **BY)) == []


@pytest.mark.parametrize("sort_rows", [1, 1_000])
@pytest.mark.parametrize(
    ("type_", "ordered"),
    [
        (pa.int8(), [None, -128, 0, 127]),
        (pa.int32(), [None, -(2**31), 0, 2**31 - 1]),
        (pa.uint64(), [None, 0, 1, 2**64 - 1]),
        (pa.bool_(), [None, False, True]),
        (pa.float64(), [None, -1.5, 0.0, 2.5]),
        (pa.decimal128(20, 2), [None, Decimal("-1.50"), Decimal("0.00"), Decimal("10.25")]),
        (pa.date32(), [None, date(1969, 12, 31), date(2020, 1, 1)]),
        (pa.timestamp("ns"), [None, -1, 0, 1, 2**62]),  # a datetime could not tell the first ones apart
        (pa.time32("ms"), [None, 0, 1]),
        (pa.duration("us"), [None, timedelta(-1), timedelta(0), timedelta(1)]),
        (pa.large_string(), [None, "", "a", "b"]),
        (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    ],
    ids=str,
)
def test_sort_keys_may_have_any_ordered_type(type_, ordered, sort_rows):
    values = pa.array(ordered, type_)
    places = pa.array(range(len(ordered)))
    table = pa.table({"h": pa.nulls(len(ordered), pa.int64()), "g": [""] * len(ordered), "k": values, "place": places})
    backwards = [table.slice(place, 1).to_batches()[0] for place in reversed(range(len(ordered)))]
    result = pa.concat_tables(sorted_chunks(backwards, hash="h", group="g", keys=["k"], sort_rows=sort_rows))
    assert result["place"].equals(pa.chunked_array([places]))
    assert_sorted(result, None, hash="h", group="g", keys=["k"])


def test_more_sorted_runs_than_the_merge_limit_are_merged_in_passes(tmp_path):
    data = mixed(MERGE_RUNS * 2 + 9)
    batches = table_of(data).to_batches(max_chunksize=1)
    chunks = sorted_chunks(batches, **BY, sort_rows=1, merge_rows=3, chunk_rows=10, spill_dir=tmp_path)
    first = next(chunks)
    assert len(list(tmp_path.rglob("*.arrow"))) == 3  # the runs of the first pass are gone
    assert places(chain([first], chunks)) == sorted_places(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sort_rows", [10, 1_000])
def test_sorting_is_stable_for_equal_rows(sort_rows):
    data = [(place // 50, "a", None, None, None) for place in range(100)]
    batches = table_of(data).to_batches(max_chunksize=5)
    assert places(sorted_chunks(batches, **BY, sort_rows=sort_rows, merge_rows=1)) == list(range(100))
    backwards = sorted_chunks(reversed(batches), **BY, sort_rows=sort_rows, merge_rows=2)
    start_of_batches = [*range(45, -1, -5), *range(95, 49, -5)]
    assert places(backwards) == [start + place for start in start_of_batches for place in range(5)]


def test_groups_larger_than_memory_and_rows_larger_than_a_block_are_sorted():
    data = [(5, "hot", place * 37 % 101, None, "x" * (place % 5 * 100)) for place in range(101)]
    batches = table_of(data).to_batches(max_chunksize=4)
    assert places(sorted_chunks(batches, **BY, sort_rows=10, sort_bytes=640, merge_rows=2)) == sorted_places(data)


def test_joined_tables_stay_within_the_offset_limit_of_string_columns(monkeypatch):
    monkeypatch.setattr(sort, "_ADDRESSABLE", 1_000)
    data = mixed(200)
    chunks = list(sorted_chunks(table_of(data).to_batches(max_chunksize=3), **BY))
    assert places(iter(chunks)) == sorted_places(data)
    assert max(chunk.nbytes for chunk in chunks) <= 1_000


def test_sorted_chunks_are_filled_close_to_their_limit():
    batches = table_of(mixed(1_000)).to_batches(max_chunksize=20)
    sizes = [chunk.num_rows for chunk in sorted_chunks(batches, **BY, chunk_rows=100, sort_rows=100, merge_rows=7)]
    assert max(sizes) <= 100
    assert len(sizes) <= 20


def test_closing_the_sort_early_deletes_its_spill_files(tmp_path):
    batches = table_of(mixed(100)).to_batches(max_chunksize=5)
    chunks = sorted_chunks(batches, **BY, chunk_rows=5, sort_rows=10, spill_dir=tmp_path)
    next(chunks)
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    chunks.close()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_sort_input_is_raised_and_deletes_the_spill_files(tmp_path):
    def source() -> Iterator[pa.RecordBatch]:
        yield from table_of(mixed(100)).to_batches(max_chunksize=5)
        assert list(tmp_path.iterdir())
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        next(sorted_chunks(source(), **BY, sort_rows=10, spill_dir=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_spill_directory_is_named(tmp_path):
    batches = table_of(mixed(100)).to_batches(max_chunksize=5)
    missing = tmp_path / "missing"
    assert places(sorted_chunks(batches, **BY, spill_dir=missing)) == sorted_places(mixed(100))  # nothing to spill
    with pytest.raises(SetupError, match=rf"{missing}.*spark\.local\.dir.*TMPDIR"):
        next(sorted_chunks(batches, **BY, sort_rows=10, spill_dir=missing))


@pytest.mark.parametrize("variable", ["SPARK_LOCAL_DIRS", "LOCAL_DIRS"])
def test_spill_files_are_written_to_the_local_directory_of_the_executor(monkeypatch, tmp_path, variable):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setenv(variable, f"{tmp_path / 'missing'},{tmp_path}")
    chunks = sorted_chunks(table_of(mixed(100)).to_batches(max_chunksize=5), **BY, sort_rows=10)
    next(chunks)
    assert list(tmp_path.iterdir())
    chunks.close()


def run(program: str, *args: object) -> str:
    """Run a program in a process of its own and return what it printed."""
    command = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PROGRAM_S).stdout


FULL_DISK = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from inturn.core.errors import SetupError
from inturn.spark.executor.sort import sorted_chunks

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # a write beyond that fails as on a full disk
batches = (pa.record_batch({"h": range(9_000), "g": map(str, range(9_000))}) for _ in range(9))
try:
    next(sorted_chunks(batches, hash="h", group="g", keys=[], sort_rows=9_000, spill_dir=Path(sys.argv[1])))
except SetupError as error:
    print(error)
"""


@pytest.mark.thorough
def test_a_full_disk_is_reported_and_the_spill_files_are_deleted(tmp_path):
    output = run(FULL_DISK, tmp_path)
    assert str(tmp_path) in output
    assert "TMPDIR" in output
    assert list(tmp_path.iterdir()) == []


MEMORY = """
import sys
import numpy as np
import pyarrow as pa
from inturn.spark.executor.sort import sorted_chunks

SORT_BYTES = 8_000_000
NAMES = pa.array([f"group-{number}" for number in range(5_000)])

def batches(rows):
    chance = np.random.default_rng(7)
    for start in range(0, rows, 10_000):
        hashes = chance.integers(0, 5_000, 10_000)
        yield pa.record_batch({
            "h": hashes, "g": NAMES.take(pa.array(hashes)), "k": chance.integers(0, 9, 10_000),
            "place": np.arange(start, start + 10_000),
        })

rows = int(sys.argv[1])
chunks = sorted_chunks(batches(rows), hash="h", group="g", keys=["k"], sort_bytes=SORT_BYTES)
assert sum(chunk.num_rows for chunk in chunks) == rows
print(pa.default_memory_pool().max_memory() / SORT_BYTES)
"""


@pytest.mark.thorough
def test_sort_memory_does_not_grow_with_the_number_of_rows():
    few, many = (float(run(MEMORY, rows)) for rows in (300_000, 3_000_000))
    assert few < 4  # times sort_bytes, as documented
    assert many < 4
    assert many < few + 1
