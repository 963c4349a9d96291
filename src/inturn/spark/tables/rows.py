"""Rows of groups and held messages for people, read by Spark workers: the files are Arrow, not Parquet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from inturn.core.identity import canonical
from inturn.spark.tables.storage import storage

STATE = "state_"
"""Prefix of the columns with the state's fields; the number of the field follows."""


def batches_of(location: str, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of some of a store's Arrow files.

    Raises:
        StoreError: if a file cannot be read.
    """
    files = storage(location)
    for path in paths:
        with files.told("read", path):
            reader = pa.ipc.open_file(files.source(path))
        for number in range(reader.num_record_batches):
            with files.told("read", path):
                yield reader.get_batch(number)


def _paths(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        yield from batch.column("path").to_pylist()


def _arrow_kind(kind: str) -> pa.DataType:
    if kind.startswith("timestamp"):
        return pa.timestamp("us", tz="UTC")
    return pa.type_for_alias(kind) if kind in {"int64", "double", "bool", "binary", "date32[day]"} else pa.string()


@dataclass(frozen=True)
class GroupRows:
    """A ``mapInArrow`` function from paths to rows of groups, with one column for each field of the state.

    Attributes:
        location: location of the store.
        fields: fields of the state and their storage types; a row that was written before a field existed has null
            in it.
    """

    location: str
    fields: dict[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files at the given paths."""
        names = ("hash", "group", "epoch", "reached", "status", "error", "skipped", "held", "held_step", "step")
        for batch in batches_of(self.location, _paths(batches)):
            columns = {name: batch.column(name) for name in names}
            state = batch.column("state")
            there = {field.name: number for number, field in enumerate(state.type)}
            parts = state.flatten()
            for number, (name, kind) in enumerate(self.fields.items()):
                absent = name not in there
                column = pa.nulls(len(batch), _arrow_kind(kind)) if absent else parts[there[name]]
                columns[f"{STATE}{number}"] = column
            yield pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True)
class HeldRows:
    """A ``mapInArrow`` function from paths to held messages, with their content as canonical JSON.

    Attributes:
        location: location of the store.
    """

    location: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files at the given paths."""
        names = ("hash", "group", "epoch", "turn", "id", "since_us", "step")
        for batch in batches_of(self.location, _paths(batches)):
            columns = {name: batch.column(name) for name in names}
            texts = [canonical(content) for content in batch.column("message").to_pylist(maps_as_pydicts="strict")]
            yield pa.RecordBatch.from_pydict({**columns, "message": pa.array(texts, pa.string())})
