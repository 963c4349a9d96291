"""A parsed request, independent of its protocol: all that the actions see of the wire."""

from enum import Enum
from typing import NamedTuple

from inturn.server.http import Request
from inturn.server.model import Shape


class Protocol(Enum):
    """The protocol of a request and its response."""

    JSON = "json"
    """AWS JSON 1.0: the action in a header, a JSON body."""

    QUERY = "query"
    """A form, answered in XML: the protocol of older SDKs."""

    QUERY_JSON = "query, in JSON"
    """A form, answered in JSON if the client accepts that: used by gateways and scripts."""


class Call(NamedTuple):
    """A parsed request for one action.

    Attributes:
        protocol: of the request and its response.
        action: its name, a key of ``ACTIONS``.
        params: its parameters, of the type in ``ACTIONS``; a Query request that names its queue only in its path has
            that path as ``queue_url``.
        path: the path of the request, as sent.
    """

    protocol: Protocol
    action: str
    params: Shape
    path: str


def protocol_of(request: Request) -> Protocol:
    """Return the protocol of a request, whether or not the request can be parsed."""
    headers = request.headers
    if b"x-amz-target" in headers or headers.get(b"content-type", b"").startswith(b"application/x-amz-json"):
        return Protocol.JSON
    accepted = headers.get(b"accept", b"").lower()
    return Protocol.QUERY_JSON if b"application/json" in accepted and b"xml" not in accepted else Protocol.QUERY
