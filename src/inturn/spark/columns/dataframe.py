"""Columns of any DataFrame: reserved names, and Spark SQL for quoting, settings, types and casts."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from inturn.core.arguments import refusal
from inturn.core.errors import InputError
from inturn.core.identity import field_names
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values.path import parts
from inturn.spark.columns.names import ARRIVED, CORRUPT, OWN, is_reserved
from inturn.spark.columns.records import record_fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Spark's SQL names of the integer types."""
_TEXTS = "or cast it to string: the text of an unreadable line, or null"
DDL: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    dt.date: "date",
    dt.datetime: "timestamp",
    Decimal: "decimal(38,18)",
}
"""The type of a column for each type of a field."""


def quoted(name: str) -> str:
    """Quote a column name for Spark SQL; it may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def sql_of(path: str) -> str:
    """Return the Spark SQL expression of the field at a path."""
    return ".".join(map(quoted, parts(path)))


def is_enabled(spark: "SparkSession", name: str) -> bool:
    """Return whether a boolean setting is true; Spark accepts any case of letters."""
    return str(spark.conf.get(name, "false")).strip().lower() == "true"


def is_case_sensitive(spark: "SparkSession") -> bool:
    """Return whether a session treats ``a`` and ``A`` as two columns."""
    return is_enabled(spark, "spark.sql.caseSensitive")


def check_dataframe(df: object) -> None:
    """Check that an argument is a DataFrame of Spark, classic or Connect, or raise InputError."""
    if not hasattr(df, "isStreaming"):
        raise refusal("df", df, "a DataFrame of Spark, such as spark.read.parquet(…)")


def check_session(spark: object) -> None:
    """Check that an argument is a session of Spark, classic or Connect, or raise InputError."""
    if not hasattr(spark, "createDataFrame"):
        raise refusal("spark", spark, "a SparkSession")


def column_list(df: "DataFrame") -> str:
    """Return the names of a DataFrame's columns for an error, without inturn's own."""
    return ", ".join(name for name in df.columns if not is_reserved(name)) or "none"


def reserved_name_error(fault: str) -> InputError:
    """Return the error for a column with a reserved name."""
    return InputError(f"{fault}; names that begin with {OWN} are reserved: rename it")


def check_reserved_names(df: "DataFrame") -> None:
    """Check that no column has a reserved name, except unreadable lines and places; else raise InputError."""
    may_be = {CORRUPT: "string", ARRIVED: "bigint"}
    for field in df.schema.fields:
        if is_reserved(field.name) and may_be.get(field.name) != field.dataType.simpleString():
            error = reserved_name_error(f"the input has a column {field.name!r}")
            raise InputError(f"{error}, {_TEXTS}") if field.name == CORRUPT else error


def type_at(schema: "StructType", names: Sequence[str]) -> "DataType | None":
    """Return the type of a column or of a field within structs; None if there is none."""
    from pyspark.sql.types import StructType

    data_type: DataType = schema
    for name in names:
        if not isinstance(data_type, StructType) or name not in data_type.names:
            return None
        data_type = data_type[name].dataType
    return data_type


def try_cast(sql: str, kind: str) -> "Column":
    """Cast an expression; null where the cast fails. ``Column.try_cast`` exists only from Spark 4.0 on."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.expr(f"try_cast({sql} AS {kind})")


def column_kinds(pipeline: Pipeline) -> dict[str, str]:
    """Return the fields of the message type as Spark types; a field without a column type is read as text.

    Raises:
        InputError: if one has a reserved name.
    """
    kinds = {field.name: _ddl(field.type) for field in record_fields(pipeline.message or object)}
    if pipeline.arrival is not None and len(parts(pipeline.arrival)) == 1:
        kinds.setdefault(parts(pipeline.arrival)[0], "bigint")
    for name in filter(is_reserved, kinds):
        raise reserved_name_error(f"the message type has a field {name!r}")
    return kinds


def _ddl(kind: Any) -> str:
    """Return a field's type as a Spark type; a record is a struct."""
    if isinstance(kind, type) and field_names(kind):
        inside = (f"{quoted(field.name)}: {_ddl(field.type)}" for field in record_fields(kind))
        return f"struct<{', '.join(inside)}>"
    try:
        return DDL.get(kind, "string")
    except TypeError:  # an unhashable type
        return "string"
