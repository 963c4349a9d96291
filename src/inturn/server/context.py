"""What every action works with: the database, who asks, how queues are named to clients, and how it is asked for.

It lives below the actions so that they share it and know nothing of each other, of HTTP or of the two protocols.

An action is a function of a context and its parameters. It runs in the event loop, looks at what is known of the queue
there, and gives a command, which the writer does with many others in one transaction. What is known in the loop may be
a moment old if another process shares the file. So what an action refuses is looked at again in a transaction
(:func:`again`) before the client is told; only who is refused pays for that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from inturn.core import limits
from inturn.core.envelope import QueueInfo, QueueSettings
from inturn.database import Database
from inturn.server import errors, naming
from inturn.server.attempts import Attempts
from inturn.server.errors import SqsError
from inturn.server.naming import Caller, Home, Scope
from inturn.store.base import Store
from inturn.store.commands import Ask, Command

T = TypeVar("T")

FIFO: Final = ".fifo"
"""How the name of a FIFO queue ends."""
_NOBODY: Final = Caller()


class Place(Protocol):
    """How queues are named to clients.

    Attributes:
        home: the region and the account of queues that were not made for others.
        joined: whether all regions are one, so that a queue is the same whichever region is asked for it.
        base_url: what a queue's URL begins with, up to the account: ``http://localhost:9324``. It is looked up each
            time, since it may depend on a port that is known only when it is listened on.
    """

    home: Home
    joined: bool
    base_url: str


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an action works with.

    A queue is known within by its name in the store; see :mod:`inturn.server.naming`.

    Attributes:
        db: the queues.
        place: how queues are named.
        caller: who asks, and from where.
        attempts: which receives can be asked for again.
            Only who is in a transaction looks at it or changes it, and a restart forgets it.
        trace: what the request's X-Amzn-Trace-Id says; "" if it has none.
        on_move: called in the event loop with the name of a queue that a move task begins to move from.
    """

    db: Database
    place: Place
    caller: Caller = _NOBODY
    attempts: Attempts = field(default_factory=Attempts)
    trace: str = ""
    on_move: Callable[[str], None] = lambda _name: None
    _known: dict[Caller, "Context"] = field(default_factory=dict, repr=False)
    _named: dict[tuple[Caller, str], str] = field(default_factory=dict, repr=False)  # by caller and URL; all share it

    def to(self, caller: Caller) -> "Context":
        """Return the same for another caller; called in the event loop."""
        known = self._known.get(caller)
        if known is None:
            if len(self._known) >= limits.CALLERS:
                self._known.clear()
            known = self._known[caller] = replace(self, caller=caller)
        return known

    @property
    def home(self) -> Scope:
        """The region and the account of queues that were not made for others."""
        return self.place.home.scope

    @property
    def scope(self) -> Scope:
        """The region and the account of the caller."""
        home, caller = self.place.home.scope, self.caller
        return Scope(self._region(caller.region or home.region), caller.account or home.account)

    def queue(self, url: str) -> QueueInfo:
        """What is known of the queue that a URL names; a name alone does too, as with the service.

        Raises:
            SqsError: if there is none.
        """
        return self.named(self.name(url))

    def named(self, name: str) -> QueueInfo:
        """What is known of a queue.

        Raises:
            SqsError: if there is none.
        """
        info = self.db.store.queues.get(name)
        if info is None:
            raise errors.queue_does_not_exist(name)
        return info

    def name(self, url: str) -> str:
        """The name in the store of the queue that a URL names; a name alone is one of the caller's queues.

        Raises:
            SqsError: if it names none, or one of another region than the request is signed for.
        """
        found = self._named.get((self.caller, url))
        if found is None:
            found = self._name(url)
            if len(url) <= limits.URL_LENGTH:
                if len(self._named) >= limits.URLS:
                    self._named.clear()
                self._named[self.caller, url] = found
        return found

    def _name(self, url: str) -> str:
        region, account, name = naming.address(url)
        if not name:
            raise errors.invalid_address(f"The address {url} is not valid for this endpoint.")
        if account is None:
            return self.own(name)
        return self._stored(region or self.home.region, account, name)

    def own(self, name: str, account: str | None = None) -> str:
        """The name in the store of a queue in the caller's region.

        Args:
            name: what it is called there.
            account: whose it is; None: the caller's.

        Raises:
            SqsError: if there can be none.
        """
        region, own = self.scope
        return self._stored(region, own if account is None else account, name)

    def _stored(self, region: str, account: str, name: str) -> str:
        stored = naming.stored_name(self.place.home, Scope(self._region(region), account), name)
        if stored is None or not self._reaches(region):
            raise errors.queue_does_not_exist(f"{naming.prefix(self.scope)}{name}")
        return stored

    def _region(self, region: str) -> str:
        """The region that is meant by a name: the home's, if all are one."""
        return self.place.home.scope.region if self.place.joined else region

    def _reaches(self, region: str) -> bool:
        """Whether the caller can ask for queues of a region: that for which the request is signed, if it is."""
        return self.place.joined or self.caller.region in (region, None)

    def bare(self, name: str) -> str:
        """What a queue is called within its region and account."""
        return naming.scope_of(self.home, name)[1]

    def url(self, name: str) -> str:
        """The URL of a queue."""
        return naming.url(self.place.base_url, self.home, name)

    def arn(self, name: str) -> str:
        """The ARN of a queue."""
        return naming.arn(self.home, name)

    def of_arn(self, arn: str) -> str | None:
        """The name in the store of the queue that an ARN names; None: there can be none in the caller's region."""
        parsed = naming.parsed(arn)
        if parsed is None:
            return None
        scope, name = parsed
        if not self._reaches(scope.region) or scope.region != self._region(scope.region):
            return None
        return naming.stored_name(self.place.home, scope, name)

    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return self.db.writer.clock()


