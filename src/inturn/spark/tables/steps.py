"""The steps of a store: the only way to find the last one, for readers, writers, inspection and vacuum.

Steps are numbered from 1, and no manifest is ever deleted. ``head.json`` names a committed step, usually the last. It
makes a listing of all steps unnecessary, and shows whether the last manifests are missing. It is written after the
manifest, so it may be behind but never ahead. A missing manifest is an error that names it: a writer that took the
step before the gap for the last would commit a second history beside the one that readers see.
"""

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


def note(files: Storage, step: int, writer: str) -> None:
    """Record a committed step, and the run that committed it, in ``head.json``."""
    files.replace(HEAD, msgspec.json.encode(_Head(step, writer)) + b"\n")


def all_steps(files: Storage) -> list[int]:
    """Return the numbers of the committed steps, in order.

    Raises:
        StoreError: if manifests are missing; the text names them.
    """
    found = _listed(files)
    last = max(max(found, default=0), _head(files).step)
    if len(found) < last:
        raise _missing(files, [step for step in range(1, last + 1) if step not in found])
    return sorted(found)


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
        msg = f"{files.location} has another step {known} than was seen: it was replaced meanwhile; start again"
        raise StoreMismatch(msg)
    if not known and not head:
        return max(all_steps(files), default=0)
    if not known or head != known:  # else the head has not moved, so the known step still exists
        known = known or head
        if not files.exists(manifest_name(known)):
            raise _missing(files, [known])
    last = known
    while files.exists(manifest_name(last + 1)):
        last += 1
    beyond = max(head, last + 2 if head != last and files.exists(manifest_name(last + 2)) else 0)
    if beyond > last:
        raise _missing(files, [step for step in range(last + 1, beyond + 1) if not files.exists(manifest_name(step))])
    return last


def _head(files: Storage) -> _Head:
    data = files.read(HEAD)
    if data is None:
        return _Head(0)  # the head is missing, or an older version made the store: the caller lists all steps
    try:
        return msgspec.json.decode(data, type=_Head)
    except msgspec.MsgspecError as error:
        msg = f"{files.where(HEAD)} is damaged: {error}; delete it, and the next step writes it anew"
        raise StoreError(msg) from error


def _listed(files: Storage) -> set[int]:
    names = (PurePosixPath(name) for name in files.names(_FOLDER))
    return {int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdigit()}


def _missing(files: Storage, steps: list[int]) -> StoreError:
    names = ", ".join(manifest_name(step) for step in steps[: limits.NAMED_FILES])
    more = f" and {len(steps) - limits.NAMED_FILES} more" if len(steps) > limits.NAMED_FILES else ""
    return StoreError(
        f"{files.location} lacks {names}{more}, which was committed: restore it from a backup. Nothing was changed: "
        "a step after such a gap would be a second history beside the first"
    )
