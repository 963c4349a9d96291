"""Erasure of a group from a store: its rows are removed from every file, and the files that had them are deleted.

It commits a step in which the group is given up and has no content. So a writer that is running fails at its commit,
and no later step reads the group's content from an earlier one. Then old steps are vacuumed, and the files of outputs
and of rejected messages are rewritten. If a run is interrupted, another run completes it.
"""

import datetime as dt
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inturn.core.errors import InputError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.timeline import Status
from inturn.faults import reach
from inturn.spark.columns.hashing import group_hash
from inturn.spark.tables.manifest import AppliedDecisions, DataFile, Manifest, SparkStore, StoreLevel
from inturn.spark.tables.rows import batches_of
from inturn.spark.tables.steps import manifest_name
from inturn.spark.tables.table_files import ArrowFiles, ParquetFiles

_REASON: Final = "forgotten"
_ACTIVE: Final = (Status.OPEN.value, Status.WAITING.value)


class ErasedRows(NamedTuple):
    """The rows that an erasure has removed from a store.

    Attributes:
        is_known: whether the store had the group, which is then given up.
        outputs: outputs, which were delivered or not.
        rejected: rejected messages.
        held: held messages.
    """

    is_known: bool
    outputs: int
    rejected: int
    held: int


class _ErasedLevel(NamedTuple):
    """A level without the group's content; the status of its row of the group, and how many messages it held."""

    level: StoreLevel
    status: str | None
    held: int


def erase_group(location: str | os.PathLike[str], group: str, *, by: str, why: str = "") -> ErasedRows:
    """Remove a group's content from a store; no stream of its outputs may be running.

    Args:
        location: the store.
        group: text form of the group.
        by: who decided.
        why: the reason.

    Raises:
        InputError: if the store's outputs are a Delta table, whose history has them too.
        StoreConflict: if a writer commits a step meanwhile; run it again.
        StoreError: if the store cannot be read or written.
    """
    store = SparkStore(location)
    store.require_identity()
    if any("/_delta_log/" in name for name in store.files.names("data")):
        raise InputError(
            f"the outputs of {store.location} are a Delta table, whose files and history also contain the group's "
            "content and are not erased. Create a new store from messages without the group, and delete this one"
        )
    store.steps()  # raises an error if content may be in files that a lost manifest named
    reach("before results")
    last = store.latest()
    is_known, held = (False, 0) if last is None else _give_up(store, last, group, by, why)
    store.decisions.erase(group)
    reach("before messages")
    counts = {"outputs": 0, "rejected": 0}
    steps = store.steps()
    for step in steps:
        manifest = store.manifest(step)
        if step < steps[-1] and not manifest.vacuumed:
            store.vacuum(manifest)
            manifest = store.manifest(step)
        remaining: dict[str, list[DataFile]] = {}
        for table, files in (("outputs", manifest.outputs), ("rejected", manifest.rejected)):
            remaining[table], removed = _rewrite_without(store, table, files, group)
            counts[table] += removed
        if remaining != {"outputs": manifest.outputs, "rejected": manifest.rejected}:
            store.rewrite(msgspec.structs.replace(manifest, **remaining))
            reach("between messages")
    reach("before cleaning")
    _delete_unnamed(store, steps)
    reach("cleaned")
    return ErasedRows(is_known, counts["outputs"], counts["rejected"], held)


