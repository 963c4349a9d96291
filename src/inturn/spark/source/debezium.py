"""Debezium's change events as columns: the rule of ``inturn.ingest.debezium.change_message``, in Spark's expressions.

Inferred types of JSON differ from file to file: a column of nulls is text, and ``before`` may have the key only. So the
row has one type, in which ``before`` and ``after`` are both read.
"""

from typing import TYPE_CHECKING, Final, cast

from inturn.core.errors import InputError
from inturn.ingest.debezium import CHANGES, LOG_POSITIONS, PASSED_OVER, ROW_COLUMNS, SEVERAL_FIELDS, TABLE
from inturn.spark.columns.dataframe import check_dataframe, column_list, quoted, type_at
from inturn.spark.columns.names import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_CORRUPT_SETTING: Final = "spark.sql.columnNameOfCorruptRecord"
"""Spark's setting with the name of the column for unreadable lines."""
_DIGITS: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""The format of times in JSON, with all their digits."""
_EXPECTED: Final = (
    "expected Debezium's change events: op, source, and before or after, as columns or as fields of payload; flattened "
    "events are the rows already, with their position in __lsn: use them without debezium()"
)


def debezium(df: "DataFrame") -> "DataFrame":
    """Return the changes of rows in a DataFrame of Debezium's change events, as messages of a pipeline.

    The columns are those of the event, without its schema, and those beside it, such as an offset (but of two columns
    with one name that of the event). If events are in columns of the DataFrame and in ``payload``, each row is read in
    its form: ``payload`` if it has a value and ``op`` is null. Three columns are added:

    - ``row``: the row after the change or, for a delete, before it. ``before`` and ``after`` may have different types,
      as inferred from JSON; ``row`` has the fields of both.
    - ``table``: the names of the database, the schema, and the table or collection that the event has, with dots.
    - ``position``: the position of the change in the database's log, a bigint, as
      :func:`inturn.ingest.debezium.position_of` defines it. It orders the changes of one row. The column is absent if
      the events have a position of several fields, see :data:`inturn.ingest.debezium.POSITION_FIELDS`.

    Truncates, logical messages, heartbeats, transaction markers, schema changes and tombstones are left out. A change
    whose row or position cannot be used stays, with null there, so that a pipeline rejects it with its content.

    An unreadable line stays too: its text is in Spark's column ``_corrupt_record``, which becomes
    ``__inturn_corrupt_record``, so that a pipeline rejects it. The line ``null`` is a tombstone.

    Args:
        df: the events, batch or stream, classic Spark or Connect. ``spark.read.json(…)`` has the column
            ``_corrupt_record`` if a line is unreadable. A schema of your own needs this column, of text, and
            ``payload`` if some events have their schema: without them such a line is a row of nulls, which is left out
            as a tombstone.

    Raises:
        InputError: if the columns are not those of change events, or one has the name of an added column.
    """
    check_dataframe(df)
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    df = _without_schema(_with_unreadable_lines(df))
    names = df.columns
    if not ("op" in names and "source" in names and {"before", "after"} & set(names)):
        raise InputError(f"the DataFrame has the columns {column_list(df)}; {_EXPECTED}")
    taken = next((name for name in names if name.lower() in ROW_COLUMNS), None)
    if taken is not None:
        raise InputError(f"the DataFrame has a column {taken!r}, which debezium() adds; rename it")
    op, is_known = F.col("op").cast("string"), F.lit(False)  # noqa: FBT003
    for name in ("op", "before", "after"):
        is_known |= F.col(name).isNotNull() if name in names else F.lit(False)  # noqa: FBT003
    if (kind := type_at(df.schema, ["payload"])) is not None and kind.simpleString() == "string":  # not an event
        is_known |= F.col("payload").isNotNull()
    kept = is_known & ~F.coalesce(op.isin(*PASSED_OVER), F.lit(False))  # noqa: FBT003
    if CORRUPT in names:  # a tombstone is the line "null"
        kept = F.coalesce(F.trim(F.col(CORRUPT)) != "null", kept)
    added = {"row": _row(df), "table": _table(df), "position": _position(df)}
    is_change = op.isin(*CHANGES)
    columns = {
        name: column if name == "table" else F.when(is_change, column)
        for name, column in added.items()
        if column is not None
    }
    return df.where(kept).select(*map(quoted, names), *(column.alias(name) for name, column in columns.items()))


def event_schema(inferred: "StructType") -> "StructType":
    """Return the columns of JSON lines with change events: as columns and in ``payload``, with one type for both.

    Files that arrive later in a stream are read with the types of the first files. These may have had no delete, or no
    event with its schema. Thus ``before`` and ``after`` have one type, and each line may have either form.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    payload = type_at(inferred, ["payload"])
    wrapped = payload if isinstance(payload, StructType) else StructType()
    columns = StructType([field for field in inferred.fields if field.name not in ("schema", "payload")])
    event = cast("StructType", _merged(columns, wrapped)) if "op" in columns.names else wrapped
    kinds = {field.name: field.dataType for field in event.fields if field.name != CORRUPT}
    if "op" not in kinds:
        return inferred
    if {"before", "after"} & kinds.keys():
        kinds |= dict.fromkeys(("before", "after"), _row_type(event))
    event = StructType([StructField(name, kind) for name, kind in kinds.items()])
    beside = {} if "op" in columns.names else {field.name: field.dataType for field in columns.fields}
    kinds |= beside | {"payload": event, CORRUPT: StringType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def _with_unreadable_lines(df: "DataFrame") -> "DataFrame":
    """Return the DataFrame with the text of unreadable lines in inturn's column instead of Spark's."""
    if CORRUPT in df.columns:
        return df
    name = df.sparkSession.conf.get(_CORRUPT_SETTING, "_corrupt_record") or ""
    return df.withColumnRenamed(name, CORRUPT) if name in df.columns else df


def _without_schema(df: "DataFrame") -> "DataFrame":
    """Return the events of a DataFrame, each from its columns or, if it has its schema, from ``payload``."""
    if type_at(df.schema, ("payload", "op")) is None:
        return df
    if "op" in df.columns:
        df = _in_payload(df)
    names = df.select("payload.*").columns
    beside = [quoted(name) for name in df.columns if name not in ("schema", "payload", *names)]
    return df.select(*(f"payload.{quoted(name)}" for name in names), *beside)


def _in_payload(df: "DataFrame") -> "DataFrame":
    """Return the events of a DataFrame in ``payload``, where some rows have them in columns of their own.

    A row with a value that does not fit the type of both forms becomes an unreadable line, with its content as JSON.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    wrapped = df.schema["payload"].dataType
    names = [name for name in df.select("payload.*").columns if name in df.columns]
    flat = StructType([df.schema[name] for name in names])
    kind = _merged(wrapped, flat)
    is_wrapped = F.col("payload").isNotNull() & F.col("op").isNull()
    columns = F.struct(*map(quoted, names))
    event = F.when(is_wrapped, _converted(F.col("payload"), wrapped, kind)).otherwise(_converted(columns, flat, kind))
    unreadable = F.when(event.isNull(), F.to_json(F.struct(*map(quoted, df.columns))))
    if CORRUPT in df.columns:
        unreadable = F.coalesce(F.col(CORRUPT), unreadable)
    beside = [quoted(name) for name in df.columns if name not in ("schema", "payload", CORRUPT, *names)]
    return df.select(event.alias("payload"), *beside, unreadable.alias(CORRUPT))


def _row(df: "DataFrame") -> "Column":
    """Return the row after the change or else before it, in one type; null if it does not have this type."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NullType

    row_type = _row_type(df.schema)
    row = F.lit(None).cast(row_type)
    for name in ("before", "after"):
        kind = type_at(df.schema, [name])
        if kind is not None and not isinstance(kind, NullType):
            value = _converted(F.col(name), kind, row_type)
            row = F.when(F.col(name).isNotNull(), value).otherwise(row)
    return row


def _converted(value: "Column", kind: "DataType", target: "DataType") -> "Column":
    """Return a value of one type in another; null if it does not fit."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    if kind.simpleString() == target.simpleString():
        return value
    is_text = isinstance(kind, StringType)  # Spark reads an object into a column of text as its JSON
    json = F.concat(F.lit('{"it":'), value, F.lit("}")) if is_text else F.to_json(F.struct(value.alias("it")), _DIGITS)
    wrapper = StructType([StructField("it", target), StructField(CORRUPT, StringType())])
    read = F.from_json(json, wrapper, {"columnNameOfCorruptRecord": CORRUPT, **_DIGITS})
    return F.when(read[CORRUPT].isNull(), read["it"])


def _row_type(event: "StructType") -> "DataType":
    """Return a type for ``before`` and ``after``."""
    from pyspark.sql.types import NullType

    first, second = (type_at(event, [name]) or NullType() for name in ("after", "before"))
    return _merged(first, second)


def _merged(first: "DataType", second: "DataType") -> "DataType":
    """Return a type that has the values of both types; text may be the inferred type of nulls, and gives way."""
    from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

    if isinstance(first, T.StructType) and isinstance(second, T.StructType):
        names = dict.fromkeys([*first.names, *second.names])
        pairs = {name: [type_at(kind, [name]) or T.NullType() for kind in (first, second)] for name in names}
        return T.StructType([T.StructField(name, _merged(*pair)) for name, pair in pairs.items()])
    if isinstance(first, T.ArrayType) and isinstance(second, T.ArrayType):
        return T.ArrayType(_merged(first.elementType, second.elementType))
    known = [kind for kind in (first, second) if not isinstance(kind, T.NullType | T.StringType)]
    if len(known) < 2 or first.simpleString() == second.simpleString():
        return known[0] if known else T.StringType()
    if not all(isinstance(kind, T.NumericType) for kind in known):
        return T.StringType()
    if any(isinstance(kind, T.FloatType | T.DoubleType) for kind in known):
        return T.DoubleType()
    scales = [kind.scale for kind in known if isinstance(kind, T.DecimalType)]
    return T.DecimalType(38, max(scales)) if scales else T.LongType()


def _table(df: "DataFrame") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    parts = [name for name in TABLE if _source_type(df, name) == "string"]
    text = F.concat_ws(".", *(F.col(f"source.{quoted(name)}") for name in parts))
    return F.when(text != "", text)


def _position(df: "DataFrame") -> "Column | None":
    """Return the position as one number; None if the events have one of several fields."""
    from pyspark.sql import functions as F  # noqa: N812

    def field(name: str) -> "Column":
        return F.lit(None) if _source_type(df, name) is None else F.col(f"source.{quoted(name)}").cast("string")

    def has(*names: str) -> bool:
        return any(_source_type(df, name) is not None for name in names)

    if has(*SEVERAL_FIELDS) and not has(*LOG_POSITIONS):
        return None
    lsn, ordinal, file, several = field("lsn"), field("ord"), field("file"), F.coalesce(*map(field, SEVERAL_FIELDS))
    seconds = F.floor(_number(field("ts_ms"), 2**31 * 1000 - 1) / 1000).cast("bigint")
    file_number = _number(F.regexp_extract(file, r"\.([0-9]{1,9})\z", 1), 2**19 - 1)
    place = F.shiftleft(_number(field("pos"), 2**32 - 1), 12) + _number(field("row"), 2**12 - 1)
    position = (
        F.when(lsn.isNotNull(), _number(lsn, 2**63 - 1))
        .when(several.isNotNull(), F.lit(None))
        .when(ordinal.isNotNull(), F.shiftleft(seconds, 32) + _number(ordinal, 2**32 - 1))
        .when(file.isNotNull(), F.shiftleft(file_number, 44) + place)
    )
    return position.cast("bigint")


def _number(text: "Column", maximum: int) -> "Column":
    """Return a whole number from 0 to a maximum; null for another text."""
    from pyspark.sql import functions as F  # noqa: N812

    number = F.when(text.rlike(r"^[0-9]{1,24}\z"), text).cast("decimal(24,0)")
    return F.when(number <= F.lit(str(maximum)).cast("decimal(24,0)"), number).cast("bigint")


def _source_type(df: "DataFrame", name: str) -> str | None:
    kind = type_at(df.schema, ("source", name))
    return None if kind is None else kind.simpleString()
