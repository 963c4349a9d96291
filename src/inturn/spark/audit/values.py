"""Columns of a log: as whole numbers or times, text as the value that it denotes; and types that cannot be used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from inturn.core.errors import InputError
from inturn.core.values.instant import MICROSECONDS, TEXT
from inturn.core.values.path import joined, parts
from inturn.core.words import counted
from inturn.spark.audit.report import LogColumns
from inturn.spark.columns.dataframe import INTEGERS, sql_of, try_cast, type_at
from inturn.spark.columns.names import CORRUPT
from inturn.spark.columns.spark_types import REMEDIES, duplicate_field_fault, name_of, nested_types
from inturn.spark.columns.years import DAYS_OF_PYTHON, MICROSECONDS_OF_PYTHON

TIMES = ("timestamp", "timestamp_ntz", "date")
_BROKEN = ("decimal", "float", "double")
_SAMPLE_ROWS = 1_000
_EPOCH_UNITS_US = ((10**17, 1e-3), (10**14, 1), (10**11, 1_000), (0, 1_000_000))
"""Units of numbers that are times since 1970: the least number, and the microseconds that it counts (ns, us, ms, s)."""
_SINCE_2000_S, _TO_2100_S = 946_684_800, 4_102_444_800
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOSTLY = 0.95
"""The minimum share of a column's numbers that are times from 2000 to 2100 in one unit, if the column is a clock."""
_CLOCK_WORDS = re.compile(
    r"(?:^|_)(?:at|on|t|ts|tm|time|times|timestamp|stamp|date|datetime|day|when|clock|epoch|utc|unix|since|moment|"
    r"created|updated|modified|occurred|happened|received|arrived|sent|ingested|recorded|logged|observed|"
    r"s|sec|secs|seconds|ms|msec|millis|milliseconds|us|usec|micros|microseconds|ns|nsec|nanos|nanoseconds)(?:_|$)"
    r"|time|stamp|date"
)
"""Names of clocks; seconds look like counts, and nanoseconds like the ids of some databases."""


_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
"""Numbers as JSON has them."""
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


def resolve_path(df: DataFrame, name: str) -> str:
    """Return the path of a named column; a column with a dot in its name need not be quoted.

    Raises:
        InputError: if it does not exist.
    """
    if type_at(df.schema, parts(name)) is not None:
        return joined(parts(name))
    if name in df.columns:
        return joined([name])
    msg = f"no column {name!r}; existing columns: {', '.join(other for other in df.columns if other != CORRUPT)}"
    raise InputError(msg)


def column(df: DataFrame, path: str) -> Column:
    """Return a column by its path: ``payload.account_id``.

    Raises:
        InputError: if it does not exist.
    """
    return F.col(sql_of(resolve_path(df, path)))


def type_of(df: DataFrame, path: str) -> str:
    """Return the type of a column, in Spark's notation."""
    kind = type_at(df.schema, parts(resolve_path(df, path)))
    return "" if kind is None else kind.simpleString()


