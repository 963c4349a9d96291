"""The status of a group, with its state as JSON values, from its row in a store."""

import json
from typing import Any

import msgspec

from inturn.core.pipeline.inspection import GroupStatus
from inturn.core.words import time_of
from inturn.json_form import of_value
from inturn.spark.columns.names import OLD
from inturn.spark.tables.earlier_groups import ranges_of
from inturn.spark.tables.manifest import Manifest


def status_of(row: dict[str, Any], last: Manifest) -> GroupStatus:
    """Return the status in a stored row of a group; the last manifest describes the form of its state."""
    wait_us, waiting_us = last.wait_us, row["waiting_us"]
    old_version, state = _state(row["state"], last)
    return GroupStatus(
        group=row["group"],
        status=row["status"],
        epoch=row["epoch"],
        reached=row["reached"],
        error=row["error"],
        skipped=ranges_of(row["skipped"]),
        held=row["held"],
        oldest=time_of(row["oldest_us"]) if row["oldest_us"] is not None else None,
        deadline=time_of(waiting_us + wait_us) if wait_us is not None and waiting_us is not None else None,
        step=row["step"],
        state=state,
        old_version=old_version,
    )


def _state(stored: dict[str, Any] | None, last: Manifest) -> tuple[int | None, Any]:
    """Return a state as JSON values; one that could not be upgraded as the older version stored it, with that version.

    The version is None for all others.
    """
    if stored is None:  # the group was forgotten
        return None, None
    old = stored.pop(OLD, None)
    if old is not None:
        record = json.loads(old)
        return record["version"], record["value"]
    for name, kind in last.state.items():
        if kind.startswith("json") and stored.get(name) is not None:
            stored[name] = msgspec.json.decode(stored[name])
    return None, msgspec.json.decode(of_value(stored if last.is_record else stored["state"]))
