"""The HTTP front over TLS, and with whatever bytes in whatever pieces, on both event loops."""

import socket
import ssl
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from raw_http import LOOPS, OK, Answer, Front, always, chunked, get, post


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# TLS.


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_the_http_server_works_over_tls(loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
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


def test_a_client_that_does_not_read_is_disconnected_over_tls(
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
def test_responses_do_not_depend_on_how_the_requests_are_split(
    lasting: Front, middles: list[bytes], end: bytes, lengths: list[int]
) -> None:
    stream = b"".join(middles) + end
    pieces: list[bytes] = []
    start = 0
    while start < len(stream):
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(stream[start : start + length])
        start += length
    answers = ask_in_pieces(lasting, pieces)
    assert answers == ask_in_pieces(lasting, [stream])
    assert len(answers) == len(middles) + 1


@settings(max_examples=40)
@given(st.lists(st.one_of(MIDDLES, st.binary(max_size=50)), min_size=1, max_size=4))
def test_the_next_client_is_served_after_arbitrary_bytes(lasting: Front, pieces: list[bytes]) -> None:
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
