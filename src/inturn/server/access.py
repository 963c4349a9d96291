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
from inturn.server.auth import Key, Replays, Verifier, allowed, credential, denied, may_use, scoped_region
from inturn.server.config import AccessKey, Config, is_loopback
from inturn.server.context import Context, asking
from inturn.server.errors import SqsError, access_denied, invalid_parameter_value, signature_does_not_match
from inturn.server.http import Request
from inturn.server.naming import Caller, prefix, scope_of
from inturn.server.wire import Call
from inturn.store.commands import Command

_LOG: Final = logging.getLogger(__name__)
_NOBODY: Final = Caller()


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
        self._context = context
        self._clock = clock
        self._allowed = lru_cache(limits.DECISIONS)(self._decided)
        self.use(config.keys)
        self._refusals = _Refusals(clock)

    def use(self, keys: Iterable[AccessKey]) -> None:
        """From now on it is these keys that are known."""
        own = self._context.home.account
        known = [Key(each.id, each.secret or "", each.queues, each.actions, each.account or own) for each in keys]
        self._verifier = Verifier(known, region=self._region, replays=self._replays)

    def __call__(self, request: Request, call: Call) -> Caller:
        """Whose a request is, and from where.

        Raises:
            SqsError: if it is not signed as it must be, or its key may not do that.
        """
        try:
            key, region = self._verifier.verify(
                request.method, request.target, request.headers, request.body, self._clock()
            )
            caller = Caller(key.id, region, key.account)
            context = self._context.to(caller)
            for action, queue in _needs(context, call):
                if not self._allowed(key, action, queue):
                    resource = prefix(context.scope) if queue is None else context.arn(queue)
                    raise denied(key, action, resource, key.account)
        except SqsError as error:
            self._refusals.note(error.query_code, call.action, request.peer)
            raise
        return caller

    def first(self, command: Command[Any]) -> Command[Any]:
        """What is to be done for the request that was just let in: first to see that no other server has had it.

        Args:
            command: what is done then.
        """
        if self._replays is None or self._context.db.store.servers.shared is None:
            return command
        noted, now = self._replays.noted, self._clock()

        def see(store: Any, _now_ms: int) -> None:
            if not store.servers.shared.is_new(*noted, int(now)):
                raise signature_does_not_match("Signature already used: sign each request anew.")

        return asking(see, lambda _nothing: command)

    def _decided(self, key: Key, action: str, queue: str | None) -> bool:
        if queue is None:
            return allowed(key, action, None)
        scope, name = scope_of(self._context.home, queue)
        return may_use(key, action, name, scope.account)


def _needs(context: Context, call: Call) -> Iterator[tuple[str, str | None]]:
    """The actions that a call needs to be allowed, and the queue of each by its name in the store; None: about none."""
    params: Any = call.params
    action = call.action
    if action == "ListQueues":
        yield action, None
    elif action == "CreateQueue":
        yield action, f"{prefix(context.scope)}{params.queue_name}"  # whatever name it is: the action looks at it
    elif action == "GetQueueUrl":
        yield action, context.own(params.queue_name, params.queue_owner_aws_account_id)
    elif action in {"StartMessageMoveTask", "ListMessageMoveTasks"}:
        yield action, _of_arn(context, params.source_arn)
        if action == "StartMessageMoveTask" and params.destination_arn is not None:
            yield "SendMessage", _of_arn(context, params.destination_arn)
    elif action == "CancelMessageMoveTask":
        yield action, _of_arn(context, _source_arn(params.task_handle))
    else:
        yield action, context.name(params.queue_url)


def _of_arn(context: Context, arn: str) -> str:
    """The queue of an ARN; of one that the action will refuse, a queue of the caller's that its end names."""
    return context.of_arn(arn) or f"{prefix(context.scope)}{arn.rpartition(':')[2]}"


class _Noting(Replays):
    """Knows the last signature that it has let in, and until when it is valid, in seconds since 1970."""

    noted: tuple[bytes, int] = b"", 0

    def is_new(self, signature: bytes, until: int, now: float) -> bool:
        """Whether a signature comes to this server for the first time."""
        self.noted = signature, until
        return super().is_new(signature, until, now)


class Local:
    """What an endpoint without keys asks of each request.

    Args:
        base_url: by whose host it may be called too.
        region: which requests must be signed for, if they are; None: for any.
    """

    def __init__(self, base_url: str | None = None, region: str | None = None) -> None:
        self._own = urlsplit(base_url or "").hostname
        self._region = region
        self._is_own = lru_cache(limits.HOSTS)(self._is_own_host)
        self._caller = lru_cache(limits.CLAIMS)(self._called)

    def __call__(self, request: Request, call: Call) -> Caller:  # noqa: ARG002 - whatever it is
        """Nobody must say who they are; for which region a request is signed is believed.

        Raises:
            SqsError: if a web page made the request, or it is signed for what is no region, or not the one it must be.
        """
        headers = request.headers
        from_page = b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
        if from_page or not self._is_own(headers.get(b"host", b"")):
            raise access_denied(
                "This endpoint has no access keys, so it does not answer web pages, nor requests to a host that is "
                "neither this machine nor that of its base_url. Configure access keys, or base_url."
            )
        said = credential(request.target, headers)
        return _NOBODY if said is None else self._caller(said)

    @staticmethod
    def first(command: Command[Any]) -> Command[Any]:
        """Nothing is to be done before what is asked for."""
        return command

    def _called(self, said: bytes) -> Caller:
        region = scoped_region(said)
        if region is not None and self._region not in (region, None):
            raise signature_does_not_match("Credential should be scoped to a valid region.")
        return Caller("", region)

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
