"""What makes two requests the same: their queries and bodies, whatever the boundary between the parts of a form."""

import itertools
import secrets
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inturn.idempotency import IdempotencyMiddleware, MemoryKeys
from inturn.idempotency.fingerprint import fingerprint

A, B = "----WebKitFormBoundaryAAAA", "9f3c-bbb"


def form(boundary: str, *contents: bytes, name: str = "f", end: bytes = b"\r\n") -> bytes:
    """A form as browsers and libraries write it."""
    head = b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n' % (boundary.encode(), name.encode())
    return b"".join(head + content + b"\r\n" for content in contents) + b"--" + boundary.encode() + b"--" + end


def printed(boundary: str, body: bytes, *, query: bytes = b"", quoted: bool = False) -> str:
    text = f'"{boundary}"' if quoted else boundary
    return fingerprint(query, [f"multipart/form-data; boundary={text}".encode()], body)


@pytest.mark.anyio
async def test_a_form_repeated_with_another_boundary_is_a_duplicate() -> None:
    effects = 0

    async def upload(request: Request) -> Response:
        nonlocal effects
        effects += 1
        return Response(b"%d" % len(await request.body()))

    app = Starlette(routes=[Route("/uploads", upload, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, keys=MemoryKeys())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://shop", headers={"Idempotency-Key": "k"}
    ) as client:

        async def post(amount: str) -> httpx.Response:
            files = {"photo": ("a.bin", b"\r\n--\0\xff")}
            return await client.post("/uploads", data={"amount": amount}, files=files, headers={"Idempotency-Key": "k"})

        answers = [await post("5"), await post("5")]
        boundaries = {answer.request.headers["content-type"] for answer in answers}
        assert len(boundaries) == 2
        assert [answer.status_code for answer in answers] == [200, 200]
        assert (await post("6")).status_code == 422
    assert effects == 1


def test_the_fingerprint_ignores_only_the_form_boundary() -> None:
    first = printed(A, form(A, b"5", b"6"))
    assert first == printed(B, form(B, b"5", b"6")) == printed(B, form(B, b"5", b"6"), quoted=True)
    others = [
        printed(B, form(B, b"5", b"7")),
        printed(B, form(B, b"56")),
        printed(B, form(B, b"5", b"6", b"")),
        printed(B, form(B, b"6", b"5")),
        printed(B, form(B, b"5", b"6", name="g")),
        printed(B, form(B, b"5", b"6"), query=b"x=1"),
        fingerprint(b"", [], form(A, b"5", b"6")),
    ]
    assert len({first, *others}) == len(others) + 1


@pytest.mark.parametrize(
    "kind",
    [
        b"multipart/form-data; charset=utf-8; boundary=%s",
        b"Multipart/Form-Data;BOUNDARY=%s",
        b'multipart/form-data; boundary="%s"; charset=UTF-8',
    ],
)
def test_the_form_boundary_is_parsed_in_every_spelling(kind: bytes) -> None:
    prints = {fingerprint(b"", [kind % boundary.encode()], form(boundary, b"5")) for boundary in (A, B)}
    assert len(prints) == 1


@pytest.mark.parametrize(
    "wrap",
    [
        lambda _body, boundary: boundary.encode(),
        lambda body, _boundary: b"preamble\r\n" + body,
        lambda body, _boundary: body + b"epilogue",
        lambda body, boundary: body + form(boundary, b"more"),
        lambda body, _boundary: body.removesuffix(b"--\r\n"),
        lambda body, _boundary: body.replace(b"\r\n", b"\n"),
        lambda _body, boundary: form(boundary, b"says " + boundary.encode()),
        lambda _body, boundary: form(boundary, b"\r\n--" + boundary.encode() + b"x"),
    ],
)
def test_a_malformed_form_is_fingerprinted_byte_by_byte(wrap: Any) -> None:
    prints = {printed(boundary, wrap(form(boundary, b"5"), boundary)) for boundary in (A, B)}
    assert len(prints) == 2


@pytest.mark.parametrize(
    "types",
    [
        [],
        [b"text/plain; boundary=%s"],
        [b"multipart/form-data"],
        [b"multipart/form-data; boundary="],
        [b"multipart/form-data; boundary=\xff%s"],
        [b"multipart/form-data; boundary=%s; boundary=other"],
        [b"multipart/form-data; boundary=%s", b"multipart/form-data; boundary=%s"],
    ],
)
def test_a_form_without_a_clear_boundary_is_fingerprinted_byte_by_byte(types: list[bytes]) -> None:
    def of(boundary: str) -> str:
        return fingerprint(
            b"", [content_type.replace(b"%s", boundary.encode()) for content_type in types], form(boundary, b"5")
        )

    assert of(A) != of(B)


PARTS = st.lists(st.sampled_from([b"", b"a", b"\r\n", b"--", b"A", b"B", b"\r\n--A", b"\r\n--B", b"--A--"]), max_size=4)
FORMS = st.lists(PARTS.map(b"".join), max_size=3)


@given(FORMS, FORMS)
def test_equal_fingerprints_have_equal_contents(first: list[bytes], second: list[bytes]) -> None:
    """Whatever the boundaries are and the contents look like."""
    for one, other in itertools.product("AB", repeat=2):
        if printed(one, form(one, *first)) == printed(other, form(other, *second)):
            assert first == second or form(one, *first) == form(other, *second)


@given(FORMS)
def test_random_boundaries_give_one_fingerprint(contents: list[bytes]) -> None:
    one, other = secrets.token_hex(16), secrets.token_hex(16)
    assert printed(one, form(one, *contents)) == printed(other, form(other, *contents))
