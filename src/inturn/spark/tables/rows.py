"""Rows of groups and held messages for people, read by Spark workers: the files are Arrow, not Parquet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from inturn.core.identity import canonical
from inturn.spark.tables.storage import storage
from inturn.spark.tables.writer import GROUPS, HELD

STATE = "state_"
"""Prefix of the columns with the state's fields; the number of the field follows."""
_GROUPS = {
    name: kind for name, kind in GROUPS.items() if name not in {"memory", "waiting_us", "oldest_us", "conflicts"}
}
_HELD = {name: kind for name, kind in HELD.items() if name not in {"digest", "tie"}}
_SPARK = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.string(): "string",
}
_BY_NAME = {str(kind): kind for kind in _SPARK}
"""The types of a state's columns by their stored names; all other fields are text."""


def batches_of(location: str, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of some of a store's Arrow files; a StoreError names one that cannot be read."""
    files = storage(location)
    for path in paths:
        with files.store_errors("read", path):
            reader = pa.ipc.open_file(files.source(path))
        for number in range(reader.num_record_batches):
            with files.store_errors("read", path):
                yield reader.get_batch(number)


def _paths(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        yield from batch.column("path").to_pylist()


def ddl_of(columns: Mapping[str, pa.DataType]) -> str:
    """Return the Spark schema of columns."""
    return ", ".join(f"`{name}` {_SPARK[kind]}" for name, kind in columns.items())


@dataclass(frozen=True)
class GroupRows:
    """A ``mapInArrow`` function from paths to rows of groups, with one column for each field of the state.

    Attributes:
        fields: fields of the state and their storage types; a row that was written before a field existed has null
            in it.
    """

    location: str
    fields: dict[str, str]

    @property
    def ddl(self) -> str:
        """The schema of the rows."""
        return ddl_of(_GROUPS | {f"{STATE}{number}": kind for number, kind in enumerate(self._kinds)})

    @property
    def _kinds(self) -> list[pa.DataType]:
        return [_BY_NAME.get(kind, pa.string()) for kind in self.fields.values()]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files at the given paths."""
        return map(self.of, batches_of(self.location, _paths(batches)))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a stored batch."""
        columns = {name: batch.column(name) for name in _GROUPS}
        state = batch.column("state")
        fields = dict(zip((field.name for field in state.type), state.flatten(), strict=True))
        for number, (name, kind) in enumerate(zip(self.fields, self._kinds, strict=True)):
            columns[f"{STATE}{number}"] = fields[name] if name in fields else pa.nulls(len(batch), kind)
        return pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True)
class HeldRows:
    """A ``mapInArrow`` function from paths to held messages, with their content as canonical JSON."""

    location: str
    ddl = ddl_of(_HELD | {"message": pa.string()})

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files at the given paths."""
        for batch in batches_of(self.location, _paths(batches)):
            columns = {name: batch.column(name) for name in _HELD}
            texts = [canonical(content) for content in batch.column("message").to_pylist(maps_as_pydicts="strict")]
            yield pa.RecordBatch.from_pydict({**columns, "message": pa.array(texts, pa.string())})
