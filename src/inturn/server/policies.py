"""What the policies of queues say of a request: what it needs to be allowed, and whether it is.

A key does what its configuration lets it do. A queue's policy takes away from that what it denies. A key of another
account than the queue's needs that the policy allows it, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from inturn.core import limits
from inturn.core.envelope import QueueInfo
from inturn.server.auth import ADMIN_ACTIONS, Key, denied, permission
from inturn.server.auth.conditions import facts_of
from inturn.server.auth.policy import OWNERS_ONLY, Asked, Decision, stored
from inturn.server.config import Server
from inturn.server.context import Context, kept
from inturn.server.errors import SqsError
from inturn.server.naming import scope_of
from inturn.server.request import Request
from inturn.server.wire import Call
from inturn.store.base import Store

POLICY: Final = "policy"
"""Under which name a queue's policy is kept with it."""

_DENIED: Final = " with an explicit deny in a resource-based policy"
_NEITHER: Final = " because no resource-based policy allows the sqs:{} action"
_OWNER: Final = " because only the queue's owner may do that"


class Need(NamedTuple):
    """An action that a request needs to be allowed, and with which queue; None: with none."""

    action: str
    queue: str | None


class Policies:
    """Asks the policies of queues.

    Args:
        context: how queues are named.
        server: how the endpoint is reached.
        clock: the time in seconds since 1970.
    """

    def __init__(self, context: Context, server: Server, clock: Callable[[], float]) -> None:
        self._context = context
        self._has_tls = server.tls_cert is not None
        front = urlsplit(server.base_url or "")
        self._front = front.netloc.lower().encode() if front.scheme == "https" else None
        self._clock = clock

    def concern(self, key: Key, queue: str) -> bool:
        """Whether a queue's policy can matter to a key, so that it must be asked; quick, since it mostly cannot."""
        info = self._context.db.store.queues.get(queue)
        if info is None or POLICY in info.settings.extra:  # what another server has made is not known yet
            return True
        return key.account != owner_of(self._context, queue)

    def ask(
        self, key: Key, request: Request, call: Call, needs: Sequence[Need], note: Callable[[SqsError], None]
    ) -> Callable[[Store], None] | None:
        """Ask the policies that are known; give what is to be asked in a transaction, if they are not sure.

        What is known in the event loop may be a moment old if other servers share the database. So what it refuses is
        asked once more where all is known, and so is what a queue says that is not known yet.

        Args:
            key: that signed the request.
            request: as it came.
            call: what it asks for.
            needs: what its key has been found to be configured for.
            note: told of a refusal.

        Returns:
            A function that raises :class:`SqsError` if a policy does not let the request pass; None: they all do.
        """
        queues = self._context.db.store.queues

        def again(store: Store) -> None:
            try:
                self.check(key, request, call, needs, store.queues)
            except SqsError as error:
                note(error)
                raise

        try:
            self.check(key, request, call, needs, queues)
        except SqsError:
            return again
        return None if all(need.queue is None or need.queue in queues for need in needs) else again

    def is_secure(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request came by TLS: to this server, or by the proxy that the base URL names."""
        return self._has_tls or (self._front is not None and headers.get(b"host", b"").lower() == self._front)

    def check(
        self, key: Key, request: Request, call: Call, needs: Iterable[Need], queues: Mapping[str, QueueInfo]
    ) -> None:
        """Ask the policies of all queues that a request is about.

        Args:
            key: that signed it.
            request: as it came.
            call: what it asks for.
            needs: what its key has been found to be configured for.
            queues: that there are.

        Raises:
            SqsError: if one of them does not let it.
        """
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
            if info is None and is_owner:  # the action says that it is not there; a stranger is not told
                continue
            policy = None if info is None else kept(info.settings, POLICY, None)
            names = tuple(f"sqs:{each.lower()}" for each in {action, permission(action)})
            asked = Asked(key.account, key.id, names, self._context.arn(queue), facts)
            why = _why_not(policy, asked, action, is_owner=is_owner)
            if why is not None:
                raise denied(key, action, asked.resource, key.account, why)


def owner_of(context: Context, queue: str) -> str:
    """Return the account that a queue belongs to, by its name in the store."""
    return scope_of(context.home, queue)[0].account


def _why_not(policy: str | None, asked: Asked, action: str, *, is_owner: bool) -> str | None:
    """Say why a policy does not let a request pass; None: it does."""
    decision = Decision.NEITHER if policy is None else stored(policy).decide(asked)
    if decision is Decision.DENIED:
        return _DENIED
    if is_owner:
        return None
    if action in OWNERS_ONLY:
        return _OWNER
    return None if decision is Decision.ALLOWED else _NEITHER.format(permission(action).lower())


def _implied(context: Context, call: Call, queues: Mapping[str, QueueInfo]) -> Iterator[Need]:
    """What a request does beside what it names: a move receives, deletes, and sends to where messages came from."""
    if call.action != "StartMessageMoveTask":
        return
    params: Any = call.params
    source = context.of_arn(params.source_arn)
    yield Need("ReceiveMessage", source)
    yield Need("DeleteMessage", source)
    if params.destination_arn is None:
        for name, info in list(queues.items()):  # the writer may change them meanwhile
            if info.settings.dead_letter == source and name != source:
                yield Need("SendMessage", name)


@lru_cache(limits.HOSTS)
def _address(peer: str) -> str:
    """Return the address of a peer: ``[::1]:5`` is ``::1``."""
    return peer.rpartition(":")[0].strip("[]").partition("%")[0]


def policies_in(store: Store) -> list[str]:
    """Return the names of the queues that have a policy."""
    return sorted(name for name, info in store.queues.items() if POLICY in info.settings.extra)
