"""Lapsed messages: their lease ended by time, so they may have killed their receiver; see rule 11 of delivery.py."""

from enum import Enum
from typing import Final

LAPSED_RETRIES: Final = 3
"""Number of further attempts at a lapsed message even without retries: processes also die for other reasons."""


class LapsedRule(Enum):
    """The ways in which a receive treats lapsed messages."""

    LAST_ALONE = "last_alone"
    """A lapsed message is returned alone if the queue allows no receive of it after this one."""
    ALONE = "alone"
    """Each lapsed message is returned alone."""
    NONE = "none"
    """No lapsed message is returned, and no message after it in the ready queue."""


def why_spent(attempts: int, retries: int, verb: str = "received") -> str:
    """Return why a lapsed message is not tried again after so many receives; empty: it is.

    Its first process may have died because of another message; all later ones had it alone. The same rule applies to
    work that does not begin with a receive; ``what`` is the verb for that work.
    """
    if attempts <= max(retries, LAPSED_RETRIES) + 2:
        return ""
    return f"ProcessEnded: {verb} {attempts} times; the last time its process or its lease ended before it was done"
