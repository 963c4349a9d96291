"""States are brought to their normal form before the next call: each row of the table, in every engine."""

import collections
import datetime as dt
import enum
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inturn import Gapless, Pipeline
from inturn.core.errors import InputError, StateError, ValueRefused
from inturn.core.values.states import StateNormalizer
from inturn.queue import draft
from inturn.spark.columns.state_codec import StateCodec as Columns
from inturn.worker.codec import WorkerStateCodec as Packed
from kernel_harness import Bench

KEPT, REFUSED = "unchanged", "refused"
FORMS: Final[tuple[tuple[str, str, str], ...]] = (
    ("none, `Any`, `dict`, `list`", "None, a bool, a finite float, a text, an int of 64 bits", KEPT),
    ("", "a dict with texts as keys, a list", KEPT),
    ("", "a `Counter`, a `defaultdict`, any other kind of dict", "a dict"),
    ("", "a tuple", "a list"),
    ("", "a `StrEnum`, an `IntEnum`, any other kind of str, int or float", "a str, an int, a float"),
    ("", "a dict with a key that is not a text", REFUSED),
    ("", "bytes, a set, a time, a date, a Decimal, a UUID, an Enum, a record", REFUSED),
    ("`int`", "an int of 64 bits", KEPT),
    ("", "a float that is a whole number", "an int"),
    ("", "a bool, another float, None, a text", REFUSED),
    ("`float`", "a finite float", KEPT),
    ("", "an int that a float can represent exactly", "a float"),
    ("`str`, `bool`, `date`, `timedelta`, `UUID`, `bytes`", "a value of the type", KEPT),
    ("`bytes`", "a bytearray", "bytes"),
    ("`datetime`", "a time in UTC", KEPT),
    ("", "a time in another zone", "the same time in UTC"),
    ("", "a time without a zone", REFUSED),
    ("`Decimal`", "a finite Decimal", KEPT),
    ("an `Enum` of texts or integers", "a member, or the value of a member", "the member"),
    ("a dataclass, a Struct, a model of pydantic", "an instance", "its fields, each by its type"),
    ("", "an instance of a derived type", REFUSED),
    ("any", "NaN, infinity, a lone surrogate, an int beyond 64 bits", REFUSED),
    ("any", "a list, dict, set or record that occurs twice in the state", "two copies"),
    ("any", "a value that contains itself, or is nested too deeply", REFUSED),
)
"""The declared type (empty: as in the row above), the value, and its stored form."""


def table() -> str:
    """The table as Markdown, as it is on the page."""
    rows = [("declared type", "value", "becomes"), ("---", "---", "---"), *FORMS]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


class Word(enum.StrEnum):
    YES = "yes"


class Number(enum.IntEnum):
    ONE = 1


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Item:
    sku: str = "x"
    count: float = 1.0


class Other(Item):
    pass


class Real(float):
    pass


longs = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=3)
zones = st.integers(-14, 14).filter(bool).map(lambda hours: dt.timezone(dt.timedelta(hours=hours)))
naive = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1))  # noqa: DTZ001 - bounds have none
beyond = st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63) - 1)
itself: list[Any] = []
itself.append(itself)
deep: list[Any] = []
for _ in range(200):
    deep = [deep]
shared = [1]
Drawn = tuple[Any, st.SearchStrategy[Any]]
VALUES: dict[int, list[Drawn]] = {
    0: [(Any, st.none() | st.booleans() | floats | texts | longs)],
    1: [(Any, st.dictionaries(texts, longs) | st.lists(texts)), (dict, st.dictionaries(texts, floats))],
    2: [
        (Any, texts.map(collections.Counter) | st.just(collections.defaultdict(int, a=1))),
        (dict, texts.map(collections.Counter)),
    ],
    3: [(Any, st.tuples(longs, texts)), (list, st.tuples(longs))],
    4: [(Any, st.sampled_from([Word.YES, Number.ONE, Real(1.5)]))],
    5: [(Any, st.dictionaries(longs | st.none() | st.booleans(), texts, min_size=1))],
    6: [
        (
            Any,
            st.binary()
            | st.just({1})
            | naive
            | st.dates()
            | st.decimals()
            | st.uuids()
            | st.just(Colour.RED)
            | st.just(Item()),
        )
    ],
    7: [(int, longs)],
    8: [(int, st.integers(-(2**53), 2**53).map(float))],
    9: [(int, st.booleans() | st.none() | texts | st.just(1.5))],
    10: [(float, floats)],
    11: [(float, st.integers(-(2**53), 2**53))],
    12: [
        (str, texts),
        (bool, st.booleans()),
        (dt.date, st.dates()),
        (dt.timedelta, st.timedeltas()),
        (uuid.UUID, st.uuids()),
        (bytes, st.binary()),
    ],
    13: [(bytes, st.binary().map(bytearray))],
    14: [(dt.datetime, st.datetimes(timezones=st.just(dt.UTC)).map(lambda moment: moment.replace(fold=0)))],
    15: [(dt.datetime, st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=zones))],  # noqa: DTZ001 - bounds have none
    16: [(dt.datetime, naive)],
    17: [(Decimal, st.decimals(allow_nan=False, allow_infinity=False))],
    18: [(Colour, st.sampled_from([Colour.RED, "red"])), (Number, st.sampled_from([Number.ONE, 1]))],
    19: [(Item, st.builds(Item, texts, st.integers(-9, 9)))],
    20: [(Item, st.builds(Other))],
    21: [
        (Any, beyond | st.sampled_from([float("nan"), float("inf"), "\ud800"])),
        (float, st.just(float("nan"))),
        (int, beyond),
    ],
    22: [
        (Any, st.just([shared, shared])),
        (list[list[int]], st.just([shared, shared])),
        (list[Item], st.builds(lambda item: [item, item], st.builds(Item))),
    ],
    23: [(Any, st.sampled_from([itself, deep]))],
}
CASES = [(row, index) for row, strategies in VALUES.items() for index in range(len(strategies))]


