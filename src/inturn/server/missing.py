"""Tells whoever runs the server where a queue is that a client did not find: in another region, or another account.

The client is told only that it does not exist, as the service says it.
"""

from inturn.server.context import Context
from inturn.server.failures import Failures
from inturn.server.naming import scope_of


class Missing:
    """Tells the log of missing queues whose names exist elsewhere.

    Args:
        context: how queues are named.
        failures: what is told.
    """

    def __init__(self, context: Context, failures: Failures) -> None:
        self._context = context
        self._failures = failures

    def note(self, queue: str) -> None:
        """A queue was not found; called in the event loop.

        Args:
            queue: what its name in the store would be.
        """
        home = self._context.home
        asked, name = scope_of(home, queue)
        found = [scope_of(home, each) for each in list(self._context.db.store.queues)]  # another thread may add some
        there = sorted(str(scope) for scope, each in found if each == name)
        if there:
            told = f"{name} was asked for in {asked}; it exists in {', '.join(there)}"
            self._failures.note(("missing", queue), told)
