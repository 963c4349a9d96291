"""Authentication and authorisation for endpoints with access keys.

A request's signature is verified before its parameters are read, and as far as possible before its body arrives. Then
the key's permissions and the queues' policies are checked. ``loopback`` holds the checks of endpoints without keys.
"""

import base64
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

import msgspec

from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Request
from inturn.sqs import limits
from inturn.sqs.auth import Key, ReplayGuard, Signer, Verifier, allowed, denied
from inturn.sqs.config import AccessKey, Config
from inturn.sqs.context import Context, Permit
from inturn.sqs.errors import SqsError, invalid_parameter_value, signature_already_used
from inturn.sqs.model import ACTIONS
from inturn.sqs.naming import RequestOrigin, prefix, scope_of, stored_name
from inturn.sqs.policies import Policies, RequiredPermission
from inturn.sqs.wire import ApiCall


class KeyAccess:
    """The checks of each API request, for endpoints with keys; tests replace the clock."""

    def __init__(
        self,
        config: Config,
        context: Context,
        clock: Callable[[], float] = time.time,
        failures: FailureLog | None = None,
    ) -> None:
        server = config.server
        self._region = server.region if server.check_region else None
        self._replays = ReplayGuard() if server.replays == "refuse" else None
        self._context = context
        self._clock = clock
        self._allowed = lru_cache(limits.DECISIONS)(self._is_allowed)
        self._policies = Policies(context, server, clock)
        self._failures = failures or FailureLog()
        self.replace_keys(config.keys)

    def replace_keys(self, keys: Iterable[AccessKey]) -> None:
        """Replace the known access keys."""
        own = self._context.home.account
        known = [Key(key.id, key.secret or "", key.queues, key.actions, key.account or own, key.admin) for key in keys]
        self._verifier = Verifier(known, region=self._region, replays=self._replays)

    def admit(self, head: Request) -> None:
        """Refuse a request by its head, before the body arrives."""
        try:
            self._verifier.admit(head.method, head.target, head.headers, self._clock())
        except SqsError as error:
            self._note(error, head, _header_action(head))
            raise

    def authenticate(self, request: Request) -> Signer:
        """Verify the signature of a request and return its signer; a missing or invalid one is refused."""
        method, target, headers, body, _ = request
        try:
            return self._verifier.verify(method, target, headers, body, self._clock())
        except SqsError as error:
            self._note(error, request, _header_action(request))
            raise

    def authorize(self, signer: Signer, request: Request, call: ApiCall) -> Permit:
        """Check that the key may perform the action; return the caller, and the checks that need a transaction.

        These are whether another server has already accepted the signature, and whether a policy that refuses the
        request still does.
        """
        key, region = signer.key, signer.region
        caller, checks = RequestOrigin(key.id, region, key.account), list[Callable[[Any], None]]()
        if self._replays is not None and self._context.db.store.servers.is_shared:
            checks.append(partial(self._check_unused, signer))
        context = self._context.for_caller(caller)
        try:
            is_concerned = call.action == "StartMessageMoveTask"  # it touches queues that the call does not name
            for action, queue in _required_permissions(context, call):
                if not self._allowed(key, action, queue):
                    resource = prefix(context.scope) if queue is None else context.arn(queue)
                    raise denied(key, action, resource, key.account)
                if queue is not None and not is_concerned:
                    is_concerned = self._policies.may_matter(key, queue)
            if is_concerned:
                needs = [RequiredPermission(*permission) for permission in _required_permissions(context, call)]
                note = partial(self._note, request=request, action=call.action)
                checks += self._policies.evaluate(key, request, call, needs, note)
        except SqsError as error:
            self._note(error, request, call.action)
            raise
        return Permit(caller, checks)

    def _check_unused(self, signer: Signer, store: Any) -> None:
        if not store.servers.is_new(signer.signature, signer.until, int(self._clock())):
            raise signature_already_used()

    def _note(self, error: SqsError, request: Request, action: str) -> None:
        code = error.query_code
        text = "a request from %(peer)s is refused with %(code)s"
        self._failures.warning("refused", code, text, code=code, action=action, peer=request.peer)

    def _is_allowed(self, key: Key, action: str, queue: str | None) -> bool:
        if queue is None:
            return allowed(key, action, None)
        return allowed(key, action, scope_of(self._context.home, queue)[1])


def _required_permissions(context: Context, call: ApiCall) -> Iterator[tuple[str, str | None]]:
    """Yield each action that a call needs permission for, with the stored name of its queue; None: no queue."""
    params: Any = call.params
    action = call.action
    if action == "ListQueues":
        yield action, None
    elif action == "CreateQueue":
        own = stored_name(context.naming.home, context.scope, params.queue_name)
        yield action, own or f"{prefix(context.scope)}{params.queue_name}"  # the action refuses an impossible name
    elif action == "GetQueueUrl":
        yield action, context.stored_name(params.queue_name, params.queue_owner_aws_account_id)
    elif action in {"StartMessageMoveTask", "ListMessageMoveTasks"}:
        yield action, _queue_of_arn(context, params.source_arn)
        if action == "StartMessageMoveTask" and params.destination_arn is not None:
            yield "SendMessage", _queue_of_arn(context, params.destination_arn)
    elif action == "CancelMessageMoveTask":
        yield action, _queue_of_arn(context, _source_arn(params.task_handle))
    else:
        yield action, context.name(params.queue_url)


def _queue_of_arn(context: Context, arn: str) -> str:
    """Return the stored name of an ARN's queue; for an ARN that the action will refuse, one of the caller's scope."""
    return context.of_arn(arn) or f"{prefix(context.scope)}{arn.rpartition(':')[2]}"


def _header_action(request: Request) -> str:
    """Return the action named in the request's headers; "" if it is unknown or not named there."""
    name = request.headers.get(b"x-amz-target", b"").decode("latin-1").removeprefix("AmazonSQS.")
    return name if name in ACTIONS else ""


class _Handle(msgspec.Struct):
    """The part of a task handle that names its source queue."""

    source_arn: str = msgspec.field(name="sourceArn")


def _source_arn(handle: str) -> str:
    try:
        return msgspec.json.decode(base64.b64decode(handle, validate=True), type=_Handle).source_arn
    except (ValueError, RecursionError):
        raise invalid_parameter_value(f"Value {handle} for parameter TaskHandle is invalid.") from None
