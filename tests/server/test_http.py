"""The HTTP front over real sockets, on both event loops: connections, turns, time-outs, refusals and the stop."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_http import LOOPS, Answer, Front, Later, chunked, get, post

from inturn.core.limits import HTTP_READ_BYTES, HTTP_REFUSED_AT_ONCE
from inturn.server.http import Exchange, Handler, Reply, Request, Response, Server

OK = Response(200, b"ok", "text/plain")


def always(response: Response) -> Handler:
    """A handler that answers so at once."""
    return lambda _, reply: reply(response)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def front(loop: str) -> Iterator[Front]:
    """A server that tells what it has understood."""
    with Front(loop) as front:
        yield front


# An answer.


def test_a_request_reaches_the_handler_and_its_answer_the_client(front: Front) -> None:
    with front.client() as client:
        answer = client.ask(post(b"abc", "X-A: 1", "x-a: 2", target="/a?b=c"))
        host, port = client.socket.getsockname()
    told = answer.told
    assert (told["method"], told["target"], told["body"], told["peer"]) == ("POST", "/a?b=c", "abc", f"{host}:{port}")
    assert told["headers"] == {"host": "a", "content-length": "3", "x-a": "1,2"}
    assert abs(parsedate_to_datetime(answer.headers.pop("date")).timestamp() - time.time()) < 60
    assert answer.headers == {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "x-told": "yes",
    }


def test_a_head_is_answered_without_the_body_but_with_its_length(front: Front) -> None:
    with front.client() as client:
        client.send(get("/").replace(b"GET", b"HEAD"))
        answer = client.answer(is_head=True)
        assert int(answer.headers["content-length"]) > 0
        assert client.ask(get("/next")).told["target"] == "/next"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (get("/", "Connection: close"), "close"),
        (b"GET / HTTP/1.0\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive"),
        (get("/", "Connection: keep-alive"), "keep-alive"),
        (get("/"), None),
    ],
)
def test_the_connection_is_kept_as_the_client_asks(front: Front, data: bytes, told: str | None) -> None:
    with front.client() as client:
        answer = client.ask(data)
        assert answer.headers.get("connection") == told
        if told == "close":
            assert client.is_closed()
        else:
            assert client.ask(data).status == 200


def test_large_bodies_come_and_go(front: Front) -> None:
    body = b"0123456789abcdef" * 65_000
    with front.client() as client:
        assert client.ask(post(body)).told["body"].encode() == body
        assert client.ask(chunked(*[body[:50_000]] * 20)).told["body"].encode() == body[:50_000] * 20


def test_a_request_to_change_the_protocol_is_answered_as_any_other(front: Front) -> None:
    with front.client() as client:
        answer = client.ask(post(b"abc", "Connection: Upgrade", "Upgrade: websocket"))
        assert (answer.status, answer.told["body"]) == (200, "abc")
        assert client.ask(get()).status == 200


def test_the_counters_tell_what_came(front: Front) -> None:
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
def test_no_header_can_be_smuggled_into_an_answer(
    loop: str, response: Response, caplog: pytest.LogCaptureFixture
) -> None:
    with Front(loop, always(response)) as front, front.client() as client:
        answer = client.ask(get("/a?secret"))
        assert (answer.status, answer.body) == (500, b"")
        assert "x-evil" not in answer.headers
        assert client.ask(get()).status == 500
    assert "The answer to GET b'/a' cannot be sent" in caplog.text
    assert "secret" not in caplog.text


def test_a_handler_that_raises_is_logged_and_tells_the_client_nothing(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request, reply: Reply) -> None:
        if request.target.startswith(b"/replied"):
            reply(OK)
        raise ValueError("the cause")

    with Front(loop, fail) as front, front.client() as client:
        answer = client.ask(get("/not?secret"))
        assert (answer.status, answer.body) == (500, b"")
        assert client.ask(get("/replied")).status == 200
        assert client.ask(get("/not")).status == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "GET b'/not'" in caplog.text
    assert "the cause" in caplog.text
    assert "secret" not in caplog.text


def test_an_answer_that_is_none_is_logged_and_told_as_a_fault(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    body: Any = "text"
    unsound = OK._replace(body=body)
    with Front(loop, always(unsound)) as front, front.client() as client:
        assert [client.ask(get()).status, client.ask(get()).status] == [500, 500]
    assert "The answer to GET b'/' cannot be sent" in caplog.text


def test_a_second_answer_to_a_request_is_not_sent(loop: str) -> None:
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
def test_an_answer_to_a_client_that_has_gone_is_dropped(loop: str, half: bool) -> None:
    later = Later()
    with Front(loop, later) as front:
        with front.client() as client:
            client.send(get())
            front.until(lambda: later.held)
            reply: Exchange = later.held[0][1]
            assert not front.call(lambda: reply.is_gone)
            if half:
                client.socket.shutdown(socket.SHUT_WR)
                front.until(lambda: reply.is_gone)
        front.until(lambda: reply.is_gone)
        front.call(lambda: reply(OK))
        front.until(lambda: front.server.open_connections == 0)
        front.call(lambda: reply(OK))
        with front.client() as client:
            client.send(get())
            front.until(lambda: len(later.held) == 2)
            front.call(lambda: later.held[1][1](OK))
            assert client.answer().status == 200
            assert front.call(lambda: later.held[1][1].is_gone)


# Turns.


def test_requests_sent_at_once_have_their_turns_and_are_answered_in_order(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get("/0") + post(b"a", target="/1") + get("/2"))
        for turn in range(3):
            front.until(lambda: later.held)
            ((request, reply),) = later.held
            later.held.clear()
            assert request.target == b"/%d" % turn
            front.call(lambda reply=reply, turn=turn: reply(OK._replace(body=b"%d" % turn)))
        assert [client.answer().body for _ in range(3)] == [b"0", b"1", b"2"]


def test_many_requests_sent_at_once_are_answered_in_order(front: Front) -> None:
    with front.client() as client:
        client.send(b"".join(get(f"/{number}") for number in range(3000)))
        assert [client.answer().told["target"] for _ in range(3000)] == [f"/{number}" for number in range(3000)]


def test_while_a_request_is_unanswered_only_so_many_are_taken_in(loop: str) -> None:
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
        assert len(connection._reader.requests) <= 3 + HTTP_READ_BYTES // len(data) + 1
        client.socket.settimeout(20)
        front.server.handler = always(OK)
        front.call(lambda: later.held[0][1](OK))
        for _ in range(1 + sent // len(data)):
            assert client.answer().status == 200


def test_nothing_more_is_answered_to_a_client_that_does_not_read_until_it_does(loop: str) -> None:
    large = OK._replace(body=b"a" * 1_000_000)
    with Front(loop, always(large)) as front, front.client() as client:
        client.send(get() * 100)
        front.until(lambda: any(connection._is_unread for connection in front.server.connections))
        assert front.call(lambda: front.server.requests) < 100
        for _ in range(100):
            assert len(client.answer().body) == 1_000_000
        assert client.ask(get()).status == 200


def test_who_is_refused_does_not_hear_so_before_the_answers_it_does_not_read(loop: str) -> None:
    with Front(loop, always(OK._replace(body=b"a" * 1_000_000))) as front, front.client() as client:
        client.send(get() * 100 + b"\0")
        front.until(lambda: any(connection._is_unread for connection in front.server.connections))
        assert [client.answer().status for _ in range(101)] == [200] * 100 + [400]
        assert client.is_closed()


def test_a_client_that_asks_is_told_to_send_its_body(front: Front) -> None:
    data = post(b"abc", "Expect: 100-continue")
    with front.client() as client:
        for _ in range(2):
            assert client.ask(data[:-3]) == Answer(100, {}, b"")
            assert client.ask(b"abc").told["body"] == "abc"
        assert client.ask(data).status == 200


def test_it_is_told_so_once(front: Front) -> None:
    head, body = chunked(b"abc").split(b"\r\n\r\n", 1)
    with front.client() as client:
        assert client.ask(head + b"\r\nExpect: 100-continue\r\n\r\n").status == 100
        client.send(body[:1])
        (connection,) = front.call(lambda: tuple(front.server.connections))
        front.until(lambda: connection._reader._read == 1)
        assert client.ask(body[1:]).told["body"] == "abc"


def test_it_is_told_so_when_it_is_its_turn(loop: str) -> None:
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


# Refusals.


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (post(b"a", "Content-Length: 2"), 400),
        (post(b"a", "Transfer-Encoding: chunked"), 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405),
        (post(b"a" * 101)[:-101], 413),
        (post(b"a" * 101, "Expect: 100-continue")[:-101], 413),
        (chunked(b"a" * 60, b"b" * 60), 413),
        (get("/" + "a" * 300), 431),
        (get("/", *["A: b"] * 20), 431),
    ],
)
def test_who_is_refused_is_told_after_what_came_before_and_the_connection_is_closed(
    loop: str, data: bytes, status: int
) -> None:
    later = Later()
    with Front(loop, later, header_bytes=200, headers=10, body_bytes=100) as front, front.client() as client:
        client.send(get("/before") + data + get("/after"))
        front.until(lambda: later.held)
        front.call(lambda: later.held[0][1](OK))
        assert client.answer().status == 200
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.body.startswith(str(status).encode())
        assert client.is_closed()
        assert [request.target for request, _ in later.held] == [b"/before"]


def test_who_is_refused_hears_so_though_it_goes_on_sending(loop: str) -> None:
    with Front(loop, body_bytes=100, linger_s=5) as front, front.client() as client:
        client.send(post(b"a" * 20_000_000))
        assert client.answer().status == 413
        assert client.is_closed()


def test_who_is_refused_cannot_stay(loop: str) -> None:
    with Front(loop, linger_s=0.1) as front, front.client() as client:
        assert client.ask(b"\0").status == 400
        front.until(lambda: front.server.open_connections == 0)


def test_connections_that_are_too_many_are_told_so_until_there_is_room(loop: str) -> None:
    with Front(loop, connections=2, linger_s=20) as front:
        with front.client() as first, front.client() as second:
            assert [first.ask(get()).status, second.ask(get()).status] == [200, 200]
            refused = [front.client() for _ in range(HTTP_REFUSED_AT_ONCE)]
            for client in refused:
                answer = client.answer()
                assert (answer.status, answer.headers["connection"], answer.body) == (503, "close", b"")
            with front.client() as client:
                assert client.is_closed()
            assert first.ask(get()).status == 200
            for client in refused:
                client.__exit__()
        front.until(lambda: front.server.open_connections == 0)
        with front.client() as client:
            assert client.ask(get()).status == 200


# Time-outs.


def test_an_idle_connection_is_closed_without_a_word(loop: str) -> None:
    with Front(loop, idle_s=0.2) as front:
        with front.client() as silent:
            assert silent.is_closed()
        with front.client() as client:
            assert client.ask(get()).status == 200
            assert client.is_closed()


@pytest.mark.parametrize("part", [get()[:-2], get()[:7], post(b"abc")[:-1], chunked(b"abc")[:-2]])
def test_a_request_that_does_not_come_in_whole_is_timed_out(loop: str, part: bytes) -> None:
    with Front(loop, request_s=0.1) as front, front.client() as client:
        answer = client.ask(get("/before") + part)
        assert answer.status == 200
        assert client.answer().status == 408
        assert client.is_closed()


def test_a_byte_now_and_then_does_not_buy_more_time(loop: str) -> None:
    with Front(loop, request_s=0.2, idle_s=0.2) as front, front.client() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        client.socket.settimeout(0.02)
        for _ in range(1000):
            client.send(b"a")
            try:
                data = client.socket.recv(1000)
                break
            except TimeoutError:
                continue
        assert data.startswith(b"HTTP/1.1 408 ")


def test_the_time_that_an_answer_takes_is_not_the_clients(loop: str) -> None:
    later = Later()
    with Front(loop, later, idle_s=0.1, request_s=0.1, unread_s=0.1) as front, front.client() as client:
        client.send(get("/1") + get("/2") + get("/3")[:5])
        for _ in range(2):
            front.until(lambda: later.held)
            over = front.call(lambda: front.server.now) + 0.3
            front.until(lambda over=over: front.server.now > over)
            front.call(lambda: later.held.pop()[1](OK))
            assert client.answer().status == 200
        assert client.answer().status == 408


def test_the_idle_time_begins_with_the_answer(loop: str) -> None:
    later = Later()
    with Front(loop, later, idle_s=1) as front, front.client() as client:
        client.send(get())
        front.until(lambda: later.held)
        for wait_s in (1.2, 0):
            over = front.call(lambda: front.server.now) + wait_s
            front.until(lambda over=over: front.server.now > over)
            front.call(lambda: later.held.pop()[1](OK))
            assert client.answer().status == 200
            now = front.call(lambda: front.server.now)
            front.until(lambda now=now: front.server.now > now)
            client.send(get())
            front.until(lambda: later.held)


def test_an_idle_client_that_has_left_a_little_unread_is_cut(loop: str) -> None:
    less_than_is_held_back = OK._replace(body=b"a" * 30_000)
    with Front(loop, always(less_than_is_held_back), idle_s=1, unread_s=0.1) as front, front.client() as client:
        client.send(get())
        front.until(lambda: front.server.requests)
        (connection,) = front.call(lambda: tuple(front.server.connections))
        while not front.call(connection._transport.get_write_buffer_size):
            assert front.server.requests < 2000
            before = front.server.requests
            client.send(get())
            front.until(lambda before=before: front.server.requests > before)
        assert not connection._is_unread
        front.until(lambda: front.server.open_connections == 0)


@pytest.mark.parametrize("answer_bytes", [20_000_000, 10])
def test_a_client_that_does_not_read_its_answers_is_cut(loop: str, answer_bytes: int) -> None:
    response = OK._replace(body=b"a" * answer_bytes)
    with Front(loop, always(response), unread_s=0.2) as front, front.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.socket.settimeout(20)
        try:
            for _ in range(64):
                client.send(get() * 10_000)
        except OSError:
            pass  # cut while it was still asking
        front.until(lambda: front.server.open_connections == 0)


def test_a_client_that_closes_after_an_answer_it_does_not_read_is_cut(loop: str) -> None:
    response = OK._replace(body=b"a" * 20_000_000)
    with Front(loop, always(response), unread_s=0.2) as front, front.client() as client:
        client.send(get("/", "Connection: close"))
        front.until(lambda: front.server.requests == 1)
        front.until(lambda: front.server.open_connections == 0)


# The stop.


def test_a_stop_closes_what_is_idle_and_lets_the_rest_be_answered(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front:
        with front.client() as idle, front.client() as busy, front.client() as partial, front.client() as queued:
            busy.send(get("/busy"))
            queued.send(get("/1") + get("/2"))
            partial.send(get("/partial")[:-2])
            front.until(lambda: len(later.held) == 2 and front.server.open_connections == 4)
            front.until(lambda: any(connection._reader.has_begun for connection in front.server.connections))
            front._loop.call_soon_threadsafe(lambda: front._loop.create_task(front.server.stop(20)))
            assert idle.is_closed()
            with pytest.raises(ConnectionError):
                front.client()
            partial.send(b"\r\n")
            front.until(lambda: len(later.held) == 3)
            for request, reply in tuple(later.held):
                front.call(lambda reply=reply, body=request.target: reply(OK._replace(body=body)))
            front.until(lambda: len(later.held) == 4)
            front.call(lambda: later.held[3][1](OK._replace(body=b"/2")))
            answers = [busy.answer(), partial.answer(), queued.answer(), queued.answer()]
            assert [answer.body for answer in answers] == [b"/busy", b"/partial", b"/1", b"/2"]
            assert [answer.headers.get("connection") for answer in answers] == ["close", "close", None, "close"]
            assert busy.is_closed()
            assert partial.is_closed()
            assert queued.is_closed()
        front.until(lambda: front.server.open_connections == 0)


def test_a_stop_cuts_what_is_not_answered_in_time(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get())
        front.until(lambda: later.held)
        front.stop(0.05)
        assert client.is_closed()
        assert front.server.open_connections == 0


def test_an_address_that_is_taken_cannot_be_listened_on(loop: str, front: Front) -> None:
    async def listen() -> None:
        with pytest.raises(OSError, match="in use"):
            await Server(always(OK), "127.0.0.1", front.port).start()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(listen())


# TLS.


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_all_of_it_works_over_tls(loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    body = b"0123456789abcdef" * 60_000
    with Front(loop, tls=contexts[0], body_bytes=1_000_000) as front:
        with front.client(contexts[1]) as client:
            assert client.ask(post(body)).told["body"].encode() == body
            client.send(get("/a") * 2000)
            assert [client.answer().told["target"] for _ in range(2000)] == ["/a"] * 2000
            assert client.ask(post(b"abc", "Expect: 100-continue")[:-3]).status == 100
            assert client.ask(b"abc").status == 200
            assert client.ask(post(body * 2, "Expect: 100-continue")[: -2 * len(body)]).status == 413
            assert client.is_closed()
        with front.client(contexts[1]) as client:
            assert client.ask(get("/", "Connection: close")).headers["connection"] == "close"
            assert client.is_closed()
        with front.client() as plain:
            plain.send(get())
            assert plain.is_closed()
        with front.client(contexts[1]) as idle:
            assert idle.ask(get()).status == 200
            front.stop(10)
            assert idle.is_closed()


def test_a_client_that_does_not_read_is_held_back_and_cut_over_tls_too(
    loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    large = OK._replace(body=b"a" * 1_000_000)
    with Front(loop, always(large), tls=contexts[0], unread_s=0.5) as front, front.client(contexts[1]) as client:
        client.send(get() * 100)
        front.until(lambda: front.server.open_connections == 0)
        assert 0 < front.server.requests < 100


# Whatever comes.


def ask_in_pieces(front: Front, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """The answers, until the server closes or says that it has had enough of us."""
    answers: list[Answer] = []
    with front.client() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            client.send(piece)
        while not answers or answers[-1].headers.get("connection") != "close":
            answers.append(client.answer())
    return [(answer.status, answer.told["target"].encode() if answer.status == 200 else b"") for answer in answers]


@pytest.fixture(scope="module", params=LOOPS)
def lasting(request: pytest.FixtureRequest) -> Iterator[Front]:
    with Front(request.param, body_bytes=100) as front:
        yield front


ENDS = st.sampled_from([get("/", "Connection: close"), b"\0", post(b"a" * 101), chunked(b"a" * 101), b"GET\r\n\r\n"])
MIDDLES = st.sampled_from(
    [get("/a"), post(b"abc"), chunked(b"abc", b"d"), post(b"a", "Connection: Upgrade", "Upgrade: x")]
)


@settings(max_examples=40)
@given(st.lists(MIDDLES, max_size=5), ENDS, st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_the_answers_do_not_depend_on_how_the_requests_are_cut(
    lasting: Front, middles: list[bytes], end: bytes, lengths: list[int]
) -> None:
    stream = b"".join(middles) + end
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(stream[at : at + length])
        at += length
    answers = ask_in_pieces(lasting, pieces)
    assert answers == ask_in_pieces(lasting, [stream])
    assert len(answers) == len(middles) + 1


@settings(max_examples=40)
@given(st.lists(st.one_of(MIDDLES, st.binary(max_size=50)), min_size=1, max_size=4))
def test_after_whatever_came_the_next_client_is_served(lasting: Front, pieces: list[bytes]) -> None:
    with lasting.client() as client:
        try:
            client.send(b"".join(pieces))
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
    with lasting.client() as client:
        assert client.ask(get("/next")).told["target"] == "/next"
