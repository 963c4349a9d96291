"""The groups that committed steps changed, for tables outside of the store that follow it."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.timeline import Status
from inturn.spark.columns.names import column_of_field
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
    if not manifests or any(each.vacuumed for each in manifests):
        if last.step > done:
            yield StepChanges(last, [level for level in last.levels if level.step > done])
        return
    version = store.manifest(done).version
    for each in manifests:
        own = each.levels if each.version != version else each.levels[-1:]  # a new version has rewritten all states
        yield StepChanges(each, [level for level in own if each.version != version or level.step == each.step])
        version = each.version


def state_rows(store: SparkStore, changes: StepChanges) -> Iterator[pa.Table]:
    """Yield the changed groups with the columns of the table ``states``; see :func:`inturn.spark.read`."""
    manifest, order = changes.manifest, StoredOrder.of(store.require_identity().order)
    rows = GroupRows(store.location, manifest.state)
    read = newest_groups(StoreSlice(store.files), changes.levels, lambda each: pa.Table.from_batches([rows.of(each)]))
    for _, found in read:
        nothing = pa.nulls(len(found), pa.int64())
        settled = pc.is_in(found["status"], value_set=pa.array([Status.OPEN.value, Status.WAITING.value]))
        columns = {
            "group": found["group"],
            "status": pc.if_else(settled, found["status"], "parked"),
            "epoch": found["epoch"] if order.has_epoch else nothing,
            "revision": found["reached"] if order.grade.has_revisions else nothing,
            "held": found["held"],
            "skipped": found["skipped"],
            "step": found["step"],
        }
        columns |= {column_of_field(name): found[f"{STATE}{number}"] for number, name in enumerate(manifest.state)}
        yield pa.table(columns)


def stored_rows(store: SparkStore, changes: StepChanges) -> Iterator[pa.Table]:
    """Yield the changed groups as they are stored."""
    for _, found in newest_groups(StoreSlice(store.files), changes.levels, lambda each: pa.Table.from_batches([each])):
        yield found
