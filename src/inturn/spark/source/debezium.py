"""Debezium's change events as columns: the rule of ``inturn.ingest.debezium.change_message``, in Spark's expressions.

Inferred types of JSON differ from file to file: a column of nulls is text, and ``before`` may have the key only. So the
row has one type, in which ``before`` and ``after`` are both read.
"""

from typing import TYPE_CHECKING, Final

from inturn.core.errors import InputError
from inturn.ingest.debezium import CHANGES, LOG_POSITIONS, PASSED_OVER, ROW_COLUMNS, SEVERAL_FIELDS, TABLE
from inturn.spark.columns.dataframe import check_dataframe, column_list, quoted, type_at
from inturn.spark.columns.names import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_EXPECTED: Final = (
    "expected Debezium's change events: op, source, and before or after, as columns or as fields of payload; flattened "
    "events are the rows already, with their position in __lsn: use them without debezium()"
)


def debezium(df: "DataFrame") -> "DataFrame":
    """Return the changes of rows in a DataFrame of Debezium's change events, as messages of a pipeline.

    The columns are those of the event, without its schema, and those beside it, such as an offset (but of two columns
    with one name that of the event). Three columns are added:

    - ``row``: the row after the change or, for a delete, before it. ``before`` and ``after`` may have different types,
      as inferred from JSON; ``row`` has the fields of both.
    - ``table``: the names of the database, the schema, and the table or collection that the event has, with dots.
    - ``position``: the position of the change in the database's log, a bigint, as
      :func:`inturn.ingest.debezium.position_of` defines it. It orders the changes of one row. The column is absent if
      the events have a position of several fields, see :data:`inturn.ingest.debezium.POSITION_FIELDS`.

    Truncates, logical messages, heartbeats, transaction markers, schema changes and tombstones are left out. A change
    whose row or position cannot be used stays, with null there, so that a pipeline rejects it with its content.

    Args:
        df: the events, batch or stream, classic Spark or Connect. Read JSON lines with the option
            ``columnNameOfCorruptRecord`` set to ``__inturn_corrupt_record``, and a schema that has this column: without
            it, an unreadable line is a row of nulls, like a tombstone.

    Raises:
        InputError: if the columns are not those of change events, or one has the name of an added column.
    """
    check_dataframe(df)
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    df = _without_schema(df)
    names = df.columns
    if not ("op" in names and "source" in names and {"before", "after"} & set(names)):
        raise InputError(f"the DataFrame has the columns {column_list(df)}; {_EXPECTED}")
    taken = next((name for name in names if name.lower() in ROW_COLUMNS), None)
    if taken is not None:
        raise InputError(f"the DataFrame has a column {taken!r}, which debezium() adds; rename it")
    op, is_known = F.col("op").cast("string"), F.lit(False)  # noqa: FBT003
    for name in ("op", "before", "after"):
        is_known |= F.col(name).isNotNull() if name in names else F.lit(False)  # noqa: FBT003
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
    """Return the columns of JSON lines with change events, in which ``before`` and ``after`` have one type.

    Files that arrive later in a stream are read with the types of the first files. These may have had no delete.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    def aligned(event: StructType) -> StructType:
        kinds = {field.name: field.dataType for field in event.fields}
        payload = kinds.get("payload")
        if isinstance(payload, StructType) and "op" not in kinds:
            kinds = {name: kind for name, kind in kinds.items() if name != "schema"} | {"payload": aligned(payload)}
        elif {"before", "after"} & kinds.keys():
            kinds |= dict.fromkeys(("before", "after"), _row_type(event))
        return StructType([StructField(name, kind) for name, kind in kinds.items()])

    schema = aligned(inferred)
    return schema if CORRUPT in schema.names else schema.add(CORRUPT, StringType())


def _without_schema(df: "DataFrame") -> "DataFrame":
    """Return the events of a DataFrame whose column ``payload`` has them."""
    if type_at(df.schema, ("payload", "op")) is None:
        return df
    if "op" in df.columns:
        raise InputError(
            "the DataFrame has events in payload and events as columns; call debezium() for each kind, and union both"
        )
    names = df.select("payload.*").columns
    beside = [quoted(name) for name in df.columns if name not in ("schema", "payload", *names)]
    return df.select(*(f"payload.{quoted(name)}" for name in names), *beside)


def _row(df: "DataFrame") -> "Column":
    """Return the row after the change or else before it, in one type; null if it does not have this type."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NullType, StringType, StructField, StructType

    row_type = _row_type(df.schema)
    wrapper = StructType([StructField("row", row_type), StructField(CORRUPT, StringType())])
    row = F.lit(None).cast(row_type)
    for name in ("before", "after"):
        kind = type_at(df.schema, [name])
        if kind is None or isinstance(kind, NullType):
            continue
        value = F.col(name)
        if kind.simpleString() != row_type.simpleString():
            is_text = isinstance(kind, StringType)  # Spark reads an object into a column of text as its JSON
            json = F.concat(F.lit('{"row":'), value, F.lit("}")) if is_text else F.to_json(F.struct(value.alias("row")))
            read = F.from_json(json, wrapper, {"columnNameOfCorruptRecord": CORRUPT})
            value = F.when(read[CORRUPT].isNull(), read["row"])
        row = F.when(F.col(name).isNotNull(), value).otherwise(row)
    return row


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
