"""The groups that committed steps changed, for tables outside of the store that follow it."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.timeline import Status
from inturn.results.state_columns import column_of_field
from inturn.spark.columns.names import FIXED_COLUMNS
from inturn.spark.tables.manifest import Manifest, SparkStore, StoreLevel
from inturn.spark.tables.merge import newest_groups
from inturn.spark.tables.rows import STATE, GroupRows
from inturn.spark.tables.sorted_files import StoreSlice


class StepChanges(NamedTuple):
    """The changes of a step.

    Attributes:
        manifest: the step.
        levels: the levels with the changed groups, oldest first; they may contain others, as these are after the step.
    """

    manifest: Manifest
    levels: list[StoreLevel]


def changes_after(store: SparkStore, done: int, last: Manifest) -> Iterator[StepChanges]:
    """Yield what each step after one changed, in order; 0 stands before the first.

    From the beginning, and where the files of a step were vacuumed, all changes up to the last step are one.
    """
    manifests = [store.manifest(step) for step in range(done + 1, last.step + 1)] if done else []
    if not manifests or any(manifest.vacuumed for manifest in manifests):
        if last.step > done:
            yield StepChanges(last, [level for level in last.levels if level.step > done])
        return
    version = store.manifest(done).version
    for manifest in manifests:
        # A new version has rewritten all states.
        own = manifest.levels if manifest.version != version else manifest.levels[-1:]
        yield StepChanges(
            manifest, [level for level in own if manifest.version != version or level.step == manifest.step]
        )
        version = manifest.version


def state_rows(store: SparkStore, changes: StepChanges) -> Iterator[pa.Table]:
    """Yield the changed groups with the columns of the table ``states``; see :func:`inturn.spark.read`."""
    manifest, order = changes.manifest, StoredOrder.of(store.require_identity().order)
    rows = GroupRows(store.location, manifest.state)
    read = newest_groups(StoreSlice(store.files), changes.levels, lambda batch: pa.Table.from_batches([rows.of(batch)]))
    for _, table in read:
        nothing = pa.nulls(len(table), pa.int64())
        settled = pc.is_in(table["status"], value_set=pa.array([Status.OPEN.value, Status.WAITING.value]))
        columns = {
            "group": table["group"],
            "status": pc.if_else(settled, table["status"], "parked"),
            "epoch": table["epoch"] if order.has_epoch else nothing,
            "revision": table["reached"] if order.grade.has_revisions else nothing,
            "held": table["held"],
            "skipped": table["skipped"],
            "step": table["step"],
        }
        columns |= {
            column_of_field(name, FIXED_COLUMNS): table[f"{STATE}{number}"]
            for number, name in enumerate(manifest.state)
        }
        yield pa.table(columns)


def stored_rows(store: SparkStore, changes: StepChanges) -> Iterator[pa.Table]:
    """Yield the changed groups as they are stored."""
    for _, rows in newest_groups(StoreSlice(store.files), changes.levels, lambda batch: pa.Table.from_batches([batch])):
        yield rows
