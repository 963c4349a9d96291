"""What a request asks for, whichever protocol it came in: all that the actions see of the wire."""

from enum import Enum
from typing import NamedTuple

from inturn.server.http import Request
from inturn.server.model import Shape


class Protocol(Enum):
    """How a client speaks, and so how it is answered."""

    JSON = "json"
    """AWS JSON 1.0: the action in a header, a JSON body."""

    QUERY = "query"
    """A form, answered in XML: what older SDKs speak."""

    QUERY_JSON = "query, in JSON"
    """A form, answered in JSON, for who accepts that: what gateways and scripts speak."""


class Call(NamedTuple):
    """One action asked for.

    Attributes:
        protocol: how it was asked, and is to be answered.
        action: its name, a key of ``ACTIONS``.
        params: its parameters, of the type that ``ACTIONS`` names; a Query request that names its queue only in its
            path has that path as ``queue_url``.
        path: the path of the request, as sent.
    """

    protocol: Protocol
    action: str
    params: Shape
    path: str


def protocol_of(request: Request) -> Protocol:
    """In which protocol a request is, whether or not it can be read, and so is to be answered."""
    headers = request.headers
    if b"x-amz-target" in headers or headers.get(b"content-type", b"").startswith(b"application/x-amz-json"):
        return Protocol.JSON
    accepted = headers.get(b"accept", b"").lower()
    return Protocol.QUERY_JSON if b"application/json" in accepted and b"xml" not in accepted else Protocol.QUERY
