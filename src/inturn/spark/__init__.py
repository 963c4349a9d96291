"""The pipeline on Spark.

``batch`` takes a DataFrame as one step, ``stream`` takes a step for each micro-batch, ``read`` shows the tables;
``audit`` says of any log what is wrong with its order, before there is a pipeline. The log of a queue is read with
``spark.read`` and ``spark.readStream``, ``format("inturn")``; ``messages`` makes a pipeline's columns of it.
``publish`` brings a store's Delta table up to its last step.
``ensure_java`` finds a Java for a session that you start in a process of your own.
"""

try:
    import numpy  # noqa: F401 - only asked for
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    from inturn.core.errors import SetupError

    if error.name is None:  # it is there, and does not fit what else is
        msg = f"inturn.spark needs numpy, pyarrow and pyspark that fit each other: {error}"
    else:
        msg = f"inturn.spark needs {error.name}; install it with: pip install 'inturn[spark]'"
    raise SetupError(msg) from error

from inturn.spark.audit.run import audit
from inturn.spark.local.java import ensure_java
from inturn.spark.publish import publish
from inturn.spark.read import read
from inturn.spark.source.fields import messages
from inturn.spark.source.registration import register
from inturn.spark.step import Report, batch, settle
from inturn.spark.stream import stream
from inturn.spark.tables.vacuum import sweep, vacuum

__all__ = [
    "Report",
    "audit",
    "batch",
    "ensure_java",
    "messages",
    "publish",
    "read",
    "register",
    "settle",
    "stream",
    "sweep",
    "vacuum",
]
