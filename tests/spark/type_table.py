"""Every type of Spark with its extreme values: as SQL, and as what a handler is given. The tests of types share it.

docs/spark-types.md has a row for each; it needs pyspark alone, and no version of it has all of these types.
"""

import dataclasses
import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types


class Invalid:
    """In place of a value: Python has none, so the row is invalid."""

    def __repr__(self) -> str:
        return "invalid"


INVALID: Final = Invalid()
MOST = 10**38 - 1
INSTANT = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, dt.UTC)


@dataclass(frozen=True)
class Kind:
    """One type.

    Attributes:
        sql: the type as SQL writes it.
        python: the type as a message type says it.
        cases: values as SQL, and as a handler is given them.
    """

    sql: str
    python: Any = None
    cases: dict[str, Any] = field(default_factory=dict)


def whole(sql: str, bits: int) -> Kind:
    ends = {0: 0, -1: -1, 2 ** (bits - 1) - 1: 2 ** (bits - 1) - 1, -(2 ** (bits - 1)): -(2 ** (bits - 1))}
    return Kind(sql, int, {f"CAST('{number}' AS {sql})": number for number in ends})


def times(sql: str, zone: dt.tzinfo | None, suffix: str) -> Kind:
    def at(text: str) -> str:
        return f"CAST('{text}{suffix}' AS {sql})"

    return Kind(
        sql,
        dt.datetime,
        {
            at("2024-02-29 23:59:59.999999"): INSTANT.replace(tzinfo=zone),
            at("0001-01-01 00:00:00"): dt.datetime.min.replace(tzinfo=zone),
            at("9999-12-31 23:59:59.999999"): dt.datetime.max.replace(tzinfo=zone),
            at("1582-10-10 00:00:00"): dt.datetime(1582, 10, 10, tzinfo=zone),
            at("0000-12-31 23:59:59.999999"): INVALID,
            at("-0001-01-01 00:00:00"): INVALID,
            at("+10000-01-01 00:00:00"): INVALID,
            at("+20260-01-01 00:00:00"): INVALID,
        },
    )


