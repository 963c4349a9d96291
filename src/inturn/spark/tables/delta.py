"""A store's outputs as a Delta table for other engines, which see the outputs of committed steps and nothing else.

The table's root is the store's folder of outputs, and its data files are the files that the tasks wrote: nothing is
copied. The table is a projection; the manifests remain the source of truth. Each step is one Delta commit, and the
table keeps the step's number as an application transaction. The next publisher adds steps that a crashed one left out.
"""

import contextlib
import datetime as dt
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from inturn.spark.tables.delta_table import STEP, WRITER, DeltaTablePath, PublishProgress, check_publishable
from inturn.spark.tables.manifest import DataFile, Manifest, SparkStore
from inturn.spark.tables.writer import OUTPUTS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

ROOT = "data/outputs"
LOG = f"{ROOT}/_delta_log"
"""The files of the Delta table alone. If they are deleted, publishing creates them again from the first step."""

# An append-only table refuses a DELETE or UPDATE of another engine, which would rewrite the store's files.
_GROWS = {"delta.appendOnly": "true"}


def publish_steps(store: SparkStore, pipeline: str) -> PublishProgress:
    """Publish the missing steps of a pipeline's store, one Delta commit per step; see :func:`inturn.spark.publish`.

    The first call creates the table; its application id is ``inturn:`` and the pipeline's name. A step without outputs
    gets a commit only if it is the last one, so that the table records its progress.

    Raises:
        StoreMismatch: if the store belongs to another pipeline.
    """
    check_publishable(store, pipeline)
    last = store.latest()
    application, place = f"inturn:{pipeline}", DeltaTablePath(store, ROOT)
    location = place.location
    if last is None:
        return PublishProgress(location, 0, 0)
    with place.store_errors():
        table = _table(location)
        before = done = table.transaction_version(application) or 0
        place.check_not_ahead(done, last, "outputs")
        _check_history(table, place, done)
        for step in range(done + 1, last.step + 1):
            manifest = store.manifest(step)
            if manifest.outputs or step == last.step:
                done = _commit(table, application, store, manifest)
    return PublishProgress(location, before, done)


def _table(location: str) -> "DeltaTable":
    """Return the current table; create it if it does not exist."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError

    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(location)
    schema = Schema.from_arrow(pa.schema(OUTPUTS))
    # A retry after another publisher's commit would create the table a second time.
    once = CommitProperties(max_commit_retries=0)
    try:
        return DeltaTable.create(location, schema, name="outputs", configuration=_GROWS, commit_properties=once)
    except DeltaError:
        if not DeltaTable.is_deltatable(location):
            raise
        return DeltaTable(location)  # another publisher created it first


def _check_history(table: "DeltaTable", place: DeltaTablePath, done: int) -> None:
    """Check that the step published last is the one in the store.

    If not, the store was restored from an older copy and has advanced since.
    """
    if not done:
        return
    manifest, published = place.store.manifest(done), place.last_published(table)
    if published.get(STEP) == str(done):
        same = published.get(WRITER) == manifest.writer
    else:  # the log is too short: file names identify their writer
        names = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        same = {PurePosixPath(file.path).name for file in manifest.outputs} <= {unquote(name) for name in names}
    if not same:
        raise place.history_mismatch(done, "outputs")


def _commit(table: "DeltaTable", application: str, store: SparkStore, manifest: Manifest) -> int:
    """Publish a step unless it is published already, and return the last published step that the table then records."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    committed_ms = int(dt.datetime.fromisoformat(manifest.committed).timestamp() * 1000)
    adds: list[AddAction | RemoveAction] = [
        _add_action(store, file, manifest.step, committed_ms) for file in manifest.outputs
    ]
    transaction = Transaction(application, manifest.step, committed_ms)
    while (done := table.transaction_version(application) or 0) < manifest.step:
        written = {STEP: str(manifest.step), WRITER: manifest.writer}
        properties = CommitProperties(app_transactions=[transaction], custom_metadata=written)
        try:
            table.create_write_transaction(adds, "append", table.schema(), commit_properties=properties)
        except CommitFailedError:
            # Delta raises this when another publisher committed after ``done`` was read, so read the version again.
            table.update_incremental()
            if (table.transaction_version(application) or 0) == done:
                raise
        else:
            table.update_incremental()
            return manifest.step
    return done


def _add_action(store: SparkStore, file: DataFile, step: int, committed_ms: int) -> "AddAction":
    """Return a Delta add action for a file of outputs; the bounds of the step let a reader skip files it has read."""
    from deltalake.transaction import AddAction

    with store.files.store_errors("read", file.path), store.files.source(file.path) as source:
        size = source.size()
    bounds = {"minValues": {"step": step}, "maxValues": {"step": step}, "nullCount": {"step": 0}}
    name = str(PurePosixPath(file.path).relative_to(ROOT))
    return AddAction(name, size, {}, committed_ms, True, json.dumps({"numRecords": file.rows, **bounds}))  # noqa: FBT003
