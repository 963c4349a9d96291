"""The codecs: what goes into columns comes back as it was, or is refused.

A state that came back as something else would make one step decide otherwise than the next, without a word.
"""

import datetime as dt
import enum
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from typing import Any, Optional

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inturn import Gapless, Pipeline
from inturn.core.errors import PipelineError, StateError
from inturn.core.identity import canonical, digest, digests
from inturn.spark.columns import contents
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.state_codec import StateCodec


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


@dataclass
class Line:
    sku: str
    count: int = 1
    sold: dt.date | None = None


class Part(msgspec.Struct):
    sku: str
    price: Decimal
    colours: list[Colour] = []


zones = st.integers(-14, 14).map(lambda hours: dt.timezone(dt.timedelta(hours=hours)))
texts = st.text(max_size=5)
longs = st.integers(-(2**63), 2**63 - 1)
lines = st.builds(Line, texts, longs, st.none() | st.dates())
decimals = st.decimals(allow_nan=False)
parts = st.builds(Part, texts, decimals, st.lists(st.sampled_from(Colour), max_size=2))
# JSON has no infinity; NaN is not equal to itself, so it is tested apart.
finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | longs | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
times = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=zones)  # noqa: DTZ001 - bounds have none

TYPES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: longs,
    float: st.floats(allow_nan=False),
    str: texts,
    bytes: st.binary(max_size=5),
    dt.date: st.dates(),
    dt.datetime: times,
    Decimal: decimals,
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Word: st.sampled_from(Word),
    Number: st.sampled_from(Number),
    dt.time: st.times(),
    dt.timedelta: st.timedeltas(-dt.timedelta(days=10**6), dt.timedelta(days=10**6)),
    list[int]: st.lists(longs, max_size=3),
    dict[str, float]: st.dictionaries(texts, finite, max_size=3),
    dict[int, str]: st.dictionaries(longs, texts, max_size=3),
    set[str]: st.sets(texts, max_size=3),
    frozenset[int]: st.frozensets(longs, max_size=3),
    tuple[str, int]: st.tuples(texts, longs),
    tuple[Colour, ...]: st.lists(st.sampled_from(Colour), max_size=3).map(tuple),
    Line: lines,
    Part: parts,
    list[Line]: st.lists(lines, max_size=3),
    dict[str, list[Part]]: st.dictionaries(texts, st.lists(parts, max_size=2), max_size=2),
    int | str: longs | texts,
    Any: anything,
    dict: st.dictionaries(texts, anything, max_size=3),
    list: st.lists(anything, max_size=3),
}


def name_of(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind)) if "[" not in str(kind) else str(kind)


