"""Failures of a transaction, as the stores tell them to the writer, which knows which are run again."""

from inturn.core.errors import StoreError


class RunAgain(StoreError):
    """A conflict with another transaction: this one was rolled back and may succeed when run again."""


class Busy(StoreError):
    """A lock held by a possibly long transaction: this one was rolled back and should be retried later.

    Other commands need not wait for it.
    """


class NoRoom(StoreError):
    """A disk that is too full to send; operations that free space still work."""
