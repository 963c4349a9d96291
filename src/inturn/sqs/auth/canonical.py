"""The canonical request of Signature Version 4: client and server must sign the same bytes.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote_from_bytes, unquote_to_bytes

from inturn.sqs import limits


def canonical_request(
    method: str, path: bytes, query: bytes, names: Sequence[bytes], headers: Mapping[bytes, bytes], payload: bytes
) -> bytes | None:
    """Return the canonical request; None if a signed header is missing.

    Args:
        method: as in ``POST``.
        path: as sent.
        query: as sent, but without the signature.
        names: of the signed headers, as the client lists them.
        headers: all headers of the request, by their names in lower case.
        payload: the SHA-256 of the body, in hexadecimal digits.
    """
    try:
        block = b"".join([b"%b:%b\n" % (name, headers[name]) for name in names])
    except KeyError:
        return None
    if b" " in block or b"\t" in block or block.count(b"\n") != len(names):
        block = b"".join([b"%b:%b\n" % (name, b" ".join(headers[name].split())) for name in names])
    return b"%b\n%b\n%b\n%b\n%b\n%b" % (
        method.encode(),
        canonical_path(path) if len(path) > 1 else b"/",
        canonical_query(query) if query else b"",
        block,
        b";".join(names),
        payload,
    )


@lru_cache(limits.PATHS)
def canonical_path(path: bytes) -> bytes:
    """Return a path without ``.``, ``..`` and empty segments, encoded a second time, as for all services except S3.

    The path is percent-encoded as sent; its own escapes are therefore encoded twice.
    """
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in {b"", b"."}:
            parts.append(part)
    end = b"/" if parts and path.endswith(b"/") else b""
    return quote_from_bytes(b"/" + b"/".join(parts) + end, safe="/~").encode()


def canonical_query(query: bytes) -> bytes:
    """Return the parameters in order, each name and value decoded and re-encoded in the canonical way.

    A ``+`` is a space, as in a form, so that the signed value is the value parsed later.
    """
    return b"&".join(
        b"%b=%b" % pair for pair in sorted((_encoded(name), _encoded(value)) for name, value in pairs(query))
    )


def pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parameters of a query, decoded, in the order of the query."""
    parameters = [parameter.partition(b"=") for parameter in query.split(b"&") if parameter]
    return [(_decoded(name), _decoded(value)) for name, _, value in parameters]


def sha256_hex(content: bytes) -> bytes:
    """Return the SHA-256 of some bytes, in hexadecimal digits."""
    return sha256(content).hexdigest().encode()


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _encoded(text: bytes) -> bytes:
    return quote_from_bytes(text, safe="-_.~").encode()
