"""The log of a queue: its messages in order, acknowledged or not, as far back as they are kept."""

import datetime as dt

from inturn.core.errors import InputError
from inturn.core.queue.kept_log import LogEntry, LogSpan
from inturn.queue.message import MessageProperties, NamedQueue, check_limit, check_number, group_name
from inturn.queue.operation import operation
from inturn.store.commands import Command, Read, Transaction, queue_of
from inturn.store.protocols import Store


class LoggedMessage(MessageProperties):
    """A message of a log."""

    def __init__(self, logged: LogEntry) -> None:
        super().__init__(logged.message)
        self._is_done = logged.is_done

    def __repr__(self) -> str:
        return f"LoggedMessage({self.sequence_number}, group={self.group!r}, revision={self.revision})"

    @property
    def is_done(self) -> bool:
        """True if the message has left the queue: acknowledged, or moved to another queue."""
        return self._is_done


@operation
def log(  # noqa: PLR0913 - each is a bound of the part that is read
    queue: NamedQueue,
    limit: int = 100,
    *,
    after: int = 0,
    up_to: int | None = None,
    group: object = None,
    first_revision: int | None = None,
    last_revision: int | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    tx: Transaction | None = None,
) -> Command[list[LoggedMessage]]:
    """Return messages of the log in the order of their sequence numbers, acknowledged or not.

    Acknowledged messages are kept as long as the settings ``keep_for`` and ``keep_bytes``, or a reader, require. To
    continue, call it again with the sequence number of the last message as ``after``.

    Args:
        queue: the queue.
        limit: the maximum number of messages.
        after: the sequence number before the first message; 0: the beginning of the log.
        up_to: the last sequence number; None: the end of the log.
        group: messages of this group only.
        first_revision: messages of the group with at least this revision.
        last_revision: messages of the group with at most this revision.
        since: messages sent at this time or later.
        until: messages sent before this time.
        tx: the caller's transaction.

    Raises:
        InputError: if an argument is invalid, such as a revision without a group, or a time without a zone.
        NoSuchQueue: if the queue was deleted.
    """
    check_limit(limit)
    check_number("after", after)
    if up_to is not None:
        check_number("up_to", up_to)
    named = None if group is None else group_name(group)
    if named is None and (first_revision is not None or last_revision is not None):
        raise InputError("first_revision and last_revision need a group; pass group=")
    since_ms, until_ms = time_ms("since", since), time_ms("until", until)

    def look(store: Store, _now_ms: int) -> list[LoggedMessage]:
        info = queue_of(store, queue.name)
        begin, end = after, up_to
        if since_ms is not None:
            begin = max(begin, store.log_time(info, since_ms))
        if until_ms is not None:
            before = store.log_time(info, until_ms)
            end = before if end is None else min(end, before)
        span = LogSpan(begin, end, named, first_revision, last_revision)
        return [LoggedMessage(entry) for entry in store.log(info, span, limit)]

    return Read(queue.name, look).within(tx)


def time_ms(name: str, time: dt.datetime | None) -> int | None:
    """Return a time in milliseconds since 1970, rounded up; None for None.

    Raises:
        InputError: if it is not a datetime with a time zone.
    """
    if time is None:
        return None
    if not isinstance(time, dt.datetime) or time.tzinfo is None:
        raise InputError(f"{name} is {time!r}; expected a datetime with a time zone, such as datetime.now(UTC)")
    return -((dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - time) // dt.timedelta(milliseconds=1))
