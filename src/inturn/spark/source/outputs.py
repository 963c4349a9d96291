"""The committed outputs of a store as messages of the next pipeline: a chain of pipelines on Spark.

The rows have the columns of a queue's log, as if each output had been sent to a queue when its step was committed.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.values.path import parts
from inturn.spark.columns.dataframe import check_session, quoted
from inturn.spark.source.output_rows import OUTPUT_COLUMNS, OutputFile, output_batches, output_files
from inturn.spark.tables.manifest import SparkStore
from inturn.spark.versions import has_python_sources, lacking

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_READERS: Final = 64
"""The maximum number of tasks that read outputs; with fewer files, there is one task per file."""


def outputs(
    spark: "SparkSession",
    store: str | os.PathLike[str],
    *,
    group: str | None = None,
    revision: str | None = None,
    after: int = 0,
    streaming: bool = False,
    max_rows: int | None = None,
) -> "DataFrame":
    """Return the committed outputs of a store as the log of a queue, for :func:`inturn.spark.messages`.

    A row is an output: ``body`` is the output as JSON, ``dedup_id`` its effect id, ``sequence_number`` its place among
    all outputs of the store, ``sent_at`` the time of its step. As a stream it continues with later steps.

    Args:
        spark: the session.
        store: the store's directory, which exists.
        group: the path of the output's field that is the message's group; None: the group of the pipeline.
        revision: the path of the output's field that is the message's revision; None: no revision.
        after: the step after which to begin.
        streaming: whether to return a streaming DataFrame.
        max_rows: the number of outputs after which a micro-batch takes no further step; from Spark 4.2 on.

    Raises:
        InputError: if an argument is invalid.
        StoreError: if there is no store, or no such step.
        SetupError: for a stream on Spark 3.5, or a limit before Spark 4.2.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    check_session(spark)
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InputError(f"after is {after!r}; expected the number of a step, or 0 for all outputs")
    source = SparkStore(store)
    source.require_identity()
    if after:
        source.manifest(after)
    if streaming:
        df = _stream(spark, source, after, max_rows)
    elif max_rows is not None:
        raise InputError(f"max_rows is {max_rows!r}, but a batch has no limit; omit it, or pass streaming=True")
    else:
        df = _batch(spark, source, after)
    return df.select(
        "sequence_number",
        "group" if group is None else _field(group, "string").alias("group"),
        (F.lit(None).cast("bigint") if revision is None else _field(revision, "bigint")).alias("revision"),
        "dedup_id",
        "body",
        "sent_at",
    )


def _batch(spark: "SparkSession", source: SparkStore, after: int) -> "DataFrame":
    files = output_files([source.manifest(step) for step in source.steps()], 0, after)
    if not files:
        return spark.createDataFrame([], OUTPUT_COLUMNS)
    paths = spark.createDataFrame([*map(tuple, files)], "path string, rows bigint, before bigint, now_us bigint")
    return paths.repartition(min(len(files), _READERS)).mapInArrow(_OutputRows(source.location), OUTPUT_COLUMNS)


def _stream(spark: "SparkSession", source: SparkStore, after: int, max_rows: int | None) -> "DataFrame":
    if not has_python_sources():
        raise lacking("a stream of a store's outputs", "4.0", "read them as a batch, with after=<last step read>")
    from inturn.spark.source.outputs_stream import OutputsSource

    spark.dataSource.register(OutputsSource)
    reader = spark.readStream.format(OutputsSource.name()).option("after", str(after))
    return (reader if max_rows is None else reader.option("maxRowsPerBatch", str(max_rows))).load(source.location)


def _field(path: str, kind: str) -> "Column":
    """Return the column of a field of the output."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    names = parts(path)
    for name in reversed(names):
        kind = f"struct<{quoted(name)}:{kind}>"
    column = F.from_json(F.col("body"), kind)
    for name in names:
        column = column.getField(name)
    return column


@dataclass(frozen=True)
class _OutputRows:
    """A ``mapInArrow`` function from files to their outputs."""

    location: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows: list[dict[str, Any]] = batch.to_pylist()
            yield from output_batches(self.location, [OutputFile(**row) for row in rows])
