"""The context of every action: the database, the caller, and the naming of queues.

It lies below the actions, which share it and are independent of HTTP and of the two protocols.

An action is a function of a context and its parameters. It runs in the event loop, reads the queue information known
there, and returns a command, which the writer runs with many others in one transaction. The information in the loop may
be slightly stale if another process shares the file. So a refusal is checked again in a transaction
(:func:`in_transaction`) before the client gets an error; only refused requests have this cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from inturn.core.queue.messages import QueueInfo, QueueSettings
from inturn.database import Database
from inturn.sqs import errors, limits, naming
from inturn.sqs.errors import SqsError
from inturn.sqs.naming import Home, RequestOrigin, Scope
from inturn.store.commands import Command, StoreCall
from inturn.store.protocols import Store

T = TypeVar("T")

FIFO: Final = ".fifo"
"""The suffix of a FIFO queue's name."""
_ANONYMOUS: Final = RequestOrigin()


class QueueNaming(Protocol):
    """The naming of queues to clients.

    Attributes:
        home: the server's own region and account.
        joined: whether all regions share their queues.
        base_url: the start of a queue's URL, up to the account: ``http://localhost:9324``. It is read each time, since
            its port may be known only after the server listens.
    """

    home: Home
    joined: bool
    base_url: str


class Permit(NamedTuple):
    """The permission to perform an action: the caller, and the checks to make before it in a transaction."""

    caller: RequestOrigin
    checks: Sequence[Callable[[Store], None]] = ()


@dataclass(frozen=True, kw_only=True)
class Context:
    """The context of an action; it knows a queue by its stored name, see :mod:`inturn.sqs.naming`.

    Attributes:
        db: the database with the queues.
        naming: the naming of queues.
        caller: the caller, with region and account.
        trace: the request's X-Amzn-Trace-Id; "" if it has none.
        on_move: called in the event loop with the source queue of a new move task.
    """

    db: Database
    naming: QueueNaming
    caller: RequestOrigin = _ANONYMOUS
    trace: str = ""
    on_move: Callable[[str], None] = lambda _name: None
    _known: dict[RequestOrigin, "Context"] = field(default_factory=dict, repr=False)
    _named: dict[tuple[RequestOrigin, str], str] = field(
        default_factory=dict, repr=False
    )  # by caller and URL; all share it

    def for_caller(self, caller: RequestOrigin) -> "Context":
        """Return the context of another caller; called in the event loop."""
        known = self._known.get(caller)
        if known is None:
            if len(self._known) >= limits.CALLERS:
                self._known.clear()
            known = self._known[caller] = replace(self, caller=caller)
        return known

    @property
    def home(self) -> Scope:
        """The server's own region and account."""
        return self.naming.home.scope

    @property
    def scope(self) -> Scope:
        """The region and the account of the caller."""
        home, caller = self.naming.home.scope, self.caller
        return Scope(self._region(caller.region or home.region), caller.account or home.account)

    def queue(self, url: str) -> QueueInfo:
        """Return the queue that a URL names, if it exists; a bare name is accepted too, as in SQS."""
        return self.named(self.name(url))

    def named(self, name: str) -> QueueInfo:
        """Return the queue with this name in the store, if it exists."""
        info = self.db.store.queues.get(name)
        if info is None:
            raise errors.queue_does_not_exist(name)
        return info

    def name(self, url: str) -> str:
        """Return the stored name of the queue that a URL names; a bare name means a queue of the caller's scope.

        A URL of another region than the request is signed for is refused.
        """
        stored = self._named.get((self.caller, url))
        if stored is None:
            stored = self._name(url)
            if len(url) <= limits.URL_LENGTH:
                if len(self._named) >= limits.URLS:
                    self._named.clear()
                self._named[self.caller, url] = stored
        return stored

    def _name(self, url: str) -> str:
        region, account, name = naming.parse_url(url)
        if not name:
            raise errors.invalid_address(f"The address {url} is not valid for this endpoint.")
        if account is None:
            return self.stored_name(name)
        return self._stored(region or self.home.region, account, name)

    def stored_name(self, name: str, account: str | None = None) -> str:
        """Return the stored name of a queue in the caller's region, by default also in its account."""
        region, own = self.scope
        return self._stored(region, own if account is None else account, name)

    def _stored(self, region: str, account: str, name: str) -> str:
        stored = naming.stored_name(self.naming.home, Scope(self._region(region), account), name)
        if stored is None or not self._is_reachable(region):
            raise errors.queue_does_not_exist(f"{naming.prefix(self.scope)}{name}")
        return stored

    def _region(self, region: str) -> str:
        """Return the effective region: the home's, if regions are joined."""
        return self.naming.home.scope.region if self.naming.joined else region

    def _is_reachable(self, region: str) -> bool:
        """Return whether the caller can reach a region: the one that the request is signed for; any if unsigned."""
        return self.naming.joined or self.caller.region in (region, None)

    def bare_name(self, name: str) -> str:
        """Return the name of a queue within its region and account."""
        return naming.scope_of(self.home, name)[1]

    def url(self, name: str) -> str:
        """Return the URL of a queue."""
        return naming.url(self.naming.base_url, self.home, name)

    def arn(self, name: str) -> str:
        """Return the ARN of a queue."""
        return naming.arn(self.home, name)

    def of_arn(self, arn: str) -> str | None:
        """Return the stored name of the queue that an ARN names; None if the caller's region can have no such queue."""
        parsed = naming.parse_arn(arn)
        if parsed is None:
            return None
        scope, name = parsed
        if not self._is_reachable(scope.region) or scope.region != self._region(scope.region):
            return None
        return naming.stored_name(self.naming.home, scope, name)

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self.db.writer.clock()


