"""The states of a store's groups as a Delta table for other engines: a row per group, and a feed of changes.

The table is a projection of committed steps, which remain the source of truth. Each step is one Delta commit, a merge
of the groups that it changed, and the table keeps the step's number as an application transaction: a step that is
published again adds nothing. The change data feed of Delta has the changes of each step.
"""

import contextlib
import datetime as dt
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from inturn.spark.tables.changes import StepChanges, changes_after, state_rows
from inturn.spark.tables.delta_table import STEP, WRITER, DeltaTablePath, PublishProgress, check_publishable
from inturn.spark.tables.manifest import Manifest, SparkStore

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

ROOT = "states"
"""Outside of ``data``, whose files belong to the manifests: `sweep` deletes files there that no manifest names."""
_FEED = {"delta.enableChangeDataFeed": "true"}


def publish_states(store: SparkStore, pipeline: str) -> PublishProgress:
    """Publish the missing steps of a pipeline's store to its Delta table of states, one Delta commit per step.

    The first call writes all groups as the last step left them. A later one that finds steps vacuumed writes what they
    changed as one commit.

    Raises:
        SetupError: if deltalake is not installed.
        StoreError: if the store or the table cannot be read or written.
        StoreMismatch: if the store belongs to another pipeline, or the table has a step that the store lacks.
    """
    check_publishable(store, pipeline)
    last, place = store.latest(), DeltaTablePath(store, ROOT, " --states")
    if last is None:
        return PublishProgress(place.location, 0, 0)
    application = f"inturn:{pipeline}:states"
    with place.store_errors():
        table = _table(place)
        before = done = (table.transaction_version(application) or 0) if table else 0
        place.check_not_ahead(done, last, "states")
        if table and done and place.last_published(table).get(WRITER) != store.manifest(done).writer:
            raise place.history_mismatch(done, "states")
        for changes in changes_after(store, done, last):
            if table is None and changes.levels:
                table = _create(place, changes, _properties(application, changes.manifest))
            elif table is not None and (changes.levels or changes.manifest.step == last.step):
                _merge(table, place, changes, application)
    return PublishProgress(place.location, before, last.step if table else 0)


def _table(place: DeltaTablePath) -> "DeltaTable | None":
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(place.location)
    return None


def _create(place: DeltaTablePath, changes: StepChanges, properties: "CommitProperties") -> "DeltaTable":
    """Create the table with all groups; if another publisher has created it meanwhile, return that one."""
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    rows = _reader(place.store, changes)
    try:
        write_deltalake(
            place.location, rows, mode="error", name="states", configuration=_FEED, commit_properties=properties
        )
    except DeltaError:
        if not DeltaTable.is_deltatable(place.location):
            raise
    return DeltaTable(place.location)


def _merge(table: "DeltaTable", place: DeltaTablePath, changes: StepChanges, application: str) -> None:
    """Commit the changes of a step, unless the table already has them."""
    from deltalake.exceptions import CommitFailedError

    step = changes.manifest.step
    while (done := table.transaction_version(application) or 0) < step:
        properties = _properties(application, changes.manifest)
        try:
            if changes.levels:
                merge = table.merge(
                    _reader(place.store, changes),
                    'target."group" = source."group"',
                    source_alias="source",
                    target_alias="target",
                    merge_schema=True,
                    commit_properties=properties,
                )
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            else:  # the progress alone
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        except CommitFailedError:  # another publisher committed meanwhile: read again
            table.update_incremental()
            if (table.transaction_version(application) or 0) == done:
                raise
        else:
            table.update_incremental()


def _properties(application: str, manifest: Manifest) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    committed_ms = int(dt.datetime.fromisoformat(manifest.committed).timestamp() * 1000)
    return CommitProperties(
        app_transactions=[Transaction(application, manifest.step, committed_ms)],
        custom_metadata={STEP: str(manifest.step), WRITER: manifest.writer},
        max_commit_retries=0,  # a retry would not read the application's transaction again
    )


def _reader(store: SparkStore, changes: StepChanges) -> pa.RecordBatchReader:
    """Return the changed rows as they are read, part by part."""
    tables = state_rows(store, changes)
    first = next(tables)  # a level has at least one group
    batches = (batch for table in chain([first], tables) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)
