"""Where Spark finds ``format("inturn")`` by itself: it looks into all packages whose names begin with ``pyspark_``."""

from inturn.spark.source.source import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
