"""What every action works with: the database, who asks, how queues are named to clients, and how it is asked for.

It lives below the actions so that they share it and know nothing of each other, of HTTP or of the two protocols.

An action is a function of a context and its parameters. It runs in the event loop, looks at what is known of the queue
there, and gives a command, which the writer does with many others in one transaction. What is known in the loop may be
a moment old if another process shares the file. So what an action refuses is looked at again in a transaction
(:func:`again`) before the client is told; only who is refused pays for that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from inturn.core.envelope import QueueInfo, QueueSettings
from inturn.database import Database
from inturn.server import errors
from inturn.server.attempts import Attempts
from inturn.server.errors import SqsError
from inturn.store.base import Store
from inturn.store.commands import Ask, Command

T = TypeVar("T")

FIFO: Final = ".fifo"
"""How the name of a FIFO queue ends."""


class Place(Protocol):
    """How queues are named to clients.

    Attributes:
        account: the account's number in URLs and ARNs.
        region: the region in ARNs.
        base_url: what a queue's URL begins with, up to the account: ``http://localhost:9324``. It is looked up each
            time, since it may depend on a port that is known only when it is listened on.
    """

    account: str
    region: str
    base_url: str


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an action works with.

    Attributes:
        db: the queues.
        place: how queues are named.
        sender: who asks: the id of an access key; "" if nobody must say.
        attempts: which receives can be asked for again.
            Only who is in a transaction looks at it or changes it, and a restart forgets it.
        trace: what the request's X-Amzn-Trace-Id says; "" if it has none.
        on_move: called in the event loop with the name of a queue that a move task begins to move from.
    """

    db: Database
    place: Place
    sender: str = ""
    attempts: Attempts = field(default_factory=Attempts)
    trace: str = ""
    on_move: Callable[[str], None] = lambda _name: None

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
            raise errors.queue_does_not_exist()
        return info

    def name(self, url: str) -> str:
        """The name of the queue that a URL names.

        Raises:
            SqsError: if it names none.
        """
        name = url[url.rfind("/") + 1 :]
        if not name:
            raise errors.invalid_address(f"The address {url} is not valid for this endpoint.")
        return unquote(name) if "%" in name else name

    def url(self, name: str) -> str:
        """The URL of a queue."""
        return f"{self.place.base_url.rstrip('/')}/{self.place.account}/{quote(name, safe='')}"

    def arn(self, name: str) -> str:
        """The ARN of a queue."""
        return f"{self._arns()}{name}"

    def of_arn(self, arn: str) -> str | None:
        """The name of the queue that an ARN of this account and region names; None: it is another's."""
        before = self._arns()
        return arn[len(before) :] if arn.startswith(before) else None

    def _arns(self) -> str:
        return f"arn:aws:sqs:{self.place.region}:{self.place.account}:"

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
        raise errors.queue_does_not_exist()
    return info
