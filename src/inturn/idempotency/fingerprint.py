"""A digest of the query and body of a request, by which its repetitions are recognised.

Clients create a new boundary for each attempt to send a form, so the boundary is not compared. That is safe only if the
boundary occurs only in the delimiters: then two forms with the same pieces between them are the same form. A body of
any other shape is compared byte by byte.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

_BOUNDARY: Final = rb"""boundary=(?:"([\w'()+,\-./:=? ]{0,69}[\w'()+,\-./:=?])"|([\w'()+\-./:=?]{1,70}))"""  # RFC 2046
_CHARSET: Final = rb"charset=[\w-]+[ \t]*"
_FORM: Final = re.compile(
    rb"multipart/form-data[ \t]*;[ \t]*(?:%s;[ \t]*)?%s(?:[ \t]*;[ \t]*%s)?" % (_CHARSET, _BOUNDARY, _CHARSET),
    re.IGNORECASE,
)


def fingerprint(query: bytes, content_types: Sequence[bytes], body: bytes) -> str:
    """Return a digest of a request that does not depend on the boundary of a form.

    Args:
        query: the query string.
        content_types: the values of its ``Content-Type`` headers.
        body: the whole body.
    """
    digest = hashlib.sha256(query + b"\0")
    pieces = _pieces(content_types, body)
    if pieces is None:
        digest.update(body)
        return digest.hexdigest()
    for piece in pieces:
        digest.update(b"%d:" % len(piece))
        digest.update(piece)
    return f"form {digest.hexdigest()}"


def _pieces(content_types: Sequence[bytes], body: bytes) -> list[bytes] | None:
    """Return the parts between the delimiters of a form; None if it is not one, or the boundary occurs elsewhere."""
    form = _FORM.fullmatch(content_types[0].strip(b" \t")) if len(content_types) == 1 else None
    if form is None:
        return None
    boundary = form[1] or form[2]
    before, *pieces = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if before or not pieces or pieces.pop() not in (b"--", b"--\r\n"):
        return None
    return pieces if all(piece.startswith(b"\r\n") and boundary not in piece for piece in pieces) else None