def words_of(row: int) -> str:
    return FORMS[row][1]


def test_the_guarantees_page_shows_the_table_of_state_forms() -> None:
    assert set(VALUES) == set(range(len(FORMS)))
    assert table() in (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()


def pipeline(kind: Any, handler: Callable[[Any, Any], Any] = lambda state, message: (state, [])) -> Pipeline:
    state = make_dataclass("State", [("v", kind, field(default_factory=lambda: None))])
    built = Pipeline(name="forms", group="g", order=Gapless("r"), state=state, handler=handler)
    vars(built)["make_first"] = lambda: None
    return built


@pytest.mark.parametrize(("row", "at"), CASES, ids=[f"{words_of(row)} {index}" for row, index in CASES])
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_a_state_value_has_one_normal_form_or_is_refused(row: int, at: int, data: st.DataObject) -> None:
    kind, values = VALUES[row][at]
    value = data.draw(values)
    becomes = FORMS[row][2]
    definition = pipeline(kind)
    state = definition.state(value)  # type: ignore[call-arg]
    if becomes == REFUSED:
        with pytest.raises(ValueRefused, match=r"state\.v.* of type "):
            definition.normalize(state)
        return
    normal = definition.normalize(state)
    assert (normal is state) == (becomes == KEPT or (becomes == "the member" and isinstance(value, enum.Enum)))
    assert definition.normalize(normal) is normal, "once is enough"
    # It is what comes back, of the very types, from every store.
    packed, columns = Packed(definition), Columns(definition)
    for decoded in (packed.decode(packed.encode(normal)), columns.unpack(columns.pack([normal]))[0]):
        assert decoded == normal
        assert repr(decoded) == repr(normal)
        assert definition.normalize(decoded) is decoded


SEEN: dict[str, Callable[[], Any]] = {
    "counter": lambda: collections.Counter("a"),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "key": lambda: {Word.YES: 1},
    "tuple": lambda: ((1, 2), [3]),
    "twice": lambda: [shared, shared],
    "enum": lambda: Number.ONE,
    "set": lambda: {1},
    "nan": lambda: float("nan"),
}


@pytest.mark.parametrize("case", SEEN)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_step_boundaries_do_not_change_the_normal_form_of_a_state(case: str, cut: int) -> None:
    def handler(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        seen = repr((type(state.get("v")), state.get("v")))
        return {"v": SEEN[case]()}, [seen]

    definition = Pipeline(name="forms", group="g", order=Gapless("r"), handler=handler)
    rows = [{"g": "a", "r": revision} for revision in (1, 2, 3)]
    schema = pa.schema({"g": pa.string(), "r": pa.int64()})
    at_once = definition.replay(rows)
    parts = definition.replay(rows[cut:], after=definition.replay(rows[:cut]))
    assert (parts.states, parts.outputs, parts.errors.keys()) == (
        at_once.states,
        at_once.outputs,
        at_once.errors.keys(),
    )
    with Bench(definition, schema) as bench:
        bench.step(rows[:cut])
        bench.step(rows[cut:])
        seen = bench.seen()
    assert seen.states == at_once.states
    assert [output[-1] for output in seen.outputs] == [output.output for output in at_once.outputs]
    assert seen.errors == set(at_once.errors)


@pytest.mark.parametrize("kind", [collections.Counter, complex, type("Thing", (), {}), list[complex]])
def test_an_unsupported_state_type_is_refused(kind: Any) -> None:
    with pytest.raises(StateError, match=r"a state cannot contain a .*docs/guarantees.md"):
        StateNormalizer(kind if isinstance(kind, type) else make_dataclass("State", [("v", kind)]))


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), b"x", {"a": [b"x"]}, {1.5: 2}], ids=repr)
def test_a_body_or_attribute_without_a_json_form_is_refused_by_draft(wrong: Any) -> None:
    with pytest.raises(ValueRefused, match=r"^(a key of )?body\.items\[3\]\.price.* is .* of type "):
        draft({"items": [{}, {}, {}, {"price": wrong}]})
    with pytest.raises(InputError, match=r"^(a key of )?attributes\.price"):
        draft("text", attributes={"price": wrong})


plain = st.recursive(
    st.none() | st.booleans() | longs | st.floats() | texts | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(texts, plain, max_size=3))
def test_a_body_is_serialized_unchanged_or_refused(body: dict[str, Any]) -> None:
    try:
        drafted = draft(body)
    except InputError:
        return
    assert json.loads(drafted.body) == body
