"""Publish what a store has committed for other engines."""

import os

from inturn.spark.tables.delta import Published
from inturn.spark.tables.delta import publish as publish_steps
from inturn.spark.tables.manifest import Store


def publish(store: str | os.PathLike[str]) -> Published:
    """Add the outputs of every committed step that the store's Delta table does not have yet; needs no session.

    ``batch`` and ``stream`` do the same after each step, if they are told ``outputs_format="delta"``. It may be called
    again at any time, by any number of processes: each step is published once.

    Args:
        store: the store; the table is in its folder ``data/outputs``.

    Returns:
        Where the table is, the last step that it had, and the last that it has now.

    Raises:
        StoreError: if there is no store, or the store or the table cannot be read or written.
        StoreMismatch: if the table has a step that the store has not: the store was put back from an older copy.
        SetupError: if deltalake is not installed.
    """
    source = Store(store)
    return publish_steps(source, source.known().pipeline)
