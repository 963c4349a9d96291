"""Every message in its turn, once."""

from typing import TYPE_CHECKING, Any

from inturn.core.errors import InturnError, Retryable
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Arrival, Gapless, Monotone, Retry, Timestamp, Wait

if TYPE_CHECKING:
    from inturn.database import open as open  # noqa: A004 - inturn.open, as sqlite and shelve have it; re-exported
    from inturn.dry_runs import dry_run
    from inturn.worker import work

__all__ = [
    "Arrival",
    "Gapless",
    "InturnError",
    "Monotone",
    "Pipeline",
    "Retry",
    "Retryable",
    "Timestamp",
    "Wait",
    "dry_run",
    "work",
]  # not `open`: `from inturn import *` must not replace Python's own
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import these functions when they are first used: Spark's workers do not need the database of queues."""
    if name == "open":
        from inturn.database import open  # noqa: A004 - as above

        return open
    if name == "dry_run":
        from inturn.dry_runs import dry_run

        return dry_run
    if name == "work":
        from inturn.worker import work

        return work
    raise AttributeError(f"module 'inturn' has no attribute {name!r}")
