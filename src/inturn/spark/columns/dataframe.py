"""Columns of any DataFrame: reserved names, and Spark SQL for quoting, settings, types and casts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inturn.core.errors import InputError
from inturn.core.values.path import parts
from inturn.spark.columns.names import CORRUPT, OWN, is_own

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Spark's SQL names of the integer types."""
_TEXTS = "or make it a string: the text of a line that cannot be read, or null"


def quoted(name: str) -> str:
    """Quote a column name for Spark SQL; it may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def sql_of(path: str) -> str:
    """Return the Spark SQL expression of the field at a path."""
    return ".".join(map(quoted, parts(path)))


def is_set(spark: "SparkSession", name: str) -> bool:
    """Return whether a boolean setting is true; Spark accepts any case of letters."""
    return str(spark.conf.get(name, "false")).strip().lower() == "true"


def is_case_sensitive(spark: "SparkSession") -> bool:
    """Return whether a session treats ``a`` and ``A`` as two columns."""
    return is_set(spark, "spark.sql.caseSensitive")


def own_name(found: str) -> InputError:
    """Return the error for a column with a reserved name."""
    return InputError(f"{found}; names that begin with {OWN} are inturn's own: rename it")


def check_own_names(df: "DataFrame") -> None:
    """Check that no column has a reserved name, except the string column of unreadable lines; else raise InputError."""
    for field in df.schema.fields:
        if is_own(field.name) and (field.name != CORRUPT or field.dataType.simpleString() != "string"):
            error = own_name(f"the input has a column {field.name!r}")
            raise InputError(f"{error}, {_TEXTS}") if field.name == CORRUPT else error


def type_at(schema: "StructType", names: Sequence[str]) -> "DataType | None":
    """Return the type of a column or of a field within structs; None if there is none."""
    from pyspark.sql.types import StructType

    found: DataType = schema
    for name in names:
        if not isinstance(found, StructType) or name not in found.names:
            return None
        found = found[name].dataType
    return found


def try_cast(sql: str, kind: str) -> "Column":
    """Cast an expression; null where the cast fails. ``Column.try_cast`` exists only from Spark 4.0 on."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.expr(f"try_cast({sql} AS {kind})")