Action: TypeAlias = Callable[[Context, Any], Command[Any]]
"""An SQS action. If its command's answer is a command, that one runs next and gives the answer."""


def is_arn(text: str) -> bool:
    """Return whether a text has the form of an ARN: arn:partition:service:region:account:resource."""
    parts = text.split(":", 5)
    return parts[0] == "arn" and len(parts) == 6 and all((parts[1], parts[2], parts[5]))


def is_fifo(queue: QueueInfo) -> bool:
    """Return whether a queue is a FIFO queue for SQS, by its name."""
    return queue.name.endswith(FIFO)


def extra_setting(settings: QueueSettings, name: str, default: T) -> T:
    """Return a value that the endpoint keeps in a queue's ``extra`` settings."""
    value: T = settings.extra.get(name, default)
    return value


def store_command(
    function: Callable[[Store, int], T], answer: Callable[[T], Any] = lambda value: value
) -> Command[Any]:
    """Return a command that may refuse with an :class:`SqsError`, as long as it has changed nothing.

    The refusal is passed as a value: if it were raised, all other commands of the transaction would run again. The
    answer is made of the function's result in the event loop.
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

    command: Command[Any] = StoreCall("", ask)
    command.answer = granted
    return command


def in_transaction(action: Action, context: Context, params: Any) -> Command[Any]:
    """Return a command that runs an action again in a transaction, where the changes of all processes are visible."""
    return store_command(lambda _store, _now_ms: action(context, params))


def queue_in(store: Store, name: str) -> QueueInfo:
    """Return a queue, within a transaction, if it exists."""
    info = store.queues.get(name)
    if info is None:
        raise errors.queue_does_not_exist(name)
    return info


def in_queue(context: Context, url: str, function: Callable[[Store, QueueInfo, int], T]) -> Command[T]:
    """Return a command that is given the queue that a URL names, and may refuse as with :func:`store_command`."""
    name = context.name(url)
    return store_command(lambda store, now_ms: function(store, queue_in(store, name), now_ms))


def save_extra(store: Store, queue: QueueInfo, *, purge: bool = False, **extra: Any) -> None:
    """Save a queue with values in its ``extra`` settings."""
    queue.settings = replace(queue.settings, extra={**queue.settings.extra, **extra})
    store.save(queue.name, queue, purge=purge)
