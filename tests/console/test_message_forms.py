"""The form of a failing message has an input for each field, of its type where the type is known."""

import datetime as dt
import json
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inturn
from inturn.console.forms import MessageForms, edited, form
from inturn.console.message_types import field_types
from inturn.core.errors import InputError

Cents = NewType("Cents", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Inner:
    x: int


@dataclass
class AsDataclass:
    account: str
    revision: int
    amount: float
    is_new: bool
    colour: Colour
    kind: Literal["a", 2]
    cents: Annotated[Cents, "documented"]
    day: date
    price: Decimal | None = None
    note: str | None = None
    tags: list[str] = field(default_factory=list)
    inner: Inner | None = None
    either: int | str = 0


class AsStruct(msgspec.Struct):
    account: str
    revision: int
    amount: float
    note: str | None = None


class AsModel(pydantic.BaseModel):
    account: str
    revision: int
    amount: float
    note: str | None = None


def fields_of(message: type | None) -> dict[str, Any]:
    pipeline = inturn.Pipeline(
        name="p", group="account", order=inturn.Gapless("revision"), message=message, handler=lambda s, m: (s, [])
    )
    return {field_type.name: field_type for field_type in field_types(pipeline)}


def test_each_field_type_has_its_input_kind() -> None:
    fields = fields_of(AsDataclass)
    kinds = {
        name: (field_type.kind, field_type.takes_none, field_type.is_needed) for name, field_type in fields.items()
    }
    assert kinds == {
        "account": ("text", False, True),
        "revision": ("integer", False, True),
        "amount": ("number", False, True),
        "is_new": ("boolean", False, True),
        "colour": ("choice", False, True),
        "kind": ("choice", False, True),
        "cents": ("integer", False, True),
        "day": ("text", False, True),
        "price": ("text", True, False),
        "note": ("text", True, False),
        "tags": ("json", False, False),
        "inner": ("json", True, False),
        "either": ("json", False, False),
    }
    assert (fields["colour"].choices, fields["kind"].choices) == (["red", "blue"], ["a", 2])
    assert [name for name, field_type in fields.items() if field_type.is_fixed] == ["account", "revision"]


@pytest.mark.parametrize("message", [AsStruct, AsModel])
def test_fields_of_every_record_type_are_described(message: type) -> None:
    kinds = {name: field_type.kind for name, field_type in fields_of(message).items()}
    assert kinds == {"account": "text", "revision": "integer", "amount": "number", "note": "text"}


def test_fields_of_plain_dicts_have_inputs_by_value() -> None:
    content = {"account": "a", "revision": 1, "amount": 1.5, "ok": True, "note": None, "text": "x\ny", "list": [1]}
    kinds = {form_field.name: form_field.kind for form_field in form(content, list(fields_of(None).values()))}
    assert kinds == {
        "account": "text",
        "revision": "integer",
        "amount": "number",
        "ok": "boolean",
        "note": "json",
        "text": "long",
        "list": "json",
    }


def test_a_value_of_the_wrong_type_has_a_text_input() -> None:
    content = {"account": "a", "revision": 1, "amount": "12,5", "colour": "green"}
    fields = {form_field.name: form_field for form_field in form(content, list(fields_of(AsDataclass).values()))}
    assert (fields["amount"].kind, fields["amount"].text) == ("text", "12,5")
    assert (fields["colour"].kind, fields["colour"].text) == ("text", "green")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), JSON, max_size=5))
def test_submitting_an_unchanged_form_changes_nothing(content: dict[str, Any]) -> None:
    posted: dict[str, str] = {}
    for form_field in form(content, []):
        posted |= {f"kind.{form_field.name}": form_field.kind, f"field.{form_field.name}": form_field.text}
        posted |= {f"none.{form_field.name}": "1"} if form_field.is_none else {}
    assert edited(posted) == content


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("integer", "1.5", "a whole number"),
        ("integer", "true", "a whole number"),
        ("number", "12,5", "a number"),
        ("number", '"5"', "a number"),
        ("json", "{", "JSON"),
        ("integer", "", "a whole number"),
        ("number", "NaN", "a number: NaN is not a valid"),
        ("number", "1e999", "a number: 1e999 is beyond"),
        ("json", "[-Infinity]", "JSON: -Infinity is not a valid"),
        ("json", "[" * 100_000, "JSON: "),
    ],
)
def test_an_invalid_field_value_is_refused_by_field_name(kind: str, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=rf"the field 'x' is .*, which is not {expected}"):
        edited({"kind.x": kind, "field.x": text})


def test_an_unpaired_surrogate_is_refused_by_field_name() -> None:
    with pytest.raises(InputError, match=r"the field 'x' is .* has an unpaired surrogate at a\[0\]"):
        edited({"kind.x": "json", "field.x": r'{"a": ["\ud800"]}'})


def test_an_absent_field_stays_absent_if_left_empty() -> None:
    assert edited({"kind.x": "text", "field.x": "", "absent.x": "1"}) == {}
    assert edited({"kind.x": "text", "field.x": "a", "absent.x": "1"}) == {"x": "a"}
    assert edited({"kind.x": "text", "field.x": "a", "none.x": "1"}) == {"x": None}


DEFINITION = """
from dataclasses import dataclass
import inturn
@dataclass
class Message:
    account: str
    n: int
    amount: TYPE
def apply(state, message):
    return state, []
ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("n"), message=Message, handler=apply)
"""


def test_message_types_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    path, forms = tmp_path / "a_ledger.py", MessageForms()
    path.write_text(DEFINITION.replace("TYPE", "float"))
    places = (f"{path}:ledger",)
    assert [field_type.kind for field_type in forms.types(places, "ledger")] == ["text", "integer", "number"]
    assert forms.types(places, "other") == []
    path.write_text(DEFINITION.replace("TYPE", "bool") + "# changed")
    assert [field_type.kind for field_type in forms.types(places, "ledger")] == ["text", "integer", "boolean"]
    path.write_text("import nothing_of_this_name")
    assert forms.types(places, "ledger") == [], "the page has the form of the values then"
    assert forms.types((), "ledger") == []


def test_choice_options_are_json() -> None:
    content = {"account": "a", "revision": 1, "kind": 2}
    kind_field = next(
        form_field for form_field in form(content, list(fields_of(AsDataclass).values())) if form_field.name == "kind"
    )
    assert [json.loads(choice) for choice in kind_field.choices] == ["a", 2]
    assert kind_field.text == "2"


def test_timestamps_of_a_spark_store_are_text_fields() -> None:
    moment = dt.datetime(2013, 1, 4, 10, 5, tzinfo=dt.UTC)
    (field,) = form({"at": moment}, [])
    assert (field.kind, field.text) == ("text", "2013-01-04T10:05:00Z")
