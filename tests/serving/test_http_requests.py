"""What the reader makes of bytes: what is taken, what is refused and how, and that cutting them changes nothing."""

import gc
import weakref

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.serving.http.http1 import Request, RequestLimits, RequestReader
from inturn.serving.http.limits import BLOCK_BYTES, READ_BYTES
from raw_http import chunked, get, post

SMALL = RequestLimits(header_bytes=200, headers=5, body_bytes=20)


def read(*pieces: bytes, limits: RequestLimits = SMALL) -> RequestReader:
    reader = RequestReader(limits, "peer")
    for piece in pieces:
        for start in range(0, len(piece), READ_BYTES):
            reader.feed(piece[start : start + READ_BYTES])
    return reader


def only(data: bytes, limits: RequestLimits = SMALL) -> Request:
    reader = read(data, limits=limits)
    assert reader.refused == 0
    (request,) = reader.requests
    return request


def test_a_request_is_parsed_as_sent() -> None:
    request = only(
        b"POST /a/b?c=%20d HTTP/1.1\r\nHost: \t a \r\nX-Two: 1\r\nx-tWO:  2 \t \r\nContent-Length: 3\r\n\r\nabc"
    )
    headers = {b"host": b"a", b"x-two": b"1,2", b"content-length": b"3"}
    assert request == ("POST", b"/a/b?c=%20d", headers, b"abc", "peer")


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, BLOCK_BYTES, 5 * BLOCK_BYTES + 7])
def test_a_long_body_is_assembled_from_pieces_of_any_size(size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    for step in (997, READ_BYTES):
        reader = RequestReader(RequestLimits(), "peer")
        data = post(body)
        for start in range(0, len(data) - 1, step):
            reader.feed(data[start : min(start + step, len(data) - 1)])
        assert size - 1 <= reader.buffered_bytes < size + 100
        reader.feed(data[-1:] + get("/next"))
        assert [request.body for request in reader.requests] == [body, b""]
        assert size <= reader.buffered_bytes < size + 100
        assert reader.next_request().body == body
        assert reader.buffered_bytes < 100


def test_a_chunked_body_is_assembled_and_its_trailers_ignored() -> None:
    data = chunked(b"abc", b"d" * 10, trailers=b"Host: evil\r\nX-Late: 1\r\n")
    reader = read(data + get("/next"))
    first, second = reader.requests
    assert first.body == b"abcdddddddddd"
    assert b"x-late" not in first.headers | second.headers
    assert first.headers[b"host"] == b"a"


def test_chunk_extensions_are_accepted() -> None:
    data = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n"
    assert only(data).body == b"abc"


def test_empty_lines_before_a_request_are_skipped() -> None:
    assert only(b"\r\n\r\n" + get("/x")).target == b"/x"


@pytest.mark.parametrize("header", ["", "Connection: keep-alive"])
def test_an_http_1_1_connection_stays_open(header: str) -> None:
    assert not read(get("/", *([header] if header else []))).is_last


@pytest.mark.parametrize(
    "data",
    [get("/", "Connection: close"), b"GET / HTTP/1.0\r\n\r\n", get("/", "Connection: x, Close")],
)
def test_nothing_is_parsed_after_the_last_request(data: bytes) -> None:
    for more in (b"", b"\0", b"\r\n" * 50_000):
        reader = read(data + more, more, get("/next"))
        assert (len(reader.requests), reader.is_last, reader.refused) == (1, True, 0)


def test_http_1_0_supports_keep_alive_and_needs_no_host() -> None:
    reader = read(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (len(reader.requests), reader.is_last) == (1, False)


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",
        b"GET / HTTX/1.1\r\nHost: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n X-Folded: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
        HEAD + b"Content-Length: 3, 3\r\n\r\n",
        HEAD + b"Content-Length: +3\r\n\r\n",
        HEAD + b"Content-Length: -3\r\n\r\n",
        HEAD + b"Content-Length: 0x3\r\n\r\n",
        HEAD + b"Content-Length: 1_0\r\n\r\n",
        HEAD + b"Content-Length: \xb2\r\n\r\n",
        HEAD + b"Content-Length:\r\n\r\n",
        HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused_and_nothing_after_it_is_parsed(data: bytes) -> None:
    reader = read(get("/before") + data, get("/after"))
    assert [request.target for request in reader.requests] == [b"/before"]
    assert reader.refused in ((400, 501) if b"gzip" in data else (400,))


def test_an_unknown_transfer_coding_gets_501() -> None:
    assert read(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n").refused == 501


def test_a_content_length_over_the_limit_gets_413_at_once() -> None:
    assert len(only(post(b"a" * 20)).body) == 20
    assert read(post(b"a" * 21)[:-21]).refused == 413


def test_a_chunked_body_over_the_limit_gets_413() -> None:
    assert len(only(chunked(b"a" * 15, b"b" * 5)).body) == 20
    assert read(chunked(b"a" * 15, b"b" * 6)).refused == 413


def test_too_many_headers_get_431() -> None:
    assert len(only(get("/", *["A: b", "C: d", "E: f", "G: h"])).headers) == 5
    assert read(get("/", *["A: b", "C: d", "E: f", "G: h", "I: j"])).refused == 431
    assert read(get("/", *["A: b"] * 4)).refused == 0
    assert read(get("/", *["A: b"] * 5)).refused == 431


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_long_target_and_headers_get_431_for_any_piece_size(piece: int) -> None:
    fits = get("/" + "a" * 140, "B: " + "c" * 50)
    too_large = get("/" + "a" * 140, "B: " + "c" * 56)
    for data, refused in ((fits, 0), (too_large, 431), (get() + fits, 0), (get() + too_large, 431)):
        assert read(*(data[start : start + piece] for start in range(0, len(data), piece))).refused == refused


@pytest.mark.parametrize("start", [b"GET /", HEAD + b"X", HEAD + b"X: ", chunked(b"a")[:-2] + b"X", b"\r\n"])
def test_an_endless_request_head_gets_431_within_the_limit(start: bytes) -> None:
    reader = read(start)
    fed = 0
    while not reader.refused:
        reader.feed((b"\r\n" if start == b"\r\n" else b"aa") * 500)
        fed += 1000
        assert fed <= SMALL.header_bytes + READ_BYTES + 1000
    assert reader.refused == 431


def test_parsed_data_is_released_on_refusal_and_close() -> None:
    refused = read(chunked(b"a" * 15, b"b" * 15))
    assert (refused.refused, refused._body) == (413, b"")
    reader = read(post(b"a" * 20)[:-1])
    reference = weakref.ref(reader)
    gc.disable()
    try:
        reader.close()
        del reader
        assert reference() is None
    finally:
        gc.enable()


def test_a_request_with_an_upgrade_header_is_parsed_normally() -> None:
    asks = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    reader = read(post(b"abc", *asks) + get("/next") + post(b"d", *asks), limits=RequestLimits())
    assert [request.body for request in reader.requests] == [b"abc", b"", b"d"]
    assert (reader.refused, reader.is_last) == (0, False)
    assert b"upgrade" not in reader.requests[0].headers
    assert reader.requests[0].headers[b"content-length"] == b"3"


def test_many_pipelined_upgrade_requests_are_parsed() -> None:
    data = get("/", "Connection: upgrade", "Upgrade: x") * 250
    assert len(data) < READ_BYTES
    assert len(read(data, limits=RequestLimits()).requests) == 250


def test_a_connect_request_gets_405() -> None:
    assert read(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nabc").refused == 405


def test_expect_100_continue_is_reported_until_the_body_arrives() -> None:
    reader = RequestReader(SMALL, "peer")
    data = post(b"abc", "Expect: 100-Continue")
    reader.feed(data[:-3])
    assert reader.expects
    reader.feed(data[-3:-1])
    assert not reader.expects
    assert reader.has_begun
    assert not read(data.replace(b"1.1", b"1.0")[:-3]).expects
    assert not read(post(b"", "Expect: 100-continue")).expects


def test_a_parser_bug_raises_instead_of_refusing_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RequestReader(SMALL, "peer")
    monkeypatch.setattr(reader, "_headers", None)
    with pytest.raises(httptools.HttpParserCallbackError):
        reader.feed(get())
    assert reader.refused == 0


# Whatever comes, and however it is cut.

NAMES = st.sampled_from(["A", "b", "X-C", "Accept"])
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8)
HEADERS = st.lists(st.builds("{}: {}".format, NAMES, VALUES), max_size=3)
BODIES = st.binary(max_size=8)
REQUESTS = st.one_of(
    st.builds(lambda headers: get("/a?b", *headers), HEADERS),
    st.builds(lambda body, headers: post(body, *headers), BODIES, HEADERS),
    st.builds(lambda body: post(body, "Connection: Upgrade", "Upgrade: h2c"), BODIES),
    st.builds(lambda pieces: chunked(*filter(None, pieces)), st.lists(BODIES, max_size=4)),
    st.builds(lambda body: post(body, "Connection: close"), BODIES),
    st.sampled_from([b"GET / HTTP/1.0\r\n\r\n", b"\r\n", HEAD + b"Content-Length: x\r\n\r\n", b"\0", post(b"a" * 21)]),
)
STREAMS = st.lists(REQUESTS, max_size=5).map(b"".join)


@given(STREAMS, st.lists(st.integers(1, 40), min_size=1))
def test_parsing_does_not_depend_on_how_the_bytes_are_split(stream: bytes, lengths: list[int]) -> None:
    pieces: list[bytes] = []
    rest = stream
    while rest:
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(rest[:length])
        rest = rest[length:]
    whole, cut = read(stream), read(*pieces)
    assert list(cut.requests) == list(whole.requests)
    assert (cut.refused, cut.is_last, cut.has_begun) == (whole.refused, whole.is_last, whole.has_begun)


@given(st.data())
def test_arbitrary_bytes_are_parsed_or_refused_within_the_limits(data: st.DataObject) -> None:
    stream = bytearray(data.draw(st.one_of(STREAMS, st.binary())))
    for index, value in data.draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4)):
        if index < len(stream):
            stream[index] = value
    reader = read(bytes(stream))
    assert reader.refused in (0, 400, 405, 413, 431, 501)
    for request in reader.requests:
        assert len(request.body) <= SMALL.body_bytes
        assert len(request.headers) <= SMALL.headers
