"""The log of a queue as a Spark source, ``format("inturn")``: the only part of the Spark package that knows queues."""
