"""What can be asked of a queue, as values: the writer puts many of them into one transaction.

A command says what it does with a store, and what its answer means to the caller.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from inturn.core import session
from inturn.core.delivery import Act, Change, Verdict
from inturn.core.envelope import Delivery, Draft, QueueInfo, Sent, Want
from inturn.core.idempotency import Answer, Release, Request
from inturn.core.idempotency import Verdict as KeyVerdict
from inturn.store.base import KeyStore, SessionStore, Store, no_such_queue

T = TypeVar("T")


def queue_of(store: Store, name: str) -> QueueInfo:
    """A queue by its name.

    Raises:
        NoSuchQueue: if there is none.
    """
    info = store.queues.get(name)
    if info is None:
        raise no_such_queue(name, store.queues)
    return info


@runtime_checkable
class Joined(Protocol):
    """A transaction of the caller's own, that commands can be done in."""

    @property
    def identity(self) -> str:
        """Identify the open database that it belongs to; see :class:`inturn.store.base.SqlStore`."""
        ...

    def run(self, command: "Command[T]") -> T:
        """Do a command in it."""
        ...

    async def arun(self, command: "Command[T]") -> T:
        """The same for a task."""
        ...


if TYPE_CHECKING:
    import psycopg

    Transaction: TypeAlias = Joined | psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
    """What verbs take as ``tx=``: that of ``db.transaction()``, or a connection to the same PostgreSQL database."""
else:  # for who has no psycopg
    Transaction = Joined


class Command(Generic[T]):
    """One thing to be done in a transaction.

    Attributes:
        queue: the queue it is about.
        answer: what the store's answer means to the caller; may raise what is wrong.
        tx: the transaction of the caller's own in which it is done; None: in one of the writer's.
        wait_s: how long it waits if nothing is found.
        is_short: whether it takes no longer than what is asked for, so that an event loop can do it itself.
    """

    __slots__ = ("answer", "queue", "tx")
    wait_s: float = 0
    is_short = False

    def __init__(self, queue: str, answer: Callable[[Any], T]) -> None:
        self.queue = queue
        self.answer = answer
        self.tx: Transaction | None = None

    def within(self, tx: "Transaction | None") -> Self:
        """The same, in a transaction of the caller's own."""
        self.tx = tx
        return self

    def run(self, store: Store, now_ms: int) -> Any:
        """Do it, alone."""
        raise NotImplementedError

    def undoing(self, found: Any) -> "Command[Any] | None":  # noqa: ARG002 - most have nothing to undo
        """What gives back what was found, if who asked for it has gone meanwhile."""
        return None


class Send(Command[T]):
    """Put messages into a queue."""

    __slots__ = ("drafts",)
    is_short = True

    def __init__(self, queue: str, answer: Callable[[list[Sent]], T], drafts: Sequence[Draft]) -> None:
        # As Command has it; a call of super() for each message would cost as much as the rest.
        self.queue, self.answer, self.tx = queue, answer, None
        self.drafts: Final = drafts

    def run(self, store: Store, now_ms: int) -> list[Sent]:
        """Do it, alone."""
        return store.send(queue_of(store, self.queue), self.drafts, now_ms)


class Settle(Command[T]):
    """Acknowledge, extend, give back, move, defer or cancel messages."""

    __slots__ = ("changes",)
    is_short = True

    def __init__(self, queue: str, answer: Callable[[list[Verdict]], T], changes: Sequence[Change]) -> None:
        # As Command has it; a call of super() for each message would cost as much as the rest.
        self.queue, self.answer, self.tx = queue, answer, None
        self.changes: Final = changes

    def run(self, store: Store, now_ms: int) -> list[Verdict]:
        """Do it, alone."""
        return store.settle(queue_of(store, self.queue), self.changes, now_ms)


class Receive(Command[T]):
    """Lease messages, and wait for some if there are none.

    Attributes:
        want: what is asked for.
        wait_s: how long to wait for the first.
    """

    __slots__ = ("wait_s", "want")
    is_short = True

    def __init__(self, queue: str, answer: Callable[[list[Delivery]], T], want: Want, *, wait_s: float = 0) -> None:
        super().__init__(queue, answer)
        self.want: Final = want
        self.wait_s = wait_s

    def run(self, store: Store, now_ms: int) -> list[Delivery]:
        """Do it, alone; nothing is waited for."""
        return store.receive(queue_of(store, self.queue), [self.want], now_ms)[0]

    def undoing(self, found: list[Delivery]) -> Settle[Any] | None:
        """The messages are given back; nobody need wait for their leases to end."""
        changes = [Change(each.entry.sequence_number, each.token, Act.NACK) for each in found]
        return Settle(self.queue, _as_it_is, changes) if changes else None


class Ask(Command[T]):
    """Anything else: a look, or a change of the queue itself."""

    __slots__ = ("function",)

    def __init__(self, queue: str, function: Callable[[Store, int], T]) -> None:
        super().__init__(queue, _as_it_is)
        self.function: Final = function

    def run(self, store: Store, now_ms: int) -> T:
        """Do it."""
        return self.function(store, now_ms)


class AskSession(Command[T]):
    """Ask for something about a group: that a session begins or ends, that it is parked, its state.

    Attributes:
        group: which; None: the next that can be locked.
        request: what is asked.
    """

    __slots__ = ("group", "request")

    def __init__(
        self, queue: str, group: str | None, request: session.Request, answer: Callable[[session.Answer], T]
    ) -> None:
        super().__init__(queue, answer)
        self.group: Final = group
        self.request: Final = request

    def run(self, store: Any, now_ms: int) -> session.Answer:
        """Do it."""
        sessions: SessionStore = store
        return sessions.session(queue_of(store, self.queue), self.group, self.request, now_ms)


