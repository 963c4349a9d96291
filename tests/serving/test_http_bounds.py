"""What the HTTP front does not put up with, on both event loops: refusals, time-outs; and how it stops."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from inturn.core.errors import InputError
from inturn.serving.http.http1 import Request, Response
from inturn.serving.http.limits import RESERVED
from inturn.serving.http.server import HttpServer
from raw_http import LOOPS, OK, Front, Later, always, chunked, get, post


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
def test_a_refused_request_is_answered_in_order_and_the_connection_closed(loop: str, data: bytes, status: int) -> None:
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


def test_a_client_that_keeps_sending_an_oversized_body_gets_413(loop: str) -> None:
    with Front(loop, body_bytes=100, linger_s=5) as front, front.client() as client:
        client.send(post(b"a" * 20_000_000))
        assert client.answer().status == 413
        assert client.is_closed()


def test_a_refused_connection_is_closed_after_the_linger_time(loop: str) -> None:
    with Front(loop, linger_s=0.1) as front, front.client() as client:
        assert client.ask(b"\0").status == 400
        front.until(lambda: front.server.open_connections == 0)


# Connections that are too many.


def test_over_the_connection_limit_the_longest_idle_connection_is_closed(loop: str) -> None:
    with Front(loop, connections=3) as front:
        with front.client() as first, front.client() as second, front.client() as third:
            for client in (first, second, third, first):
                assert client.ask(get()).status == 200
            with front.client() as fourth:
                assert fourth.ask(get()).status == 200
                assert second.is_closed()
                with front.client() as fifth:
                    assert fifth.ask(get()).status == 200
                    assert third.is_closed()
                    assert first.ask(get()).status == 200
                assert front.call(lambda: (front.server.evicted, dict(front.server.refused))) == (2, {})
        front.until(lambda: front.server.open_connections == 0)
        assert front.call(lambda: (front.server.idle, front.server.receiving)) == ({}, {})


def test_over_the_connection_limit_the_oldest_unfinished_request_gets_503(loop: str) -> None:
    later = Later()
    with Front(loop, later, connections=2) as front, front.client() as busy, front.client() as slow:
        busy.send(get())
        slow.send(post(b"abc")[:-1])
        front.until(lambda: later.held and front.server.receiving)
        with front.client() as third:
            answer = slow.answer()
            assert (answer.status, answer.headers["connection"], answer.headers["retry-after"]) == (
                503,
                "close",
                "1",
            )
            assert slow.is_closed()
            third.send(get())
            front.until(lambda: len(later.held) == 2)
            for _, reply in later.held:
                front.call(lambda reply=reply: reply(OK))
            assert [busy.answer().status, third.answer().status] == [200, 200]


def test_a_connection_waiting_for_a_response_is_never_closed_for_another(loop: str) -> None:
    later = Later()
    with Front(loop, later, connections=2, linger_s=20) as front:
        with front.client() as first, front.client() as second:
            first.send(get())
            second.send(get())
            front.until(lambda: len(later.held) == 2)
            for data in (get(), post(b"abc"), post(b"abc")[:-1]):
                with front.client() as third:
                    answer = third.ask(data)
                    assert (answer.status, answer.body, answer.headers["retry-after"]) == (503, b"", "1")
                    assert third.is_closed()
            with front.client() as early:
                early.send(get("/late")[:-2])
                front.until(lambda: front.server.reserved)
                front.call(lambda: later.held.pop(0)[1](OK))
                assert first.answer().status == 200
                first.__exit__()
                front.until(lambda: not front.server.is_full)
                early.send(b"\r\n")
                front.until(lambda: len(later.held) == 2)
                for _, reply in later.held:
                    front.call(lambda reply=reply: reply(OK))
                answer = early.answer()
                assert (answer.status, answer.headers.get("connection")) == (200, None), "there is room by then"
            assert second.answer().status == 200
        front.until(lambda: front.server.open_connections == 0)


def test_health_requests_are_answered_over_the_connection_limit(loop: str) -> None:
    later = Later()
    with Front(loop, later, connections=2, linger_s=20) as front, front.client() as first, front.client() as second:
        front.server.is_vital = lambda request: request.target == b"/health"
        first.send(get())
        second.send(get())
        front.until(lambda: len(later.held) == 2)
        silent = [front.client() for _ in range(RESERVED)]
        front.until(lambda: len(front.server.reserved) == RESERVED)
        with front.client() as probe:
            assert silent[0].is_closed(), "the oldest of those that are too much"
            probe.send(get("/health"))
            front.until(lambda: len(later.held) == 3)
            newcomers = [front.client() for _ in range(RESERVED)]
            assert all(client.is_closed() for client in silent)
            front.call(lambda: later.held[2][1](OK))
            answer = probe.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close"), "who is served is not cut"
            assert probe.is_closed()
        for connection in silent + newcomers:
            connection.__exit__()


def test_a_silent_connection_over_the_limit_is_closed(loop: str) -> None:
    later = Later()
    with Front(loop, later, connections=1, linger_s=0.1) as front, front.client() as busy:
        busy.send(get())
        front.until(lambda: later.held)
        with front.client() as silent:
            assert silent.is_closed()
        front.call(lambda: later.held[0][1](OK))
        assert busy.answer().status == 200


# Requests that are not whole.


def unfinished(front: Front, size: int) -> Any:
    """A client with a request of which so much has come."""
    before = front.call(lambda: front.server.pending_bytes)
    client = front.client()
    client.send(post(b"a" * (size + 1))[:-1])
    front.until(lambda: front.server.pending_bytes >= before + size)
    return client


def test_over_the_memory_limit_the_oldest_large_request_gets_503(loop: str) -> None:
    with Front(loop, connections=10, pending_bytes=1_000_000) as front:
        small, first, second, third = (unfinished(front, size) for size in (40_000, 400_000, 300_000, 200_000))
        with front.client() as client:
            assert client.ask(post(b"b" * 200_000)).status == 200
            answer = first.answer()
            assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "1", "close")
            assert front.call(lambda: (front.server.pending_bytes, dict(front.server.refused))) == (
                front.call(lambda: sum(connection._reported_bytes for connection in front.server.connections)),
                {503: 1},
            )
            assert 540_000 <= front.call(lambda: front.server.pending_bytes) < 541_000
        for waiting in (small, second, third):
            waiting.send(b"a")
            assert waiting.answer().status == 200
        front.until(lambda: front.server.pending_bytes == 0)
        for waiting in (small, first, second, third):
            waiting.__exit__()


def test_over_the_memory_limit_requests_within_their_share_are_kept(loop: str) -> None:
    with Front(loop, connections=10, pending_bytes=1_000_000) as front:
        small = [unfinished(front, 49_000) for _ in range(8)]
        large = unfinished(front, 500_000)
        last = front.client()
        last.send(post(b"a" * 500_001)[:-1])
        assert large.answer().status == 503
        for client in [*small, last]:
            client.send(b"a")
            assert client.answer().status == 200
        for client in [*small, large, last]:
            client.__exit__()


def test_pipelined_bodies_count_towards_the_memory_limit(loop: str) -> None:
    later = Later()
    with Front(loop, later, connections=4, pending_bytes=1_000_000) as front, front.client() as client:
        client.send(get())
        front.until(lambda: later.held)
        client.send(post(b"a" * 300_000) * 5)
        front.until(lambda: front.server.failures._windows)
        assert front.call(lambda: front.server.pending_bytes) <= 1_000_000
        front.call(lambda: later.held[0][1](OK))
        assert [client.answer().status, client.answer().status] == [200, 503]
        assert client.is_closed()
        assert len(later.held) == 1


def test_memory_of_a_disconnected_client_is_released(loop: str) -> None:
    with Front(loop) as front:
        unfinished(front, 100_000).__exit__()
        front.until(lambda: front.server.pending_bytes == 0)
    with Front(loop, request_s=0.1) as hasty, hasty.client() as client:
        assert client.ask(post(b"a" * 100_000)[:-1]).status == 408
        assert hasty.call(lambda: hasty.server.pending_bytes) == 0


# Heads that are refused.


def admit(head: Request) -> Response | None:
    assert head.body == b""
    return Response(403, b"not you", "text/plain") if b"x-bad" in head.headers else None


@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)])
def test_a_request_can_be_refused_by_its_headers_before_the_body_arrives(loop: str, expect: tuple[str, ...]) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client, front.client() as patient:
        front.server.admit = admit
        client.send(get("/before") + post(b"a" * 1000, "X-Bad: 1", *expect)[:-1000])
        front.until(lambda: later.held)
        front.call(lambda: later.held[0][1](OK))
        assert client.answer().status == 200
        answer = client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (403, b"not you", "close")
        client.send(b"a" * 1000 + get("/after"))
        assert client.is_closed()
        patient.send(post(b"abc", *expect)[:-3])
        if expect:
            assert patient.answer().status == 100
        patient.send(b"abc")
        front.until(lambda: len(later.held) == 2)
        assert later.held[1][0].body == b"abc"
        assert front.call(lambda: (front.server.requests, dict(front.server.refused))) == (3, {})


def test_an_exception_in_the_header_check_is_logged_and_gets_an_empty_500(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_head: Request) -> None:
        raise ValueError("the cause")

    with Front(loop) as front, front.client() as client:
        front.server.admit = fail
        answer = client.ask(post(b"abc")[:-3])
        assert (answer.status, answer.body) == (500, b"")
    assert "the cause" in caplog.text


# Time-outs.


def test_an_idle_connection_is_closed_without_a_response(loop: str) -> None:
    with Front(loop, idle_s=0.2) as front:
        with front.client() as silent:
            assert silent.is_closed()
        with front.client() as client:
            assert client.ask(get()).status == 200
            assert client.is_closed()


@pytest.mark.parametrize("part", [get()[:-2], get()[:7], post(b"abc")[:-1], chunked(b"abc")[:-2]])
def test_an_incomplete_request_gets_408(loop: str, part: bytes) -> None:
    with Front(loop, request_s=0.1) as front, front.client() as client:
        answer = client.ask(get("/before") + part)
        assert answer.status == 200
        assert client.answer().status == 408
        assert client.is_closed()


def test_sending_single_bytes_does_not_extend_the_request_timeout(loop: str) -> None:
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


def test_handler_time_does_not_count_towards_the_client_timeouts(loop: str) -> None:
    later = Later()
    with Front(loop, later, idle_s=0.1, request_s=0.1, unread_s=0.1) as front, front.client() as client:
        client.send(get("/1") + get("/2") + get("/3")[:5])
        for _ in range(2):
            front.until(lambda: later.held)
            deadline = front.call(lambda: front.server.now) + 0.3
            front.until(lambda deadline=deadline: front.server.now > deadline)
            front.call(lambda: later.held.pop()[1](OK))
            assert client.answer().status == 200
        assert client.answer().status == 408


@pytest.mark.thorough
def test_the_idle_timeout_starts_with_the_response(loop: str) -> None:
    later = Later()
    with Front(loop, later, idle_s=1) as front, front.client() as client:
        client.send(get())
        front.until(lambda: later.held)
        for wait_s in (1.2, 0):
            deadline = front.call(lambda: front.server.now) + wait_s
            front.until(lambda deadline=deadline: front.server.now > deadline)
            front.call(lambda: later.held.pop()[1](OK))
            assert client.answer().status == 200
            now = front.call(lambda: front.server.now)
            front.until(lambda now=now: front.server.now > now)
            client.send(get())
            front.until(lambda: later.held)


@pytest.mark.thorough
def test_an_idle_client_with_an_unread_response_is_disconnected(loop: str) -> None:
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
def test_a_client_that_does_not_read_responses_is_disconnected(loop: str, answer_bytes: int) -> None:
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


def test_a_client_that_does_not_read_its_last_response_is_disconnected(loop: str) -> None:
    response = OK._replace(body=b"a" * 20_000_000)
    with Front(loop, always(response), unread_s=0.2) as front, front.client() as client:
        client.send(get("/", "Connection: close"))
        front.until(lambda: front.server.requests == 1)
        front.until(lambda: front.server.open_connections == 0)


# The stop.


def test_a_stop_closes_idle_connections_and_answers_open_requests(loop: str) -> None:
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


def test_a_stop_closes_unanswered_connections_after_the_grace_time(loop: str) -> None:
    later = Later()
    with Front(loop, later) as front, front.client() as client:
        client.send(get())
        front.until(lambda: later.held)
        front.stop(0.05)
        assert client.is_closed()
        assert front.server.open_connections == 0


def test_listening_on_a_port_in_use_is_refused(loop: str, front: Front) -> None:
    async def listen() -> None:
        with pytest.raises(InputError, match="in use"):
            await HttpServer(always(OK), "127.0.0.1", front.port).start()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(listen())
