"""Check a DataFrame against a pipeline, and bring its rows to the task that owns their group."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError
from inturn.core.order import Timestamp
from inturn.core.pipeline import Pipeline
from inturn.spark.chunk import CORRUPT, GROUP, HASH
from inturn.spark.columns.codec import record_fields
from inturn.spark.dataframe import INTEGERS, is_hashable, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = ("timestamp", "timestamp_ntz")
_GROUPS = ("string", "date", *INTEGERS)
_FITS: dict[Any, tuple[str, ...]] = {
    bool: ("boolean",),
    int: (*INTEGERS, "string"),
    float: (*INTEGERS, "float", "double", "string"),
    str: ("string",),
    bytes: ("binary", "string"),
    dt.date: ("date", "string"),
    dt.datetime: (*_TIMES, "string"),
    Decimal: ("decimal", "string", *INTEGERS),
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
        (pipeline.epoch, "revision", INTEGERS),
        (pipeline.turn, *(("time", _TIMES) if isinstance(pipeline.order, Timestamp) else ("revision", INTEGERS))),
        (pipeline.arrival, "revision", (*INTEGERS, *_TIMES)),
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


@dataclass(frozen=True)
class Intake:
    """How the rows of a DataFrame come to the task that owns their group.

    Attributes:
        columns: those of the message.
        group: the column with the group's text: the group's own where it is text already.
        read: what is read for each column that a task gets, as SQL, by the column's name; the group's hash is the
            last.
    """

    columns: list[str]
    group: str
    read: dict[str, str]

    @classmethod
    def of(cls, pipeline: Pipeline, df: "DataFrame", *, streaming: bool = False) -> "Intake":
        """Check a DataFrame against a pipeline.

        The hash is Spark's ``xxhash64`` of the group's text. Rows without a group are spread by their other columns,
        since nobody needs them together.

        Raises:
            InputError: see :func:`columns_of`.
        """
        columns = columns_of(pipeline, df, streaming=streaming)
        is_text = df.schema[pipeline.group].dataType.simpleString() == "string"
        group = quoted(pipeline.group) if is_text else f"CAST({quoted(pipeline.group)} AS string)"
        others = [quoted(name) for name in columns if name != pipeline.group and is_hashable(df, name)]
        alone = f"xxhash64({', '.join(others)})" if others else "0L"
        read = {name: quoted(name) for name in columns}
        if CORRUPT in df.columns:
            read[CORRUPT] = CORRUPT
        if not is_text:
            read[GROUP] = group
        read[HASH] = f"CASE WHEN {group} IS NULL THEN {alone} ELSE xxhash64({group}) END"
        return cls(columns, pipeline.group if is_text else GROUP, read)

    def numbered(self, df: "DataFrame") -> "DataFrame":
        """The columns that a task gets. They have only numbers: mapInArrow takes a dot in a name for a path."""
        return df.selectExpr(*(f"{column} AS c{number}" for number, column in enumerate(self.read.values())))

    def divided(self, numbered: "DataFrame", buckets: int) -> "DataFrame":
        """The rows, each in the partition of its bucket; the buckets are equal parts of the hash's range."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        high = f"(shiftright(c{len(self.read) - 1}, 32) + {1 << 31}L)"
        return numbered.repartitionById(buckets, F.expr(f"CAST(shiftright({high} * {buckets}, 32) AS int)"))
