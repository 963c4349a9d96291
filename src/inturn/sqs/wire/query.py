"""The Query protocol: the action and its parameters as fields of a form, in the query string or in the body.

Source: the Smithy specification of ``awsQuery`` and the forms in the API's documentation, old and new. A name such as
``MessageAttribute.2.Value.StringValue`` is a path in a tree. Lists and maps are numbered from 1, with or without the
member's own name and ``member`` or ``entry`` before the number. A single element may have no number at all, and a
blank list is an empty one. The tree holds only names that the action knows, never deeper than `limits.FORM_DEPTH`, and
a number is a key, not a size.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, inspect

from inturn.serving.http.http1 import Request, Response
from inturn.sqs import errors, limits
from inturn.sqs.model import ACTIONS, Shape
from inturn.sqs.wire import json
from inturn.sqs.wire.answers import answer_text, error_text, json_answer, json_error
from inturn.sqs.wire.json import ApiCall, Protocol, params_of, protocol_of
from inturn.sqs.wire.names import members, query_name

CONTENT_TYPE: Final = "text/xml"
_JSON: Final = "application/json"
_NO_CALL: Final = errors.unknown_operation().query_code

_ESCAPES: Final = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

_QUEUE: Final = re.compile(rb"(?:/[^/]+)*/[0-9]{12}/[^/]+")
_NOT_OF_QUEUES: Final = {"CreateQueue", "ListQueues"}  # the service refuses these at a queue's own URL

_KEYS: Final = ("Name", "Key", "key")
_VALUES: Final = ("Value", "value")

_Reader = Callable[[Any, str], Any]


def parse(request: Request) -> ApiCall:
    """Parse a request, or refuse it."""
    path, _, query = request.target.partition(b"?")
    fields = _fields(query, request.body if request.method != "GET" else b"")
    name = fields.get("Action")
    if name is None:
        raise errors.unknown_operation()
    action = ACTIONS.get(name)
    if action is None or (name in _NOT_OF_QUEUES and _QUEUE.fullmatch(path)):
        raise errors.invalid_action(name)
    readers = _READERS[name]
    tree = _members(_tree(fields, readers), readers, "")
    place = path.decode("latin-1")
    if place not in {"", "/"}:
        tree.setdefault("QueueUrl", place)
    return ApiCall(protocol_of(request), name, params_of(action, tree, errors.invalid_parameter_value))


def answered(call: ApiCall, answer: Shape, request_id: str) -> Response:
    """Return the response with an action's answer."""
    if call.protocol is Protocol.QUERY_JSON:
        return Response(200, json_answer(call.action, answer, request_id), _JSON, _headers(request_id))
    return _document(200, answer_text(call.action, answer, request_id), request_id)


def refused(protocol: Protocol, error: errors.SqsError, request_id: str) -> Response:
    """Return the response with an error; without an action, it is the code only, or an error of the JSON protocol."""
    if protocol is Protocol.QUERY_JSON:
        if error.query_code == _NO_CALL:
            return json.refused(error, request_id)._replace(content_type=_JSON)
        return Response(error.status, json_error(error, request_id), _JSON, _headers(request_id))
    if error.query_code == _NO_CALL:
        return Response(error.status, f"<{_NO_CALL}/>".encode(), CONTENT_TYPE, _headers(request_id))
    return _document(error.status, error_text(error, request_id), request_id)


def _document(status: int, text: str, request_id: str) -> Response:
    return Response(status, text.encode(), CONTENT_TYPE, _headers(request_id))


def _headers(request_id: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"x-amzn-RequestId", request_id.encode()),)


def _fields(*forms: bytes) -> dict[str, str]:
    """Return the fields of forms; a repeated field must have the same value."""
    fields: dict[str, str] = {}
    pairs = [pair for form in forms if form for pair in form.split(b"&", limits.FORM_FIELDS) if pair]
    if len(pairs) > limits.FORM_FIELDS:
        raise errors.malformed_query_string(f"The request has more than {limits.FORM_FIELDS} parameters.")
    try:
        for pair in pairs:
            left, _, right = pair.partition(b"=")
            name, value = _unescaped(left), _unescaped(right)
            if fields.setdefault(name, value) != value:
                raise errors.malformed_query_string(f"The parameter {_short(name)} has two different values.")
    except UnicodeDecodeError as error:
        raise errors.malformed_query_string(f"The request is not in UTF-8: {error.reason}.") from None
    return fields


