"""The pipeline on Spark.

``batch`` applies a DataFrame as one step. ``stream`` applies each micro-batch as a step. ``read`` returns a store's
tables, ``store`` its results without Spark. ``audit`` reports what is wrong with the order of any log; it needs no
pipeline. ``spark.read`` and ``spark.readStream`` with ``format("inturn")`` read the log of a queue, and ``messages``
turns its rows into a pipeline's columns. ``from_kafka`` returns the records of Kafka as such a log, and ``outputs``
the outputs of a store, for the next pipeline. ``debezium`` turns Debezium's change events into a pipeline's columns.
``publish`` adds committed steps to tables that follow a store. ``ensure_java`` finds a Java for a Spark session that
you start in your own process.
"""

try:
    import numpy  # noqa: F401 - only asked for
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    from inturn.core.errors import SetupError

    if error.name is None:  # installed, but incompatible with another package
        msg = f"inturn.spark needs compatible versions of numpy, pyarrow and pyspark: {error}"
    else:
        msg = f"inturn.spark needs {error.name}; install it with: pip install 'inturn[spark]'"
    raise SetupError(msg) from error

from inturn.spark.audit.run import audit
from inturn.spark.driver.inspection import store
from inturn.spark.driver.publishing import publish
from inturn.spark.driver.read import read
from inturn.spark.driver.step import Report, advance, batch
from inturn.spark.driver.stream import stream
from inturn.spark.local.java import ensure_java
from inturn.spark.source.debezium import debezium
from inturn.spark.source.kafka import from_kafka
from inturn.spark.source.messages import messages, register
from inturn.spark.source.outputs import outputs
from inturn.spark.tables.vacuum import sweep, vacuum

__all__ = [
    "Report",
    "advance",
    "audit",
    "batch",
    "debezium",
    "ensure_java",
    "from_kafka",
    "messages",
    "outputs",
    "publish",
    "read",
    "register",
    "store",
    "stream",
    "sweep",
    "vacuum",
]
