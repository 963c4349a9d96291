"""The types of the actions are those of the API's model: every name, what is required, and no more."""

import msgspec
import pytest
from boto_halves import service
from botocore.model import ListShape, MapShape, Shape, StructureShape
from msgspec import inspect

from inturn.sqs.model import ACTIONS, Empty

ASKED_OTHERWISE = {"Entries", "DataType"}
"""Required in the model, but their absence is told in other words than those of a missing parameter."""

LEFT_OUT = {"Successful", "Failed"}
"""Required in the model, and left out by the service where they are empty."""


def test_every_action_of_the_api_model_has_types() -> None:
    assert sorted(ACTIONS) == sorted(service("json").operation_names)
    assert len(ACTIONS) == 23


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_request_types_equal_the_api_model(name: str) -> None:
    same(service("json").operation_model(name).input_shape, inspect.type_info(ACTIONS[name].params), request=True)


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_answer_types_equal_the_api_model(name: str) -> None:
    shape = service("json").operation_model(name).output_shape
    if shape is None:
        assert ACTIONS[name].answer is Empty
    else:
        same(shape, inspect.type_info(ACTIONS[name].answer), request=False)


def same(shape: Shape, kind: inspect.Type, *, request: bool) -> None:
    if isinstance(kind, inspect.UnionType):
        kind, none = kind.types
        assert isinstance(none, inspect.NoneType)
    match shape:
        case StructureShape():
            assert isinstance(kind, inspect.StructType)
            fields = {field.encode_name: field for field in kind.fields}
            assert set(fields) == set(shape.members)
            required = {name for name, field in fields.items() if field.required}
            assert set(shape.required_members) - ASKED_OTHERWISE - LEFT_OUT <= required
            if request:
                assert required <= set(shape.required_members)
            for name, member in shape.members.items():
                same(member, fields[name].type, request=request)
        case ListShape():
            assert isinstance(kind, inspect.ListType | inspect.VarTupleType)
            same(shape.member, kind.item_type, request=request)
        case MapShape():
            assert isinstance(kind, inspect.DictType)
            same(shape.value, kind.value_type, request=request)
        case _:
            assert (
                type(kind)
                is {
                    "string": inspect.StrType,
                    "integer": inspect.IntType,
                    "long": inspect.IntType,
                    "boolean": inspect.BoolType,
                    "blob": inspect.BytesType,
                }[shape.type_name]
            )


def test_empty_answer_fields_are_not_encoded() -> None:
    empty = ACTIONS["ReceiveMessage"].answer()
    assert msgspec.json.encode(empty) == b"{}"
    assert msgspec.json.encode(ACTIONS["SendMessageBatch"].answer([], [])) == b"{}"
    assert msgspec.json.encode(ACTIONS["ListDeadLetterSourceQueues"].answer([])) == b'{"queueUrls":[]}'
