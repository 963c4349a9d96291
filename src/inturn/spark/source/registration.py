"""Registration of ``format("inturn")`` with a session, where its Spark has data sources written in Python."""

from typing import TYPE_CHECKING

from inturn.spark.versions import has_python_sources, lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register ``format("inturn")`` with a session, for ``spark.read`` and ``spark.readStream`` of a queue's log.

    Args:
        spark: the session, classic or Connect; registration lasts as long as the session.

    Raises:
        SetupError: if the installed PySpark has no data sources written in Python.
    """
    if not has_python_sources():
        instead = "or read the queue in Python, write its messages to files and read those"
        raise lacking('format("inturn")', "4.0", instead)
    from pyspark.errors import AnalysisException

    from inturn.spark.source.source import QueueSource

    try:
        spark.dataSource.register(QueueSource)
    except AnalysisException as error:  # before Spark 4.2 a source found by itself cannot be registered again
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
