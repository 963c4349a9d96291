"""The room in queues for messages that are redriven there: rule 3 of core/queue/back_pressure.py."""

from inturn.store.protocols import Store


class QueueCapacity:
    """The room that is left in the queues of a store, for messages that move there in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: dict[str, int | None] = {}

    def reserve(self, name: str) -> bool:
        """Take the room for one message in a queue; return whether there was any."""
        if name not in self._left:
            self._left[name] = self._store.room(self._store.queues[name])
        remaining = self._left[name]
        if remaining is not None:
            self._left[name] = max(0, remaining - 1)
        return remaining != 0
