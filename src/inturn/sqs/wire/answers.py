"""Answers and errors of the Query protocol: in XML, and in JSON for clients that accept it.

Source for XML: the Smithy specification of ``awsQuery``. Each answer type's writer is built once, from its fields. A
character that XML 1.0 cannot hold is written as U+FFFD, and a carriage return as a reference, since a parser would lose
it.

JSON, for gateways, scripts, a shell, where ``Accept`` names ``application/json``, has the structure of XML: the same
names, a map as a list of names and values, and null for absent values. There is no specification of that; two lists
begin with a small letter, as in observed answers.
"""

import base64
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct, inspect

from inturn.sqs.errors import SqsError
from inturn.sqs.model import ACTIONS, Empty, Shape
from inturn.sqs.wire.names import key_name, members, query_name

NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"

_SMALL: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}
_encode = msgspec.json.Encoder().encode

_HEAD: Final = '<?xml version="1.0"?>'
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_Writer = Callable[[Any], str]


def answer_text(action: str, answer: Shape, request_id: str) -> str:
    """Return the document with an action's answer."""
    return (
        f'{_HEAD}<{action}Response xmlns="{NAMESPACE}">{_WRITERS[action](answer)}'
        f"<ResponseMetadata><RequestId>{escaped(request_id)}</RequestId></ResponseMetadata></{action}Response>"
    )


def error_text(error: SqsError, request_id: str) -> str:
    """Return the document with an error."""
    return (
        f'{_HEAD}<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{error.fault}</Type>'
        f"<Code>{escaped(error.query_code)}</Code>{_element('Message', escaped(error.query_message))}<Detail/></Error>"
        f"<RequestId>{escaped(request_id)}</RequestId></ErrorResponse>"
    )


def escaped(text: str) -> str:
    """Return a text with XML escapes."""
    if _NO_XML.search(text):
        text = _NO_XML.sub("\ufffd", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\r", "&#xD;")


def _element(name: str, content: str) -> str:
    return f"<{name}>{content}</{name}>" if content else f"<{name}/>"


_TEXTS: Final[dict[type[inspect.Type], Callable[[Any], str]]] = {
    inspect.StrType: escaped,
    inspect.IntType: str,
    inspect.BoolType: lambda value: "true" if value else "false",
    inspect.BytesType: lambda value: base64.b64encode(value).decode(),
}


def _nothing(_: Any) -> str:
    return ""


def _writer(name: str, kind: inspect.Type) -> _Writer:
    """Return the writer of the elements with this name."""
    match kind:
        case inspect.StructType(cls=cls):
            return _struct(name, cls)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            write_item = _writer(name, item)
            return lambda values: "".join(map(write_item, values))
        case inspect.DictType(value_type=value):
            return _map(name, _writer("Value", value))
        case _:
            text = _TEXTS[type(kind)]
            return lambda value: _element(name, text(value))


def _struct(name: str, kind: type[Struct]) -> _Writer:
    writers = [(attribute, _writer(query_name(api, held), held)) for attribute, api, held in members(kind)]

    def write(value: Any) -> str:
        parts = [write(held) for attribute, write in writers if (held := getattr(value, attribute)) is not None]
        return _element(name, "".join(parts))

    return write


def _map(name: str, write: _Writer) -> _Writer:
    key = key_name(name)

    def entries(value: dict[str, Any]) -> str:
        return "".join(
            f"<{name}>{_element(key, escaped(known))}{write(held)}</{name}>" for known, held in value.items()
        )

    return entries


_WRITERS: Final[dict[str, _Writer]] = {
    name: _nothing if action.answer is Empty else _struct(f"{name}Result", action.answer)
    for name, action in ACTIONS.items()
}


# --- in JSON ---


def json_answer(action: str, answer: Shape, request_id: str) -> bytes:
    """Return the document with an action's answer."""
    document: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if not isinstance(answer, Empty):
        document[f"{action}Result"] = _tree(answer)
    return _encode({f"{action}Response": document})


def json_error(error: SqsError, request_id: str) -> bytes:
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
            return [_tree(item) for item in value] or None
        case dict():
            key = key_name("Tag" if name.lower() == "tags" else name)
            return [{key: known, "Value": _tree(held)} for known, held in value.items()] or None
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
