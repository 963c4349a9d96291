"""The input of a step: checks of a DataFrame, and the partitioning of its rows by group."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline, check_pipeline
from inturn.core.values.path import joined, parts
from inturn.spark.columns.dataframe import (
    INTEGERS,
    check_reserved_names,
    column_list,
    is_case_sensitive,
    quoted,
    sql_of,
    type_at,
)
from inturn.spark.columns.hashing import bucket_sql
from inturn.spark.columns.names import ARRIVED, CORRUPT, GROUP, HASH, duplicate_names
from inturn.spark.columns.records import record_fields
from inturn.spark.columns.spark_types import check_described, check_supported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = ("timestamp", "timestamp_ntz")
_SINCE_1970 = ("string", *INTEGERS, "float", "double", "decimal")
_TEXTS = ("string", "char", "varchar")
_GROUPS = (*_TEXTS, "date", *INTEGERS)
_FITS: dict[Any, tuple[str, ...]] = {
    bool: ("boolean",),
    int: (*INTEGERS, *_TEXTS),
    float: (*INTEGERS, "float", "double", *_TEXTS),
    str: _TEXTS,
    bytes: ("binary", *_TEXTS),
    dt.date: ("date", *_TEXTS),
    dt.datetime: (*_TIMES, *_TEXTS),
    Decimal: ("decimal", *_TEXTS, *INTEGERS),
}
_MENDS = {
    "group": "cast it to string",
    "revision": "cast it to bigint",
    "time": "cast it to timestamp",
    "position": "cast it to bigint or string",
}


def columns_of(pipeline: Pipeline, df: "DataFrame", *, streaming: bool = False) -> list[str]:
    """Return the columns of a DataFrame that the pipeline reads.

    Raises:
        InputError: if a column is missing, occurs twice, or has a type that the pipeline cannot use; if a batch
            receives a stream, or the reverse.
    """
    check_pipeline(pipeline)
    check_described(df)
    if df.isStreaming != streaming:
        raise InputError(
            "the input is not a stream; a stream takes a DataFrame that was read with spark.readStream"
            if streaming
            else "the input is a stream; a batch takes a DataFrame that was read with spark.read"
        )
    _check_names(df)
    names = [name for name in df.columns if name not in (ARRIVED, CORRUPT)]
    needed = [*pipeline.placing_fields, *([pipeline.arrival] if pipeline.arrival else [])]
    places = {name: _kind_at(pipeline, df, name) for name in needed}
    kinds = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    _check_places(pipeline, places)
    if pipeline.message is None:
        check_supported(names, df.schema)
        return names
    required = []
    for field in record_fields(pipeline.message):
        if field.name in names:
            _check_type(pipeline, field.name, field.type, kinds[field.name])
            required.append(field.name)
        elif field.default is None and not field.optional:
            kind = pipeline.message.__name__
            msg = f"the input has no column {field.name!r}, and {kind} has no default for it; add one of them"
            raise InputError(msg)
    arrival = parts(pipeline.arrival)[0] if pipeline.arrival else None
    required += [name for name in [arrival] if name and name not in required]
    check_supported(required, df.schema)
    return required


def _check_names(df: "DataFrame") -> None:
    """Check that a DataFrame's column names are unique and not reserved; else raise InputError."""
    check_reserved_names(df)
    pair = duplicate_names(df.columns, fold=str if is_case_sensitive(df.sparkSession) else str.lower)
    if pair is not None:
        same = pair[0] == pair[1]
        repeated = f"more than one column {pair[0]!r}" if same else f"the columns {pair[0]!r} and {pair[1]!r}"
        detail = "" if same else ", which differ only in case"
        raise InputError(f"the input has {repeated}{detail}; rename or drop one of them")


def _kind_at(pipeline: Pipeline, df: "DataFrame", path: str) -> str:
    """Return the type of the field at a path."""
    kind = type_at(df.schema, parts(path))
    if kind is None:
        missing = f"column {path!r}, which pipeline {pipeline.name!r} needs"
        msg = f"the input has no {missing}; existing columns: {column_list(df)}"
        if path in df.columns:
            msg += f"; write {joined([path])!r} for the column with a dot in its name"
        raise InputError(msg)
    return kind.simpleString()


def _check_places(pipeline: Pipeline, kinds: dict[str, str]) -> None:
    checks: list[tuple[str | None, str, tuple[str, ...]]] = [
        (pipeline.group, "group", _GROUPS),
        (pipeline.epoch, "revision", INTEGERS),
        (pipeline.position, "time", (*_TIMES, *_SINCE_1970))
        if pipeline.order.has_times
        else (pipeline.position, "revision", INTEGERS),
        (pipeline.arrival, "revision", (*INTEGERS, *_TIMES)),
        (pipeline.id, "group", _GROUPS),
        *((name, "position", (*INTEGERS, "decimal", *_TEXTS)) for name in pipeline.order.fields),
    ]
    for name, role, allowed in checks:
        if name is not None and kinds[name].partition("(")[0] not in allowed:
            raise InputError(f"the column {name!r} is {kinds[name]}; expected {', '.join(allowed)}: {_MENDS[role]}")