Action: TypeAlias = Callable[[Context, Any], Command[Any]]
"""What is done for a request. If its answer is a command, that is to be done next, and its answer is the action's."""


def is_arn(text: str) -> bool:
    """Whether a text has the form of an ARN: arn:partition:service:region:account:resource."""
    parts = text.split(":", 5)
    return parts[0] == "arn" and len(parts) == 6 and all((parts[1], parts[2], parts[5]))


def is_fifo(queue: QueueInfo) -> bool:
    """Whether SQS takes a queue for a FIFO queue: by its name."""
    return queue.name.endswith(FIFO)


def kept(settings: QueueSettings, name: str, default: T) -> T:
    """What is kept with a queue for this endpoint."""
    value: T = settings.extra.get(name, default)
    return value


def asking(function: Callable[[Store, int], T], answer: Callable[[T], Any] = lambda value: value) -> Command[Any]:
    """A command that may refuse with an :class:`SqsError`, if it does so before it changes anything.

    Its refusal travels as a value: were it raised, all other commands of the transaction would be done once more.

    Args:
        function: what is done, given the store and the time.
        answer: what that means to the client; called in the event loop.
    """

    def ask(store: Store, now_ms: int) -> T | SqsError:
        try:
            return function(store, now_ms)
        except SqsError as error:
            return error

    def granted(value: Any) -> Any:
        if isinstance(value, SqsError):
            raise value
        return answer(value)

    command: Command[Any] = Ask("", ask)
    command.answer = granted
    return command


def again(action: Action, context: Context, params: Any) -> Command[Any]:
    """The same action once more, within a transaction, in which everything is known that any process has done."""
    return asking(lambda _store, _now_ms: action(context, params))


def queue_in(store: Store, name: str) -> QueueInfo:
    """A queue, within a transaction.

    Raises:
        SqsError: if there is none.
    """
    info = store.queues.get(name)
    if info is None:
        raise errors.queue_does_not_exist(name)
    return info