def _unescaped(text: bytes) -> str:
    """Decode form text. Escapes are decoded a run at a time: a Cyrillic text takes a quarter of urllib's time."""
    text = text.replace(b"+", b" ")
    if b"%" in text:
        text = _ESCAPES.sub(lambda run: bytes.fromhex(run[0].replace(b"%", b"").decode()), text)
    return text.decode()


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}…"


def _tree(fields: dict[str, str], known: dict[str, Any]) -> dict[str, Any]:
    """Return fields as a tree: ``A.1.B`` is ``{"A": {"1": {"B": …}}}``. Names unknown to the action are left out."""
    root: dict[str, Any] = {}
    for name, value in fields.items():
        *path, leaf = name.split(".", limits.FORM_DEPTH)
        if (path[0] if path else leaf) not in known:
            continue
        if len(path) == limits.FORM_DEPTH:
            raise errors.malformed_query_string(f"The name of the parameter {_short(name)} has too many parts.")
        node: Any = root
        for part in path:
            node = node.setdefault(part, {})
            if isinstance(node, str):
                break
        if isinstance(node, str) or leaf in node:
            raise errors.malformed_query_string(f"The parameter {_short(name)} has both a value and members.")
        node[leaf] = value
    return root


# Readers turn a node of the tree into the JSON protocol's value; ``at`` is the node's own name.


def _members(node: Any, readers: dict[str, tuple[str, _Reader]], path: str) -> dict[str, Any]:
    if isinstance(node, str):
        raise errors.malformed_query_string(f"The parameter {path} has no members.")
    return {
        readers[name][0]: readers[name][1](held, f"{path}.{name}" if path else name)
        for name, held in node.items()
        if name in readers
    }


def _text(node: Any, path: str) -> str:
    if not isinstance(node, str):
        raise errors.malformed_query_string(f"The parameter {path} has no value.")
    return node


def _integer(node: Any, path: str) -> int:
    text = _text(node, path)
    if not _INTEGER.fullmatch(text):
        raise errors.invalid_value(_short(text), path, "Must be an integer.")
    return int(text)


def _numbered(node: Any, path: str, group: str) -> list[tuple[Any, str]]:
    """Return the elements of a list or map in the order of their numbers, each with its name."""
    if isinstance(node, dict) and list(node) == [group]:
        node, path = node[group], f"{path}.{group}"
    if not isinstance(node, dict) or not any(map(_NUMBER.fullmatch, node)):
        return [(node, path)]
    for key in node:
        if not _NUMBER.fullmatch(key):
            raise errors.malformed_query_string(f"The parameter {path} has members with and without numbers.")
    return [(node[key], f"{path}.{key}") for key in sorted(node, key=int)]


def _list(item: _Reader) -> _Reader:
    def read(node: Any, path: str) -> list[Any]:
        return [] if node == "" else [item(member, name) for member, name in _numbered(node, path, "member")]

    return read


def _map(item: _Reader) -> _Reader:
    def read(node: Any, path: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for entry, name in _numbered(node, path, "entry"):
            key = _text(*_part(entry, name, _KEYS))
            if key in entries:
                raise errors.malformed_query_string(f"The parameter {path} has {_short(key)} twice.")
            entries[key] = item(*_part(entry, name, _VALUES))
        return entries

    return read


def _part(entry: Any, path: str, names: tuple[str, ...]) -> tuple[Any, str]:
    """Return the key or the value of a map's entry, with its name."""
    for name in names:
        if isinstance(entry, dict) and name in entry:
            return entry[name], f"{path}.{name}"
    raise errors.missing_parameter(f"{path}.{names[0]}")


def _reader(name: str, kind: inspect.Type) -> _Reader:
    match kind:
        case inspect.StrType() | inspect.BytesType():
            return _text
        case inspect.IntType():
            return _integer
        case inspect.StructType(cls=cls):
            known = _readers(cls)
            return lambda node, path: _members(node, known, path)
        case inspect.VarTupleType(item_type=item):
            return _list(_reader(name, item))
        case inspect.DictType(value_type=value):
            return _map(_reader(name, value))
        case _:
            raise TypeError(f"the Query protocol cannot read {name}, which is {kind}")


def _readers(kind: type[Struct]) -> dict[str, tuple[str, _Reader]]:
    """Return the API name and the reader of each member, by each name that the member may have."""
    return {name: (api, _reader(api, held)) for _, api, held in members(kind) for name in {api, query_name(api, held)}}


_READERS: Final = {name: _readers(action.params) for name, action in ACTIONS.items()}
