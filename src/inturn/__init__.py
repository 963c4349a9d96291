"""Every message in its turn, once."""

from inturn.core.errors import InturnError, Retryable
from inturn.core.order import Arrival, Gapless, Monotone, Retry, Timestamp, Wait
from inturn.core.pipeline import Pipeline

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
]
__version__ = "0.1.0"
