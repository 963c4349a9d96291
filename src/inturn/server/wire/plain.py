"""Answers and errors of the Query protocol in JSON, for clients that accept it: gateways, scripts, a shell.

The service does so where ``Accept`` names ``application/json``. Its answers have the structure of those in XML: the
same names, a map as a list of names and values, and null for absent values. There is no specification of that; two
lists begin with a small letter, as in observed answers.
"""

import base64
from typing import Any, Final

import msgspec
from msgspec import Struct

from inturn.server.errors import SqsError
from inturn.server.model import Empty, Shape
from inturn.server.wire.names import key_name, members

CONTENT_TYPE: Final = "application/json"

_SMALL: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}

_encode = msgspec.json.Encoder().encode


def answer(action: str, answer: Shape, request_id: str) -> bytes:
    """Return the document with an action's answer."""
    told: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if not isinstance(answer, Empty):
        told[f"{action}Result"] = _tree(answer)
    return _encode({f"{action}Response": told})


def error(error: SqsError, request_id: str) -> bytes:
    """Return the document with an error; an unpaired surrogate becomes a question mark."""
    message = error.query_message.encode(errors="replace").decode()
    about = {"Type": error.fault, "Code": error.query_code, "Message": message}
    return _encode({"Error": about, "RequestId": request_id})


def _tree(value: Any, name: str = "") -> Any:
    match value:
        case Struct():
            return {
                _SMALL.get(api, api): _tree(getattr(value, attribute), api)
                for attribute, api, _ in members(type(value))
            }
        case list() | tuple():
            return [_tree(each) for each in value] or None
        case dict():
            key = key_name("Tag" if name.lower() == "tags" else name)
            return [{key: known, "Value": _tree(held)} for known, held in value.items()] or None
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
