"""The HTTP front over real sockets, on both event loops: requests, answers, and whose turn it is."""

import logging
import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from inturn.serving.http.http1 import Reply, Request, Response
from inturn.serving.http.limits import READ_BYTES
from raw_http import LOOPS, OK, Answer, Front, Later, always, chunked, get, post


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def front(loop: str) -> Iterator[Front]:
    """A server that tells what it has understood."""
    with Front(loop) as front:
        yield front


# An answer.


def test_a_request_reaches_the_handler_and_the_response_the_client(front: Front) -> None:
    with front.client() as client:
        answer = client.ask(post(b"abc", "X-A: 1", "x-a: 2", target="/a?b=c"))
        host, port = client.socket.getsockname()
    received = answer.told
    assert (received["method"], received["target"], received["body"], received["peer"]) == (
        "POST",
        "/a?b=c",
        "abc",
        f"{host}:{port}",
    )
    assert received["headers"] == {"host": "a", "content-length": "3", "x-a": "1,2"}
    assert abs(parsedate_to_datetime(answer.headers.pop("date")).timestamp() - time.time()) < 60
    assert answer.headers == {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "x-told": "yes",
    }


def test_a_head_request_is_answered_with_the_length_but_without_the_body(front: Front) -> None:
    with front.client() as client:
        client.send(get("/").replace(b"GET", b"HEAD"))
        answer = client.answer(is_head=True)
        assert int(answer.headers["content-length"]) > 0
        assert client.ask(get("/next")).told["target"] == "/next"


@pytest.mark.parametrize(
    ("data", "connection"),
    [
        (get("/", "Connection: close"), "close"),
        (b"GET / HTTP/1.0\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive"),
        (get("/", "Connection: keep-alive"), "keep-alive"),
        (get("/"), None),
    ],
)
def test_the_connection_stays_open_or_closes_as_the_client_asks(
    front: Front, data: bytes, connection: str | None
) -> None:
    with front.client() as client:
        answer = client.ask(data)
        assert answer.headers.get("connection") == connection
        if connection == "close":
            assert client.is_closed()
        else:
            assert client.ask(data).status == 200


def test_large_request_and_response_bodies_round_trip(front: Front) -> None:
    body = b"0123456789abcdef" * 65_000
    with front.client() as client:
        assert client.ask(post(body)).told["body"].encode() == body
        assert client.ask(chunked(*[body[:50_000]] * 20)).told["body"].encode() == body[:50_000] * 20


def test_a_request_with_an_upgrade_header_is_answered_normally(front: Front) -> None:
    with front.client() as client:
        answer = client.ask(post(b"abc", "Connection: Upgrade", "Upgrade: websocket"))
        assert (answer.status, answer.told["body"]) == (200, "abc")
        assert client.ask(get()).status == 200


def test_the_server_counts_requests_refusals_and_open_connections(front: Front) -> None:
    with front.client() as client, front.client() as other:
        client.ask(get())
        client.ask(get())
        other.ask(b"\0")
        assert front.call(lambda: (front.server.requests, dict(front.server.refused))) == (2, {400: 1})
        assert front.call(lambda: front.server.open_connections) >= 1
    front.until(lambda: front.server.open_connections == 0)


# The handler's faults.


@pytest.mark.parametrize(
    "response",
    [
        OK._replace(headers=((b"X-A", b"b\r\nX-Evil: c"),)),
        OK._replace(headers=((b"X-A", b"b\nX-Evil: c"),)),
        OK._replace(headers=((b"X-A", b"b\rX-Evil: c"),)),
        OK._replace(headers=((b"X-Evil: c\r\nX-A", b"b"), (b"X-B", b"c"))),
        OK._replace(content_type="text/plain\r\nX-Evil: c"),
        OK._replace(content_type="text/plain\u20ac\nX-Evil: c"),
    ],
)
def test_a_response_with_a_smuggled_header_gets_500(
    loop: str, response: Response, caplog: pytest.LogCaptureFixture
) -> None:
    with Front(loop, always(response)) as front, front.client() as client:
        answer = client.ask(get("/a?secret"))
        assert (answer.status, answer.body) == (500, b"")
        assert "x-evil" not in answer.headers
        assert client.ask(get()).status == 500
    assert "cannot send the response to GET b'/a'" in caplog.text
    assert "secret" not in caplog.text


def test_a_handler_exception_is_logged_and_gets_an_empty_500(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request, reply: Reply) -> None:
        if request.target.startswith(b"/replied"):
            reply(OK)
        raise ValueError("the cause")

    with Front(loop, fail) as front, front.client() as client:
        answer = client.ask(get("/not?secret"))
        assert (answer.status, answer.body) == (500, b"")
        assert client.ask(get("/replied")).status == 200
        assert client.ask(get("/not")).status == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "once a minute for each kind"
    assert "GET b'/not'" in caplog.text
    assert "the cause" in caplog.text
    assert "secret" not in caplog.text


