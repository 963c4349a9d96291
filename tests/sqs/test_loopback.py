"""An endpoint without keys serves this machine, and no web page that somebody looks at there; nor do its pages."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from served import Answer, Served, code_of
from signing import signed

import inturn
from inturn.serving.http.http1 import Request, Response
from inturn.sqs.auth import Key
from inturn.sqs.config import AccessKey, Config, ServerConfig
from inturn.sqs.run import Endpoint
from raw_http import Client

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
IMAGE = "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "q.db", Config(server=ServerConfig(port=0))) as served:
        served.db.queue("orders").send("x")
        yield served
        assert served.errors == []


def ask(port: int, target: str, *headers: str, method: str = "GET", host: str = "") -> Answer:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", *headers, "\r\n"]
    with Client(port) as client:
        client.send("\r\n".join(lines).encode())
        return Answer(*client.answer(is_head=method == "HEAD"))


def delete(served: Served) -> str:
    return f"/?Action=DeleteQueue&QueueUrl={quote(served.url, safe='')}/000000000000/orders"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "header",
    [
        f"Accept: {BROWSER}",
        f"Accept: {IMAGE}",
        "Accept: text/css,*/*;q=0.1",
        "Referer: http://example.org/page",
        "Referer: http://127.0.0.1:1/page",
        "Referer: //[x",
        "Origin: http://example.org",
        "Sec-Fetch-Site: cross-site",
    ],
)
def test_without_keys_a_request_url_from_a_web_page_gets_403(served: Served, method: str, header: str) -> None:
    for target in (delete(served), f"{delete(served)}&X-Amz-Signature=0"):
        assert ask(served.port, target, header, method=method).status == 403
    assert served.db.queues() == ["orders"]


def test_without_keys_requests_of_other_clients_are_accepted(served: Served) -> None:
    url = f"{served.url}/000000000000/orders"
    own = f"Referer: {served.url}/"
    assert code_of(ask(served.port, f"/?Action=ListQueues&x={quote(url, safe='')}", f"Accept: {BROWSER}")) == ""
    assert code_of(ask(served.port, "/000000000000/orders?Action=SendMessage&MessageBody=x", "Accept: */*", own)) == ""
    signature = "Authorization: AWS4-HMAC-SHA256 Credential=any"
    assert code_of(ask(served.port, delete(served), signature, f"Accept: {BROWSER}")) == ""
    assert served.db.queues() == []


def test_with_keys_a_signed_request_from_a_web_page_is_accepted(tmp_path: Path) -> None:
    key = Key("all", "s1")
    config = Config(server=ServerConfig(port=0), keys=(AccessKey(id=key.id, secret=key.secret),))
    with Served(tmp_path / "q.db", config) as served:
        url = f"{served.url}/?Action=CreateQueue&QueueName=made"
        target = signed(url, b"", {}, method="GET", key=key, time_s=time.time(), expires=60).target.decode()
        assert code_of(ask(served.port, target, f"Accept: {BROWSER}", "Referer: http://example.org/")) == ""
        assert ask(served.port, "/?Action=CreateQueue&QueueName=other").status == 403
        assert served.db.queues() == ["made"]


@pytest.mark.parametrize("target", ["/health", "/ready", "/metrics"])
def test_health_and_metrics_refuse_web_pages_of_other_origins(served: Served, target: str) -> None:
    assert ask(served.port, target).status == ask(served.port, target, method="HEAD").status == 200
    for refused in (
        ask(served.port, target, host="rebound.example.org"),
        ask(served.port, target, "Origin: http://example.org"),
        ask(served.port, target, "Sec-Fetch-Site: same-site"),
    ):
        assert (refused.status, b"refuses requests from web pages" in refused.body) == (403, True)


def test_local_metrics_refuse_another_host_name_with_keys_too(tmp_path: Path) -> None:
    keys = (AccessKey(id="all", secret="s1"),)  # noqa: S106
    for metrics, status in (("local", 403), ("all", 200)):
        config = Config(server=ServerConfig(port=0, metrics=metrics), keys=keys)  # type: ignore[arg-type]
        with Served(tmp_path / "q.db", config) as served:
            assert ask(served.port, "/metrics").status == 200
            assert ask(served.port, "/metrics", host="rebound.example.org").status == status
            assert ask(served.port, "/health", host="queues.internal").status == 200, "it says nothing of anybody"


def test_a_browser_gets_a_page_that_names_the_endpoint(served: Served) -> None:
    for target in ("/", "/?x=1"):
        answer = ask(served.port, target, f"Accept: {BROWSER}")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"This is an SQS endpoint" in answer.body
        assert b"docs/server.md" in answer.body
        assert not any(word in answer.body for word in (b"src=", b"<link", b"<script", b"@import", b"url("))
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert ask(served.port, "/").status == 404
    assert ask(served.port, "/?Action=Fly", f"Accept: {BROWSER}").status == 400
    assert ask(served.port, "/", f"Accept: {BROWSER}", host="rebound.example.org").status == 403


def test_ready_gets_200_until_the_endpoint_stops(tmp_path: Path) -> None:
    async def main() -> tuple[int, bytes]:
        with inturn.open(tmp_path / "q.db") as db:
            endpoint = Endpoint(db, Config(server=ServerConfig(port=0)))
            await endpoint.start()
            pages = endpoint._pages
            request = Request("GET", b"/ready", {b"host": b"localhost"}, b"", "127.0.0.1:1")
            answers: asyncio.Queue[Response] = asyncio.Queue()
            reply: Any = answers.put_nowait
            assert pages.show(request, reply)
            assert (await answers.get()).status == 200
            await endpoint.stop()
            assert pages.show(request, reply)
            response = await answers.get()
            return response.status, response.body

    assert asyncio.run(main()) == (503, b'{"status":"stopping"}')
