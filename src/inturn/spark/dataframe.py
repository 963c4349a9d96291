"""What is asked of any DataFrame before it is known what its messages are: names in SQL, and types by theirs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inturn.core.path import parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""The types of whole numbers, as Spark writes them."""


def quoted(name: str) -> str:
    """A name as Spark's expressions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def sql_of(path: str) -> str:
    """Return the field that a path leads to as Spark's expressions take it."""
    return ".".join(map(quoted, parts(path)))


def type_at(schema: "StructType", names: Sequence[str]) -> "DataType | None":
    """Return the type of a column that may lie within structs; None if there is none."""
    from pyspark.sql.types import StructType

    found: DataType = schema
    for name in names:
        if not isinstance(found, StructType) or name not in found.names:
            return None
        found = found[name].dataType
    return found


def try_cast(sql: str, kind: str) -> "Column":
    """An expression as another type, null where it has none; ``Column.try_cast`` is not there before Spark 4.0."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.expr(f"try_cast({sql} AS {kind})")


def is_hashable(df: "DataFrame", name: str) -> bool:
    """Whether Spark hashes a column: all but maps, which have no order."""
    return "map<" not in df.schema[name].dataType.simpleString()
