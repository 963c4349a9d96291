"""Authorisation by queue policies: the permissions that a request needs, and the policies' decision.

A key may do what its configuration permits. A queue's policy can deny parts of that. A key of another account than the
queue's also needs an allowing statement of the policy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from inturn.core.queue.messages import QueueInfo
from inturn.serving.http.http1 import Request
from inturn.sqs import limits
from inturn.sqs.auth import ADMIN_ACTIONS, Key, denied, permission
from inturn.sqs.auth.conditions import facts_of
from inturn.sqs.auth.policy import OWNERS_ONLY, PolicyDecision, PolicyRequest, stored
from inturn.sqs.config import ServerConfig
from inturn.sqs.context import Context, extra_setting
from inturn.sqs.errors import SqsError
from inturn.sqs.naming import scope_of
from inturn.sqs.wire import ApiCall
from inturn.store.protocols import Store

POLICY: Final = "policy"
"""The name of a queue's policy among its ``extra`` settings."""

_DENIED: Final = " with an explicit deny in a resource-based policy"
_NEITHER: Final = " because no resource-based policy allows the sqs:{} action"
_OWNER: Final = " because only the queue's owner may do that"


class RequiredPermission(NamedTuple):
    """An action that a request needs permission for, and its queue; None: no queue."""

    action: str
    queue: str | None


class Policies:
    """The evaluation of queue policies."""

    def __init__(self, context: Context, server: ServerConfig, clock: Callable[[], float]) -> None:
        self._context = context
        self._has_tls = server.tls_cert is not None
        front = urlsplit(server.base_url or "")
        self._front = front.netloc.lower().encode() if front.scheme == "https" else None
        self._clock = clock

    def may_matter(self, key: Key, queue: str) -> bool:
        """Return whether a queue's policy can matter to a key; a quick check, since it rarely does."""
        info = self._context.db.store.queues.get(queue)
        if info is None or POLICY in info.settings.extra:  # another server may have created the queue
            return True
        return key.account != owner_of(self._context, queue)

    def evaluate(
        self,
        key: Key,
        request: Request,
        call: ApiCall,
        needs: Sequence[RequiredPermission],
        note: Callable[[SqsError], None],
    ) -> Sequence[Callable[[Store], None]]:
        """Evaluate the known policies; return the check to repeat in a transaction, if they are not conclusive.

        The policies known in the event loop may be slightly stale if other servers share the database. So a refusal is
        checked again in a transaction, and so is a queue that is not known yet. ``needs`` are the permissions that the
        key's configuration has granted; ``note`` is called with a refusal.
        """
        queues = self._context.db.store.queues

        def recheck(store: Store) -> None:
            try:
                self.check(key, request, call, needs, store.queues)
            except SqsError as error:
                note(error)
                raise

        try:
            self.check(key, request, call, needs, queues)
        except SqsError:
            return [recheck]
        return [] if all(need.queue is None or need.queue in queues for need in needs) else [recheck]

    def is_secure(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request came by TLS: to this server, or to the proxy that the base URL names."""
        return self._has_tls or (self._front is not None and headers.get(b"host", b"").lower() == self._front)

    def check(
        self,
        key: Key,
        request: Request,
        call: ApiCall,
        needs: Iterable[RequiredPermission],
        queues: Mapping[str, QueueInfo],
    ) -> None:
        """Refuse a request if the policy of a queue that it concerns does."""
        facts = facts_of(
            account=key.account,
            key_id=key.id,
            address=_address(request.peer),
            is_secure=self.is_secure(request.headers),
            now=self._clock(),
        )
        for action, queue in (*needs, *_implied(self._context, call, queues)):
            if queue is None or (key.admin and action in ADMIN_ACTIONS):
                continue
            info, is_owner = queues.get(queue), key.account == owner_of(self._context, queue)
            if info is None and is_owner:  # the action reports a missing queue, but not to other accounts
                continue
            policy = None if info is None else extra_setting(info.settings, POLICY, None)
            names = tuple(f"sqs:{name.lower()}" for name in {action, permission(action)})
            policy_request = PolicyRequest(key.account, key.id, names, self._context.arn(queue), facts)
            reason = _refusal_reason(policy, policy_request, action, is_owner=is_owner)
            if reason is not None:
                raise denied(key, action, policy_request.resource, key.account, reason)


def owner_of(context: Context, queue: str) -> str:
    """Return the account that owns a queue, given by its name in the store."""
    return scope_of(context.home, queue)[0].account


def _refusal_reason(policy: str | None, policy_request: PolicyRequest, action: str, *, is_owner: bool) -> str | None:
    """Return why a policy refuses a request; None if it does not."""
    decision = PolicyDecision.NEITHER if policy is None else stored(policy).decide(policy_request)
    if decision is PolicyDecision.DENIED:
        return _DENIED
    if is_owner:
        return None
    if action in OWNERS_ONLY:
        return _OWNER
    return None if decision is PolicyDecision.ALLOWED else _NEITHER.format(permission(action).lower())


def _implied(context: Context, call: ApiCall, queues: Mapping[str, QueueInfo]) -> Iterator[RequiredPermission]:
    """Yield the needs that a move task adds: receive and delete at its source, send to its messages' origins."""
    if call.action != "StartMessageMoveTask":
        return
    params: Any = call.params
    source = context.of_arn(params.source_arn)
    yield RequiredPermission("ReceiveMessage", source)
    yield RequiredPermission("DeleteMessage", source)
    if params.destination_arn is None:
        for name, info in list(queues.items()):  # the writer may change the queues meanwhile
            if info.settings.dead_letter == source and name != source:
                yield RequiredPermission("SendMessage", name)


@lru_cache(limits.HOSTS)
def _address(peer: str) -> str:
    """Return the address of a peer: ``[::1]:5`` is ``::1``."""
    return peer.rpartition(":")[0].strip("[]").partition("%")[0]


def policies_in(store: Store) -> list[str]:
    """Return the names of the queues that have a policy."""
    return sorted(name for name, info in store.queues.items() if POLICY in info.settings.extra)
