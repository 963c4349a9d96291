"""Named readers over the log of a queue."""

import datetime as dt

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, StoreMismatch
from inturn.core.queue.incarnation import QueuePosition, is_valid
from inturn.core.queue.kept_log import LogSpan
from inturn.core.queue.messages import QueueInfo
from inturn.queue.log import time_ms
from inturn.queue.message import Peeked, check_limit, group_name
from inturn.queue.operation import operation
from inturn.store.commands import Command, Read, StoreCall, Transaction, queue_of
from inturn.store.protocols import Store
from inturn.store.writer.group_commit import Writer


class Reader:
    """A named position in the log of a queue, like a Kafka consumer group.

    Messages that it has not read stay readable, acknowledged or not, until the queue's retention removes them. A new
    reader starts with the oldest existing message.
    """

    def __init__(self, writer: Writer, queue: str, name: str) -> None:
        self.writer = writer
        self.queue = queue
        self.name = name

    @operation
    def position(self, tx: Transaction | None = None) -> Command[int]:
        """Return the sequence number up to which the reader has read; 0 before the first."""
        return Read(self.queue, lambda store, _now_ms: queue_of(store, self.queue).readers.get(self.name, 0)).within(tx)

    @operation
    def place(self, sequence_number: int | None = None, tx: Transaction | None = None) -> Command[QueuePosition]:
        """Return a sequence number as a place that can be stored elsewhere: in a file, in the database of the effects.

        The other verbs accept a place instead of a number. They refuse it if the database has been restored from an
        older copy since, even if the same number has been given again.

        Args:
            sequence_number: the number; None: the reader's position.
            tx: the caller's transaction.
        """

        def named(store: Store, _now_ms: int) -> QueuePosition:
            info = queue_of(store, self.queue)
            number = info.readers.get(self.name, 0) if sequence_number is None else sequence_number
            return QueuePosition(number, store.incarnation(info, number))

        return Read(self.queue, named).within(tx)

    @operation
    def read(
        self, limit: int = 100, *, after: int | QueuePosition | None = None, tx: Transaction | None = None
    ) -> Command[list[Peeked]]:
        """Return the next messages, in the order of their sequence numbers.

        They are returned again until :meth:`commit` marks them as read.

        Args:
            limit: the maximum number of messages.
            after: a sequence number or a place; None: the reader's position.
            tx: the caller's transaction.

        Raises:
            StoreMismatch: if the place is not in the queue's history.
        """
        check_limit(limit)

        def look(store: Store, _now_ms: int) -> list[Peeked]:
            info = queue_of(store, self.queue)
            if self.name not in info.readers:
                self._set(store, 0)
            begin = info.readers[self.name] if after is None else _number(store, info, after)
            return [Peeked(entry) for entry in store.read(info, begin, limit)]

        return StoreCall(self.queue, look).within(tx)

    @operation
    def commit(self, sequence_number: int | QueuePosition, tx: Transaction | None = None) -> Command[None]:
        """Mark everything up to a sequence number or place as read, so that it need not be kept for this reader.

        Raises:
            StoreMismatch: if the place is not in the queue's history.
        """
        return StoreCall(self.queue, lambda store, _now_ms: self._set(store, sequence_number, forth=True)).within(tx)

    @operation
    def seek(
        self,
        sequence_number: int | QueuePosition | None = None,
        *,
        time: dt.datetime | None = None,
        group: object = None,
        revision: int | None = None,
        tx: Transaction | None = None,
    ) -> Command[None]:
        """Set the position, even to an older one if its messages still exist; pass exactly one of the three.

        Args:
            sequence_number: a number or place, after which the next read begins; 0: the start.
            time: the next read begins with the first message that was sent at this time or later.
            group: group of the revision.
            revision: the next read begins with the first message of the group that has this revision.
            tx: the caller's transaction.

        Raises:
            InputError: if not exactly one of the three is passed, or the log has no such revision.
            StoreMismatch: if the place is not in the queue's history.
        """
        if [sequence_number, time, revision].count(None) != 2 or (group is None) != (revision is None):
            raise InputError("seek() takes exactly one of: a sequence number or place, a time, a group with a revision")
        at_ms, named = time_ms("time", time), None if group is None else group_name(group)

        def find(store: Store, _now_ms: int) -> None:
            info = queue_of(store, self.queue)
            if named is not None:
                entries = store.log(info, LogSpan(0, None, named, revision, revision), 1)
                if not entries:
                    raise InputError(
                        f"no message of group {named!r} with revision {revision} in the log of queue "
                        f"{info.name!r}: it was never sent, or is no longer kept"
                    )
                self._set(store, entries[0].message.sequence_number - 1)
            else:
                self._set(store, sequence_number if at_ms is None else store.log_time(info, at_ms))  # type: ignore[arg-type]  # one is given

        return StoreCall(self.queue, find).within(tx)

    @operation
    def delete(self, tx: Transaction | None = None) -> Command[None]:
        """Delete the reader: messages are no longer kept for it."""

        def forget(store: Store, _now_ms: int) -> None:
            info = queue_of(store, self.queue)
            info.readers.pop(self.name, None)
            store.save(info.name, info)

        return StoreCall(self.queue, forget).within(tx)

    def _set(self, store: Store, target: int | QueuePosition, *, forth: bool = False) -> None:
        info = queue_of(store, self.queue)
        position = _number(store, info, target)
        if position > info.last:
            raise InputError(f"{position} is beyond the end of queue {info.name!r}; its last message is {info.last}")
        info.readers[self.name] = max(position, info.readers.get(self.name, 0)) if forth else position
        store.save(info.name, info)


def _number(store: Store, info: QueueInfo, target: int | QueuePosition) -> int:
    """Return the sequence number of a place, after checking that it is in the queue's history."""
    if not isinstance(target, tuple):
        check_type("sequence_number", target, int, "the sequence number of a message, or a place of place()")
        return target
    number, incarnation = target
    if not is_valid(QueuePosition(number, incarnation), store.incarnation(info, number), info.last):
        raise StoreMismatch(
            f"{target} is not a place of queue {info.name!r}: the database was restored from an older copy, or is "
            "another one, so the number may belong to another message. Restore the right database; or continue with "
            "this one: check which messages were sent after the copy, and seek() to the number after which to begin"
        )
    return number
