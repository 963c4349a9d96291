"""Lapsed messages: a lease of them ended by time, so their receiver may have died of them; rule 11 of delivery.py."""

from enum import Enum
from typing import Final

LAPSED_RETRIES: Final = 3
"""Number of further attempts at a lapsed message without any retry: processes also die for reasons of their own."""


class LapsedRule(Enum):
    """The ways in which a receive treats lapsed messages."""

    LAST_ALONE = "last_alone"
    """One is returned alone if the queue allows no receive of it after this one."""
    ALONE = "alone"
    """Each is returned alone."""
    NONE = "none"
    """None is returned, and nothing that comes after it in the line."""


def why_spent(attempts: int, retries: int, what: str = "received") -> str:
    """Return why a lapsed message is not tried again after so many receives; empty: it is.

    The first of its processes may have died of another message. Since then each had it alone. The same rule is for
    what begins otherwise; ``what`` says what was done so often.
    """
    if attempts <= max(retries, LAPSED_RETRIES) + 2:
        return ""
    return f"ProcessEnded: {what} {attempts} times; the last time the process ended, or its lease, before it was done"
