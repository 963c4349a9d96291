"""Who may do what. With keys: a request's signature, then what its key may do with the queues that it names.

Without keys whoever is on this machine may do everything. A web page that somebody looks at on this machine is not
meant by that: its requests are told by the headers that browsers add, and by a host that is not this machine's.
"""

import base64
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from inturn.core import limits
from inturn.server.auth import Key, Replays, Verifier, account_of, allowed, denied
from inturn.server.config import AccessKey, Config, is_loopback
from inturn.server.context import Context, asking
from inturn.server.errors import SqsError, access_denied, invalid_parameter_value, signature_does_not_match
from inturn.server.http import Request
from inturn.server.policies import Need, Policies
from inturn.server.wire import Call
from inturn.store.commands import Command

_LOG: Final = logging.getLogger(__name__)


class Access:
    """What an endpoint asks of each request that is to be answered; for endpoints with keys.

    Args:
        config: with the keys.
        context: how queues are named.
        clock: the time in seconds since 1970; another one for tests.
    """

    def __init__(self, config: Config, context: Context, clock: Callable[[], float] = time.time) -> None:
        server = config.server
        self._region = server.region if server.check_region else None
        self._replays = _Noting() if server.replays == "refuse" else None
        self.use(config.keys)
        self._context = context
        self._clock = clock
        self._allowed = lru_cache(limits.DECISIONS)(allowed)
        self._policies = Policies(context, server, clock)
        self._doubt: Callable[[Any], None] | None = None
        self._refusals = _Refusals(clock)

    def use(self, keys: Iterable[AccessKey]) -> None:
        """From now on it is these keys that are known."""
        known = [Key(each.id, each.secret or "", each.queues, each.actions, each.admin) for each in keys]
        self._verifier = Verifier(known, region=self._region, replays=self._replays)

    def __call__(self, request: Request, call: Call) -> str:
        """Whose a request is: the id of a key.

        Raises:
            SqsError: if it is not signed as it must be, or its key may not do that.
        """
        self._doubt = None
        try:
            key = self._verifier.verify(request.method, request.target, request.headers, request.body, self._clock())
            is_concerned = call.action == "StartMessageMoveTask"  # it is about more queues than it names
            for action, queue in self._needs(call):
                if not self._allowed(key, action, queue):
                    raise denied(key, action, self._context.arn(queue or ""), self._account_of(key))
                if queue is not None and not is_concerned:
                    is_concerned = self._policies.concern(key, queue)
            if is_concerned:
                needs = [Need(*each) for each in self._needs(call)]
                self._doubt = self._policies.ask(key, request, call, needs, self._refusals.note)
        except SqsError as error:
            self._refusals.note(error.query_code, call.action, request.peer)
            raise
        return key.id

    def _account_of(self, key: Key) -> str:
        return account_of(key, self._context.place.account)

    def first(self, command: Command[Any]) -> Command[Any]:
        """What is to be done for the request that was just let in, and before that what only a transaction can tell.

        That is whether no other server has had it, and whether a policy that refuses it still does.

        Args:
            command: what is done then.
        """
        doubt = self._doubt
        is_shared = self._replays is not None and self._context.db.store.servers.shared is not None
        if doubt is None and not is_shared:
            return command
        noted, now = self._replays.noted if self._replays is not None else None, self._clock()

        def see(store: Any, _now_ms: int) -> None:
            if is_shared and noted is not None and not store.servers.shared.is_new(*noted, int(now)):
                raise signature_does_not_match("Signature already used: sign each request anew.")
            if doubt is not None:
                doubt(store)

        return asking(see, lambda _nothing: command)

    def _needs(self, call: Call) -> Iterator[tuple[str, str | None]]:
        """The actions that a call needs to be allowed, and the queue of each; None: it is about none."""
        params: Any = call.params
        action = call.action
        if action == "ListQueues":
            yield action, None
        elif action in {"CreateQueue", "GetQueueUrl"}:
            yield action, params.queue_name
        elif action in {"StartMessageMoveTask", "ListMessageMoveTasks"}:
            yield action, self._of_arn(params.source_arn)
            if action == "StartMessageMoveTask" and params.destination_arn is not None:
                yield "SendMessage", self._of_arn(params.destination_arn)
        elif action == "CancelMessageMoveTask":
            yield action, self._of_arn(_source_arn(params.task_handle))
        else:
            yield action, self._context.name(params.queue_url)

    def _of_arn(self, arn: str) -> str:
        """The name of the queue of an ARN; of one that is not of this place, which the action will refuse, its end."""
        return self._context.of_arn(arn) or arn.rpartition(":")[2]


class _Noting(Replays):
    """Knows the last signature that it has let in, and until when it is valid, in seconds since 1970."""

    noted: tuple[bytes, int] = b"", 0

    def is_new(self, signature: bytes, until: int, now: float) -> bool:
        """Whether a signature comes to this server for the first time."""
        self.noted = signature, until
        return super().is_new(signature, until, now)


_SETTING: Final = {"AddPermission", "CreateQueue", "SetQueueAttributes"}


class Local:
    """What an endpoint without keys asks of each request.

    Args:
        base_url: by whose host it may be called too.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._own = urlsplit(base_url or "").hostname
        self._is_own = lru_cache(limits.HOSTS)(self._is_own_host)
        self._has_told = False

    def __call__(self, request: Request, call: Call) -> str:
        """Nobody must say who they are.

        Raises:
            SqsError: if a web page made the request.
        """
        headers = request.headers
        from_page = b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
        if from_page or not self._is_own(headers.get(b"host", b"")):
            raise access_denied(
                "This endpoint has no access keys, so it does not answer web pages, nor requests to a host that is "
                "neither this machine nor that of its base_url. Configure access keys, or base_url."
            )
        if call.action in _SETTING:
            params: Any = call.params
            if call.action == "AddPermission" or params.attributes.get("Policy"):
                self.tell_of_policies()
        return ""

    def tell_of_policies(self) -> None:
        """Log, once, that policies are kept and do not apply."""
        if not self._has_told:
            self._has_told = True
            _LOG.warning("policies of queues do not apply: without access keys everybody is the owner")

    @staticmethod
    def first(command: Command[Any]) -> Command[Any]:
        """Nothing is to be done before what is asked for."""
        return command

    def _is_own_host(self, host: bytes) -> bool:
        try:
            name = urlsplit(f"//{host.decode('latin-1')}").hostname or "localhost"  # HTTP/1.0 needs none
        except ValueError:
            return False
        return is_loopback(name) or name.endswith(".localhost") or name == self._own


class _Handle(msgspec.Struct):
    """What a task's handle says of its queue."""

    source_arn: str = msgspec.field(name="sourceArn")


def _source_arn(handle: str) -> str:
    try:
        return msgspec.json.decode(base64.b64decode(handle, validate=True), type=_Handle).source_arn
    except (ValueError, RecursionError):
        raise invalid_parameter_value(f"Value {handle} for parameter TaskHandle is invalid.") from None


class _Refusals:
    """Tells the log of refused requests, one in a second: a flood of them is not to be one of lines too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._again = 0.0
        self._untold = 0

    def note(self, code: str, action: str, peer: str) -> None:
        """A request was refused."""
        now = self._clock()
        if now < self._again:
            self._untold += 1
            return
        _LOG.warning("refused", extra={"code": code, "action": action, "peer": peer, "others": self._untold})
        self._again, self._untold = now + limits.REFUSAL_LOGGED_S, 0