def pipeline(state: Any = dict, message: Any = None, **more: Any) -> Pipeline:
    """A pipeline whose state type may lack a first state: a codec makes none."""
    keys = {"group": "g", "order": Gapless("r")} | more
    built = Pipeline(name="coded", handler=lambda state, message: (state, []), message=message, **keys)
    object.__setattr__(built, "state", state)
    return built


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type all the way down."""
    if isinstance(one, dt.datetime):
        return isinstance(other, dt.datetime) and one == other and other.tzinfo is not None
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return not isinstance(one, dict) or all(same(value, other[key]) for key, value in one.items())


# -- states -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optional", [False, True], ids=["", "or None"])
@pytest.mark.parametrize("kind", TYPES, ids=name_of)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_a_typed_state_survives_packing(kind: Any, optional: bool, data: st.DataObject) -> None:
    values = data.draw(st.lists(TYPES[kind] | st.none() if optional else TYPES[kind], max_size=4))
    annotation = Optional[kind] if optional else kind  # noqa: UP045 - built at run time
    for record in (
        make_dataclass("State", [("v", annotation, None)]),
        msgspec.defstruct("State", [("v", annotation, None)]),
    ):
        codec = StateCodec(pipeline(record))
        states = [record(value) for value in values]
        packed = codec.pack(states)
        assert packed.type == codec.type
        unpacked = codec.unpack(packed)
        assert all(map(same, [state.v for state in unpacked], values))
        assert unpacked == states
        # One alone, out of the middle, as a spoilt state is made again.
        assert [codec.unpack(packed.slice(index, 1))[0] for index in range(len(values))] == states


@given(st.lists(st.dictionaries(texts, anything, max_size=3), max_size=4))
def test_a_json_dict_state_survives_packing(states: list[dict[str, Any]]) -> None:
    codec = StateCodec(pipeline(dict))
    assert all(map(same, codec.unpack(codec.pack(states)), states))


@pytest.mark.parametrize(("kind", "state"), [(int, 5), (str, "x"), (list, [1]), (lambda: None, None), (lambda: 0, 7)])
def test_a_state_that_is_not_a_record_survives_packing(kind: Any, state: Any) -> None:
    codec = StateCodec(pipeline(kind))
    assert codec.unpack(codec.pack([state, kind()])) == [state, kind()]


def test_nan_survives_packing() -> None:
    record = make_dataclass("State", [("v", float)])
    codec = StateCodec(pipeline(record))
    assert math.isnan(codec.unpack(codec.pack([record(float("nan"))]))[0].v)


WRONG: dict[str, tuple[Any, Any]] = {
    "a fraction for an int": (int, 1.5),
    "a text for an int": (int, "5"),
    "beyond 64 bit": (int, 2**63),
    "below 64 bit": (int, -(2**63) - 1),
    "an int that no float is": (float, 2**60 + 1),
    "a text for a float": (float, "1.5"),
    "bytes for a text": (str, b"x"),
    "an int for a text": (str, 5),
    "a text that is none": (str, "\ud800"),
    "a text for bytes": (bytes, "x"),
    "an int for a bool": (bool, 1),
    "a time for a date": (dt.date, dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)),
    "an int for a date": (dt.date, 5),
    "a text for a date": (dt.date, "2026-01-01"),
    "a date for a time": (dt.datetime, dt.date(2026, 1, 1)),
    "a time without a zone": (dt.datetime, dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - the point
    "a text for a decimal": (Decimal, "12.5"),
    "no decimal at all": (Decimal, "much"),
    "a float for a decimal": (Decimal, 1.5),
    "a text for a UUID": (uuid.UUID, "x"),
    "a value for an enum": (Colour, "red"),
    "no value of an enum": (Colour, "blue"),
    "a text in a list of int": (list[int], ["x"]),
    "beyond 64 bit in a list": (list[int], [object()]),
    "a tuple in a list": (list, [(1, 2)]),
    "a set": (Any, {1}),
    "an object": (Any, object()),
    "keys that are numbers": (dict, {1: "x"}),
    "infinity within": (list[float], [math.inf]),
    "a dict for a record": (Line, {"sku": "x"}),
    "None within": (list[int], [None]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_value_that_cannot_be_restored_is_refused(case: str) -> None:
    kind, value = WRONG[case]
    record = make_dataclass("State", [("v", kind)])
    codec = StateCodec(pipeline(record))
    with pytest.raises(StateError, match="pipeline 'coded': the state field 'v' cannot be stored"):
        codec.pack([record(value)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [(float, 1), (int, Number.ONE), (str, Word.YES), (int, 2.0), (Any, Word.YES), (bytes, bytearray(b"x"))],
)
def test_a_state_value_equal_to_its_stored_form_is_accepted(kind: Any, value: Any) -> None:
    record = make_dataclass("State", [("v", kind)])
    codec = StateCodec(pipeline(record))
    assert codec.unpack(codec.pack([record(value)])) == [record(value)]


@dataclass
class Hidden:
    balance: int = 0
    cache: int = field(default=0, init=False)


@dataclass
class Unknown:
    value: "Nowhere"  # noqa: F821 - the point


@dataclass
class Nothing:
    pass


def test_an_unsupported_state_type_is_refused() -> None:
    with pytest.raises(StateError, match="Nothing has no fields"):
        StateCodec(pipeline(Nothing))
    with pytest.raises(StateError, match=r"Hidden\.cache is not an argument of __init__"):
        StateCodec(pipeline(Hidden))
    with pytest.raises(PipelineError, match="a type hint of Unknown cannot be resolved"):
        StateCodec(pipeline(Unknown))


@dataclass(kw_only=True)
class Named:
    second: int
    first: int = 0


class NamedStruct(msgspec.Struct, kw_only=True):
    second: int
    first: int = 0


class Mixed(NamedStruct):
    third: int
    fourth: int = 4


@pytest.mark.parametrize("record", [Named, NamedStruct, Mixed])
def test_keyword_only_record_fields_are_supported(record: type) -> None:
    values = {"second": 2, "third": 3} if record is Mixed else {"second": 2}
    named = pipeline(record, record, group="second", order=Gapless("first"))
    states = StateCodec(named)
    assert states.unpack(states.pack([record(**values)])) == [record(**values)]
    messages = MessageCodec(named, [*values])
    columns, bad = messages.read(pa.table({name: [value] for name, value in values.items()}))
    assert (messages.build(columns), bad) == (([record(**values)], {}), {})


def test_unstored_state_fields_take_their_defaults() -> None:
    @dataclass
    class Old:
        b: int

    @dataclass
    class New:
        a: list[int] = field(default_factory=list)
        b: int = 0
        c: str = "c"

    stored = StateCodec(pipeline(Old)).pack([Old(1), Old(2)])
    first, second = StateCodec(pipeline(New)).unpack(stored)
    assert (first, second) == (New([], 1, "c"), New([], 2, "c"))
    assert first.a is not second.a


# -- messages ---------------------------------------------------------------------------------------------------

TIME = pa.timestamp("us", tz="UTC")
LINE = pa.struct({"sku": pa.string(), "count": pa.int64(), "sold": pa.date32()})
MONEY = pa.decimal128(20, 3)
money = st.decimals(-(10**9), 10**9, places=3)
clock = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - bounds
COLUMNS: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "a bool": (bool, pa.bool_(), st.booleans()),
    "a long": (int, pa.int64(), longs),
    "a byte": (int, pa.int8(), st.integers(-128, 127)),
    "a text": (str, pa.string(), texts),
    "a large text": (str, pa.large_string(), texts),
    "a float": (float, pa.float64(), st.floats(allow_nan=False)),
    "a float of 32 bit": (float, pa.float32(), st.floats(allow_nan=False, width=32)),
    "bytes": (bytes, pa.binary(), st.binary(max_size=4)),
    "a date": (dt.date, pa.date32(), st.dates()),
    "a time": (dt.datetime, TIME, clock),
    "a decimal": (Decimal, MONEY, money),
    "a list": (list[int], pa.list_(pa.int64()), st.lists(longs, max_size=3)),
    "a record": (Line, LINE, lines),
    "records": (list[Line], pa.list_(LINE), st.lists(lines, max_size=3)),
    "a map": (dict[str, int], pa.map_(pa.string(), pa.int64()), st.dictionaries(texts, longs, max_size=3)),
    "an enum as text": (Colour, pa.string(), st.sampled_from(Colour)),
    "an enum as a number": (Number, pa.int32(), st.sampled_from(Number)),
    "a UUID as text": (uuid.UUID, pa.string(), st.uuids()),
    "a time as text": (dt.datetime, pa.string(), clock),
    "a date as text": (dt.date, pa.string(), st.dates()),
    "an int as text": (int, pa.string(), longs),
    "a decimal as text": (Decimal, pa.string(), money),
    "a float as int": (float, pa.int64(), st.integers(-(2**50), 2**50).map(float)),
    "anything": (Any, pa.string(), texts),
}
RAW = {"an enum as text", "an enum as a number"}


def as_column(case: str, value: Any) -> Any:
    if value is None:
        return None
    if case in RAW:
        return value.value
    if case == "a float as int":
        return int(value)
    if case.endswith("as text"):
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    if isinstance(value, list):
        return [as_column(case, item) for item in value]
    return vars(value) if isinstance(value, Line) else value


@pytest.mark.parametrize("optional", [False, True], ids=["", "or None"])
@pytest.mark.parametrize("case", COLUMNS)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
@pytest.mark.thorough
def test_a_typed_message_is_built_from_its_columns_with_the_same_digest(
    case: str, optional: bool, data: st.DataObject
) -> None:
    kind, arrow, strategy = COLUMNS[case]
    values = data.draw(st.lists(strategy | st.none() if optional else strategy, min_size=1, max_size=5))
    annotation = Optional[kind] if optional else kind  # noqa: UP045 - built at run time
    record = make_dataclass("Message", [("g", str), ("r", int), ("v", annotation), ("rate", float, 1.5)])
    messages = [record("a", number, value) for number, value in enumerate(values)]
    table = pa.table(
        {
            "r": pa.array(range(len(values)), pa.int32()),
            "v": pa.array([as_column(case, value) for value in values], arrow),
            "g": pa.array(["a"] * len(values)),
        }
    )
    codec = MessageCodec(pipeline(message=record), table.column_names)
    columns, bad = codec.read(table)
    built, _ = codec.build(columns)
    assert bad == {}
    assert built == messages
    assert all(map(same, [message.v for message in built], values))
    # The digest is of the message, whichever way it is worked out and whatever its columns were.
    pure = [digest(vars(message)) for message in messages]
    assert all(result == pure for result in digested(codec, table, columns))


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "why"),
    [
        (int, pa.string(), "much", "v is 'much': Expected `int | null`, got `str`"),
        (int, pa.string(), "1.5", "v is '1.5': Expected `int | null`, got `str`"),
        (Colour, pa.string(), "blue", "v is 'blue': Invalid enum value 'blue'"),
        (uuid.UUID, pa.string(), "x", "v is 'x': Invalid UUID"),
        (dt.datetime, pa.string(), "soon", "v is 'soon': Invalid RFC3339 encoded datetime"),
        (bool, pa.int64(), 7, "v is 7: Expected `bool | null`, got `int`"),
        (list[int], pa.list_(pa.string()), ["x"], "v is ['x']: Expected `int`, got `str` - at `$[0]`"),
        (str, pa.string(), None, "v is null, expected str"),
        (list[int], pa.list_(pa.int64()), None, "v is null, expected list"),
    ],
)
def test_a_column_value_of_the_wrong_type_is_reported_for_its_row(
    kind: Any, arrow: pa.DataType, value: Any, why: str
) -> None:
    record = make_dataclass("Message", [("g", str), ("r", int), ("v", kind)])
    fitting = {pa.string(): {int: "1", Colour: "red", uuid.UUID: str(uuid.UUID(int=1)), str: "x"}.get(kind)}
    valid = fitting.get(arrow) or {pa.int64(): 1, pa.string(): "2026-01-01T00:00:00Z"}.get(arrow, [])
    table = pa.table({"g": ["a", "a"], "r": [1, 2], "v": pa.array([valid, value], arrow)})
    codec = MessageCodec(pipeline(message=record), table.column_names)
    columns, bad = codec.read(table)
    assert bad == {1: why}
    assert codec.build({name: column[:1] for name, column in columns.items()})[0][0].r == 1


CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    "quoted": (pa.string(), st.text('"\\\n\x00\x1f\x7f\u2028é', max_size=4)),
    "flag": (pa.bool_(), st.booleans()),
    "byte": (pa.uint8(), st.integers(0, 255)),
    "long": (pa.int64(), longs),
    "float": (pa.float64(), st.floats()),
    "time": (TIME, clock),
    "list": (pa.list_(pa.string()), st.lists(st.text("a,\n", max_size=2), max_size=2)),
    "record": (LINE, lines.map(vars)),
    "nothing": (pa.null(), st.none()),
}


def digested(codec: MessageCodec, table: pa.Table, columns: dict[str, list[Any]]) -> Iterator[list[bytes]]:
    """The digests of all rows by each of the ways in which they can be worked out."""
    for few in (0, len(table) + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("inturn.spark.columns.message_codec._FEW", few)
            yield codec.digests(table, columns, range(len(table)))
            yield codec.digests(table, columns, list(range(len(table)))[::-1])[::-1]


@given(data=st.data())
@example(data=None)
def test_arrow_digests_equal_those_of_the_core(data: st.DataObject | None) -> None:
    if data is None:
        rows: list[dict[str, Any]] = [{"a%": "x", "é": 1}, {"a%": None, "é": None}]
        table, start, end = pa.table({name: [row[name] for row in rows] for name in ("é", "a%")}), 0, 2
    else:
        kinds = data.draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=4, unique=True))
        count = data.draw(st.integers(1, 5))
        cells = {
            kind: data.draw(st.lists(CELLS[kind][1] | st.none(), min_size=count, max_size=count)) for kind in kinds
        }
        table = pa.table({kind: pa.array(cells[kind], CELLS[kind][0]) for kind in kinds})
        start = data.draw(st.integers(0, count - 1))
        end = data.draw(st.integers(start + 1, count))
    part = table.slice(start, end - start)  # a chunk is a slice, so its buffers begin elsewhere
    codec = MessageCodec(pipeline(), part.column_names)
    columns, _ = codec.read(part)
    pure = digests(part.column_names, list(columns.values()))
    assert all(result == pure for result in digested(codec, part, columns))
    # What was converted is put into JSON by the core.
    assert contents.digests(part.column_names, [contents.texts(None, columns[name]) for name in columns]) == pure


@pytest.mark.parametrize(
    "character", [chr(code) for code in (*range(0x24), 0x5C, 0x7F, 0x80, 0x2028, 0x1F600)], ids=ascii
)
def test_each_character_is_quoted_like_in_the_canonical_json_of_the_core(character: str) -> None:
    column = pa.array(["before", f"a{character}b", None, "after"])
    for part in (column, column.slice(1, 1), column.slice(1, 2), column.slice(3)):
        values = part.to_pylist()
        texts = contents.texts(part, values)
        quoted = [f"{texts.quote}{text}{texts.quote}" for text in texts.inner.to_pylist()]
        assert [None if text == "None" else text for text in quoted] == [
            None if value is None else canonical(value) for value in values
        ]


def test_ignored_and_arrival_columns_are_not_in_the_digest() -> None:
    table = pa.table({"g": ["a", "a"], "r": [1, 1], "seen": [1, 2], "at": [3, 4]})
    codec = MessageCodec(pipeline(ignore=["seen"], arrival="at"), table.column_names)
    columns, _ = codec.read(table)
    first, second = codec.digests(table, columns, range(2))
    assert first == second == digest({"g": "a", "r": 1})
