"""Access to the console: tokens, browser sessions, and users that a trusted proxy names."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from inturn.console.config import ConsoleConfig, TrustedProxy
from inturn.console.refusal import RequestRefused
from inturn.console.roles import Person, Role
from inturn.core.errors import InputError
from inturn.serving.secrets import with_secret

SESSION_S: Final = 12 * 3600.0
MOST_FAILURES: Final = 10
"""After this number of wrong tokens from one address, its tokens are refused unchecked for ``FAILURES_S``."""
FAILURES_S: Final = 60.0
_MOST_SESSIONS: Final = 10_000
_MOST_ADDRESSES: Final = 10_000


class ConsoleAccess:
    """The users of a console.

    Args:
        config: the configuration.
        anyone: the user assumed for every request to a console without log-in.
        clock: the time in seconds, from any start.

    Raises:
        InputError: if a token cannot be read, is too short, or belongs to two people.

    Attributes:
        cookie: the name of the session cookie. Each console has a name of its own, since a browser sends the cookies
            of a host to all of its ports.
    """

    def __init__(self, config: ConsoleConfig, anyone: Person, clock: Callable[[], float] = time.monotonic) -> None:
        self.cookie = f"inturn_console_{secrets.token_hex(4)}"
        self._clock, self._failures = clock, FailedLogIns(clock)
        self._key = secrets.token_bytes(32)
        self._anyone = None if config.has_log_in else anyone
        self._proxy = config.proxy
        self._people: dict[bytes, Person] = {}
        for account in config.people:
            digest = _digest(with_secret(account, "token", Path()).token or "")
            if digest in self._people:
                raise InputError(f"people: {account.name!r} and {self._people[digest].name!r} have the same token")
            self._people[digest] = Person(account.name, account.role)
        self._sessions: dict[str, tuple[Person, float]] = {}
        self._mutex = threading.Lock()

    @property
    def has_log_in(self) -> bool:
        """Return whether the console identifies its users."""
        return self._anyone is None

    @property
    def accepts_tokens(self) -> bool:
        """Return whether a person can log in with a token."""
        return bool(self._people)

    def person(self, request: Request) -> Person | None:
        """Return the user of a request, by session, bearer token or proxy header; None: not identified."""
        if self._anyone is not None:
            return self._anyone
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.with_token(token.strip(), address_of(request))
        with self._mutex:
            person, until = self._sessions.get(self._session(request), (None, 0.0))
        if person is not None and self._clock() < until:
            return person
        return None if self._proxy is None else _proxy_person(self._proxy, request)

    def with_token(self, token: str, address: str) -> Person | None:
        """Return the person with a token; None: it is not valid, which is counted for the address.

        Raises:
            RequestRefused: if the address sent too many wrong tokens; the token was not checked.
        """
        self._failures.check(address)
        person = self._person_of_token(token)
        if person is None:
            self._failures.add(address)
        return person

    def form_token(self, request: Request) -> str:
        """Return the token that forms must contain; it is bound to the session or the person."""
        person = self._anyone or (None if self._proxy is None else _proxy_person(self._proxy, request))
        owner = f"{self._session(request)}\n{person.name if person else ''}"
        return hmac.new(self._key, owner.encode("utf-8", "replace"), "sha256").hexdigest()

    def _person_of_token(self, token: str) -> Person | None:
        token_digest = _digest(token)
        matched = None
        for digest, person in self._people.items():  # compare all, so that the duration reveals nothing
            if hmac.compare_digest(digest, token_digest):
                matched = person
        return matched

    def log_in(self, request: Request, response: Response, person: Person) -> None:
        """Begin a session: set a cookie that scripts cannot read and that is not sent for other sites.

        The previous session of the browser ends.
        """
        name, now = secrets.token_urlsafe(32), self._clock()
        with self._mutex:
            self._sessions.pop(self._session(request), None)
            self._sessions = {name: session for name, session in self._sessions.items() if session[1] > now}
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[name] = (person, now + SESSION_S)
        response.set_cookie(
            self.cookie,
            name,
            max_age=int(SESSION_S),
            path=request.scope.get("root_path", "") or "/",
            secure=_is_encrypted(request),
            httponly=True,
            samesite="strict",
        )

    def log_out(self, request: Request, response: Response) -> None:
        """End the session of a browser."""
        with self._mutex:
            self._sessions.pop(self._session(request), None)
        response.delete_cookie(self.cookie, path=request.scope.get("root_path", "") or "/")

    def _session(self, request: Request) -> str:
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""


class FailedLogIns:
    """The number of wrong tokens per address in the last minute; it slows down guessing.

    Args:
        clock: the time in seconds, from any start.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, float]] = {}
        self._mutex = threading.Lock()

    def check(self, address: str) -> None:
        """Check that a token from an address may be checked.

        Raises:
            RequestRefused: if the address sent too many wrong tokens.
        """
        with self._mutex:
            count, until = self._counts.get(address, (0, 0.0))
            remaining_s = until - self._clock()
        if count >= MOST_FAILURES and remaining_s > 0:
            msg = f"{count} wrong tokens were sent from {address}; try again in {remaining_s:.0f} s"
            raise RequestRefused(msg, 429)

    def add(self, address: str) -> None:
        """Count a wrong token."""
        now = self._clock()
        with self._mutex:
            count, until = self._counts.pop(address, (0, 0.0))
            if until <= now:
                count = 0
            while len(self._counts) >= _MOST_ADDRESSES:
                del self._counts[next(iter(self._counts))]
            self._counts[address] = (count + 1, now + FAILURES_S)


def _proxy_person(proxy: TrustedProxy, request: Request) -> Person | None:
    """Return the person that the proxy names; None if the request has another address, or names no person."""
    if request.client is None or request.client.host not in proxy.addresses:
        return None
    name = _single_header(request, proxy.user_header)
    if not name:
        return None
    if proxy.role_header is None:
        return Person(name, proxy.role)
    role = _single_header(request, proxy.role_header)
    try:
        return Person(name, Role(role) if role else proxy.role)
    except ValueError:
        return None


def _single_header(request: Request, header: str) -> str:
    """Return the value of a header that occurs once: of two, one may be from the browser."""
    values = request.headers.getlist(header)
    return values[0].strip() if len(values) == 1 else ""


def address_of(request: Request) -> str:
    """Return the client address of a request."""
    return request.client.host if request.client else "a socket"


def _is_encrypted(request: Request) -> bool:
    """Return whether the browser uses HTTPS, with this server or with a proxy in front of it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