FLOATS = {
    "'NaN'": float("nan"),
    "'Infinity'": float("inf"),
    "'-Infinity'": float("-inf"),
    "'-0.0'": -0.0,
    "'0.0'": 0.0,
}
CARRIED: Final = {
    "NullType": Kind("void", int, {"NULL": None}),
    "BooleanType": Kind("boolean", bool, {"true": True, "false": False}),
    "ByteType": whole("tinyint", 8),
    "ShortType": whole("smallint", 16),
    "IntegerType": whole("int", 32),
    "LongType": whole("bigint", 64),
    "FloatType": Kind(
        "float",
        float,
        {f"CAST({text} AS float)": value for text, value in FLOATS.items()}
        | {"CAST('1.1' AS float)": 1.100000023841858, "CAST('3.4028235E38' AS float)": 3.4028234663852886e38},
    ),
    "DoubleType": Kind(
        "double",
        float,
        {f"CAST({text} AS double)": value for text, value in FLOATS.items()}
        | {
            "CAST('1.1' AS double)": 1.1,
            "CAST('4.9E-324' AS double)": 5e-324,
            "1.7976931348623157E308D": 2.0**1023 * (2 - 2.0**-52),
        },
    ),
    "DecimalType": Kind(
        "decimal(38,2)",
        Decimal,
        {
            "CAST('1' AS decimal(38,2))": Decimal("1.00"),
            f"CAST('{MOST}' AS decimal(38,0)) * 0 + CAST('-{MOST // 100}.99' AS decimal(38,2))": Decimal(
                f"-{MOST // 100}.99"
            ),
            f"CAST('{MOST // 100}.99' AS decimal(38,2))": Decimal(f"{MOST // 100}.99"),
            "CAST('-0.01' AS decimal(38,2))": Decimal("-0.01"),
        },
    ),
    "StringType": Kind(
        "string",
        str,
        {
            "''": "",
            "'a\\u0000b'": "a\0b",
            "'\\U0001F600'": "\U0001f600",
            "repeat('x', 100000)": "x" * 100_000,
            "CAST(X'636166E9' AS string)": INVALID,
            "CAST(X'EDA080' AS string)": INVALID,
        },
    ),
    "BinaryType": Kind("binary", bytes, {"X''": b"", "X'00FFE9'": b"\0\xff\xe9"}),
    "DateType": Kind(
        "date",
        dt.date,
        {
            "DATE'2024-02-29'": dt.date(2024, 2, 29),
            "DATE'0001-01-01'": dt.date.min,
            "DATE'9999-12-31'": dt.date.max,
            "make_date(20260, 1, 1)": INVALID,
            "CAST('0000-12-31' AS date)": INVALID,
            "CAST('-0001-01-01' AS date)": INVALID,
            "date_from_unix_date(2147483647)": INVALID,
        },
    ),
    "TimestampType": times("timestamp", dt.UTC, " UTC"),
    "TimestampNTZType": times("timestamp_ntz", None, ""),
    "TimeType": Kind(
        "time(6)",
        dt.time,
        {
            "TIME'00:00:00'": dt.time.min,
            "TIME'23:59:59.999999'": dt.time.max,
        },
    ),
    "DayTimeIntervalType": Kind(
        "interval day to second",
        dt.timedelta,
        {
            "INTERVAL '0 00:00:00' DAY TO SECOND": dt.timedelta(),
            "INTERVAL '-1 00:00:00.000001' DAY TO SECOND": -dt.timedelta(days=1, microseconds=1),
            "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND": dt.timedelta(microseconds=2**63 - 1),
            "INTERVAL '-106751991 04:00:54.775807' DAY TO SECOND": dt.timedelta(microseconds=-(2**63) + 1),
        },
    ),
    "ArrayType": Kind(
        "array<date>",
        list[dt.date | None],
        {
            "CAST(array() AS array<date>)": [],
            "array(DATE'2024-02-29', NULL)": [dt.date(2024, 2, 29), None],
            "array(DATE'2024-02-29', make_date(20260, 1, 1))": INVALID,
        },
    ),
    "MapType": Kind(
        "map<string,timestamp>",
        dict[str, dt.datetime | None],
        {
            "CAST(map() AS map<string,timestamp>)": {},
            "map('a', NULL)": {"a": None},
            "map('a', timestamp_micros(9000000000000000000))": INVALID,
            "map(CAST(X'E9' AS string), NULL)": INVALID,
            """from_json('{"a":null,"a":null}', 'map<string,timestamp>')""": INVALID,
        },
    ),
    "StructType": Kind(
        "struct<a:date,b:struct<c:string>>",
        None,
        {
            "named_struct('a', NULL, 'b', named_struct('c', 'x'))": {"a": None, "b": {"c": "x"}},
            "named_struct('a', make_date(20260, 1, 1), 'b', NULL)": INVALID,
            "named_struct('a', NULL, 'b', named_struct('c', CAST(X'E9' AS string)))": INVALID,
        },
    ),
}
"""The types that a message carries; a message type may be what ``python`` says or None."""
KEYS: Final = (set(CARRIED) - {"NullType", "ArrayType", "MapType", "StructType"}) | {"DecimalType"}
"""Those that the keys of a map may be of."""
REFUSED: Final = {
    "VariantType": """parse_json('{"a": 1}')""",
    "YearMonthIntervalType": "INTERVAL '1-2' YEAR TO MONTH",
    "CalendarIntervalType": "make_interval(1, 2, 3, 4, 5, 6, 7)",
    "GeometryType": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
    "GeographyType": "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')",
}
"""Those that no message carries, as SQL; ``UserDefinedType`` has none."""
AS_TEXT: Final = {"CharType": "CHAR(3)", "VarcharType": "VARCHAR(3)"}
"""Types that are strings to a handler, as SQL."""
ABSTRACT: Final = {
    "DataType",
    "AtomicType",
    "NumericType",
    "IntegralType",
    "FractionalType",
    "DatetimeType",
    "AnsiIntervalType",
    "AnyTimeType",
    "SpatialType",
}
"""What types have in common."""
PARTS: Final = {"StructField"}
"""What is no type of a column."""


def there_are(names: Any) -> list[str]:
    """Those that this version of Spark has."""
    return [name for name in names if hasattr(types, name)]


def shown(value: Any) -> str:
    """A value with its types, whatever it is; records are as dicts."""
    if dataclasses.is_dataclass(value):
        value = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, str):
        return value if len(value) < 100 else f"{len(value)} characters"
    is_time = isinstance(value, dt.date | dt.time)
    return f"{type(value).__name__} {value.isoformat() if is_time else value}"
