"""Sessions: a group locked for one receiver, as in Azure Service Bus, with a state that outlives the receiver.

    if session := payments.session(wait_s=20):                 # the next free group; or a named one
        with session:                                          # returns unsettled messages at the end
            for message in session.receive(10):
                with db.transaction() as tx:
                    session.set_state(after(session.state(tx), message), tx=tx)
                    message.ack(tx=tx)

core/queue/sessions.py defines what a lock allows, and how parked groups behave. Sessions and ordinary receives can
share a queue. A session takes a group only when none of its messages is leased. While it lasts, ordinary receives get
no messages of the group; a receiver that already has a lease keeps it.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, LeaseExpired, QueueError
from inturn.core.queue.delivery import SettleResult
from inturn.core.queue.messages import Delivery, ReceiveRequest
from inturn.core.queue.sessions import FIRST_PARKED, ParkedGroup, SessionAnswer, SessionRequest, SessionVerb
from inturn.core.texts import note
from inturn.queue.message import (
    Message,
    NamedQueue,
    Peeked,
    check_limit,
    check_messages,
    check_number,
    check_wait,
    group_name,
    milliseconds,
    peeking,
    time_of,
)
from inturn.queue.operation import operation
from inturn.store.commands import (
    AcquireSession,
    Command,
    Read,
    ReceiveInSession,
    SessionCall,
    StoreCall,
    Transaction,
    queue_of,
)
from inturn.store.writer.group_commit import Writer
from inturn.telemetry.events import EventLogger

T = TypeVar("T")
_LOG = EventLogger("queue")


class Session:
    """A locked group, exclusive to this session until the lock ends. For ``with`` and ``async with``.

    All verbs but :meth:`close`, :meth:`peek` and :meth:`deferred` raise LeaseExpired once the lock has ended, and
    change nothing then.

    Attributes:
        queue: the name of the queue.
        group: the locked group.
        fencing_token: a number that grows with every lock and lease of the queue, shared by the session's messages.
    """

    def __init__(self, writer: Writer, queue: str, locked: SessionAnswer, lock_ms: int) -> None:
        self.writer = writer
        self.queue = queue
        self.group = locked.group
        self.fencing_token = locked.group_lock.token or 0
        self._lock_ms = lock_ms
        self._until_ms = locked.group_lock.until_ms or 0

    def __repr__(self) -> str:
        return f"Session({self.group!r}, fencing_token={self.fencing_token})"

    @property
    def locked_until(self) -> dt.datetime:
        """The end of the lock unless renewed, as of the last renewal outside a transaction."""
        return time_of(self._until_ms)

    @operation
    def renew(self, lock_s: float | None = None, tx: Transaction | None = None) -> Command[dt.datetime]:
        """Extend the lock, and the leases of its messages, from now on.

        Args:
            lock_s: the new length, in seconds; None: the original length.
            tx: the caller's transaction.

        Returns:
            The new end of the lock.
        """
        ms = self._lock_ms if lock_s is None else _lock_ms(lock_s)

        def until(answer: SessionAnswer) -> dt.datetime:
            until_ms = answer.group_lock.until_ms or 0
            if tx is None:
                self._until_ms = until_ms
            return time_of(until_ms)

        return self._request(SessionRequest(SessionVerb.RENEW, self.fencing_token, ms), until, tx)

    @operation
    def receive(
        self, max_messages: int = 1, *, wait_s: float = 0, tx: Transaction | None = None
    ) -> Command[list[Message]]:
        """Lease the next messages of the group, in order, after the messages already received in this session.

        Args:
            max_messages: the maximum number of messages.
            wait_s: the time to wait for a message, in seconds; the end of the lock ends the wait.
            tx: the caller's transaction; in one, the call does not wait.
        """
        check_messages(max_messages)
        check_wait(wait_s)

        def given(deliveries: list[Delivery] | None) -> list[Message]:
            return [Message(delivery, self.writer, self.queue) for delivery in self._unless_lost(deliveries)]

        return ReceiveInSession(self.queue, given, self._receive_request(max_messages), wait_s=wait_s).within(tx)

    @operation
    def fetch(self, sequence_number: int, tx: Transaction | None = None) -> Command[Message | None]:
        """Lease a deferred message of the group; None if there is no such deferred message."""
        check_number("sequence_number", sequence_number)

        def given(deliveries: list[Delivery] | None) -> Message | None:
            received = self._unless_lost(deliveries)
            return Message(received[0], self.writer, self.queue) if received else None

        return ReceiveInSession(self.queue, given, self._receive_request(1)._replace(number=sequence_number)).within(tx)

    @operation
    def peek(self, limit: int = 10, *, after: int = 0, tx: Transaction | None = None) -> Command[list[Peeked]]:
        """Return the group's messages after a sequence number, leased and deferred ones too."""
        return peeking(self.queue, limit, after, self.group).within(tx)

    @operation
    def deferred(self, limit: int = 10, *, after: int = 0, tx: Transaction | None = None) -> Command[list[Peeked]]:
        """Return the group's deferred messages."""
        return peeking(self.queue, limit, after, self.group, deferred=True).within(tx)

    @operation
    def state(self, tx: Transaction | None = None) -> Command[bytes | None]:
        """Return the group's state, as last set by any session; None if there is none."""
        return self._request(SessionRequest(SessionVerb.GET_STATE, self.fencing_token), lambda answer: answer.state, tx)

    @operation
    def set_state(self, state: bytes | None, tx: Transaction | None = None) -> Command[None]:
        """Set the group's state, which is kept until it is set again; None removes it.

        Raises:
            InputError: if it is not bytes, or too long.
        """
        if state is not None and not (isinstance(state, bytes) and len(state) <= limits.STATE_BYTES):
            shown = f"{len(state):,} bytes" if isinstance(state, bytes) else repr(state)
            raise InputError(f"the state is {shown}; expected None or at most {limits.STATE_BYTES:,} bytes")
        return self._request(SessionRequest(SessionVerb.SET_STATE, self.fencing_token, state=state), _nothing, tx)

    @operation
    def park(self, reason: str, tx: Transaction | None = None) -> Command[None]:
        """End the session and park the group: it cannot be received until an operator resumes it.

        Unsettled messages return to their old places; new messages queue behind them.

        Args:
            reason: the reason, such as a traceback, cut to ``limits.ERROR_LENGTH`` characters.
            tx: the caller's transaction.
        """
        request = SessionRequest(SessionVerb.PARK, self.fencing_token, note=_reason(reason))
        return self._request(request, lambda _answer: _log_parked(self.queue, self.group, reason), tx)

    @operation
    def close(self, tx: Transaction | None = None) -> Command[None]:
        """Release the group and return unsettled messages to their places; do nothing if the lock has already ended."""
        return SessionCall(
            self.queue, self.group, SessionRequest(SessionVerb.CLOSE, self.fencing_token), _nothing
        ).within(tx)

    def __enter__(self) -> Self:
        """Return the session, to be closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the session, to be closed at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        await self.close.aio_to_the_end()

    def _receive_request(self, limit: int) -> ReceiveRequest:
        return ReceiveRequest(limit, group=self.group, token=self.fencing_token)

    def _request(
        self, request: SessionRequest, meant: Callable[[SessionAnswer], T], tx: Transaction | None
    ) -> Command[T]:
        def told(answer: SessionAnswer) -> T:
            self._unless_lost(None if answer.verdict is SettleResult.EXPIRED else answer)
            return meant(answer)

        return SessionCall(self.queue, self.group, request, told).within(tx)

    def _unless_lost(self, result: T | None) -> T:
        if result is None:
            raise LeaseExpired(
                f"the session of group {self.group!r} has ended, and nothing was changed: its lock has expired, or it "
                "was closed; another consumer may hold the group. Open a new session, and renew it in time"
            )
        return result


@operation
def session(
    queue: NamedQueue, group: object = None, *, wait_s: float = 0, lock_s: float = 30, tx: Transaction | None = None
) -> Command[Session | None]:
    """Lock a group for one receiver.

    Args:
        queue: the queue.
        group: the group, which may be empty; None: the oldest group that can be received.
        wait_s: the time to wait for the group to become free, in seconds.
        lock_s: the length of the lock unless renewed, in seconds.
        tx: the caller's transaction; in one, the call does not wait.

    Returns:
        The session; None if the group is locked or parked, or one of its messages is leased.

    Raises:
        InputError: if an argument is invalid.
        NoSuchQueue: if the queue was deleted.
    """
    lock_ms = _lock_ms(lock_s)
    check_wait(wait_s)

    def begun(answers: list[SessionAnswer]) -> Session | None:
        return Session(queue.writer, queue.name, answers[0], lock_ms) if answers else None

    name = None if group is None else group_name(group)
    ask = SessionCall(queue.name, name, SessionRequest(SessionVerb.LOCK, ms=lock_ms), _nothing)
    return AcquireSession(ask, begun, wait_s=wait_s).within(tx)


@operation
def park(queue: NamedQueue, group: object, reason: str, tx: Transaction | None = None) -> Command[None]:
    """Park a group until it is resumed; if it is parked already, replace the reason.

    Raises:
        QueueError: if the group is locked or one of its messages is leased; the holder can finish or park it.
    """
    name = group_name(group)

    def told(answer: SessionAnswer) -> None:
        if answer.verdict is not SettleResult.DONE:
            msg = f"group {name!r} was not parked: it is locked or one of its messages is leased; retry when it is free"
            raise QueueError(msg)
        _log_parked(queue.name, name, reason)

    return SessionCall(queue.name, name, SessionRequest(SessionVerb.PARK, note=_reason(reason)), told).within(tx)


@operation
def resume(queue: NamedQueue, group: object, tx: Transaction | None = None) -> Command[bool]:
    """Resume a parked group, whose messages are then received in order; return whether it was parked."""
    name = group_name(group)

    def told(answer: SessionAnswer) -> bool:
        was_parked = answer.verdict is SettleResult.DONE
        if was_parked:
            _log_resumed(queue.name, name)
        return was_parked

    return SessionCall(queue.name, name, SessionRequest(SessionVerb.RESUME), told).within(tx)


@operation
def resume_many(queue: NamedQueue, groups: Sequence[ParkedGroup], tx: Transaction | None = None) -> Command[list[str]]:
    """Resume parked groups as :meth:`parked` listed them, in one transaction; return the names of the resumed groups.

    A group that was resumed, or parked again, since it was listed is not changed.
    """
    check_type("groups", groups, Iterable, "a list of the groups that parked() returned")
    seen = list(groups)
    for parked_group in seen:
        check_type("a group to resume", parked_group, ParkedGroup, "a group that parked() returned")

    def change(store: Any, now_ms: int) -> list[str]:
        info, resumed = queue_of(store, queue.name), []
        for listed in seen:
            request = SessionRequest(SessionVerb.RESUME, ms=listed.parked_ms)
            if store.session(info, listed.group, request, now_ms).verdict is SettleResult.DONE:
                resumed.append(listed.group)
        return resumed

    def told(resumed: list[str]) -> list[str]:
        for name in resumed:
            _log_resumed(queue.name, name)
        return resumed

    return StoreCall(queue.name, change, told).within(tx)


@operation
def parked(
    queue: NamedQueue, limit: int = 100, *, after: ParkedGroup | None = None, tx: Transaction | None = None
) -> Command[list[ParkedGroup]]:
    """Return parked groups with their reasons, in the order of parking, beginning after ``after``."""
    check_limit(limit)
    check_type("after", after, ParkedGroup | None, "a group that parked() returned")
    start = FIRST_PARKED if after is None else (after.parked_ms, after.group)

    def look(store: Any, _now_ms: int) -> list[ParkedGroup]:
        groups: list[ParkedGroup] = store.parked(queue_of(store, queue.name), limit, start)
        return groups

    return Read(queue.name, look).within(tx)


def _log_parked(queue: str, group: str, reason: str) -> None:
    _LOG.warning("park", queue, "group %(group)r of %(queue)r is parked", payload=reason, queue=queue, group=group)


def _log_resumed(queue: str, group: str) -> None:
    _LOG.info("resume", queue, "group %(group)r of %(queue)r is resumed", queue=queue, group=group)


def _nothing(_answer: SessionAnswer) -> None:
    """Return None for any answer."""


def _lock_ms(seconds: float) -> int:
    ms = milliseconds("lock_s", seconds)
    if ms == 0:
        msg = f"lock_s is {seconds!r}; expected a number greater than 0, up to {limits.VISIBILITY_S}"
        raise InputError(msg)
    return ms


def _reason(reason: str) -> str:
    return note("the reason", reason)
