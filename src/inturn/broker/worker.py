"""The asyncio task that runs a broker's tasks, one after the other."""

import asyncio


class BrokerWorker(asyncio.Task[None]):
    """An asyncio task that knows whether it was ever cancelled.

    ``cancelling()`` does not tell: after ``task.cancel(); task.uncancel()`` it is 0, yet Python 3.11 and 3.12 raise the
    cancellation at the next ``await``, which may be another task's. So a worker that was ever cancelled runs no further
    task.

    Attributes:
        was_cancelled: whether ``cancel`` was called.
    """

    was_cancelled = False

    def cancel(self, msg: object = None) -> bool:
        """Cancel the task that it runs."""
        self.was_cancelled = True
        return super().cancel(msg)