def leaf_types(df: DataFrame) -> dict[str, str]:
    """Return the types of all columns by their paths: fields of structs too, but not the structs themselves."""

    def below(schema: StructType, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for field in schema.fields:
            path = (*names, field.name)
            if isinstance(field.dataType, StructType):
                yield from below(field.dataType, path)
            elif path != (CORRUPT,):
                yield joined(path), field.dataType.simpleString()

    return dict(below(df.schema, ()))


def numbers_and_times(df: DataFrame) -> dict[str, str]:
    """Return the columns with whole numbers or times, by their paths; a sample decides for text and numbers.

    The values are ``number``, ``time``, or the unit of a number since 1970: ``s``, ``ms``, ``us``, ``ns``.
    """
    kinds = leaf_types(df)
    known = {path: "time" if kind in TIMES else "number" for path, kind in kinds.items() if kind in (*TIMES, *INTEGERS)}
    paths = [path for path, kind in kinds.items() if kind in ("string", *INTEGERS)]
    tries: list[Column] = []
    for path in paths:
        own = sql_of(path)
        number = F.expr(own) if kinds[path] != "string" else try_cast(own, "decimal(38,0)")
        time = text_micros(own) if kinds[path] == "string" else F.lit(None)
        inside = [number.between(_SINCE_2000_S * per, _TO_2100_S * per) for per in _PER_SECOND.values()]
        tries += [F.count(F.expr(own)), F.count(number), F.count(time), *(F.count_if(test) for test in inside)]
    counts: tuple[int, ...] = tuple(df.limit(_SAMPLE_ROWS).agg(*tries).collect()[0]) if tries else ()
    width = 3 + len(_PER_SECOND)
    for index, path in enumerate(paths):
        seen, numbers, times, *in_unit = counts[width * index : width * (index + 1)]
        if seen and max(numbers, times) * 2 > seen:
            is_number = numbers * 2 > seen
            known[path] = _unit(path, numbers, in_unit) or "number" if is_number else "time"
    return {path: known[path] for path in kinds if path in known}


def _unit(path: str, numbers: int, inside: Sequence[int]) -> str | None:
    """Return the unit in which numbers count the time since 1970; None if they are not times."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", parts(path)[-1]).lower().replace("-", "_").replace(" ", "_")
    is_called_so = _CLOCK_WORDS.search(words) is not None
    for unit, count in zip(_PER_SECOND, inside, strict=True):
        if count >= _MOSTLY * numbers and (is_called_so or unit in ("ms", "us")):
            return unit
    return None


def column_kind(df: DataFrame, path: str, known: dict[str, str]) -> str | None:
    """Return the kind of one column by the result of :func:`numbers_and_times`, or None; fractions are numbers.

    Raises:
        InputError: if the column does not exist.
    """
    return "number" if type_of(df, path).startswith(_BROKEN) else known.get(resolve_path(df, path))


def text_micros(own: str) -> Column:
    """Convert text to microseconds since 1970 as :func:`inturn.core.values.instant.parsed` does; null for other text.

    Args:
        own: the text, as SQL.
    """
    text = f"regexp_replace(upper(translate({own}, '/,', '-.')), ' (Z|[+-][0-9:]+)$', '$1')"
    zoned = f"if({text} rlike '[T ][0-9]+:[^Z+-]+$', concat({text}, 'Z'), {text})"
    with_seconds = f"regexp_replace({zoned}, '([T ][0-9]+:[0-9]{{2}})(Z|[+-])', '$1:00$2')"
    micros = F.expr(
        f"if({own} rlike r'^(?!0000)(?:{TEXT})$', unix_micros(try_cast({with_seconds} AS timestamp)), NULL)"
    )
    return F.when(micros.between(*MICROSECONDS_OF_PYTHON), micros)


def whole_numbers(df: DataFrame, name: str) -> Column:
    """Return a column as whole numbers; null for other values.

    Raises:
        InputError: if the column's type has no numbers.
    """
    kind, own, path = type_of(df, name), column(df, name), sql_of(resolve_path(df, name))
    if kind in INTEGERS:
        return own.cast("bigint")
    if kind == "string":
        decimal = try_cast(path, "decimal(38,6)")  # a count that some writer gave as 7.0
        of_decimal = try_cast(f"try_cast({path} AS decimal(38,6))", "bigint")
        return F.coalesce(try_cast(path, "bigint"), F.when(decimal == F.floor(decimal), of_decimal))
    if kind.startswith(_BROKEN):
        number = try_cast(path, "bigint")
        return F.when(number == own, number)
    raise InputError(f"the column {name!r} is {kind}; expected whole numbers: {', '.join(INTEGERS)}, or text of digits")


def microseconds(df: DataFrame, name: str, known: dict[str, str]) -> Column:
    """Return a column of times as microseconds since 1970; null for other values.

    Numbers count in the known unit of the column; else the size of each number determines its unit.

    Raises:
        InputError: if the column's type has no times.
    """
    kind, path, holds = type_of(df, name), sql_of(resolve_path(df, name)), column_kind(df, name, known)
    if kind == "timestamp":
        return F.unix_micros(F.expr(path))
    if kind == "timestamp_ntz":  # in UTC, as a pipeline takes it, in any session time zone
        return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {path})")
    if kind == "date":
        return F.expr(f"try_multiply(unix_date({path}), 86400000000L)")  # Spark has days beyond its times
    if holds in MICROSECONDS:
        times, divisor = MICROSECONDS[holds]
        number = f"try_cast({path} AS decimal(38,0))"
        scaled = number if divisor == 1 else f"floor({number} / {divisor})"
        return try_cast(f"{scaled} * {times}", "bigint")
    if kind == "string" and holds != "number":
        return text_micros(path)
    if kind in INTEGERS or kind.startswith(_BROKEN) or kind == "string":
        value = try_cast(path, "double")
        of_size = [F.when(F.abs(value) >= least, (value * unit).cast("bigint")) for least, unit in _EPOCH_UNITS_US]
        return F.coalesce(*of_size)
    msg = f"the column {name!r} is {kind}; expected a time: {', '.join(TIMES)}, ISO 8601 text, or seconds since 1970"
    raise InputError(msg)


def check_columns(df: DataFrame, keys: LogColumns) -> None:
    """Check that an audit can compare the values of all columns, and Spark those of the group and the id.

    Raises:
        InputError: if it cannot; the text names the column and a remedy.
    """
    for field in df.schema.fields:
        for path, kind, *_ in nested_types(field.dataType, field.name):
            if name_of(kind) in _LACKING:
                msg = f"the column {path!r} is {kind.simpleString()}, which an audit cannot compare"
                raise InputError(f"{msg}: {REMEDIES[name_of(kind)]}, or drop the column")
            if fault := duplicate_field_fault(path, kind):
                raise InputError(fault)
    for path in filter(None, (keys.group, keys.id)):
        own = type_at(df.schema, parts(path))
        if own is not None and any(name_of(nested.kind) in _NO_NAMES for nested in nested_types(own, path)):
            msg = f"the column {path!r} is {own.simpleString()}, which can be neither a group nor an id"
            raise InputError(f"{msg}: convert it with to_json(…)")


def unreadable(df: DataFrame) -> Column:
    """Return whether a row holds values that a pipeline rejects as invalid: non-UTF-8 text, or a year beyond Python's.

    Columns and fields of structs are checked, but not the contents of arrays and maps.
    """
    texts = _BEYOND["string"] if hasattr(F, "is_valid_utf8") else _BEFORE_4
    beyond = {**_BEYOND, "string": texts}
    tests = [beyond[kind].format(sql_of(path)) for path, kind in leaf_types(df).items() if kind in beyond]
    return F.expr(" OR ".join(f"coalesce({test}, false)" for test in tests) or "false")


def text_column_notes(df: DataFrame, kinds: Mapping[str, str]) -> list[str]:
    """Return a sentence for each column of JSON that some values make text while most are numbers.

    Args:
        df: the messages, every value as text.
        kinds: types of the columns by their paths, as Spark infers them from the values.
    """
    have = leaf_types(df)
    paths = [path for path, kind in kinds.items() if kind == "string" and have.get(path) == "string"]
    numeric: list[tuple[str, int, int, str]] = []
    for rows in (df.limit(_SAMPLE_ROWS), df):
        sums: list[Column] = []
        for own in map(F.expr, map(sql_of, paths)):
            other = F.when(~own.rlike(_NUMBER), own)
            sums += F.count(own), F.count(other), F.min(other)
        row = tuple(rows.agg(*sums).collect()[0]) if sums else ()
        counts = [(path, *row[3 * index : 3 * index + 3]) for index, path in enumerate(paths)]
        numeric = [count for count in counts if count[2] * 2 < count[1]]
        paths = [path for path, *_ in numeric]
    return [
        f"The column {path} is text: {others:,} of its {counted(values, 'value')} {'is' if others == 1 else 'are'} "
        f"not a number, such as {example[:60]!r}."
        for path, values, others, example in numeric
        if others
    ]


def cast_notes(
    df: DataFrame, keys: LogColumns, *, is_time: bool, kinds: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return a sentence for each column that must be cast before a pipeline takes it.

    Lines of CSV have no types before a pipeline reads them, so they yield no sentence. ``kinds`` are the types of the
    columns by their paths, if ``df`` has them as text.
    """
    if kinds is None and CORRUPT in df.columns:
        return ()

    def kind_in(name: str) -> str:
        own = type_of(df, name)
        return own if kinds is None else kinds.get(name, own)

    names, since_1970 = ("string", "date", *INTEGERS), (*TIMES[:2], "string", *INTEGERS)
    checks = (
        (keys.group, names, "string"),
        (keys.place, *((since_1970, "timestamp") if is_time else (INTEGERS, "bigint"))),
        (keys.id, names, "string"),
        (keys.epoch, INTEGERS, "bigint"),
        (keys.arrival, (*INTEGERS, *TIMES[:2]), "bigint"),
    )
    return tuple(
        f"The column {name} is {kind_in(name)}, which a pipeline does not accept: cast it to {kind}."
        for name, fits, kind in checks
        if name is not None and kind_in(name) not in fits
    )
