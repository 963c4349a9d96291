"""Tells whoever runs the server where a queue is that a client did not find: in another region, or another account.

The client is told only that it does not exist, as the service says it.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from inturn.core import limits
from inturn.server.context import Context
from inturn.server.naming import scope_of

_LOG: Final = logging.getLogger(__name__)


class Missing:
    """Tells the log of missing queues whose names exist elsewhere, one in a second.

    Args:
        context: how queues are named.
        clock: the time in seconds; another one for tests.
    """

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._again = 0.0

    def note(self, queue: str) -> None:
        """A queue was not found; called in the event loop.

        Args:
            queue: what its name in the store would be.
        """
        now = self._clock()
        if now < self._again:
            return
        self._again = now + limits.REFUSAL_LOGGED_S
        home = self._context.home
        asked, name = scope_of(home, queue)
        found = [scope_of(home, each) for each in list(self._context.db.store.queues)]  # another thread may add some
        there = sorted(str(scope) for scope, each in found if each == name)
        if there:
            _LOG.warning("%s was asked for in %s; it exists in %s", name, asked, ", ".join(there))
