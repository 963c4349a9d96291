"""Spark types and values that an audit or a pipeline cannot use: types without a hash or a text, and single values."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.core.values.path import parts
from inturn.spark.audit.report import LogColumns
from inturn.spark.audit.values import leaves
from inturn.spark.columns.dataframe import sql_of, type_at
from inturn.spark.columns.spark_types import MENDS, name_of, twice_fault, within
from inturn.spark.columns.years import DAYS_OF_PYTHON, MICROSECONDS_OF_PYTHON

_LACKING: Final = ("CalendarIntervalType", "GeometryType", "GeographyType")
_BEYOND: Final = {
    "date": f"unix_date({{0}}) NOT BETWEEN {DAYS_OF_PYTHON[0]} AND {DAYS_OF_PYTHON[1]}",
    "timestamp": f"unix_micros({{0}}) NOT BETWEEN {MICROSECONDS_OF_PYTHON[0]} AND {MICROSECONDS_OF_PYTHON[1]}",
    "timestamp_ntz": "{0} NOT BETWEEN TIMESTAMP_NTZ'0001-01-01' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    "string": "NOT is_valid_utf8({0})",
}
"""SQL conditions for values that a pipeline cannot hold, by the type of the column."""
_BEFORE_4: Final = "format_string('%s', {0}) <> {0}"  # it replaces characters that are not UTF-8
_NO_NAMES: Final = ("VariantType", "MapType")


def check_audited(df: DataFrame) -> None:
    """Check that an audit can compare the values of the columns.

    Raises:
        InputError: if it cannot; the text names the column and a remedy.
    """
    for field in df.schema.fields:
        for path, kind, *_ in within(field.dataType, field.name):
            if name_of(kind) in _LACKING:
                msg = f"the column {path!r} is {kind.simpleString()}, which an audit cannot compare"
                raise InputError(f"{msg}: {MENDS[name_of(kind)]}, or drop the column")
            twice = twice_fault(path, kind)
            if twice is not None:
                raise InputError(twice)


def check_names(df: DataFrame, keys: LogColumns) -> None:
    """Check that Spark can compare the values of the columns of the group and the id.

    Raises:
        InputError: if it cannot; the text names the column and a remedy.
    """
    for path in filter(None, (keys.group, keys.id)):
        kind = type_at(df.schema, parts(path))
        if kind is not None and any(name_of(each.kind) in _NO_NAMES for each in within(kind, path)):
            msg = f"the column {path!r} is {kind.simpleString()}, which is no name of a group and no id"
            raise InputError(f"{msg}: give to_json(…) of it, a text")


def unreadable(df: DataFrame) -> Column:
    """Return whether a row holds values that a pipeline rejects as invalid: non-UTF-8 text, or a year beyond Python's.

    Columns and fields of structs are checked, but not the contents of arrays and maps.
    """
    texts = _BEYOND["string"] if hasattr(F, "is_valid_utf8") else _BEFORE_4
    beyond = {**_BEYOND, "string": texts}
    tests = [beyond[kind].format(sql_of(path)) for path, kind in leaves(df).items() if kind in beyond]
    return F.expr(" OR ".join(f"coalesce({test}, false)" for test in tests) or "false")
