"""CSV files as RFC 4180 defines them, read by Spark: doubled quotes within quotes, line ends within quotes.

Spark reads a file without line ends in values in parallel parts, any other file as a whole. One pass over the text
determines this first.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.spark.columns.dataframe import quoted
from inturn.spark.columns.names import CORRUPT

_CRLF: Final = "\r\n"


@dataclass(frozen=True)
class Dialect:
    """The dialect of CSV files.

    Attributes:
        delimiter: separator of values.
        quote: character around a value that contains a delimiter, a quote or a line end; empty for none.
        encoding: encoding of the text.
        null: text that stands for null, besides the empty one.

    Raises:
        InputError: if no file can have this dialect.
    """

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "UTF-8"
    null: str | None = None

    def __post_init__(self) -> None:
        if not self.delimiter or self.delimiter in (self.quote, "\n", "\r"):
            raise InputError(f"--delimiter {self.delimiter!r}; expected a separator of values, such as ';' or '\\t'")
        if len(self.quote) > 1:
            raise InputError(f"--quote {self.quote!r}; expected one character, or '' for files without quotes")
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            msg = f"--encoding {self.encoding!r} is not known; expected a name such as UTF-8, ISO-8859-1 or UTF-16"
            raise InputError(msg) from error

    @property
    def options(self) -> dict[str, str]:
        """Spark's options for this dialect."""
        options = {"sep": self.delimiter, "quote": self.quote, "escape": self.quote, "encoding": self.encoding}
        return options if self.null is None else {**options, "nullValue": self.null}


@dataclass(frozen=True)
class CsvTable:
    """CSV files that Spark can read.

    Attributes:
        names: names of the columns from the header; repeated ones get a number.
        options: Spark's options, except the schema.
    """

    names: list[str]
    options: dict[str, str]

    def schema(self, kinds: Iterable[str] | None = None) -> str:
        """Return the columns and the column for unreadable lines, as DDL; all are text if no types are given."""
        types = ["string"] * len(self.names) if kinds is None else kinds
        columns = [f"{quoted(name)} {kind}" for name, kind in zip(self.names, types, strict=True)]
        return ", ".join([*columns, f"{CORRUPT} string"])


def csv_table(spark: SparkSession, source: str, dialect: Dialect | None = None, *, streaming: bool = False) -> CsvTable:
    """Find the options with which CSV files with a header are read.

    Args:
        spark: the session that reads.
        source: a file, a folder or a URI.
        dialect: the dialect of the files.
        streaming: whether further files, of unknown content, may arrive later.
    """
    dialect = dialect or Dialect()
    options = {**dialect.options, **_lines(spark, source, dialect, streaming=streaming)}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    first = spark.read.options(**options).csv(source).limit(1).collect()
    header = [name or f"_c{index}" for index, name in enumerate(first[0])] if first else []
    names = unique_names(header)
    # If the header repeats a name, it differs from the schema: then columns go by position.
    return CsvTable(names, {**options, "header": "true", "enforceSchema": str(names != header).lower()})


def read_csv(spark: SparkSession, source: str, dialect: Dialect | None = None) -> DataFrame:
    """Return CSV files with every value as text, and the lines that cannot be read."""
    table = csv_table(spark, source, dialect)
    if not table.names:
        return spark.read.csv(source)
    return spark.read.options(**table.options).schema(table.schema()).csv(source)


def unique_names(names: Iterable[str]) -> list[str]:
    """Return unique column names, compared as Spark does (ignoring case); repeated ones get a number."""
    names = list(names)
    existing = {name.lower() for name in names}
    unique: list[str] = []
    seen: set[str] = set()
    for name in names:
        candidate, number = name, 1
        while candidate.lower() in seen or (candidate != name and candidate.lower() in existing):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate.lower())
        unique.append(candidate)
    return unique


def _lines(spark: SparkSession, source: str, dialect: Dialect, *, streaming: bool) -> dict[str, str]:
    """Return the options about line ends.

    A line with an odd number of quotes ends within a value. If the first line of every file ends with CR LF, all lines
    do: only with this option does Spark keep a CR LF within a value as it is.
    """
    if "a\n".encode(dialect.encoding) != b"a\n":
        return {"multiLine": "true"}
    line, mark = F.col("value"), dialect.quote
    quotes = F.length(line) - F.length(F.replace(line, F.lit(mark), F.lit(""))) if mark else F.lit(0)
    split = (quotes % 2 == 1) | F.regexp_like(line, F.lit(r"\r[^\n]")) if mark else F.lit(False)  # noqa: FBT003
    text = spark.read.option("lineSep", "\n").text(source)
    rows = text.select(
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("begins"),
        F.monotonically_increasing_id().alias("at"),
        line.endswith("\r").alias("crlf"),
        split.alias("split"),
    )
    by_file = rows.groupBy("file").agg(
        F.min_by("crlf", F.struct("begins", "at")).alias("crlf"), F.bool_or("split").alias("split")
    )
    crlf, split_lines = by_file.agg(F.bool_and("crlf"), F.bool_or("split")).collect()[0]
    if not (split_lines or streaming):
        return {"multiLine": "false"}
    return {"multiLine": "true", **({"lineSep": _CRLF} if crlf else {})}
