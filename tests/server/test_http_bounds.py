"""What the HTTP front does not put up with, on both event loops: refusals, time-outs; and how it stops."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from raw_http import LOOPS, OK, Front, Later, always, chunked, get, post

from inturn.core.limits import HTTP_RESERVED
from inturn.server.http import Server


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def front(loop: str) -> Iterator[Front]:
    """A server that tells what it has understood."""
    with Front(loop) as front:
        yield front


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
            refused = [front.client() for _ in range(HTTP_RESERVED)]
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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
@pytest.mark.thorough
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
