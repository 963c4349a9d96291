"""What a request asks for, whichever protocol it came in: all that the actions see of the wire."""

from enum import Enum
from typing import NamedTuple

from inturn.server.model import Shape


class Protocol(Enum):
    """How a client speaks, and so how it is answered."""

    JSON = "json"
    """AWS JSON 1.0: the action in a header, a JSON body."""

    QUERY = "query"
    """A form, answered in XML: what older SDKs speak."""


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
