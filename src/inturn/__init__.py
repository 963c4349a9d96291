"""Every message in its turn, once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InturnError, Retryable
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.monotone_fields import MonotoneFields
from inturn.core.pipeline.order import Arrival, Gapless, Monotone, Timestamp
from inturn.core.pipeline.policies import Retry, Wait
from inturn.core.rate import Rate

if TYPE_CHECKING:
    from inturn.consumer import consume
    from inturn.database import open as open  # noqa: A004 - inturn.open, as sqlite and shelve have it; re-exported
    from inturn.dry_runs import dry_run
    from inturn.ingest.outbox import outbox
    from inturn.worker import ToQueue, work

__all__ = [
    "Arrival",
    "Gapless",
    "InturnError",
    "Monotone",
    "MonotoneFields",
    "Pipeline",
    "Rate",
    "Retry",
    "Retryable",
    "Timestamp",
    "ToQueue",
    "Wait",
    "consume",
    "dry_run",
    "outbox",
    "work",
]  # not `open`: `from inturn import *` must not replace Python's own
__version__ = "0.1.0"
_LATER: Final = {
    "ToQueue": "inturn.worker",
    "consume": "inturn.consumer",
    "dry_run": "inturn.dry_runs",
    "open": "inturn.database",
    "outbox": "inturn.ingest.outbox",
    "work": "inturn.worker",
}
"""Modules of the names that need the database of queues; Spark's workers do not need them."""


def __getattr__(name: str) -> Any:
    """Import these names when they are first used."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'inturn' has no attribute {name!r}")