def _check_type(pipeline: Pipeline, name: str, expected: Any, kind: str) -> None:
    fits = _FITS.get(expected)
    plain = kind.partition("(")[0].partition(" collate ")[0]
    if fits is not None and plain not in (*fits, "void"):  # a void column holds only nulls
        message_type = getattr(pipeline.message, "__name__", "the message")
        raise InputError(
            f"the column {name!r} is {kind}, but {message_type}.{name} is {expected.__name__}; "
            "cast the column, or change the type"
        )


@dataclass(frozen=True)
class StepInput:
    """The mapping of a DataFrame's rows to the tasks that own their groups.

    Attributes:
        columns: the message's columns.
        group: the column with the group's text: the group's own column if it is a string.
        read: the SQL expression of each column that a task gets, by the column's name; the last is the group's hash.
    """

    columns: list[str]
    group: str
    read: dict[str, str]

    @classmethod
    def of(cls, pipeline: Pipeline, df: "DataFrame", *, streaming: bool = False) -> "StepInput":
        """Check a DataFrame against a pipeline as :func:`columns_of` does, and map its rows.

        The hash is Spark's ``xxhash64`` of the group's text. Rows without a group are spread by their other columns,
        since they need not be in one task.
        """
        columns = columns_of(pipeline, df, streaming=streaming)
        first, *rest = parts(pipeline.group)
        is_text = not rest and df.schema[first].dataType.simpleString() == "string"
        group = quoted(first) if is_text else f"CAST({sql_of(pipeline.group)} AS string)"
        # Spark cannot hash a column that contains a map, which has no order.
        hashable = [name for name in columns if "map<" not in df.schema[name].dataType.simpleString()]
        other_names = [quoted(name) for name in hashable if name != first]
        alone = f"xxhash64({', '.join(other_names)})" if other_names else "0L"
        read = {name: quoted(name) for name in columns}
        read |= {name: name for name in (CORRUPT, ARRIVED) if name in df.columns}
        if not is_text:
            read[GROUP] = group
        read[HASH] = f"CASE WHEN {group} IS NULL THEN {alone} ELSE xxhash64({group}) END"
        return cls(columns, first if is_text else GROUP, read)

    @property
    def has_places(self) -> bool:
        """True if the rows have their places in the log that they are from."""
        return ARRIVED in self.read

    def with_numbered_columns(self, df: "DataFrame") -> "DataFrame":
        """Return the columns that a task gets, named by number: mapInArrow treats a dot in a name as a path."""
        return df.selectExpr(*(f"{column} AS c{number}" for number, column in enumerate(self.read.values())))

    def partitioned(self, numbered: "DataFrame", buckets: int) -> "DataFrame":
        """Partition the rows by bucket; the buckets are equal parts of the hash's range."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        bucket = bucket_sql(f"c{len(self.read) - 1}", buckets)
        if hasattr(numbered, "repartitionById"):  # from Spark 4.1 on
            return numbered.repartitionById(buckets, F.expr(bucket))
        keys = ", ".join(map(str, map(key_of_partition, range(buckets))))
        return numbered.repartition(buckets, F.expr(f"element_at(array({keys}), {bucket} + 1)"))


def key_of_partition(partition: int) -> int:
    """Return a key that ``repartition`` sends to a partition, whatever the number of partitions.

    Spark's partition is the remainder of the key's hash, which is Murmur3 with the seed 42. For one int every step of
    Murmur3 can be inverted, so there is a key whose hash is the number of the partition.
    """
    word = (1 << 32) - 1
    h = partition
    h ^= h >> 16
    h = h * pow(0xC2B2AE35, -1, 1 << 32) & word
    h ^= h >> 13 ^ h >> 26
    h = h * pow(0x85EBCA6B, -1, 1 << 32) & word
    h ^= h >> 16
    h ^= 4  # the number of hashed bytes
    h = (h - 0xE6546B64) * pow(5, -1, 1 << 32) & word
    h = (h >> 13 | h << 19) & word
    k = h ^ 42
    k = k * pow(0x1B873593, -1, 1 << 32) & word
    k = (k >> 15 | k << 17) & word
    k = k * pow(0xCC9E2D51, -1, 1 << 32) & word
    return k - (k >> 31 << 32)  # Spark's int is signed
