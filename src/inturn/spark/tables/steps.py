"""The steps of a store: the only way to find the last one, for readers, writers, inspection and vacuum.

Steps are numbered from 1, and no manifest is ever deleted. ``head.json`` names a committed step, usually the last. It
makes a listing of all steps unnecessary, and shows whether the last manifests are missing. It is written after the
manifest, so it may lag behind but is never ahead.

If the last manifest is missing, an error names it: a writer that treated the step before the gap as the last would
commit a second history that conflicts with the one that readers see. No step needs an earlier manifest, since the last
manifest names all files that a step needs: writers log a warning and continue, and so do readers of the files that the
other manifests name. Operations that need all manifests raise an error, such as a vacuum, which deletes files that no
manifest names.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.errors import StoreError, StoreMismatch
from inturn.spark.tables.storage import Storage

HEAD: Final = "head.json"
_FOLDER: Final = "steps"


class _Head(msgspec.Struct, frozen=True):
    """A committed step and the run that committed it."""

    step: int
    writer: str = ""


def manifest_name(step: int) -> str:
    """Return the name of a step's manifest."""
    return f"{_FOLDER}/{step:012d}.json"


def write_head(files: Storage, step: int, writer: str) -> None:
    """Record a committed step, and the run that committed it, in ``head.json``."""
    files.replace(HEAD, msgspec.json.encode(_Head(step, writer)) + b"\n")


def found_steps(files: Storage) -> list[int]:
    """Return the numbers of the committed steps whose manifests exist, in order.

    Raises:
        StoreError: if the last manifests are missing; the text names them.
    """
    steps = _list_steps(files)
    last, head = max(steps, default=0), _head(files).step
    if last < head:
        raise _missing_error(files, [*range(last + 1, head + 1)])
    return sorted(steps)


def lost_steps(steps: Sequence[int]) -> list[int]:
    """Return the numbers of the steps before the last found one whose manifests do not exist."""
    return sorted(set(range(1, steps[-1])).difference(steps)) if steps else []


def lost_steps_text(files: Storage, steps: Sequence[int]) -> str:
    """Return the text that reports what is lost with the manifests of earlier steps."""
    return (
        f"{files.location} lacks {_steps_text(steps)}: outputs, rejected messages, decisions and counts of committed "
        "steps are lost; the states and held messages are complete. Restore what is missing from a backup, and disable "
        "rules that delete old files of a store"
    )


def all_steps(files: Storage) -> list[int]:
    """Return the numbers of the committed steps, in order.

    Raises:
        StoreError: if manifests are missing; the text names them.
    """
    steps = found_steps(files)
    lost = lost_steps(steps)
    if lost:
        raise StoreError(lost_steps_text(files, lost))
    return steps


def last_step(files: Storage, known: int = 0, writer: str = "") -> int:
    """Return the number of the last committed step; 0 before the first.

    Args:
        files: the store's files.
        known: a committed step; the last one is this or a later one.
        writer: the run that committed it.

    Raises:
        StoreError: if manifests near the last or near the known step are missing; the text names them.
        StoreMismatch: if the known step is not the one in the store.
    """
    head, wrote = msgspec.structs.astuple(_head(files))
    if head == known and writer and wrote not in ("", writer):
        msg = f"step {known} of {files.location} has changed since it was read: the store was replaced; start again"
        raise StoreMismatch(msg)
    if not known and not head:
        return max(found_steps(files), default=0)
    if not known or head != known:  # else the head has not moved, so the known step still exists
        known = known or head
        if not files.exists(manifest_name(known)):
            raise _missing_error(files, [known])
    last = known
    while files.exists(manifest_name(last + 1)):
        last += 1
    beyond = max(head, last + 2 if head != last and files.exists(manifest_name(last + 2)) else 0)
    if beyond > last:
        raise _missing_error(
            files, [step for step in range(last + 1, beyond + 1) if not files.exists(manifest_name(step))]
        )
    return last


def _head(files: Storage) -> _Head:
    data = files.read(HEAD)
    if data is None:
        return _Head(0)  # the head is missing: the caller lists all steps
    try:
        return msgspec.json.decode(data, type=_Head)
    except msgspec.MsgspecError as error:
        msg = f"{files.full_name(HEAD)} is damaged: {error}; delete it, and the next step writes it again"
        raise StoreError(msg) from error


def _list_steps(files: Storage) -> set[int]:
    names = (PurePosixPath(name) for name in files.names(_FOLDER))
    return {int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdigit()}


def _missing_error(files: Storage, steps: Sequence[int]) -> StoreError:
    return StoreError(
        f"{files.location} lacks {_steps_text(steps)} of what was committed: restore it from a backup. Nothing was "
        "changed: a step after this gap would start a second, conflicting history"
    )


def _steps_text(steps: Sequence[int]) -> str:
    names = ", ".join(manifest_name(step) for step in steps[: limits.NAMED_FILES])
    return names + (f" and {len(steps) - limits.NAMED_FILES} more" if len(steps) > limits.NAMED_FILES else "")
