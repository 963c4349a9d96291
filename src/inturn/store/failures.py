"""Failures of a transaction, as the stores tell them to the writer, which knows which are run again."""

from inturn.core.errors import QueueError, StoreError, StoreUnavailable


class RunAgain(StoreUnavailable):
    """A transaction that was rolled back and may succeed when run again: a conflict, or a connection that was lost."""


class Busy(StoreUnavailable):
    """A lock held by a possibly long transaction: this one was rolled back and should be retried later.

    Other commands need not wait for it.
    """


class OwnTransaction(QueueError):
    """A lock that a transaction of the calling thread itself holds: the call would wait for its own end."""

    def __init__(self) -> None:
        super().__init__(
            "this thread has an open transaction of its own, for whose end this would wait: give the verb its "
            "connection (tx=connection), or call it outside of the transaction"
        )


class NoRoom(StoreUnavailable):
    """A disk that is too full to send; operations that free space still work."""


class NoReader(StoreError):
    """A connection for reading that cannot be made; a read runs in a transaction of the writer then."""


def closed() -> StoreError:
    """Return the error for the use of a database that was closed."""
    return StoreError("the database is closed; open it again with inturn.open")
