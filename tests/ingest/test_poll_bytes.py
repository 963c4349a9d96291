"""A poll ends at a bound in bytes; records that are left over keep their order, and a larger record comes alone."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import FolderSource, Ingest, KafkaSource, MessageMapping, Source, SourceRecord
from inturn.ingest import limits as source_limits
from inturn.ingest.config import read
from inturn.ingest.sources import file_rows
from kafka_started import produce, topic
from waiting import until

SIZES = [400, 400, 300, 2_000, 10, 10, 10, 990, 1]  # and a bound of 1,000
BATCHES = [[400, 400], [300], [2_000], [10, 10, 10], [990, 1]]


def polls(source: Source, partition: str, count: int) -> list[list[SourceRecord]]:
    """The records of each poll, until there are so many."""
    source.batch_bytes = 1_000
    source.open(partition, None)
    polled: list[list[SourceRecord]] = []

    def poll() -> bool:
        if records := source.poll(100, 0.2):
            polled.append(list(records))
        return sum(map(len, polled)) >= count

    until(poll, f"{count} records")
    return polled


def text(size: int) -> str:
    """A JSON text of a size."""
    return f'"{"x" * (size - 2)}"' if size > 1 else "1"


def sizes(polled: Sequence[Sequence[SourceRecord]]) -> list[list[int]]:
    return [[record.size for record in records] for records in polled]


def test_a_folder_poll_is_limited_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("\n".join(map(text, SIZES[:5])))
    (tmp_path / "2.jsonl").write_text("\n".join(map(text, SIZES[5:])))
    source = FolderSource(tmp_path)
    assert source.partitions() == ["1.jsonl", "2.jsonl"]
    source.open("2.jsonl", None)
    polled = polls(source, "1.jsonl", len(SIZES))
    assert sizes(polled) == BATCHES
    assert [record.position for records in polled for record in records] == [1, 2, 3, 4, 5, 1, 2, 3, 4]


def test_large_parquet_rows_are_decoded_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pa.table({"a": [f"{n:04}" * 2_500 for n in range(200)]}), tmp_path / "1.parquet")
    monkeypatch.setattr(source_limits, "INGEST_BYTES", 100_000)
    decoded: list[int] = []
    iter_batches = parquet.ParquetFile.iter_batches

    def counted(self: parquet.ParquetFile, rows: int) -> object:
        for batch in iter_batches(self, rows):
            decoded.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    with (tmp_path / "1.parquet").open("rb") as file:
        assert sum(1 for _ in file_rows.rows_of("1.parquet", file, 0)) == 200
    assert max(decoded) <= 10


@pytest.mark.thorough
def test_a_kafka_poll_is_limited_in_bytes(servers: str) -> None:
    name = topic(servers, f"t{time.time_ns()}", 2)
    produce(servers, name, [text(size).encode() for size in SIZES], 0)
    source = KafkaSource(servers, name)
    source.partitions()
    polled = polls(source, "0", len(SIZES))
    assert [record.position for records in polled for record in records] == list(range(1, len(SIZES) + 1))
    assert all(len(records) == 1 or sum(record.size for record in records) <= 1_000 for records in polled)
    source.close("0")
    source.open("0", None)
    assert [record.position for record in source.poll(2, 5)] in ([1], [1, 2])
    source.close("0")  # and what is left of it is not read when it is opened elsewhere
    source.open("0", 6)
    (first, *_) = source.poll(1, 5)
    assert first.position == 7
    assert source.lag("0") == 2
    source.shutdown()


@pytest.mark.thorough
def test_kafka_records_left_over_by_a_limited_poll_are_not_lost(db: Database, servers: str) -> None:
    name = topic(servers, f"t{time.time_ns()}", 1)
    produce(servers, name, [text(size).encode() for size in SIZES * 20], 0, key=b"a")
    ingest = Ingest(KafkaSource(servers, name), db.queue("q"), MessageMapping(group="key"), name="s", batch_bytes=1_000)
    assert ingest.run(until="caught up").received == len(SIZES) * 20
    assert [len(str(message.body)) + 2 for message in db.queue("q").peek(9) if isinstance(message.body, str)] == SIZES[
        :-1
    ]


def test_batch_bytes_is_a_setting_of_a_source(db: Database, tmp_path: Path) -> None:
    source = Scripted(Log())
    assert source.batch_bytes == source_limits.INGEST_BYTES
    host: Callable[..., Ingest] = Ingest
    host(source, db.queue("q"), MessageMapping(), name="s", batch_bytes=7)
    assert source.batch_bytes == 7
    with pytest.raises(InputError, match=r"batch_bytes is 0; .* above 0"):
        host(source, db.queue("q"), MessageMapping(), name="s", batch_bytes=0)
    config = tmp_path / "ingest.toml"
    config.write_text('[[sources]]\nkind = "folder"\nname = "b"\nqueue = "s.db#q"\npath = "."\nbatch_bytes = 5\n')
    assert read(config).sources[0].batch_bytes == 5
