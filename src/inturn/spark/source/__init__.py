"""The log of a queue as a source of Spark, ``format("inturn")``: the one part of it that knows of queues."""
