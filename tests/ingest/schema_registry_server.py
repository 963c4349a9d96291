"""A schema registry over HTTP, with as much of Confluent's interface as its clients use in tests."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from waiting import DEADLINE_S

NOT_FOUND = (404, {"error_code": 40403, "message": "Schema not found"})


class Registry:
    """What a registry keeps; ``answer`` is given in place of its own, and ``login`` is asked for."""

    def __init__(self, port: int = 0) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.answer: tuple[int, Any] | None = None
        self.login: str | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        """Free the port, so that nothing answers there."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)

    def start(self) -> None:
        """Answer at the same port again."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def answered(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, Any]:
        """Return the status and the answer to a request."""
        self.asked.append(f"{method} {path}")
        if self.answer is not None:
            return self.answer
        if self.login is not None and authorization != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        return self._found(method, path, body)

    def _found(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match [method, *path.strip("/").split("/")]:
            case ["POST", "subjects", subject, "versions"]:
                return self._registered(subject, body)
            case ["POST", "subjects", subject]:
                known_ids = [id_ for id_ in self.subjects.get(subject, []) if self.schemas[id_ - 1] == _schema(body)]
                return (200, self._version(subject, known_ids[0])) if known_ids else NOT_FOUND
            case ["GET", "schemas", "ids", id_]:
                known = 0 < int(id_) <= len(self.schemas)
                return (200, self.schemas[int(id_) - 1]) if known else NOT_FOUND
            case ["GET", "subjects", subject, "versions", version]:
                ids = self.subjects.get(subject, [])
                place = -1 if version == "latest" else int(version) - 1
                return (200, self._version(subject, ids[place])) if ids else NOT_FOUND
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _registered(self, subject: str, body: Any) -> tuple[int, Any]:
        schema = _schema(body)
        if schema not in self.schemas:
            self.schemas.append(schema)
        id_ = self.schemas.index(schema) + 1
        ids = self.subjects.setdefault(subject, [])
        if id_ not in ids:
            ids.append(id_)
        return 200, {"id": id_}

    def _version(self, subject: str, id_: int) -> dict[str, Any]:
        version = self.subjects[subject].index(id_) + 1
        return {"subject": subject, "version": version, "id": id_, **self.schemas[id_ - 1]}


def _schema(body: Any) -> dict[str, Any]:
    return {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, body: Any) -> None:
            path = urlsplit(self.path).path
            status, answer = registry.answered(self.command, path, body, self.headers["Authorization"])
            response = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(response)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(response)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def registry() -> Iterator[Registry]:
    """A registry for the time of a test."""
    server = Registry()
    try:
        yield server
    finally:
        server.stop()
