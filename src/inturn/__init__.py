"""Every message in its turn, once."""

from typing import TYPE_CHECKING, Any

from inturn.core.errors import InturnError, Retryable
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Arrival, Gapless, Monotone, Retry, Timestamp, Wait
from inturn.core.rate import Rate

if TYPE_CHECKING:
    from inturn.consumer import consume
    from inturn.database import open as open  # noqa: A004 - inturn.open, as sqlite and shelve have it; re-exported
    from inturn.worker import work

__all__ = [
    "Arrival",
    "Gapless",
    "InturnError",
    "Monotone",
    "Pipeline",
    "Rate",
    "Retry",
    "Retryable",
    "Timestamp",
    "Wait",
    "consume",
    "work",
]  # not `open`: `from inturn import *` must not replace Python's own
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs the database of queues when it is first used: Spark's workers do not need it."""
    if name == "open":
        from inturn.database import open  # noqa: A004 - as above

        return open
    if name == "consume":
        from inturn.consumer import consume

        return consume
    if name == "work":
        from inturn.worker import work

        return work
    raise AttributeError(f"module 'inturn' has no attribute {name!r}")
