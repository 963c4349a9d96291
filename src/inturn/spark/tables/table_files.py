"""Output files of a task, by table: opened at the first row, one file for each set of columns.

Outputs and rejected messages are for people and other engines: Parquet. Groups and held messages are for the next
step, which reads a few rows of many at once: Arrow files, sorted by hash and memory-mapped.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inturn.core import limits
from inturn.core.pipeline.timeline import Status
from inturn.spark.tables.manifest import DataFile
from inturn.spark.tables.storage import Storage


class TableFiles(ABC):
    """Files of one table; the names lack number and suffix."""

    suffix: str

    def __init__(self, files: Storage, name: str) -> None:
        self._files, self._name = files, name
        self._parts: list[_FileDraft] = []

    def write(self, table: pa.Table) -> None:
        """Add rows; order is kept among rows with equal columns, ignoring metadata and the names within lists."""
        if not len(table):
            return
        for part in self._parts:
            if part.schema.equals(table.schema):
                break
        else:
            path = f"{self._name}-{len(self._parts)}.{self.suffix}"
            part = _FileDraft(path, table.schema)
            self._parts.append(part)
        part.waiting.append(table)
        part.rows += len(table)
        if part.rows >= limits.ROW_GROUP_ROWS:
            self._flush(part)

    def close(self) -> list[DataFile]:
        """Finish the files, and return them."""
        for part in self._parts:
            self._flush(part)
            with self._files.store_errors("write", part.path):
                part.writer.close()
                part.sink.close()
                self._files.sync(part.path)
        return [part.data_file() for part in self._parts]

    def _flush(self, part: "_FileDraft") -> None:
        if not part.waiting:
            return
        table = pa.concat_tables([piece.cast(part.schema) for piece in part.waiting])
        part.waiting, part.rows = [], 0
        with self._files.store_errors("write", part.path):
            if part.writer is None:
                part.sink = self._files.sink(part.path)
                part.writer = self._open(part.sink, part.schema)
            self._write(part.writer, table)
        part.add_statistics(table)

    @abstractmethod
    def _open(self, sink: pa.NativeFile, schema: pa.Schema) -> Any: ...

    @abstractmethod
    def _write(self, writer: Any, table: pa.Table) -> None: ...


class ParquetFiles(TableFiles):
    """Parquet files for people and other engines."""

    suffix = "parquet"

    def _open(self, sink: pa.NativeFile, schema: pa.Schema) -> Any:
        return pq.ParquetWriter(sink, schema, use_dictionary=False, write_statistics=True)

    def _write(self, writer: Any, table: pa.Table) -> None:
        writer.write_table(table, row_group_size=limits.ROW_GROUP_ROWS)


class ArrowFiles(TableFiles):
    """Arrow files for the next step; not compressed, so that a reader can memory-map them."""

    suffix = "arrow"

    def _open(self, sink: pa.NativeFile, schema: pa.Schema) -> Any:
        return pa.ipc.new_file(sink, schema)

    def _write(self, writer: Any, table: pa.Table) -> None:
        writer.write_table(table.combine_chunks(), max_chunksize=limits.ROW_GROUP_ROWS)


class _FileDraft:
    """One file, and the statistics that a reader needs before it opens the file."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        self.waiting: list[pa.Table] = []
        self.rows = 0
        self.sink: Any = None
        self.writer: Any = None
        self._written = self._high = 0
        self._firsts: list[int] = []
        self._waiting: list[int] = []
        self._since: list[int] = []

    def add_statistics(self, table: pa.Table) -> None:
        self._written += len(table)
        if "hash" in table.column_names:
            hashes = table["hash"].to_numpy()
            self._firsts += hashes[:: limits.ROW_GROUP_ROWS].tolist()
            self._high = int(hashes[-1])
        for column, minima in (("waiting_us", self._waiting), ("oldest_us", self._since)):
            if column in table.column_names and table[column].null_count < len(table):
                minima.append(pc.min(table[column]).as_py())

    def data_file(self) -> DataFile:
        low = self._firsts[0] if self._firsts else 0
        waiting, oldest = (min(minima, default=None) for minima in (self._waiting, self._since))
        return DataFile(self.path, self._written, low, self._high, waiting, oldest, self._firsts)


def unsettled(groups: pa.Table) -> pa.Table:
    """Return the rows of groups that are not open, without the columns that only a step reads."""
    return groups.filter(pc.not_equal(groups["status"], Status.OPEN.value)).drop_columns(["memory", "conflicts"])


def by_hash(table: pa.Table) -> pa.Table:
    """Return the rows sorted by hash; rows with the same hash keep their order."""
    table = table.combine_chunks()
    return table.take(pa.array(np.argsort(table["hash"].to_numpy(), kind="stable")))


def concat_alike(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Concatenate the tables that have the same columns; return one table for each set of columns."""
    alike: list[list[pa.Table]] = []
    for table in tables:
        for matching in alike:
            if matching[0].schema.equals(table.schema):
                matching.append(table.cast(matching[0].schema))
                break
        else:
            alike.append([table])
    return [pa.concat_tables(matching) for matching in alike]
