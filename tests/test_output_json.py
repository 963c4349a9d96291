"""A set in an output has one JSON, whatever its members are and however it was made."""

import enum
import itertools
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from inturn.output_json import output_json


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


@dataclass(frozen=True)
class Paint:
    colours: Any
    of: Any = None


class Frozen(msgspec.Struct, frozen=True, rename="camel"):
    all_colours: frozenset[Any]


class Model(pydantic.BaseModel):
    colours: set[Any]


COLOURS = ["blue", "green", "red"]


@pytest.mark.parametrize("order", [*itertools.permutations(Colour)], ids=str)
def test_set_members_without_an_order_are_sorted_by_their_json(order: tuple[Colour, ...]) -> None:
    colours = dict.fromkeys(order)
    for output, expected in (
        (set(colours), COLOURS),
        ({"a": [frozenset(colours)]}, {"a": [COLOURS]}),
        (Paint(set(colours), of=Paint([set(colours)])), {"colours": COLOURS, "of": {"colours": [COLOURS], "of": None}}),
        (Frozen(frozenset(colours)), {"allColours": COLOURS}),
        (Model(colours=set(colours)), {"colours": COLOURS}),
        ({1, "a", Colour.RED}, ["a", "red", 1]),
    ):
        assert msgspec.json.decode(output_json(output)) == expected


def test_set_members_with_an_order_are_sorted() -> None:
    assert output_json({10, 9, 2}) == b"[2,9,10]"


def test_a_set_member_that_is_not_json_raises_type_error() -> None:
    for output in ({complex(1)}, {Colour.RED, complex(1)}, [object()]):
        with pytest.raises(TypeError):
            output_json(output)