def _give_up(store: SparkStore, last: Manifest, group: str, by: str, why: str) -> tuple[bool, int]:
    """Commit a step without the group's content; return whether the group is known, and how many messages it held."""
    levels: list[StoreLevel] = []
    status, held, is_changed = None, 0, False
    reason = f"{_REASON} by {by}" + (f": {why}" if why else "")
    for level in reversed(last.levels):
        erased = _level_without(store, level, group, reason if status is None else None)
        status, held = status or erased.status, held + erased.held
        is_changed |= erased.level != level
        levels.insert(0, erased.level)
    if not is_changed:
        return status is not None, 0
    now_us = max(time.time_ns() // 1_000, last.now_us)
    decision = Decision(
        id=uuid.uuid4().hex,
        action=DecisionAction.GIVE_UP,
        group=group,
        by=by,
        why=_REASON + (f": {why}" if why else ""),
        at_us=now_us,
    )
    name = store.decisions.append(decision)
    files = [file for level in levels for file in level.groups]
    manifest = msgspec.structs.replace(
        last,
        step=last.step + 1,
        now_us=now_us,
        committed=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        seconds=0.0,
        writer=uuid.uuid4().hex,
        counts=_counts(held),
        levels=[level for level in levels if level.groups or level.held],
        outputs=[],
        rejected=[],
        held=last.held - held,
        parked=last.parked + (status in _ACTIVE),
        oldest_us=min((file.oldest_us for file in files if file.oldest_us is not None), default=None),
        waiting_us=min((file.waiting_us for file in files if file.waiting_us is not None), default=None),
        decisions=[AppliedDecisions(name, None)],
    )
    store.commit(manifest)
    store.archive(manifest)
    return True, held


def _counts(held: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("received", "applied", "duplicate", "stale", "held"), 0)
    return {**nothing, "released": held, "rejected": {_REASON: held} if held else {}}


def _level_without(store: SparkStore, level: StoreLevel, group: str, reason: str | None) -> _ErasedLevel:
    """Return a level without the content of a group; ``reason`` is given if this may be the newest level with it."""
    status, count = None, 0
    groups: list[DataFile] = []
    for file in level.groups:
        table = _read_if_present(store, file, group)
        if table is None:
            groups.append(file)
            continue
        of_group = pc.equal(table["group"], group)
        row = table.filter(of_group)
        others = table.filter(pc.invert(of_group))
        if reason is None:  # a newer level has the group
            groups += _write_file(store, "groups", [others])
            continue
        status, count = row["status"][0].as_py(), row["held"][0].as_py()
        empty = _without_content(row, reason)
        if row.equals(empty):
            groups.append(file)
            continue
        order = pc.sort_indices(pa.concat_tables([others, empty])["hash"])
        groups += _write_file(store, "groups", [pa.concat_tables([others, empty]).take(order)])
    held = []
    for file in level.held:  # some rows are of messages that the group has ceased to hold
        table = _read_if_present(store, file, group)
        if table is None:
            held.append(file)
            continue
        others = table.filter(pc.not_equal(table["group"], group))
        held += _write_file(store, "held", [others])
    is_same = (groups, held) == (level.groups, level.held)
    return _ErasedLevel(level if is_same else StoreLevel(level.step, groups, held), status, count)


def _read_if_present(store: SparkStore, file: DataFile, group: str) -> pa.Table | None:
    """Return the rows of a file if the group is among them."""
    if not file.low <= group_hash(group) <= file.high:
        return None
    table = pa.Table.from_batches(batches_of(os.fspath(store.location), [file.path]))
    return table if pc.any(pc.equal(table["group"], group)).as_py() else None


def _without_content(row: pa.Table, reason: str) -> pa.Table:
    """Return the row of a group that is given up, without its state."""
    values = {"status": Status.GIVEN_UP.value, "error": reason, "held": 0}
    for index, field in enumerate(row.schema):
        if field.name in values:
            if field.name == "error" and row["status"][0].as_py() == Status.GIVEN_UP and row["state"].null_count:
                continue  # an earlier run has written the reason
            row = row.set_column(index, field, pa.array([values[field.name]], field.type))
        elif field.name in {"held_step", "waiting_us", "oldest_us", "state"}:
            row = row.set_column(index, field, pa.nulls(1, field.type))
    return row


def _rewrite_without(
    store: SparkStore, table: str, files: Sequence[DataFile], group: str
) -> tuple[list[DataFile], int]:
    """Return Parquet files without the rows of a group, and the number of these rows."""
    remaining, removed = [], 0
    for file in files:
        with store.files.store_errors("read", file.path):
            rows = pq.read_table(store.files.source(file.path))
        others = rows.filter(pc.fill_null(pc.not_equal(rows["group"], group), True))  # noqa: FBT003 - Arrow's way
        removed += len(rows) - len(others)
        remaining += [file] if len(others) == len(rows) else _write_file(store, table, [others])
    return remaining, removed


def _write_file(store: SparkStore, table: str, rows: Sequence[pa.Table]) -> list[DataFile]:
    """Write rows into a new file; none without rows."""
    kinds: dict[str, Callable[..., ArrowFiles | ParquetFiles]] = {"groups": ArrowFiles, "held": ArrowFiles}
    out = kinds.get(table, ParquetFiles)(store.files, f"data/{table}/{uuid.uuid4().hex}-without")
    for part in rows:
        out.write(part)
    return out.close()


def _delete_unnamed(store: SparkStore, steps: Sequence[int]) -> None:
    """Delete data files that no manifest names and that existed before the last step.

    A younger file belongs to a running writer; an older one belongs to a failed step, or was just replaced.
    """
    if not steps:
        return
    named: set[str] = set()
    for step in steps:
        manifest = store.manifest(step)
        levels = [file for level in manifest.levels for file in (*level.groups, *level.held)]
        named.update(file.path for file in (*manifest.outputs, *manifest.rejected, *levels))
    limit_s = store.files.modified_s(manifest_name(steps[-1]))
    for name in store.files.names("data"):
        if name not in named and store.files.modified_s(name) <= limit_s:
            store.files.delete(name)