class TakeSession(Command[T]):
    """Lock a group, and wait for one if none is free; a list of one answer, or of none.

    Attributes:
        ask: how.
        wait_s: how long to wait.
    """

    __slots__ = ("ask", "wait_s")

    def __init__(self, ask: AskSession[Any], answer: Callable[[list[session.Answer]], T], *, wait_s: float) -> None:
        super().__init__(ask.queue, answer)
        self.ask: Final = ask
        self.wait_s = wait_s

    def run(self, store: Store, now_ms: int) -> list[session.Answer]:
        """Do it; nothing is waited for."""
        answer = self.ask.run(store, now_ms)
        return [answer] if answer.verdict is Verdict.DONE else []

    def undoing(self, found: list[session.Answer]) -> AskSession[Any] | None:
        """The group is free again."""
        for answer in found:
            close = session.Request(session.Verb.CLOSE, answer.gate.token)
            return AskSession(self.queue, answer.group, close, _as_it_is)
        return None


class ReceiveWithin(Receive[T]):
    """Lease messages in a session; the answer is None if its lock is over."""

    __slots__ = ()

    def run(self, store: Any, now_ms: int) -> Any:
        """Do it, alone; nothing is waited for."""
        look = session.Request(session.Verb.LOOK, self.want.token)
        answer = AskSession(self.queue, self.want.group, look, _as_it_is).run(store, now_ms)
        return None if answer.verdict is Verdict.EXPIRED else super().run(store, now_ms)

    def undoing(self, found: list[Delivery] | None) -> Settle[Any] | None:
        """The messages are given back to the session."""
        return super().undoing(found or [])


class Decide(Command[T]):
    """Decide about an idempotency key.

    Attributes:
        space: whose keys.
        key: which one.
        request: what is wanted.
    """

    __slots__ = ("key", "request", "space")

    def __init__(self, space: str, key: str, request: Request, answer: Callable[[Answer], T]) -> None:
        super().__init__("", answer)
        self.space: Final = space
        self.key: Final = key
        self.request: Final = request

    def run(self, store: Any, now_ms: int) -> Answer:  # a store of queues has keys only if it is a database
        """Do it."""
        keys: KeyStore = store
        return keys.decide(self.space, self.key, self.request, now_ms)

    def undoing(self, found: Answer) -> "Decide[Any] | None":
        """The key is free again, if it was locked for nobody."""
        if found.verdict is not KeyVerdict.LOCKED or found.record is None:
            return None
        return Decide(self.space, self.key, Release(found.record.token), _as_it_is)


def _as_it_is(value: T) -> T:
    return value


Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a command came to: its raw answer, or its error."""

_ORDER: Final[dict[type, int]] = {
    Settle: 0,
    Send: 1,
    Ask: 2,
    AskSession: 2,
    Decide: 2,
    Receive: 3,
    TakeSession: 4,
    ReceiveWithin: 4,
}
_ALONE: Final = {2, 4}
"""What is done one by one."""


def execute(store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int]) -> list[Outcome]:
    """Do commands in one transaction.

    Of commands that are there at the same time nobody can say which was first, so acknowledgements are done first,
    since they free groups, and receives last, so that they find what has just come; and what goes into one queue goes
    in together.

    Raises:
        Exception: whatever a command raises, and then nothing is done of any; the caller may try them one by one.
    """
    with store.transaction():
        return outcomes_within(store, commands, clock())


def outcomes_within(store: Store, commands: Sequence[Command[Any]], now_ms: int) -> list[Outcome]:
    """The same, in the transaction that is open."""
    if len(commands) == 1:  # nothing to put together
        return [(commands[0].run(store, now_ms), None)]
    outcomes: list[Outcome] = [(None, None)] * len(commands)
    parts: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for place, command in enumerate(commands):
        parts[_ORDER[type(command)], command.queue].append(place)
    for (kind, queue), places in sorted(parts.items()):
        part: Sequence[Any] = [commands[place] for place in places]
        answers: list[Outcome]
        if kind not in _ALONE and queue not in store.queues:
            answers = [(None, no_such_queue(queue, store.queues))] * len(part)
        elif kind == _ORDER[Send]:
            answers = _together(part, [each.drafts for each in part], store, now_ms)
        elif kind == _ORDER[Settle]:
            answers = _together(part, [each.changes for each in part], store, now_ms)
        elif kind == _ORDER[Receive]:
            wants = [each.want for each in part]
            answers = [(found, None) for found in store.receive(queue_of(store, queue), wants, now_ms)]
        else:
            answers = [(each.run(store, now_ms), None) for each in part]
        for place, answer in zip(places, answers, strict=True):
            outcomes[place] = answer
    return outcomes


def _together(part: Sequence[Any], sets: Sequence[Sequence[Any]], store: Store, now_ms: int) -> list[Outcome]:
    """Commands of one kind for one queue, as one."""
    queue = queue_of(store, part[0].queue)
    every = [one for each in sets for one in each]
    answers: Sequence[Any]
    answers = store.send(queue, every, now_ms) if isinstance(part[0], Send) else store.settle(queue, every, now_ms)
    if all(len(each) == 1 for each in sets):  # as nearly always
        return [([answer], None) for answer in answers]
    ends = list(accumulate(len(each) for each in sets))
    return [(answers[end - len(each) : end], None) for end, each in zip(ends, sets, strict=True)]
