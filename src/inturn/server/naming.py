"""Which queue a name, a URL or an ARN means: names are unique within a region of an account.

A store knows names only. A queue of the server's own region and account, its home, bears its bare name in the store, as
queues do that are made in Python. Any other bears its ARN there, ``arn:aws:sqs:eu-west-1:111122223333:payments``. So
each has one name, by which Python, the command line, logs and metrics know it too, and no store has to be changed.

A URL says the account, and the region if that is not the home's: ``http://host/queue/eu-west-1/111122223333/payments``.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from inturn.core.errors import InputError

REGION: Final = "[a-z0-9-]{1,32}"
ACCOUNT: Final = "[0-9]{12}"

_ARNS: Final = "arn:aws:sqs:"
_ARN: Final = re.compile(f"{_ARNS}({REGION}):({ACCOUNT}):(.+)", re.DOTALL)
_QUEUE: Final = "queue"  # what stands before the region in a URL; other paths before an account are a proxy's
_REGION: Final = re.compile(REGION)
_ACCOUNT: Final = re.compile(ACCOUNT)


class Scope(NamedTuple):
    """A region of an account, in which the names of queues are unique."""

    region: str
    account: str

    def __str__(self) -> str:
        """As people are told of it."""
        return f"{self.region} of {self.account}"


class Home(NamedTuple):
    """A server's own region and account.

    Attributes:
        scope: the two.
        by_arn: which of its queues bear their ARN in the store all the same; see :func:`named_by_arn`.
    """

    scope: Scope
    by_arn: frozenset[str] = frozenset()


class Caller(NamedTuple):
    """Who asks, and from where.

    Attributes:
        sender: the id of an access key; "" if nobody must say.
        region: for which the request is signed; None: it does not say.
        account: of the key; None: the server's.
    """

    sender: str = ""
    region: str | None = None
    account: str | None = None


class Address(NamedTuple):
    """What a queue's URL says.

    Attributes:
        region: None: nothing of it.
        account: None: nothing of it; then it says nothing of the region either.
        name: of the queue; "" if it names none.
    """

    region: str | None
    account: str | None
    name: str


def is_region(text: str) -> bool:
    """Say whether a text can be a region."""
    return _REGION.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Say whether a text can be the number of an account."""
    return _ACCOUNT.fullmatch(text) is not None


def address(url: str) -> Address:
    """Return what a queue's URL says; a name alone does too, as with the service."""
    before, _, name = url.rpartition("/")
    parts = before.rsplit("/", 3)
    account = parts[-1] if is_account(parts[-1]) else None
    region = parts[-2] if account is not None and parts[-3:-2] == [_QUEUE] else None
    return Address(region, account, unquote(name) if "%" in name else name)


def url(base: str, home: Scope, stored: str) -> str:
    """Return the URL of a queue.

    Args:
        base: what the URLs of all queues begin with.
        home: the server's own region and account.
        stored: the queue's name in the store.
    """
    (region, account), name = scope_of(home, stored)
    where = account if region == home.region else f"{_QUEUE}/{region}/{account}"
    return f"{base.rstrip('/')}/{where}/{quote(name, safe='')}"


def arn(home: Scope, stored: str) -> str:
    """Return the ARN of the queue that has this name in the store."""
    return stored if _ARN.fullmatch(stored) else f"{prefix(home)}{stored}"


def prefix(scope: Scope) -> str:
    """Return what the ARNs of all queues of a scope begin with."""
    return f"{_ARNS}{scope.region}:{scope.account}:"


def parsed(text: str) -> tuple[Scope, str] | None:
    """Return the scope and the name that an ARN of a queue says; None if it is none."""
    found = _ARN.fullmatch(text)
    return None if found is None else (Scope(found[1], found[2]), found[3])


def stored_name(home: Home, scope: Scope, name: str) -> str | None:
    """Return the name in the store of a queue; None if there can be no such queue, since its name is an ARN."""
    if name.startswith(_ARNS):
        return None
    return name if scope == home.scope and name not in home.by_arn else f"{prefix(scope)}{name}"


def scope_of(home: Scope, stored: str) -> tuple[Scope, str]:
    """Return the scope and the bare name of the queue that has this name in the store."""
    return parsed(stored) or (home, stored)


def named_by_arn(home: Scope, queues: Collection[str]) -> frozenset[str]:
    """Return which queues of the home bear their ARN in the store: they were made while the home was another.

    Args:
        home: the server's own region and account.
        queues: the names in the store.

    Raises:
        InputError: if one of them has the name of a queue that bears its bare name.
    """
    start = prefix(home)
    found = {each.removeprefix(start) for each in queues if each.startswith(start)}
    twice = sorted(found.intersection(queues))
    if twice:
        msg = (
            f"with server.region {home.region!r} and server.account {home.account!r} two queues of the database have "
            f"one name: {twice[0]!r} and {prefix(home)}{twice[0]}, which was made while they were others. Set them as "
            "they were, or empty one of the queues and delete it (inturn queue delete)"
        )
        raise InputError(msg)
    return frozenset(found)
