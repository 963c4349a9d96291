"""botocore's two halves of the SQS API in both protocols: what makes requests, and what reads answers.

botocore's model has only the JSON protocol today. What the Query protocol calls otherwise is in moto, which keeps it
from the older editions of the same model.
"""

import copy
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import moto.sqs
import msgspec
from botocore.awsrequest import HeadersDict
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import strategies as st

from inturn.serving.http.http1 import Request, Response
from inturn.sqs import model
from inturn.sqs.model import ACTIONS

PROTOCOLS = ("json", "query")


def _renamed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name.replace("ForQueryCompatibility", ""): _renamed(value) for name, value in tree.items()}
    return tree


def _merge(tree: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _merge(tree.setdefault(name, {}), value)
        else:
            tree[name] = value


@cache
def service(protocol: str) -> ServiceModel:
    """The API's model, in one protocol."""
    description = copy.deepcopy(Loader().load_service_model("sqs", "service-2"))
    if protocol == "query":
        (extras,) = Path(moto.sqs.__path__[0]).glob("*/service-2.moto-extras.json.gz")
        _merge(description, _renamed(json.loads(gzip.decompress(extras.read_bytes()))["merge"]))
        entries = description["shapes"]["ListMessageMoveTasksResultEntryList"]
        entries["member"]["locationName"] = "ListMessageMoveTasksResultEntry"
        for name, operation in description["operations"].items():
            if "output" in operation:
                operation["output"]["resultWrapper"] = f"{name}Result"
    return ServiceModel(description, "sqs")


def request(protocol: str, action: str, params: dict[str, Any], path: bytes = b"/") -> Request:
    """What a client would send."""
    serialized = create_serializer(protocol).serialize_to_request(params, service(protocol).operation_model(action))
    body = serialized["body"] if protocol == "json" else urlencode(serialized["body"], doseq=True).encode()
    headers = {name.lower().encode(): value.encode() for name, value in serialized["headers"].items()}
    return Request("POST", path, headers, body, "127.0.0.1:1")


def read(protocol: str, action: str, response: Response) -> dict[str, Any]:
    """What a client makes of an answer or an error."""
    headers = HeadersDict({name.decode(): value.decode() for name, value in response.headers})
    headers["Content-Type"] = response.content_type
    parts = {"status_code": response.status, "headers": headers, "body": response.body}
    shape = service(protocol).operation_model(action).output_shape
    parsed: dict[str, Any] = create_parser(protocol).parse(parts, shape)
    return parsed


def lean(tree: Any) -> Any:
    """Without what says nothing: empty lists and maps, and an attribute's empty type."""
    if isinstance(tree, dict):
        held = {name: lean(value) for name, value in tree.items()}
        return {
            name: value for name, value in held.items() if value not in ([], {}) and (name, value) != ("DataType", "")
        }
    if isinstance(tree, list | tuple):
        return [lean(value) for value in tree]
    return tree


def plain(struct: model.Shape) -> Any:
    """A struct as a client knows it."""
    return lean(msgspec.to_builtins(struct, builtin_types=(bytes,)))


def trees(shape: Shape, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of a shape, with what our type of it requires."""
    match shape:
        case StructureShape():
            name = "ApiMessage" if shape.name == "Message" else shape.name
            struct = getattr(model, name.replace("Result", "Answer"), None) or getattr(model, name, None)
            required = set(shape.required_members)
            if struct is not None:
                required |= {field.encode_name for field in msgspec.structs.fields(struct) if field.required}
            parts = {name: trees(member, text) for name, member in shape.members.items()}
            return st.fixed_dictionaries(
                {
                    name: part if name not in _FULL else part.filter(bool)
                    for name, part in parts.items()
                    if name in required
                },
                optional={name: part for name, part in parts.items() if name not in required},
            )
        case ListShape():
            return st.lists(trees(shape.member, text), max_size=3)
        case MapShape():
            return st.dictionaries(text, trees(shape.value, text), max_size=3)
        case _:
            return {
                "string": text,
                "integer": st.integers(-(10**9), 10**9),
                "long": st.integers(-(10**17), 10**17),
                "boolean": st.booleans(),
                "blob": st.binary(max_size=20),
            }[shape.type_name]


_FULL = {"Attributes", "Tags"}
"""Members that a form cannot have empty: it says nothing then, and so lacks what is required."""
assert set(service("json").operation_names) == set(ACTIONS)
