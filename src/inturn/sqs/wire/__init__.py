"""The two protocols of SQS: requests into calls, answers and errors into responses."""

from inturn.serving.http.http1 import Request, Response
from inturn.sqs.errors import SqsError
from inturn.sqs.model import Shape
from inturn.sqs.wire import json, query
from inturn.sqs.wire.json import ApiCall, Protocol, protocol_of

__all__ = ["ApiCall", "Protocol", "answered", "parse", "protocol_of", "refused"]


def parse(request: Request) -> ApiCall:
    """Parse a request, or refuse it."""
    return json.parse(request) if protocol_of(request) is Protocol.JSON else query.parse(request)


def answered(call: ApiCall, answer: Shape, request_id: str) -> Response:
    """Return the response with an action's answer."""
    if call.protocol is Protocol.JSON:
        return json.answered(answer, request_id)
    return query.answered(call, answer, request_id)


def refused(protocol: Protocol, error: SqsError, request_id: str) -> Response:
    """Return the response with an error, in the protocol of the call or the request."""
    return json.refused(error, request_id) if protocol is Protocol.JSON else query.refused(protocol, error, request_id)
