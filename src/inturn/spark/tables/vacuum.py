"""Deletes files that nobody needs: what dead steps left behind, and where the groups stood long ago."""

import os
import time
from typing import NamedTuple

from inturn.core.errors import InputError
from inturn.spark.tables.manifest import Store


class Swept(NamedTuple):
    """What became of the files that nobody needs.

    Attributes:
        deleted: their names, relative to the store.
        younger: those that are kept for now, since a step that is running may have written them.
    """

    deleted: list[str]
    younger: list[str]


def sweep(store: str | os.PathLike[str], *, older_than_s: float = 86_400) -> list[str]:
    """Delete data files that no manifest names: what steps left behind that never were committed.

    Args:
        store: the store.
        older_than_s: spare younger files, in seconds; a step that is running has files that are not yet named.

    Returns:
        The names of what was deleted, relative to the store.

    Raises:
        StoreError: if the store cannot be read.
    """
    return _swept(Store(store), older_than_s).deleted


def _swept(target: Store, older_than_s: float) -> Swept:
    target.known()
    named: set[str] = set()
    for step in target.steps():
        manifest = target.manifest(step)
        levels = [file for level in manifest.levels for file in (*level.groups, *level.held)]
        named.update(file.path for file in (*manifest.outputs, *manifest.rejected, *levels))
    limit = time.time() - older_than_s
    files = target.files
    orphans = sorted(name for name in files.names("data") if name not in named and "/_delta_log/" not in name)
    old = {name for name in orphans if files.modified_s(name) <= limit}
    for name in old:
        files.delete(name)
    return Swept(sorted(old), [name for name in orphans if name not in old])


def vacuum(store: str | os.PathLike[str], *, keep_steps: int = 100, older_than_s: float = 86_400) -> list[str]:
    """Forget where the groups stood after old steps, and delete the files that only those needed.

    What the old steps counted, put out and rejected stays, and so do decisions. Of their states and held messages
    ``read(…, step=n)`` then says that they are gone.

    Args:
        store: the store.
        keep_steps: of so many of the last steps everything is kept; at least 1.
        older_than_s: spare younger files, in seconds; see :func:`sweep`.

    Returns:
        The names of what was deleted, relative to the store.

    Raises:
        InputError: if no step would be kept.
        StoreError: if the store cannot be read or written.
    """
    return clean(store, keep_steps=keep_steps, older_than_s=older_than_s).deleted


def clean(store: str | os.PathLike[str], *, keep_steps: int = 100, older_than_s: float = 86_400) -> Swept:
    """Do the same as :func:`vacuum`, and say what was kept because it is young."""
    if keep_steps < 1:
        msg = f"keep_steps={keep_steps}; expected at least 1: the next step needs the last one"
        raise InputError(msg)
    target = Store(store)
    target.known()
    for step in target.steps()[:-keep_steps]:
        manifest = target.manifest(step)
        if not manifest.vacuumed:
            target.vacuum(manifest)
    return _swept(target, older_than_s)
