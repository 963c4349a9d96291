"""Files of messages as a DataFrame, from the text options of ``inturn run``."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.columns.dataframe import DDL, column_kinds, quoted, try_cast
from inturn.spark.columns.names import CORRUPT
from inturn.spark.errors import reason
from inturn.spark.local.csv import CsvTable, Dialect, csv_table
from inturn.spark.source.debezium import debezium, event_schema

_ENDINGS = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
}


def read_messages(
    spark: SparkSession,
    pipeline: Pipeline,
    source: str,
    form: str | None = None,
    *,
    streaming: bool = False,
    files: int | None = None,
    dialect: Dialect | None = None,
    change_events: bool = False,
) -> DataFrame:
    """Read files of messages as a DataFrame: Parquet, JSON lines, or CSV with a header.

    A line that cannot be read becomes a message that is rejected as invalid, with its text.

    Args:
        spark: the session that reads.
        pipeline: pipeline whose message type defines the columns, for JSON and CSV.
        source: a file, a folder or a URI.
        form: ``parquet``, ``json`` or ``csv``; None goes by the file names.
        streaming: whether to continue with files that arrive later; the existing files define the columns.
        files: maximum number of files in a micro-batch of a stream.
        dialect: dialect of CSV files.
        change_events: whether the files have Debezium's change events, whose changes of rows
            :func:`inturn.spark.debezium` makes messages. Their columns are inferred, and a message type converts them.

    Raises:
        InputError: if the source does not exist, its format is not known, or it has no change events.
    """
    form = form or format_of(source)
    if form not in ("parquet", "json", "csv"):
        raise InputError(f"--format {form!r} is not known; expected parquet, json or csv")
    options = {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"}
    schema: Any = None
    if form == "json" and pipeline.message is not None and not change_events:
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in column_kinds(pipeline).items())
        schema += f", {CORRUPT} string"
    try:
        if form == "csv":
            table = csv_table(spark, source, dialect, streaming=streaming)
            options, schema = table.options, _csv_schema(spark, pipeline, source, table)
        elif form == "json" and change_events:
            schema = event_schema(spark.read.options(**options).json(source).schema)
        reader = spark.read.options(**options).format(form)
        df = (reader if schema is None else reader.schema(schema)).load(source)
        if streaming:
            follower = spark.readStream.schema(df.schema).options(**options).format(form)
            df = (follower.option("maxFilesPerTrigger", files) if files else follower).load(source)
    except Exception as error:
        raise InputError(f"cannot read {source} as {form}: {reason(error)}") from error
    if change_events:
        return debezium(df)
    return _typed(pipeline, df) if form == "csv" and pipeline.message is not None else df


def _csv_schema(spark: SparkSession, pipeline: Pipeline, source: str, table: CsvTable) -> str | None:
    """Return the columns of CSV files: text for a message type, else types inferred by Spark."""
    if not table.names or pipeline.message is not None:
        return table.schema() if table.names else None
    inferred = spark.read.options(**table.options, inferSchema="true").csv(source).schema
    return table.schema(field.dataType.simpleString() for field in inferred.fields)


def _typed(pipeline: Pipeline, df: DataFrame) -> DataFrame:
    """Cast the text columns of a CSV file to the types of the message type, by their names in the header."""
    names = [name for name in df.columns if name != CORRUPT]
    casts = {kind for kind in DDL.values() if kind != "string"}
    kinds = {name: kind for name, kind in column_kinds(pipeline).items() if name in names and kind in casts}
    texts = {name: F.col(quoted(name)) for name in names}
    values = {name: try_cast(quoted(name), kinds[name]) if name in kinds else texts[name] for name in names}
    misfit = F.lit(False)  # noqa: FBT003
    for name in kinds:
        misfit = misfit | (texts[name].isNotNull() & values[name].isNull())
    row_json = F.to_json(F.struct(*texts.values()))
    bad = F.coalesce(F.col(CORRUPT), F.when(misfit, row_json)) if CORRUPT in df.columns else F.when(misfit, row_json)
    return df.select(*(value.alias(name) for name, value in values.items()), bad.alias(CORRUPT))


def format_of(source: str) -> str:
    """Return the form of a file, or of the files in a folder, by name; Spark looks up ``*`` and URIs.

    Raises:
        InputError: if the source does not exist, or the names do not show the format.
    """
    path = Path(source)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(("_", "."))]
        if not files:
            raise InputError(f"the folder {source} has no files")
        path = files[0]
    elif "://" not in source and "*" not in source and not path.exists():
        raise InputError(f"no file or folder {source}")
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".bz2", ".zst", ".snappy")]
    by_ending = _ENDINGS.get(suffixes[-1] if suffixes else "")
    if by_ending is None:
        raise InputError(f"the name of {path} does not show its format; add --format parquet, json or csv")
    return by_ending
