"""The two protocols of SQS: from a request to what it asks for, and from an answer or an error to a response."""

from inturn.server.errors import SqsError
from inturn.server.http import Request, Response
from inturn.server.model import Shape
from inturn.server.wire import json, query
from inturn.server.wire.call import Call, Protocol, protocol_of

__all__ = ["Call", "Protocol", "answered", "parse", "protocol_of", "refused"]


def parse(request: Request) -> Call:
    """What is asked for.

    Raises:
        SqsError: there is no such action, a parameter is missing, or the request cannot be read.
    """
    return json.parse(request) if protocol_of(request) is Protocol.JSON else query.parse(request)


def answered(call: Call, answer: Shape, request_id: str) -> Response:
    """The answer to a call."""
    if call.protocol is Protocol.JSON:
        return json.answered(answer, request_id)
    return query.answered(call, answer, request_id)


def refused(protocol: Protocol, error: SqsError, request_id: str) -> Response:
    """An error, in the protocol of the call or the request."""
    return json.refused(error, request_id) if protocol is Protocol.JSON else query.refused(protocol, error, request_id)
