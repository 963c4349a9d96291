"""Where tests keep what they have installed or fetched: outside the checkout, so that each fresh clone finds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("INTURN_CACHE") or Path.home() / ".cache" / "inturn-tests")
"""Its folders are named by what is in them and by its version; ``INTURN_CACHE`` puts them elsewhere."""
INSTALL_S: Final = 600
"""How long an installation from a registry may take, before it is taken for stuck."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder of the cache for this process alone, while it is filled; others that run these tests wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        yield
