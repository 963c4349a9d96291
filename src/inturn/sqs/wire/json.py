"""AWS JSON 1.0: the action in the header ``X-Amz-Target``, parameters and answers as JSON.

Source: the Smithy specification of ``awsJson1_0`` and of ``awsQueryCompatible``, by which an error carries its older
code in a header. Current SDKs use this protocol, so it has to be fast: the parameters are decoded straight into their
type, and only a body that does not match the type is parsed again.

The Query protocol produces the same calls from a tree of the same names.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from inturn.serving.http.http1 import Request, Response
from inturn.sqs import errors
from inturn.sqs.errors import SqsError
from inturn.sqs.model import ACTIONS, ApiAction, Shape


class Protocol(Enum):
    """The protocol of a request and its response."""

    JSON = "json"
    """AWS JSON 1.0: the action in a header, a JSON body."""

    QUERY = "query"
    """A form, answered in XML: the protocol of older SDKs."""

    QUERY_JSON = "query, in JSON"
    """A form, answered in JSON if the client accepts that: used by gateways and scripts."""


class ApiCall(NamedTuple):
    """A parsed request for one action.

    Attributes:
        protocol: of the request and its response.
        action: its name, a key of ``ACTIONS``.
        params: its parameters, of the type in ``ACTIONS``; a Query request that names its queue only in its path has
            that path as ``queue_url``.
    """

    protocol: Protocol
    action: str
    params: Shape


CONTENT_TYPE: Final = "application/x-amz-json-1.0"

_DEPTH: Final = 6
"""The depth of the API's parameters: params, entries, entry, attributes, value, list."""

_MISSING: Final = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.Entries\[(\d+)\]`)?")

_READERS: Final = {
    b"AmazonSQS." + name.encode(): (action, msgspec.json.Decoder(action.params).decode)
    for name, action in ACTIONS.items()
}
_encode = msgspec.json.Encoder().encode


def protocol_of(request: Request) -> Protocol:
    """Return the protocol of a request, whether or not the request can be parsed."""
    headers = request.headers
    if b"x-amz-target" in headers or headers.get(b"content-type", b"").startswith(b"application/x-amz-json"):
        return Protocol.JSON
    accepted = headers.get(b"accept", b"").lower()
    is_json = b"application/json" in accepted or b"application/x-amz-json" in accepted
    return Protocol.QUERY_JSON if is_json and b"xml" not in accepted else Protocol.QUERY


def parse(request: Request) -> ApiCall:
    """Parse a request, or refuse it."""
    entry = _READERS.get(request.headers.get(b"x-amz-target", b""))
    if entry is None:
        target = request.headers.get(b"x-amz-target")
        if target is None:
            raise errors.missing_action("the action as a header, such as 'X-Amz-Target: AmazonSQS.SendMessage'")
        raise errors.invalid_action(target.decode("latin-1").removeprefix("AmazonSQS."))
    action, read = entry
    body = request.body or b"{}"
    try:
        params = read(body)
    except (ValueError, RecursionError):
        params = _params_without_nulls(action, body)
    return ApiCall(Protocol.JSON, action.name, params)


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


def _params_without_nulls(action: ApiAction, body: bytes) -> Shape:
    """Parse a body again that did not match the type; raise the remaining error."""
    try:
        tree = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise errors.serialization(f"The body is not valid JSON: {error}") from None
    return params_of(action, tree, errors.serialization)


def params_of(action: ApiAction, tree: object, refuse: Callable[[str], SqsError]) -> Shape:
    """Return the parameters in a tree of API names; null counts as missing. ``refuse`` turns a reason into an error."""
    try:
        return msgspec.convert(_without_nulls(tree, _DEPTH), type=action.params)
    except msgspec.ValidationError as error:
        missing = _MISSING.match(str(error))
        if missing is None:
            raise refuse(str(error)) from None
        name, entry = missing.groups()
        prefix = "" if entry is None else f"{action.name}RequestEntry.{int(entry) + 1}."
        raise errors.missing_parameter(prefix + name) from None


def _without_nulls(tree: Any, depth: int) -> Any:
    if depth == 0:
        return tree
    if isinstance(tree, dict):
        return {name: _without_nulls(value, depth - 1) for name, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(value, depth - 1) for value in tree]
    return tree
