"""Files as a log, with every value unchanged, so that nothing is repaired before the audit.

Text stays text: ``007`` and ``7`` in a CSV file are two groups, and a JSON field may be a number in one line and a word
in another. The audit converts the columns that it needs as numbers or times.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from inturn.core.errors import InputError, SetupError
from inturn.spark.audit.values import leaf_types
from inturn.spark.columns.names import CORRUPT
from inturn.spark.errors import input_errors
from inturn.spark.local.csv import Dialect, read_csv
from inturn.spark.local.files import format_of
from inturn.spark.source.debezium import debezium

FORMS = ("parquet", "json", "csv", "delta")


@dataclass(frozen=True)
class LogFiles:
    """A log read from files.

    Attributes:
        df: the messages; a line that cannot be read is in the column ``__inturn_corrupt_record``.
        files: files in order of arrival, if that is known; None sorts them by name.
        inferred: messages of JSON with the types that Spark infers from the values; ``df`` has all as text. None:
            ``df`` has the types of the files.
    """

    df: DataFrame
    files: list[str] | None = None
    inferred: DataFrame | None = None

    @property
    def kinds(self) -> dict[str, str] | None:
        """The inferred types of the columns, by their paths."""
        return None if self.inferred is None else leaf_types(self.inferred)


def read_log(
    spark: SparkSession,
    source: str,
    form: str | None = None,
    dialect: Dialect | None = None,
    *,
    change_events: bool = False,
) -> LogFiles:
    """Read a log: Parquet, JSON lines, CSV with a header, or a Delta table.

    Args:
        spark: the session that reads.
        source: a file, a folder or a URI.
        form: one of :data:`FORMS`; None derives it from the file names, and from ``_delta_log`` in a folder.
        dialect: dialect of CSV files.
        change_events: whether to read Debezium's change events as :func:`inturn.spark.debezium` does.

    Raises:
        InputError: if the source does not exist, its format is not known, or it cannot be read, or it has no
            change events.
        SetupError: if deltalake is missing for a Delta table.
    """
    form = form or ("delta" if (Path(source) / "_delta_log").is_dir() else format_of(source))
    if form not in FORMS:
        raise InputError(f"--format {form!r} is not known; expected one of {', '.join(FORMS)}")
    with input_errors(f"cannot read {source} as {form}"):
        read = _read(spark, source, form, dialect)
        columns = [name for name in read.df.columns if name != CORRUPT]
    if not columns:
        problem = "none of its lines can be read" if CORRUPT in read.df.columns else "it is empty"
        hint = "; JSON lines have one object on each line" if form == "json" else ""
        raise InputError(f"{source} has no messages: {problem}{hint}")
    if not change_events:
        return read
    return LogFiles(debezium(read.df), read.files, None if read.inferred is None else debezium(read.inferred))


def _read(spark: SparkSession, source: str, form: str, dialect: Dialect | None) -> LogFiles:
    if form == "delta":
        return _delta(spark, source)
    if form == "csv":
        return LogFiles(read_csv(spark, source, dialect))
    if form == "parquet":  # a column added later is content too
        return LogFiles(spark.read.option("mergeSchema", "true").parquet(source))
    reader = spark.read.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
    inferred = reader.json(source)
    texts = _texts(inferred.schema)
    return LogFiles(reader.schema(texts).json(source) if inferred.columns else inferred, inferred=inferred)


def _texts(kind: DataType) -> Any:
    """Return a type of JSON with text in place of numbers and truth values."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _texts(field.dataType)) for field in kind.fields])
    return ArrayType(_texts(kind.elementType)) if isinstance(kind, ArrayType) else StringType()


def _delta(spark: SparkSession, source: str) -> LogFiles:
    """Read a Delta table from its live files: deltalake reads the log, Spark the Parquet files in it."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        msg = "reading a Delta table needs deltalake; install it with: pip install 'inturn[delta]'"
        raise SetupError(msg) from error
    try:
        table = DeltaTable(source)
        features = set(table.protocol().reader_features or ())
        adds = table.get_add_actions(flatten=True)
        paths, times = (adds.column(name).to_pylist() for name in ("path", "modification_time"))
    except DeltaError as error:
        raise InputError(f"cannot read {source} as a Delta table: {str(error).splitlines()[0]}") from error
    hidden = features & {"deletionVectors", "columnMapping"}
    if hidden:
        msg = f"{source} uses {', '.join(sorted(hidden))}, so it cannot be read from its files alone; "
        raise InputError(msg + "read it with Delta's own reader, and pass the DataFrame to inturn.spark.audit")
    root = table.table_uri.rstrip("/")
    files = [f"{root}/{unquote(path)}" for _, path in sorted(zip(times, paths, strict=True))]
    if not files:
        raise InputError(f"{source} has no messages: it is empty")
    return LogFiles(spark.read.option("basePath", root).option("mergeSchema", "true").parquet(*files), files)


def arrival_order(df: DataFrame, listed: Sequence[str] | None) -> tuple[str, ...]:
    """Return the files of the rows as their metadata names them, in order of arrival; empty for other inputs."""
    files = sorted(set(df.inputFiles()))
    if listed is not None:
        rank = {unquote(urlparse(file).path): number for number, file in enumerate(listed)}
        files.sort(key=lambda file: rank.get(unquote(urlparse(file).path), len(rank)))
    loud = logging.getLogger("DataFrameQueryContextLogger")
    before = loud.level
    loud.setLevel(logging.CRITICAL)  # a missing column is an answer here, not an error to log
    try:
        return tuple(files) if files and df.select(F.col("_metadata.file_block_start")).schema else ()
    except AnalysisException:
        return ()
    finally:
        loud.setLevel(before)
