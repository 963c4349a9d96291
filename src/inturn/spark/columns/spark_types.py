"""The Spark types that a message can carry, and advice for columns of other types.

Types are compared by class name, since no version of Spark has all of them. docs/spark-types.md describes how the
values of each type are handled.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inturn.core.errors import InputError
from inturn.core.values.plain import inside
from inturn.spark.columns.dataframe import check_dataframe, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

SUPPORTED_TYPES: Final = frozenset((
    "NullType", "BooleanType", "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType",
    "DecimalType", "StringType", "CharType", "VarcharType", "BinaryType", "DateType", "TimestampType",
    "TimestampNTZType", "TimeType", "DayTimeIntervalType", "ArrayType", "MapType", "StructType",
))  # fmt: skip
"""The types whose values Python has; see docs/spark-types.md."""
REMEDIES: Final = {
    "VariantType": "convert it with to_json(…)",
    "YearMonthIntervalType": "cast it to string",
    "CalendarIntervalType": "cast it to string",
    "GeometryType": "convert it with st_asbinary(…)",
    "GeographyType": "convert it with st_asbinary(…)",
    "UserDefinedType": "convert it to columns of plain types (a vector to an array with vector_to_array)",
}
"""Other types, each with the advice for a column of it."""
_OTHERWISE: Final = "cast it to string"
_OF_TEXTS: Final = "array<string> or map<string,string>"
_NO_KEYS: Final = ("ArrayType", "MapType", "StructType")


def check_described(df: "DataFrame") -> None:
    """Check that an input is a DataFrame, and PySpark has its types: Spark 3.5 has some that PySpark lacks.

    Raises:
        InputError: if not.
    """
    check_dataframe(df)
    try:
        df.schema  # noqa: B018 - asked for, and kept by PySpark
    except ValueError as error:
        for name in df._jdf.columns():
            try:
                df.select(quoted(name)).schema  # noqa: B018 - as above
            except ValueError:
                raise InputError(_fault(name, "of a type that this PySpark lacks", _OTHERWISE)) from error
        raise


def check_supported(names: "Sequence[str]", schema: "StructType") -> None:
    """Check that messages can carry these columns; an InputError names one that they cannot, and the remedy."""
    for name in names:
        for fault in _faults(schema[name].dataType, name):
            raise InputError(fault)


def _faults(data_type: "DataType", column: str) -> Iterator[str]:
    """Yield a text for each part of a column that messages cannot carry."""
    for path, kind, is_key, is_one_of_many in nested_types(data_type, column):
        named, duplicate = name_of(kind), duplicate_field_fault(path, kind)
        if named not in SUPPORTED_TYPES:
            yield _fault(path, kind.simpleString(), REMEDIES.get(named, _OTHERWISE))
        elif named == "NullType" and is_one_of_many:  # Arrow breaks arrays of these when it casts them
            yield _fault(path, kind.simpleString(), f"cast the whole column to a type such as {_OF_TEXTS}")
        elif named in _NO_KEYS and is_key:
            yield _fault(
                path,
                kind.simpleString(),
                "convert the map to an array with map_entries(…), since a Python dict cannot have such keys",
            )
        elif duplicate is not None:
            yield duplicate


class NestedType(NamedTuple):
    """A type within the type of a column, and the path to it for error texts.

    Attributes:
        is_key: whether it is the type of a map's keys.
        is_one_of_many: whether it lies, at any depth, within an array or a map.
    """

    path: str
    kind: "DataType"
    is_key: bool = False
    is_one_of_many: bool = False


def nested_types(
    kind: "DataType", path: str, *, is_key: bool = False, is_one_of_many: bool = False
) -> Iterator[NestedType]:
    """Yield a type and all types within it."""
    data_type: Any = kind
    yield NestedType(path, kind, is_key, is_one_of_many)
    match name_of(kind):
        case "ArrayType":
            yield from nested_types(data_type.elementType, f"{path}[]", is_one_of_many=True)
        case "MapType":
            yield from nested_types(data_type.keyType, f"a key of {path}", is_key=True, is_one_of_many=True)
            yield from nested_types(data_type.valueType, f"{path}[]", is_one_of_many=True)
        case "StructType":
            for field in data_type.fields:
                yield from nested_types(field.dataType, inside(path, field.name), is_one_of_many=is_one_of_many)


def duplicate_field_fault(path: str, kind: "DataType") -> str | None:
    """Return the error text for a struct with two fields of one name; None if it has none."""
    names: list[str] = getattr(kind, "names", [])
    duplicate = next((name for name in names if names.count(name) > 1), None)
    return None if duplicate is None else f"the column {path!r} has two fields named {duplicate!r}; rename one of them"


def _fault(path: str, kind: str, remedy: str) -> str:
    return f"the column {path!r} is {kind}, which messages do not support: {remedy}, or drop the column"


def name_of(kind: "DataType") -> str:
    """Return the name of a type's class; ``UserDefinedType`` for every user-defined type."""
    names = [base.__name__ for base in type(kind).__mro__]
    return "UserDefinedType" if "UserDefinedType" in names else names[0]
