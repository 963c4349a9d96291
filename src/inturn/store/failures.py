"""Failures of a transaction, as the stores report them to the writer, which runs some of them again."""

from inturn.core.errors import QueueError, StoreError, StoreUnavailable


class RunAgain(StoreUnavailable):
    """A transaction that was rolled back and may succeed when run again: a conflict, or a connection that was lost."""


class Busy(StoreUnavailable):
    """A lock held by a possibly long transaction: this one was rolled back and should be retried later.

    Other commands need not wait for it.
    """


class OwnTransaction(QueueError):
    """A lock that another transaction of the calling thread holds: the call would deadlock."""

    def __init__(self) -> None:
        super().__init__(
            "this thread has an open transaction on another connection: the call would deadlock; pass that connection "
            "(tx=connection), or make the call outside of the transaction"
        )


class DiskFull(StoreUnavailable):
    """A disk that is too full to send; operations that free space still work."""


class NoReader(StoreError):
    """A connection for reading that cannot be opened; the read then runs in a transaction of the writer."""


def closed() -> StoreError:
    """Return the error for the use of a database that was closed."""
    return StoreError("the database is closed; open it again with inturn.open")
