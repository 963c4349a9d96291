"""The naming of queues by stored name, URL and ARN: a name is unique within a region of an account.

A store knows names only. A queue of the server's own region and account, its home, has its bare name in the store, as
do queues created from Python. Any other has its ARN as its stored name,
``arn:aws:sqs:eu-west-1:111122223333:payments``. So each queue has one name, which Python, the command line, logs and
metrics use too, and existing stores need no change.

A URL holds the account, and the region if it is not the home's:
``http://host/queue/eu-west-1/111122223333/payments``.
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
_QUEUE: Final = "queue"  # precedes the region in a URL; any other path before an account is a proxy's
_REGION: Final = re.compile(REGION)
_ACCOUNT: Final = re.compile(ACCOUNT)


class Scope(NamedTuple):
    """A region and an account, within which queue names are unique."""

    region: str
    account: str

    def __str__(self) -> str:
        """Return the scope as text for users."""
        return f"region {self.region} of account {self.account}"


class Home(NamedTuple):
    """A server's own region and account, and its queues with their ARN as stored name: see :func:`named_by_arn`."""

    scope: Scope
    by_arn: frozenset[str] = frozenset()


class RequestOrigin(NamedTuple):
    """The sender of a request.

    Attributes:
        sender: the id of its access key; "" on an endpoint without keys.
        region: the region that the request is signed for; None if it is unsigned.
        account: the key's account; None: the server's.
    """

    sender: str = ""
    region: str | None = None
    account: str | None = None


class ParsedUrl(NamedTuple):
    """The parts of a queue's URL: region and account are None if it has none, the name is "" if it names none."""

    region: str | None
    account: str | None
    name: str


def is_region(text: str) -> bool:
    """Return whether a text can be a region."""
    return _REGION.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Return whether a text can be an account number."""
    return _ACCOUNT.fullmatch(text) is not None


def parse_url(url: str) -> ParsedUrl:
    """Parse a queue's URL; a bare name is accepted too, as in SQS."""
    before, _, name = url.rpartition("/")
    parts = before.rsplit("/", 3)
    account = parts[-1] if is_account(parts[-1]) else None
    region = parts[-2] if account is not None and parts[-3:-2] == [_QUEUE] else None
    return ParsedUrl(region, account, unquote(name) if "%" in name else name)


def url(base: str, home: Scope, stored: str) -> str:
    """Return the URL of a queue, given the start of all URLs and the queue's name in the store."""
    (region, account), name = scope_of(home, stored)
    where = account if region == home.region else f"{_QUEUE}/{region}/{account}"
    return f"{base.rstrip('/')}/{where}/{quote(name, safe='')}"


def arn(home: Scope, stored: str) -> str:
    """Return the ARN of the queue with this name in the store."""
    return stored if _ARN.fullmatch(stored) else f"{prefix(home)}{stored}"


def prefix(scope: Scope) -> str:
    """Return the prefix of the ARNs of a scope's queues."""
    return f"{_ARNS}{scope.region}:{scope.account}:"


def parse_arn(text: str) -> tuple[Scope, str] | None:
    """Return the scope and the name in a queue's ARN; None if the text is no such ARN."""
    match = _ARN.fullmatch(text)
    return None if match is None else (Scope(match[1], match[2]), match[3])


def stored_name(home: Home, scope: Scope, name: str) -> str | None:
    """Return the name of a queue in the store; None if no queue can have the name, because it is an ARN."""
    if name.startswith(_ARNS):
        return None
    return name if scope == home.scope and name not in home.by_arn else f"{prefix(scope)}{name}"


def scope_of(home: Scope, stored: str) -> tuple[Scope, str]:
    """Return the scope and the bare name of the queue with this name in the store."""
    return parse_arn(stored) or (home, stored)


def named_by_arn(home: Scope, queues: Collection[str]) -> frozenset[str]:
    """Return the home's queues that have their ARN as stored name: they were created while another home was set.

    Raises:
        InputError: if another queue has the bare name of one of them.
    """
    start = prefix(home)
    bare_names = {stored.removeprefix(start) for stored in queues if stored.startswith(start)}
    shared = sorted(bare_names.intersection(queues))
    if shared:
        raise InputError(
            f"with server.region {home.region!r} and server.account {home.account!r}, two queues of the database have "
            f"the same name: {shared[0]!r} and {prefix(home)}{shared[0]}, which was created under other settings. "
            "Restore the previous settings, or empty one of the queues and delete it (inturn queue delete)"
        )
    return frozenset(bare_names)
