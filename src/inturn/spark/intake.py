"""Check a DataFrame against a pipeline, and bring its rows to the task that owns their group."""

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError
from inturn.core.order import Timestamp
from inturn.core.pipeline import Pipeline
from inturn.spark.chunk import CORRUPT, GROUP, HASH
from inturn.spark.columns.codec import record_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")
_GROUPS = ("string", "date", *_INTEGERS)
_FITS: dict[Any, tuple[str, ...]] = {
    bool: ("boolean",),
    int: (*_INTEGERS, "string"),
    float: (*_INTEGERS, "float", "double", "string"),
    str: ("string",),
    bytes: ("binary", "string"),
    dt.date: ("date", "string"),
    dt.datetime: (*_TIMES, "string"),
    Decimal: ("decimal", "string", *_INTEGERS),
}
_MENDS = {"group": "cast it to string", "revision": "cast it to bigint", "time": "cast it to timestamp"}


def columns_of(pipeline: Pipeline, df: "DataFrame", *, streaming: bool = False) -> list[str]:
    """The columns of a DataFrame that the pipeline reads.

    Raises:
        InputError: if one is missing, twice there, or of a type that cannot carry what the pipeline says it is.
    """
    if df.isStreaming != streaming:
        msg = (
            "the input is not a stream; a stream takes a DataFrame that was read with spark.readStream"
            if streaming
            else "the input is a stream; a batch takes a DataFrame that was read with spark.read"
        )
        raise InputError(msg)
    names = df.columns
    exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    known = names if exact else [name.lower() for name in names]
    twice = sorted({name for name in known if known.count(name) > 1})
    if twice:
        msg = f"the input has more than one column {twice[0]!r}; rename or drop one of them"
        raise InputError(msg)
    needed = [*pipeline.key_fields, *(name for name in (pipeline.id, pipeline.arrival) if name)]
    for name in needed:
        if name not in names:
            msg = f"the input has no column {name!r}, which pipeline {pipeline.name!r} needs; it has {', '.join(names)}"
            raise InputError(msg)
    kinds = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    _check_places(pipeline, kinds)
    if pipeline.message is None:
        return [name for name in names if name != CORRUPT]
    wanted = []
    for field in record_fields(pipeline.message):
        if field.name in names:
            _check_type(pipeline, field.name, field.type, kinds[field.name])
            wanted.append(field.name)
        elif field.default is None:
            msg = f"the input has no column {field.name!r}, and {pipeline.message.__name__} has no default for it"
            raise InputError(msg)
    return wanted + [name for name in [pipeline.arrival] if name and name not in wanted]


def _check_places(pipeline: Pipeline, kinds: dict[str, str]) -> None:
    checks: list[tuple[str | None, str, tuple[str, ...]]] = [
        (pipeline.group, "group", _GROUPS),
        (pipeline.epoch, "revision", _INTEGERS),
        (pipeline.turn, *(("time", _TIMES) if isinstance(pipeline.order, Timestamp) else ("revision", _INTEGERS))),
        (pipeline.arrival, "revision", (*_INTEGERS, *_TIMES)),
        (pipeline.id, "group", _GROUPS),
    ]
    for name, what, allowed in checks:
        if name is not None and kinds[name] not in allowed:
            msg = f"the column {name!r} is {kinds[name]}; expected {', '.join(allowed)}: {_MENDS[what]}"
            raise InputError(msg)


def _check_type(pipeline: Pipeline, name: str, wanted: Any, kind: str) -> None:
    fits = _FITS.get(wanted)
    if fits is not None and kind.split("(", maxsplit=1)[0] not in fits:
        of = getattr(pipeline.message, "__name__", "the message")
        msg = (
            f"the column {name!r} is {kind}, but {of}.{name} is {wanted.__name__}; cast the column, or change the type"
        )
        raise InputError(msg)


def divided(pipeline: Pipeline, df: "DataFrame", columns: list[str], buckets: int) -> "tuple[DataFrame, list[str]]":
    """The rows with their group's text and hash, each in the partition of its bucket, and the names of the columns.

    The hash is Spark's ``xxhash64`` of the group's text; a bucket is an equal part of its range. Rows without a group
    are spread by their other columns, since nobody needs them together.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    group = F.col(_quoted(pipeline.group)).cast("string")
    others = [F.col(_quoted(name)) for name in columns if name != pipeline.group and _hashable(df, name)]
    alone = F.xxhash64(*others) if others else F.lit(0).cast("bigint")
    read = {name: F.col(_quoted(name)) for name in columns}
    if CORRUPT in df.columns:
        read[CORRUPT] = F.col(CORRUPT)
    if group_column(pipeline, df) == GROUP:
        read[GROUP] = group
    read[HASH] = F.when(group.isNull(), alone).otherwise(F.xxhash64(group))
    # By number: mapInArrow takes a dot in a name for a path.
    hashed = df.select(*(column.alias(f"c{number}") for number, column in enumerate(read.values())))
    high = F.shiftright(F.col(f"c{len(read) - 1}"), 32) + F.lit(1 << 31)
    bucket = F.shiftright(high * F.lit(buckets), 32).cast("int")
    return hashed.repartitionById(buckets, bucket), list(read)


def group_column(pipeline: Pipeline, df: "DataFrame") -> str:
    """The column with the group's text: the group's own where it is text already."""
    return pipeline.group if df.schema[pipeline.group].dataType.simpleString() == "string" else GROUP


def _hashable(df: "DataFrame", name: str) -> bool:
    return "map<" not in df.schema[name].dataType.simpleString()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
