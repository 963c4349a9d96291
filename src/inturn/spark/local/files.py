"""What ``inturn run`` is told in text: files of messages as a DataFrame."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError
from inturn.core.pipeline import Pipeline
from inturn.spark.chunk import CORRUPT
from inturn.spark.columns.codec import record_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDINGS = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
}
_DDL: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    dt.date: "date",
    dt.datetime: "timestamp",
    Decimal: "decimal(38,18)",
}


def read_messages(
    spark: "SparkSession",
    pipeline: Pipeline,
    source: str,
    form: str | None = None,
    *,
    streaming: bool = False,
    files: int | None = None,
) -> "DataFrame":
    """Files of messages as a DataFrame: Parquet, JSON lines, or CSV with a header.

    A line that cannot be read becomes a message that is rejected as invalid, with its text.

    Args:
        spark: the session that reads.
        pipeline: whose message type says what the columns are, for JSON and CSV.
        source: a file, a folder or a URI.
        form: ``parquet``, ``json`` or ``csv``; None goes by the names of the files.
        streaming: whether to go on with files that come later; what the columns are, those that are there say.
        files: of a stream, the most files in a micro-batch.

    Raises:
        InputError: if there is nothing there, or it is of no known form.
    """
    form = form or form_of(source)
    if form not in ("parquet", "json", "csv"):
        msg = f"--format {form!r} is not known; expected parquet, json or csv"
        raise InputError(msg)
    reader = spark.read.option("columnNameOfCorruptRecord", CORRUPT).option("mode", "PERMISSIVE")
    if form == "json" and pipeline.message is not None:
        reader = reader.schema(
            ", ".join(f"`{name}` {kind}" for name, kind in column_kinds(pipeline).items()) + f", {CORRUPT} string"
        )
    if form == "csv":
        reader = reader.option("header", "true").option("inferSchema", str(pipeline.message is None).lower())
    try:
        df = reader.format(form).load(source)
        if streaming:
            follower = spark.readStream.schema(df.schema).format(form)
            follower = follower.option("columnNameOfCorruptRecord", CORRUPT).option("mode", "PERMISSIVE")
            if form == "csv":
                follower = follower.option("header", "true").option("enforceSchema", "false")
            df = (follower.option("maxFilesPerTrigger", files) if files else follower).load(source)
    except Exception as error:
        msg = f"cannot read {source} as {form}: {str(error).splitlines()[0]}"
        raise InputError(msg) from error
    return _typed(pipeline, df) if form == "csv" and pipeline.message is not None else df


def _typed(pipeline: Pipeline, df: "DataFrame") -> "DataFrame":
    """The columns of a CSV file, which are text, as the message type says, by their names in the header."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    kinds = {name: kind for name, kind in column_kinds(pipeline).items() if name in df.columns and kind != "string"}
    texts = {name: F.col(f"`{name}`") for name in df.columns}
    values = {name: texts[name].try_cast(kinds[name]) if name in kinds else texts[name] for name in df.columns}
    misfit = F.lit(False)  # noqa: FBT003
    for name in kinds:
        misfit = misfit | (texts[name].isNotNull() & values[name].isNull())
    line = F.to_json(F.struct(*texts.values()))
    return df.select(*(value.alias(name) for name, value in values.items()), F.when(misfit, line).alias(CORRUPT))


def form_of(source: str) -> str:
    """Of which form a file is, or the files of a folder, by their names; ``*`` and URIs are for Spark to look up.

    Raises:
        InputError: if there is nothing there, or the names do not say.
    """
    path = Path(source)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(("_", "."))]
        if not files:
            msg = f"{source} has no files in it"
            raise InputError(msg)
        path = files[0]
    elif "://" not in source and "*" not in source and not path.exists():
        msg = f"there is no file or folder {source}"
        raise InputError(msg)
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".bz2", ".zst", ".snappy")]
    found = _ENDINGS.get(suffixes[-1] if suffixes else "")
    if found is None:
        msg = f"the name of {path} does not say what it is; add --format parquet, json or csv"
        raise InputError(msg)
    return found


def column_kinds(pipeline: Pipeline) -> dict[str, str]:
    """The message type's fields as Spark's types; one that has no column of its own is read as text."""
    kinds = {field.name: _DDL.get(field.type, "string") for field in record_fields(pipeline.message or object)}
    if pipeline.arrival is not None:
        kinds.setdefault(pipeline.arrival, "bigint")
    return kinds
