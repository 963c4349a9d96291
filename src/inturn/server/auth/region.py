"""The region that a request is signed for, where nobody looks at the signature: an endpoint without keys."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from inturn.core import limits
from inturn.server.errors import signature_does_not_match
from inturn.server.naming import is_region

_IN_HEADER: Final = b"Credential="
_IN_QUERY: Final = b"X-Amz-Credential="


def scoped_region(target: bytes, headers: Mapping[bytes, bytes]) -> str | None:
    """Return the region of a request's credential scope; None if it is not signed.

    Args:
        target: path and query as they were sent.
        headers: by their names in lower case.

    Raises:
        SqsError: if what stands in its place can be none.
    """
    authorization = headers.get(b"authorization")
    if authorization is None:
        said, name, after = target, _IN_QUERY, b"&"
    else:
        said, name, after = authorization, _IN_HEADER, b","
    begin = said.find(name)
    if begin < 0:
        return None
    begin += len(name)
    end = said.find(after, begin, begin + limits.CREDENTIAL_BYTES)
    return _region(said[begin : end if end >= 0 else begin + limits.CREDENTIAL_BYTES])


@lru_cache(limits.CLAIMS)
def _region(credential: bytes) -> str | None:
    """The region of a credential: ``key/20261123/us-east-1/sqs/aws4_request``, quoted or not."""
    parts = unquote_to_bytes(credential).rsplit(b"/", 4)
    if len(parts) < 5:
        return None
    region = parts[2].decode("latin-1")
    if not is_region(region):
        text = f"Credential should be scoped to a valid region, not {region!r}: small letters, digits and hyphens."
        raise signature_does_not_match(text)
    return region
