"""The tables that follow a store's committed steps: Delta tables, and a table of PostgreSQL."""

import os
from dataclasses import dataclass, field
from typing import Literal

from inturn.core.errors import InputError
from inturn.spark.driver.postgres_states import StatesTable, publish_to_postgres
from inturn.spark.tables.delta import publish_steps
from inturn.spark.tables.delta_states import publish_states
from inturn.spark.tables.delta_table import PublishProgress
from inturn.spark.tables.manifest import SparkStore


@dataclass(frozen=True)
class Publishing:
    """The tables that follow a store.

    Args:
        outputs_format: ``delta``: the outputs are a Delta table too; else ``parquet``.
        states_format: ``delta``: the states are a Delta table; None: they are not.
        states_to: a table of PostgreSQL for the states, ``postgresql://…#TABLE``; None: none.

    Raises:
        InputError: if one of them is not valid.
    """

    outputs_format: str = "parquet"
    states_format: str | None = None
    states_to: str | None = field(default=None, repr=False)  # it may have a password

    def __post_init__(self) -> None:
        if self.outputs_format not in ("parquet", "delta"):
            raise InputError(f"outputs_format is {self.outputs_format!r}; expected 'parquet' or 'delta'")
        if self.states_format not in (None, "delta"):
            raise InputError(f"states_format is {self.states_format!r}; expected 'delta' or None")
        if self.states_to is not None:
            StatesTable.of(self.states_to)

    def publish(self, store: SparkStore, pipeline: str) -> None:
        """Publish the steps that the tables lack, including those that a crash left unpublished."""
        if self.outputs_format == "delta":
            publish_steps(store, pipeline)
        if self.states_format == "delta":
            publish_states(store, pipeline)
        if self.states_to is not None:
            publish_to_postgres(store, pipeline, StatesTable.of(self.states_to))


def publish(
    store: str | os.PathLike[str], *, table: Literal["outputs", "states"] = "outputs", to: str | None = None
) -> PublishProgress:
    """Add the missing committed steps to a table; this needs no session.

    ``batch`` and ``stream`` do the same after each step with ``outputs_format``, ``states_format`` and ``states_to``.
    Any number of processes may call this at any time: each step is published once.

    Args:
        store: the store.
        table: ``outputs``: the Delta table in the store's folder ``data/outputs``; ``states``: that in ``states``.
        to: a table of PostgreSQL for the states, ``postgresql://…#TABLE``, in place of a Delta table.

    Returns:
        The table's location, its last step before the call, and its last step now.

    Raises:
        InputError: if the table is not valid.
        StoreError: if there is no store, or the store or the table cannot be read or written.
        StoreMismatch: if the table has a step that the store lacks: the store was restored from an older copy.
        SetupError: if deltalake or psycopg is not installed.
    """
    source = SparkStore(store)
    pipeline = source.require_identity().pipeline
    if to is not None:
        return publish_to_postgres(source, pipeline, StatesTable.of(to))
    if table not in ("outputs", "states"):
        raise InputError(f"table is {table!r}; expected 'outputs' or 'states'")
    return publish_steps(source, pipeline) if table == "outputs" else publish_states(source, pipeline)
