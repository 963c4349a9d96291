"""AWS JSON 1.0: the action in the header ``X-Amz-Target``, parameters and answers as JSON.

Source: the Smithy specification of ``awsJson1_0`` and of ``awsQueryCompatible``, by which an error carries its older
code in a header. Current SDKs use this protocol, so it has to be fast: the parameters are decoded straight into their
type, and only a body that does not fit is parsed again.
"""

from typing import Final, NoReturn

import msgspec

from inturn.server import errors
from inturn.server.errors import SqsError
from inturn.server.http import Request, Response
from inturn.server.model import ACTIONS, ApiAction, Shape
from inturn.server.wire.call import Call, Protocol
from inturn.server.wire.params import params_of

CONTENT_TYPE: Final = "application/x-amz-json-1.0"

_READERS: Final = {
    b"AmazonSQS." + name.encode(): (action, msgspec.json.Decoder(action.params).decode)
    for name, action in ACTIONS.items()
}
_encode = msgspec.json.Encoder().encode


def parse(request: Request) -> Call:
    """Parse a request.

    Raises:
        SqsError: if the action is unknown, a parameter is missing, or the body cannot be parsed.
    """
    found = _READERS.get(request.headers.get(b"x-amz-target", b""))
    if found is None:
        _no_action(request.headers.get(b"x-amz-target"))
    action, read = found
    body = request.body or b"{}"
    try:
        params = read(body)
    except (ValueError, RecursionError):
        params = _again(action, body)
    return Call(Protocol.JSON, action.name, params, request.target.partition(b"?")[0].decode("latin-1"))


def answered(answer: Shape, request_id: str) -> Response:
    """Return the response with an action's answer."""
    return Response(200, _encode(answer), CONTENT_TYPE, ((b"x-amzn-RequestId", request_id.encode()),))


def refused(error: SqsError, request_id: str) -> Response:
    """Return the response with an error; an unpaired surrogate, which UTF-8 cannot encode, becomes a question mark."""
    message = error.message.encode(errors="replace").decode()
    body = _encode({"__type": error.namespace + error.code, "message": message})
    headers = (
        (b"x-amzn-RequestId", request_id.encode()),
        (b"x-amzn-query-error", f"{error.query_code};{error.fault}".encode()),
    )
    return Response(error.status, body, CONTENT_TYPE, headers)


def _no_action(target: bytes | None) -> NoReturn:
    if target is None:
        raise errors.missing_action("the header X-Amz-Target: AmazonSQS.SendMessage, for example")
    raise errors.invalid_action(target.decode("latin-1").removeprefix("AmazonSQS."))


def _again(action: ApiAction, body: bytes) -> Shape:
    """Parse a body that did not fit at first, without its nulls; raise what is still wrong."""
    try:
        tree = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise errors.serialization(f"The body is not JSON that can be read: {error}") from None
    return params_of(action, tree, errors.serialization)
