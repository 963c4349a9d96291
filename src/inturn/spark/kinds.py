"""Which types of Spark a message carries, and what to do with a column of one that it does not.

The types are known by the names of their classes, since no version of Spark has all of them. docs/spark-types.md says
what becomes of the values of each.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InputError
from inturn.core.values import inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType, StructType

CARRIED: Final = frozenset(
    {
        "NullType",
        "BooleanType",
        "ByteType",
        "ShortType",
        "IntegerType",
        "LongType",
        "FloatType",
        "DoubleType",
        "DecimalType",
        "StringType",
        "CharType",
        "VarcharType",
        "BinaryType",
        "DateType",
        "TimestampType",
        "TimestampNTZType",
        "TimeType",
        "DayTimeIntervalType",
        "ArrayType",
        "MapType",
        "StructType",
    }
)
"""The types that Python has: see docs/spark-types.md."""
MENDS: Final = {
    "VariantType": "give to_json(…) of it, a text",
    "YearMonthIntervalType": "cast it to string",
    "CalendarIntervalType": "cast it to string",
    "GeometryType": "give st_asbinary(…) of it",
    "GeographyType": "give st_asbinary(…) of it",
    "UserDefinedType": "make columns of plain types of it; of a vector, vector_to_array makes an array",
}
"""The others, and what to do with a column of one."""
_OTHERWISE: Final = "cast it to string"
_NO_KEYS: Final = ("ArrayType", "MapType", "StructType")


def check_carried(names: "Sequence[str]", schema: "StructType") -> None:
    """See that messages can carry these columns.

    Raises:
        InputError: naming the column, its type and what to do.
    """
    for name in names:
        for fault in _faults(schema[name].dataType, name):
            raise InputError(fault)


def _faults(kind: "DataType", path: str, *, many: bool = False) -> Iterator[str]:
    """Say what messages cannot carry of a column; ``many`` are the values of an array or a map."""
    found: Any = kind
    named = name_of(kind)
    if named not in CARRIED:
        yield _fault(path, kind, MENDS.get(named, _OTHERWISE))
    elif named == "NullType" and many:  # Arrow breaks such arrays when it casts them
        yield _fault(path, kind, "cast the whole to a type such as array<string> or map<string,string>")
    elif named == "ArrayType":
        yield from _faults(found.elementType, f"{path}[]", many=True)
    elif named == "MapType":
        if name_of(found.keyType) in _NO_KEYS:
            yield _fault(path, kind, "no dict has such keys: give map_entries(…) of it, an array")
        yield from _faults(found.keyType, f"a key of {path}", many=True)
        yield from _faults(found.valueType, f"{path}[]", many=True)
    elif named == "StructType":
        twice = next((name for name in found.names if found.names.count(name) > 1), None)
        if twice is not None:
            yield f"the column {path!r} has two fields that are called {twice!r}; rename one of them"
        for field in found.fields:
            yield from _faults(field.dataType, inside(path, field.name), many=many)


def _fault(path: str, kind: "DataType", mend: str) -> str:
    return f"the column {path!r} is {kind.simpleString()}, which no message carries: {mend}, or drop the column"


def name_of(kind: "DataType") -> str:
    """Return the name of a type's class; of a user's own type that of their common class."""
    names = [each.__name__ for each in type(kind).__mro__]
    return "UserDefinedType" if "UserDefinedType" in names else names[0]
