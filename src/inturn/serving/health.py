"""A health endpoint: ``/health``: the process lives; ``/ready``: all workers run; ``/metrics``: for Prometheus."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from inturn.core.errors import InputError, SetupError
from inturn.telemetry.families import PAGE_TYPE


class HealthEndpoint:
    """The endpoint, in a thread, for ``with``.

    Args:
        address: ``HOST:PORT``, or ``PORT`` of 127.0.0.1; port 0 means any free port.
        status: returns a JSON document whose ``ready`` is whether all workers run.
        metrics: returns the page for Prometheus; raises SetupError if a package for it is missing.

    Raises:
        InputError: if the address is malformed.
        SetupError: if it cannot listen on the address.
    """

    def __init__(self, address: str, status: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise InputError(f"invalid address {address!r} to listen on: expected HOST:PORT, such as 127.0.0.1:8080")

        class Probe(BaseHTTPRequestHandler):
            timeout = 10  # seconds for a client that sends nothing

            def do_GET(self) -> None:
                found, path = status(), self.path.partition("?")[0]
                known = {"/health": 200, "/ready": 200 if found["ready"] else 503}
                if path == "/metrics":
                    try:
                        self._answer(200, metrics(), PAGE_TYPE)
                    except SetupError as error:
                        self._answer(501, f"{error}\n".encode(), "text/plain; charset=utf-8")
                    return
                document = found if path in known else {"paths": sorted({*known, "/metrics"})}
                self._answer(known.get(path, 404), json.dumps(document).encode(), "application/json")

            def _answer(self, code: int, body: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
                """Log nothing: a probe sends a request every few seconds."""

        class ProbeServer(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = ProbeServer((host.strip("[]") or "127.0.0.1", int(port)), Probe)
        except OSError as error:
            raise SetupError(f"cannot listen on {address}: {error.strerror or error}") from error

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    def __enter__(self) -> Self:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, name="inturn-health", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
