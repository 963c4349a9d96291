"""Log entries for queues that a client asked for in the wrong region or account.

The client is told only that the queue does not exist, as the service does.
"""

from inturn.server.context import Context
from inturn.server.failures import Failures
from inturn.server.naming import scope_of


class Missing:
    """The log of missing queues whose names exist in another scope.

    Args:
        context: the naming of queues.
        failures: the log.
    """

    def __init__(self, context: Context, failures: Failures) -> None:
        self._context = context
        self._failures = failures

    def note(self, queue: str) -> None:
        """Log a queue that was not found, if its name exists elsewhere; called in the event loop.

        Args:
            queue: its name in the store, had it existed.
        """
        home = self._context.home
        asked, name = scope_of(home, queue)
        found = [scope_of(home, each) for each in list(self._context.db.store.queues)]  # another thread may add queues
        there = sorted(str(scope) for scope, each in found if each == name)
        if there:
            told = f"{name} was asked for in {asked}; it exists in {', '.join(there)}"
            self._failures.note(("missing", queue), told)
