"""The health pages: what each path answers, and that a slow database leaves room for health."""

import http.client
import json
import socket
import sys
import threading
from typing import Any

import pytest

from inturn.core.errors import InputError
from inturn.serving import asgi
from inturn.serving.health import health_server
from inturn.serving.listening import close, listening_sockets
from inturn.serving.metrics_page import metrics_page
from waiting import DEADLINE_S


def asked(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_health_server_answers_health_ready_and_metrics(is_ready: bool) -> None:
    status = {"ready": is_ready, "workers": []}
    with health_server("127.0.0.1:0", lambda: status, lambda: b"up 1\n") as server:
        assert asked(server.port, "/health") == (200, json.dumps(status).encode())
        assert asked(server.port, "/ready?x=1")[0] == (200 if is_ready else 503)
        assert asked(server.port, "/metrics") == (200, b"up 1\n")
        code, body = asked(server.port, "/none")
        assert (code, json.loads(body)) == (404, {"paths": ["/health", "/metrics", "/ready"]})
        assert asked(server.port, "/health", "HEAD") == (200, b"")
        assert asked(server.port, "/health", "POST")[0] == 405


def test_the_health_server_listens_on_ipv4_and_ipv6() -> None:
    for host in ("127.0.0.1", "::1"):
        with health_server(f"[{host}]:0", lambda: {"ready": True}, bytes) as server:
            assert asked(server.port, "/ready", host=host)[0] == 200


def test_metrics_without_prometheus_client_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "inturn.telemetry.collector", raising=False)
    with health_server("127.0.0.1:0", lambda: {"ready": True}, metrics_page([], list)) as server:
        assert asked(server.port, "/metrics") == (
            501,
            b"/metrics needs prometheus_client; install it with: pip install 'inturn[telemetry]'\n",
        )


def test_slow_metrics_do_not_block_the_health_page() -> None:
    released = threading.Event()

    def metrics() -> bytes:
        released.wait(DEADLINE_S)
        return b"late"

    answers: list[Any] = []
    with health_server("127.0.0.1:0", lambda: {"ready": True}, metrics) as server:
        waiting = [
            threading.Thread(target=lambda: answers.append(asked(server.port, "/metrics")), daemon=True)
            for _ in range(50)
        ]
        for thread in waiting:
            thread.start()
        for _ in range(3):
            assert asked(server.port, "/ready")[0] == 200
        assert not answers
        released.set()
        for thread in waiting:
            thread.join(DEADLINE_S)
    assert answers == [(200, b"late")] * 50


def test_a_failing_page_gets_500_and_the_server_continues() -> None:
    def failing() -> bytes:
        raise ValueError("a bug")

    with health_server("127.0.0.1:0", lambda: {"ready": True}, failing) as server:
        assert asked(server.port, "/metrics")[0] == 500
        assert asked(server.port, "/health")[0] == 200


def test_a_health_port_in_use_is_named() -> None:
    sockets = listening_sockets("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    with pytest.raises(InputError, match=f"port {port} on 127.0.0.1 is in use"):
        health_server(f"127.0.0.1:{port}", dict, bytes)
    close(sockets)


def test_stopping_an_unstarted_health_server_frees_its_port() -> None:
    server = health_server("127.0.0.1:0", dict, bytes)
    port = server.port
    server.stop()
    close(listening_sockets("127.0.0.1", port))


def test_stopping_the_health_server_does_not_wait_for_a_hanging_page() -> None:
    begun, released = threading.Event(), threading.Event()

    def metrics() -> bytes:
        begun.set()
        released.wait(DEADLINE_S)
        return b""

    server = health_server("127.0.0.1:0", lambda: {"ready": True}, metrics)
    server.start()
    asking = threading.Thread(target=lambda: asked(server.port, "/metrics"), daemon=True)
    asking.start()
    assert begun.wait(DEADLINE_S)
    server.stop()
    assert not server._thread.is_alive()
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "inturn-health-read"] == [True]
    released.set()
    asking.join(DEADLINE_S)


def test_a_client_without_a_complete_request_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "_HEAD_S", 0.2)
    with health_server("127.0.0.1:0", lambda: {"ready": True}, bytes) as server:
        for begun in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET"):
            with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as client:
                client.sendall(begun)
                while client.recv(1000):  # until the server closes
                    pass
