"""What is asked of any DataFrame before it is known what its messages are: names in SQL, and types by theirs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""The types of whole numbers, as Spark writes them."""


def quoted(name: str) -> str:
    """A name as Spark's expressions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def is_hashable(df: "DataFrame", name: str) -> bool:
    """Whether Spark hashes a column: all but maps, which have no order."""
    return "map<" not in df.schema[name].dataType.simpleString()
