"""A store on an object store: a server of the S3 protocol on this machine, and workers that write to it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from inturn import Gapless, Pipeline
from inturn.core.errors import StoreConflict, StoreError
from inturn.spark import sweep
from inturn.spark.tables.manifest import SparkStore, new_identity
from inturn.spark.tables.rows import batches_of
from inturn.spark.tables.storage import storage
from waiting import PROGRAM_S

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("programs")
PIPELINE = Pipeline(name="p", group="k", order=Gapless("n"), handler=lambda state, message: (state, []))
PutObject = Callable[[str, bytes], None]


@pytest.fixture
def put_object(bucket: str) -> PutObject:
    """Put an object under any key, as a console does; our own clients drop the slash at a key's end."""
    client = boto3.client("s3")
    return lambda key, data: client.put_object(Bucket=bucket.removeprefix("s3://"), Key=key, Body=data)


def test_an_s3_object_created_once_is_not_overwritten(bucket: str) -> None:
    files = storage(f"{bucket}/once")
    files.create("steps/1.json", b"first")
    with pytest.raises(StoreConflict):
        files.create("steps/1.json", b"second")
    assert files.read("steps/1.json") == b"first"
    assert files.read("steps/2.json") is None
    assert files.names("") == ["steps/1.json"]
    files.delete("steps/1.json")
    assert files.names("") == []


def test_two_batches_on_s3_are_applied_and_leave_no_orphans(bucket: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "two_batches.py", f"{bucket}/sums"],
        check=True,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
    )
    first, second = (json.loads(line)["counts"] for line in done.stdout.splitlines())
    assert (first["applied"], first["held"]) == (2, 1)
    assert (second["applied"], second["released"], second["duplicate"]) == (2, 1, 1)

    store = SparkStore(f"{bucket}/sums")
    assert store.steps() == [1, 2]
    last = store.manifest(2)
    batches = batches_of(store.location, [file.path for file in last.levels[-1].groups])
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["group"], row["reached"], row["state"]["state"]) for row in rows] == [("a", 3, '{"sum":13}')]
    assert sweep(f"{bucket}/sums", older_than_s=0) == []


def test_a_filesystem_without_a_conditional_create_is_refused() -> None:
    with pytest.raises(StoreError, match="hdfs"):
        SparkStore("hdfs://namenode/store")


def test_a_missing_bucket_is_reported(bucket: str) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        storage("s3://nowhere/store").create("inturn.json", b"{}")


def test_folder_marker_objects_are_not_files(bucket: str, put_object: PutObject) -> None:
    location = f"{bucket}/marked"
    for marker in ("marked/", "marked/data/", "marked/data/outputs/", "marked/steps_$folder$"):
        put_object(marker, b"")
    assert storage(location).names("") == []
    SparkStore(location).open(new_identity(PIPELINE, None), buckets=None)
    put_object("marked/data/outputs/part.parquet", b"orphan")
    assert sweep(location, older_than_s=0) == ["data/outputs/part.parquet"]


def test_an_empty_object_counts_as_a_file(bucket: str, put_object: PutObject) -> None:
    put_object("stranger/notes.txt", b"")
    with pytest.raises(StoreError, match="is neither a store nor empty"):
        SparkStore(f"{bucket}/stranger").open(new_identity(PIPELINE, None), buckets=None)
