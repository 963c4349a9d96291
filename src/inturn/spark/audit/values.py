"""A column of anything as whole numbers, or as times: what a log's writers gave as text is read as what it says."""

from typing import TYPE_CHECKING

from inturn.core.errors import InputError
from inturn.spark.chunk import CORRUPT
from inturn.spark.dataframe import INTEGERS, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIMES = ("timestamp", "timestamp_ntz", "date")
_BROKEN = ("decimal", "float", "double")
_SAMPLE_ROWS = 1_000
_EPOCH_UNITS_US = ((10**17, 1e-3), (10**14, 1), (10**11, 1_000), (0, 1_000_000))
"""A number that is a time since 1970: from so large on, it counts so many microseconds (nanoseconds … seconds)."""


def column(df: "DataFrame", name: str) -> "Column":
    """A column by its name, or by its path within another: ``payload.account_id``.

    Raises:
        InputError: if it is not there.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import StructType

    if name in df.columns:
        return F.col(quoted(name))
    parts, inside = name.split("."), df.schema
    for at, part in enumerate(parts):
        if part not in inside.names:
            break
        found = inside[part].dataType
        if at == len(parts) - 1:
            return F.col(".".join(map(quoted, parts)))
        if not isinstance(found, StructType):
            break
        inside = found
    msg = f"there is no column {name!r}; there are {', '.join(each for each in df.columns if each != CORRUPT)}"
    raise InputError(msg)


def kind_of(df: "DataFrame", name: str) -> str:
    """The type of a column, as Spark writes it."""
    return df.select(column(df, name)).schema[0].dataType.simpleString()


def numbers_and_times(df: "DataFrame") -> dict[str, str]:
    """Which columns hold whole numbers or times, ``number`` or ``time`` by name; of texts, a sample tells."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    kinds = {field.name: field.dataType.simpleString() for field in df.schema.fields if field.name != CORRUPT}
    found = {name: "time" if kind in TIMES else "number" for name, kind in kinds.items() if kind in (*TIMES, *INTEGERS)}
    texts = [name for name, kind in kinds.items() if kind == "string"]
    tries = []
    for name in texts:
        value = F.col(quoted(name))
        tries += [F.count(value), F.count(value.try_cast("decimal(38,0)")), F.count(value.try_cast("timestamp"))]
    counts: tuple[int, ...] = tuple(df.limit(_SAMPLE_ROWS).agg(*tries).collect()[0]) if tries else ()
    for at, name in enumerate(texts):
        seen, numbers, times = counts[3 * at : 3 * at + 3]
        if seen and max(numbers, times) * 2 > seen:
            found[name] = "number" if numbers * 2 > seen else "time"
    return {name: found[name] for name in kinds if name in found}


def what(df: "DataFrame", name: str, known: dict[str, str]) -> str | None:
    """What one column holds, which may be within another, or a broken number: ``number``, ``time`` or None.

    Args:
        df: the messages.
        name: the column.
        known: what :func:`numbers_and_times` says of them, so that no text is sampled again.

    Raises:
        InputError: if the column is not there.
    """
    if kind_of(df, name).startswith(_BROKEN):
        return "number"
    if name in df.columns:
        return known.get(name)
    return numbers_and_times(df.select(column(df, name).alias("value"))).get("value")


def whole(df: "DataFrame", name: str) -> "Column":
    """A column as whole numbers; null where a value is none.

    Raises:
        InputError: if the column's type has no numbers.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    kind, own = kind_of(df, name), column(df, name)
    if kind in INTEGERS:
        return own.cast("bigint")
    if kind == "string":
        decimal = own.try_cast("decimal(38,6)")  # a count that some writer gave as 7.0
        return F.coalesce(own.try_cast("bigint"), F.when(decimal == F.floor(decimal), decimal.try_cast("bigint")))
    if kind.startswith(_BROKEN):
        number = own.try_cast("bigint")
        return F.when(number == own, number)
    msg = f"the column {name!r} is {kind}; expected whole numbers: {', '.join(INTEGERS)}, or text of digits"
    raise InputError(msg)


def micros(df: "DataFrame", name: str, known: dict[str, str]) -> "Column":
    """A column of times as microseconds since 1970; null where a value is no time.

    Numbers are taken for a time since 1970 in the unit that their size tells: seconds, milli-, micro- or nanoseconds.

    Raises:
        InputError: if the column's type has no times.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    kind, own = kind_of(df, name), column(df, name)
    if kind in TIMES:
        return F.unix_micros(own.cast("timestamp"))
    if kind == "string" and what(df, name, known) != "number":
        return F.unix_micros(own.try_cast("timestamp"))
    if kind in INTEGERS or kind.startswith(_BROKEN) or kind == "string":
        number = own.try_cast("double")
        found: Column | None = None
        for least, unit in _EPOCH_UNITS_US:
            inside, scaled = F.abs(number) >= least, (number * unit).cast("bigint")
            found = F.when(inside, scaled) if found is None else found.when(inside, scaled)
        return own.cast("bigint") if found is None else found
    msg = f"the column {name!r} is {kind}; expected a time: {', '.join(TIMES)}, ISO 8601 text, or seconds since 1970"
    raise InputError(msg)
