"""``inturn run --from shop.db#payments``: the messages of a queue for the command line."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.core import errors
from inturn.core.address import checked_target, is_address, shown
from inturn.core.errors import InputError, InturnError
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.source.messages import messages
from inturn.spark.source.registration import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def names_queue(source: str) -> bool:
    """Return whether a source names a queue, ``shop.db#payments``, rather than a file or a URI.

    Raises:
        InputError: if it is a database and names no queue.
    """
    if is_address(checked_target(source)):
        if "#" in source:
            return True
        raise InputError(f"{shown(source)} names no queue: write {shown(source)}#payments")
    return "#" in source and "://" not in source and not Path(source).exists()


def queue_messages(
    spark: "SparkSession", pipeline: Pipeline, source: str, *, streaming: bool = False, rows: int | None = None
) -> "DataFrame":
    """Return the messages of a queue as a DataFrame; a stream's reader has the pipeline's name.

    Args:
        spark: the session.
        pipeline: the pipeline whose columns are wanted.
        source: the queue, ``shop.db#payments`` or ``postgresql://…#payments``.
        streaming: whether to continue with messages that come later.
        rows: maximum number of messages in a micro-batch of a stream.

    Raises:
        StoreError: if there is no such database.
        NoSuchQueue: if there is no such queue in it.
        InputError: if the pipeline does not define the fields of the bodies.
    """
    register(spark)
    if not is_address(source):
        path, _, queue = source.partition("#")
        source = f"{Path(path).absolute()}#{queue}"  # Spark may resolve paths from another folder
    try:
        if streaming:
            reader = spark.readStream.format("inturn").option("reader", pipeline.name)
            df = (reader.option("maxRowsPerBatch", rows) if rows else reader).load(source)
        else:
            df = spark.read.format("inturn").load(source)
    except Exception as error:
        raise _ours(error) from error
    return messages(pipeline, df)


def _ours(error: Exception) -> Exception:
    """Return the inturn error that Spark wrapped in a traceback, or the error itself."""
    found = re.findall(r"^inturn\.core\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    if not found:
        return error
    name, text = found[-1]
    kind: type[InturnError] = getattr(errors, name, InturnError)
    return kind(text)
