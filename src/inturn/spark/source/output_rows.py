"""The rows of committed outputs, from the files that manifests name; batches and streams read them alike.

Outputs are numbered in the order of the steps and their files. Neither changes, so the numbers do not either.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inturn.core import limits
from inturn.spark.tables.manifest import Manifest
from inturn.spark.tables.storage import storage

OUTPUT_COLUMNS: Final = "sequence_number bigint, `group` string, dedup_id string, body string, sent_at timestamp"


class OutputFile(NamedTuple):
    """A file of outputs.

    Attributes:
        path: its path in the store.
        rows: the number of its outputs.
        before: the number of outputs before it.
        now_us: the time of its step, in microseconds since 1970.
    """

    path: str
    rows: int
    before: int
    now_us: int


def output_files(manifests: Iterable[Manifest], before: int, after: int = 0) -> list[OutputFile]:
    """Return the files with the outputs of steps.

    Args:
        manifests: successive steps.
        before: the number of outputs before them.
        after: the step after which files are wanted.
    """
    files = []
    for manifest in manifests:
        for file in manifest.outputs:
            if manifest.step > after:
                files.append(OutputFile(file.path, file.rows, before, manifest.now_us))
            before += file.rows
    return files


def output_batches(location: str, files: Iterable[OutputFile]) -> Iterator[pa.RecordBatch]:
    """Yield the outputs of files, in order; a StoreError names a file that cannot be read."""
    store = storage(location)
    for path, _, before, now_us in files:
        with store.store_errors("read", path):
            reader = pq.ParquetFile(store.source(path))
            batches = reader.iter_batches(limits.SOURCE_ARROW_ROWS, columns=["group", "effect_id", "output"])
            for batch in batches:
                group, effect_id, output = batch.columns
                numbers = pa.array(np.arange(before + 1, before + 1 + len(batch)))
                sent_at = pa.array(np.full(len(batch), now_us)).cast(pa.timestamp("us", "UTC"))
                before += len(batch)  # noqa: PLW2901 - the outputs before the next batch
                names = ["sequence_number", "group", "dedup_id", "body", "sent_at"]
                yield pa.RecordBatch.from_arrays([numbers, group, effect_id, output, sent_at], names=names)
