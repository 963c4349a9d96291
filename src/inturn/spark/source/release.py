"""The writes of a stream to its queue: the position of its reader and, if configured, acknowledgements."""

from inturn.core import limits
from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.database import open as open_database
from inturn.spark.source.options import StreamOptions
from inturn.store.commands import StoreCall, queue_of
from inturn.store.protocols import Store


class UncommittedMessages:
    """A holder of messages that Spark has not committed; it releases those that Spark has.

    Raises:
        StoreError: if the database does not exist, or cannot be written.
        NoSuchQueue: if the queue does not exist.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._acknowledge = options.acknowledge
        self._db = open_database(options.place.path, create=False)
        try:
            self._queue = self._db.queue(options.place.queue, create=False)
            self._reader = self._queue.reader(options.reader)
        except BaseException:
            self._db.close()
            raise
        self._released: int | None = None

    def position(self) -> int:
        """Return the reader's position; create the reader if it does not exist, and hold everything from then on."""
        self._reader.commit(0)
        return self._reader.position()

    def commit(self, sequence_number: int) -> None:
        """Release everything up to a sequence number, which Spark has committed."""
        if self._released is not None and sequence_number <= self._released:
            return
        if self._acknowledge:
            self._acknowledge_up_to(sequence_number)
        self._reader.commit(sequence_number)
        self._released = sequence_number

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _acknowledge_up_to(self, last: int) -> None:
        """Acknowledge messages that no other consumer has received, in transactions of bounded length."""
        after = self._reader.position()

        def acknowledge_next(store: Store, now_ms: int) -> int | None:
            info = queue_of(store, self._queue.name)
            entries = store.read(info, after, limits.SOURCE_RELEASE_ROWS, pending=True)
            numbers = [entry.sequence_number for entry in entries if entry.sequence_number <= last]
            store.settle(info, [Settlement(number, None, SettleAction.ACK) for number in numbers], now_ms)
            return numbers[-1] if numbers else None

        while (reached := self._queue.writer.run(StoreCall(self._queue.name, acknowledge_next))) is not None:
            after = reached
