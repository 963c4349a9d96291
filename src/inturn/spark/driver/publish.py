"""Publication of a store's outputs as a Delta table, for other engines."""

import os

from inturn.spark.tables.delta import Published
from inturn.spark.tables.delta import publish as publish_steps
from inturn.spark.tables.manifest import SparkStore


def publish(store: str | os.PathLike[str]) -> Published:
    """Add the outputs of committed steps that are missing in the store's Delta table; needs no session.

    ``batch`` and ``stream`` do the same after each step with ``outputs_format="delta"``. Any number of processes may
    call this at any time: each step is published once.

    Args:
        store: the store; the table is in its folder ``data/outputs``.

    Returns:
        The table's location, its last step before the call, and its last step now.

    Raises:
        StoreError: if there is no store, or the store or the table cannot be read or written.
        StoreMismatch: if the table has a step that the store lacks: the store was restored from an older copy.
        SetupError: if deltalake is not installed.
    """
    source = SparkStore(store)
    return publish_steps(source, source.known().pipeline)
