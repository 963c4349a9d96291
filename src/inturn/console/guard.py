"""Middleware around the whole console: allowed hosts, the headers of every answer, and unexpected errors."""

import logging
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inturn.core.errors import InputError

_LOG: Final = logging.getLogger(__name__)
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer; see reports.py for the one exception."""


class RequestGuard:
    """Middleware that answers requests for the console's own hosts alone, and sets :data:`HEADERS` on each answer.

    Args:
        app: the application within.
        hosts: the host names that requests may use; ``*.example.org`` includes all subdomains, ``*`` is any host.

    Raises:
        InputError: if a host name is not valid.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        for host in hosts:
            rest = host.removeprefix("*.") if host != "*" else "any"
            if not rest or any(letter in rest for letter in "*/@ ") or rest.rpartition("]")[2].count(":"):
                raise InputError(f"hosts: invalid host name {host!r}; write console.example.org or *.example.org")
        self._app, self._hosts = app, [name.lower() for name in hosts]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; an unexpected error is logged and answered with status 500, without details."""
        if scope["type"] == "websocket":  # there are none
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a report has a stricter policy of its own
            await send(message)

        if not self._is_own(Headers(scope=scope)):
            await PlainTextResponse("unknown host name; add it to the console's hosts", 400)(scope, receive, sent)
            return
        try:
            await self._app(scope, receive, sent)
        except Exception:
            _LOG.exception("the console could not answer %s %s", scope["method"], scope["path"])
            if has_begun:
                raise
            await PlainTextResponse("internal error; see the console's log", 500)(scope, receive, sent)

    def _is_own(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return False
        name, sign, port = hosts[0].lower().rpartition(":")
        if not sign or "]" in port:  # [::1] without a port
            name, port = hosts[0].lower(), "0"
        if not (port.isascii() and port.isdigit()):
            return False
        return any(
            pattern in {"*", name} or (pattern[:1] == "*" and name.endswith(pattern[1:])) for pattern in self._hosts
        )
