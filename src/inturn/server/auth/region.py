"""The region in a request's credential, for endpoints without keys, where the signature is not verified."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from inturn.core import limits
from inturn.server.errors import signature_does_not_match
from inturn.server.naming import is_region

_NAME: Final = b"Credential="
_IN_QUERY: Final = b"X-Amz-Credential="


def credential(target: bytes, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the part of a request with its credential, the same for many requests; None if it is not signed.

    Args:
        target: path and query as sent.
        headers: by their names in lower case.
    """
    authorization = headers.get(b"authorization")
    if authorization is None:
        said, begin, after = target, target.find(_IN_QUERY), b"&"
    else:
        said, begin, after = authorization, authorization.find(_NAME), b","
    if begin < 0:
        return None
    most = begin + limits.CREDENTIAL_BYTES
    end = said.find(after, begin, most)
    return said[begin : most if end < 0 else end]


def scoped_region(said: bytes) -> str | None:
    """Return the region of a credential: ``Credential=key/20261123/us-east-1/sqs/aws4_request``, quoted or not.

    Args:
        said: from :func:`credential`.

    Raises:
        SqsError: if the text in its place cannot be a region.
    """
    parts = unquote_to_bytes(said.partition(_NAME)[2]).rsplit(b"/", 4)
    if len(parts) < 5:
        return None
    region = parts[2].decode("latin-1")
    if not is_region(region):
        text = f"Credential should be scoped to a valid region, not {region!r}: small letters, digits and hyphens."
        raise signature_does_not_match(text)
    return region