def test_an_invalid_response_is_logged_and_gets_500(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    body: Any = "text"
    unsound = OK._replace(body=body)
    with Front(loop, always(unsound)) as front, front.client() as client:
        assert [client.ask(get()).status, client.ask(get()).status] == [500, 500]
    assert "cannot send the response to GET b'/'" in caplog.text


def test_a_second_response_to_a_request_is_not_sent(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get("/1") + get("/2"))
        front.until(lambda: later.held)
        first = later.held[0][1]
        front.call(lambda: first(OK))
        front.call(lambda: first(OK._replace(body=b"once more")))
        front.call(lambda: later.held[1][1](OK._replace(body=b"second")))
        assert [client.answer().body, client.answer().body] == [b"ok", b"second"]


@pytest.mark.parametrize("half", [True, False])
def test_a_response_to_a_disconnected_client_is_dropped(loop: str, half: bool) -> None:
    later = Later()
    with Front(loop, later) as front:
        with front.client() as client:
            client.send(get())
            front.until(lambda: later.held)
            reply = later.held[0][1]
            assert not front.call(lambda: reply.is_closed)
            if half:
                client.socket.shutdown(socket.SHUT_WR)
                front.until(lambda: reply.is_closed)
        front.until(lambda: reply.is_closed)
        front.call(lambda: reply(OK))
        front.until(lambda: front.server.open_connections == 0)
        front.call(lambda: reply(OK))
        with front.client() as client:
            client.send(get())
            front.until(lambda: len(later.held) == 2)
            front.call(lambda: later.held[1][1](OK))
            assert client.answer().status == 200
            assert front.call(lambda: later.held[1][1].is_closed)


# Turns.


def test_pipelined_requests_are_handled_one_at_a_time_in_order(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get("/0") + post(b"a", target="/1") + get("/2"))
        for number in range(3):
            front.until(lambda: later.held)
            ((request, reply),) = later.held
            later.held.clear()
            assert request.target == b"/%d" % number
            front.call(lambda reply=reply, number=number: reply(OK._replace(body=b"%d" % number)))
        assert [client.answer().body for _ in range(3)] == [b"0", b"1", b"2"]


def test_many_pipelined_requests_are_answered_in_order(front: Front) -> None:
    with front.client() as client:
        client.send(b"".join(get(f"/{number}") for number in range(3000)))
        assert [client.answer().told["target"] for _ in range(3000)] == [f"/{number}" for number in range(3000)]


@pytest.mark.thorough
def test_pipelined_requests_behind_an_unanswered_one_are_bounded(loop: str) -> None:
    later = Later()
    with Front(loop, later, pipelined=3) as front, front.client() as client:
        client.send(get("/first"))
        front.until(lambda: later.held)
        (connection,) = front.call(lambda: tuple(front.server.connections))
        data, sent = get("/more"), 0
        client.socket.settimeout(0.5)
        try:
            while sent < 64 * 1024 * 1024:
                sent += client.socket.send(data * 1000)
        except TimeoutError:
            pass  # the socket is full
        assert 0 < sent < 64 * 1024 * 1024
        assert len(connection._reader.requests) <= 3 + READ_BYTES // len(data) + 1
        client.socket.settimeout(20)
        front.server.handler = always(OK)
        front.call(lambda: later.held[0][1](OK))
        for _ in range(1 + sent // len(data)):
            assert client.answer().status == 200


def test_responses_pause_until_a_slow_client_reads(loop: str) -> None:
    large = OK._replace(body=b"a" * 1_000_000)
    with Front(loop, always(large)) as front, front.client() as client:
        client.send(get() * 100)
        front.until(lambda: any(connection._is_unread for connection in front.server.connections))
        assert front.call(lambda: front.server.requests) < 100
        for _ in range(100):
            assert len(client.answer().body) == 1_000_000
        assert client.ask(get()).status == 200


def test_a_refusal_is_sent_after_the_unread_responses(loop: str) -> None:
    with Front(loop, always(OK._replace(body=b"a" * 1_000_000))) as front, front.client() as client:
        client.send(get() * 100 + b"\0")
        front.until(lambda: any(connection._is_unread for connection in front.server.connections))
        assert [client.answer().status for _ in range(101)] == [200] * 100 + [400]
        assert client.is_closed()


def test_expect_100_continue_gets_100(front: Front) -> None:
    data = post(b"abc", "Expect: 100-continue")
    with front.client() as client:
        for _ in range(2):
            assert client.ask(data[:-3]) == Answer(100, {}, b"")
            assert client.ask(b"abc").told["body"] == "abc"
        assert client.ask(data).status == 200


def test_expect_100_continue_gets_100_only_once(front: Front) -> None:
    head, body = chunked(b"abc").split(b"\r\n\r\n", 1)
    with front.client() as client:
        assert client.ask(head + b"\r\nExpect: 100-continue\r\n\r\n").status == 100
        client.send(body[:1])
        (connection,) = front.call(lambda: tuple(front.server.connections))
        front.until(lambda: connection._reader._read == 1)
        assert client.ask(body[1:]).told["body"] == "abc"


def test_expect_100_continue_gets_100_after_the_previous_response(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get() + post(b"abc", "Expect: 100-continue")[:-3])
        front.until(lambda: later.held)
        front.call(lambda: later.held[0][1](OK))
        assert [client.answer().status, client.answer().status] == [200, 100]
        client.send(b"abc")
        front.until(lambda: len(later.held) == 2)
        front.call(lambda: later.held[1][1](OK))
        assert client.answer().status == 200
