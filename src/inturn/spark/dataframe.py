"""What is asked of any DataFrame before it is known what its messages are: names in SQL, and types by theirs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inturn.core.errors import InputError
from inturn.core.path import parts
from inturn.spark.columns.names import CORRUPT, OWN, is_own, twins

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""The types of whole numbers, as Spark writes them."""
_TEXTS = "or make it a string: the text of a line that cannot be read, or null"


def quoted(name: str) -> str:
    """A name as Spark's expressions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def sql_of(path: str) -> str:
    """Return the field that a path leads to as Spark's expressions take it."""
    return ".".join(map(quoted, parts(path)))


def is_set(spark: "SparkSession", name: str) -> bool:
    """Return whether a setting that is true or false is true; Spark takes it in any case of letters."""
    return str(spark.conf.get(name, "false")).strip().lower() == "true"


def is_case_sensitive(spark: "SparkSession") -> bool:
    """Return whether ``a`` and ``A`` are two columns to a session."""
    return is_set(spark, "spark.sql.caseSensitive")


def own_name(found: str) -> InputError:
    """Return the error about a column with a name of inturn's own."""
    return InputError(f"{found}; names that begin with {OWN} are inturn's own: rename it")


def check_own_names(df: "DataFrame") -> None:
    """See that no column has a name of inturn's own, but for that of the lines that cannot be read.

    Raises:
        InputError: if one has.
    """
    for field in df.schema.fields:
        if is_own(field.name) and (field.name != CORRUPT or field.dataType.simpleString() != "string"):
            error = own_name(f"the input has a column {field.name!r}")
            raise InputError(f"{error}, {_TEXTS}") if field.name == CORRUPT else error


def check_columns(df: "DataFrame") -> None:
    """See that the columns of a DataFrame are told apart by their names, from one another and from inturn's own.

    Raises:
        InputError: if they are not.
    """
    check_own_names(df)
    found = _twice(df.columns) if is_case_sensitive(df.sparkSession) else twins(df.columns)
    if found is not None:
        same = found[0] == found[1]
        what = f"more than one column {found[0]!r}" if same else f"the columns {found[0]!r} and {found[1]!r}"
        why = "" if same else ", which differ only in case"
        msg = f"the input has {what}{why}; rename or drop one of them"
        raise InputError(msg)


def _twice(names: Sequence[str]) -> tuple[str, str] | None:
    return next(((name, name) for at, name in enumerate(names) if name in names[:at]), None)


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
