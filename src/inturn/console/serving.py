"""Serving of a console over HTTP or HTTPS: in this thread until a signal, or in a separate thread."""

import asyncio
import getpass
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from inturn.core.errors import InputError
from inturn.core.override import override

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
PORT: Final = 9325
_STOP_S: Final = 10.0


def check_exposure(host: str, *, has_log_in: bool) -> None:
    """Check that a console without log-in listens on a loopback address only.

    Raises:
        InputError: if the address is another one.
    """
    if host.strip("[]") not in LOCAL and not has_log_in:
        raise InputError(
            f"--host is {host}, but a console that has no log-in may listen only on 127.0.0.1, ::1 or localhost; for "
            "other addresses, configure people or a proxy in a file for --config, or use an SSH tunnel"
        )


def user_name() -> str:
    """Return the name of the user who runs this process; empty if unknown."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""


class _StreamingServer(uvicorn.Server):
    """A server that, when it stops, ends the streams of open pages and then waits only for requests."""

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.config.app.state.end_streams()  # type: ignore[union-attr]  # a Starlette application
        await super().shutdown(sockets)


class ConsoleServer:
    """A server of a console; it listens once constructed, so that clients can connect at once.

    Args:
        app: the console.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        tls_cert: the certificate, PEM; None: plain HTTP.
        tls_key: the certificate's key, PEM.

    Raises:
        InputError: if the address or the certificate is not usable.

    Attributes:
        url: the address of the console.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = PORT,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
    ) -> None:
        name = host.strip("[]")
        config = uvicorn.Config(
            app,
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # the proxy's own address is compared, not one from a header
            server_header=False,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            timeout_graceful_shutdown=5,  # for a running action
        )
        try:
            config.load()
        except (OSError, ValueError) as error:
            raise InputError(f"the certificate {tls_cert} with the key {tls_key} cannot be used: {error}") from error
        self._server = _StreamingServer(config)
        self._socket = _listening(name, port)
        self._thread: threading.Thread | None = None
        shown, scheme = f"[{name}]" if ":" in name else name, "https" if tls_cert else "http"
        self.url = f"{scheme}://{shown}:{self._socket.getsockname()[1]}/"

    def run(self) -> None:
        """Serve in this thread until SIGINT or SIGTERM, which is raised again."""
        with self._socket:
            self._server.run([self._socket])

    def start(self) -> None:
        """Serve in a separate thread until :meth:`stop`."""
        serving = self._server.serve([self._socket])
        self._thread = threading.Thread(target=lambda: asyncio.run(serving), name="inturn-console", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after running requests have ended; wait for at most ten seconds."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_S)
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family)
    try:
        if os.name == "posix":
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen()
    except OSError as error:
        server.close()
        raise InputError(f"the console cannot listen on {host}:{port}: {error.strerror or error}") from error
    return server
