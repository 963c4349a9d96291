"""Deletion of unneeded files: those that dead steps left behind, and the state of groups after old steps."""

import os
import time
from typing import NamedTuple

from inturn.core.errors import InputError
from inturn.spark.tables.manifest import SparkStore


class SweptFiles(NamedTuple):
    """The names of unneeded files, relative to the store: deleted, and kept because they are young."""

    deleted: list[str]
    younger: list[str]


def sweep(store: str | os.PathLike[str], *, older_than_s: float = 86_400) -> list[str]:
    """Delete data files that no manifest names: files of steps that were never committed.

    Args:
        store: the store.
        older_than_s: spare younger files, in seconds; a running step has files that no manifest names yet.

    Returns:
        The names of the deleted files, relative to the store.

    Raises:
        StoreError: if the store cannot be read.
    """
    return _sweep(SparkStore(store), older_than_s).deleted


def _sweep(target: SparkStore, older_than_s: float) -> SweptFiles:
    target.require_identity()
    named: set[str] = set()
    for step in target.steps():
        manifest = target.manifest(step)
        levels = [file for level in manifest.levels for file in level.files]
        named.update(file.path for file in (*manifest.outputs, *manifest.rejected, *levels))
    limit = time.time() - older_than_s
    files = target.files
    orphans = sorted(name for name in files.names("data") if name not in named and "/_delta_log/" not in name)
    old = {name for name in orphans if files.modified_s(name) <= limit}
    for name in old:
        files.delete(name)
    return SweptFiles(sorted(old), [name for name in orphans if name not in old])


def vacuum(store: str | os.PathLike[str], *, keep_steps: int = 100, older_than_s: float = 86_400) -> list[str]:
    """Drop the state of groups after old steps, and delete the files that only these steps needed.

    The counts, outputs and rejected messages of the old steps stay, and so do decisions. For their states and held
    messages, ``read(…, step=n)`` then says that they are gone.

    Args:
        store: the store.
        keep_steps: number of last steps that are kept in full; at least 1.
        older_than_s: spare younger files, in seconds; see :func:`sweep`.

    Returns:
        The names of the deleted files, relative to the store.

    Raises:
        InputError: if no step would be kept.
        StoreError: if the store cannot be read or written.
    """
    return vacuum_files(store, keep_steps=keep_steps, older_than_s=older_than_s).deleted


def vacuum_files(store: str | os.PathLike[str], *, keep_steps: int = 100, older_than_s: float = 86_400) -> SweptFiles:
    """Do the same as :func:`vacuum`, and also return the files that were kept because they are young."""
    if not isinstance(keep_steps, int) or keep_steps < 1:
        raise InputError(f"keep_steps is {keep_steps!r}; expected at least 1: the next step needs the last one")
    target = SparkStore(store)
    target.require_identity()
    for step in target.steps()[:-keep_steps]:
        manifest = target.manifest(step)
        if not manifest.vacuumed:
            target.vacuum(manifest)
    return _sweep(target, older_than_s)
