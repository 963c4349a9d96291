"""Two messages are the same when their digests are; an effect has the same name in every run."""

import datetime as dt
import enum
import hashlib
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import pipeline

from inturn import Gapless
from inturn.core.errors import InputError
from inturn.core.identity import canonical, digest, digests, effect_id, group_text

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
TEXT = st.text(st.characters(), max_size=8)  # all code points, lone surrogates among them
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.lists(TEXT, min_size=1, max_size=4, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    names = draw(NAMES)
    rows = draw(st.integers(0, 4))
    return names, [draw(st.lists(JSON, min_size=rows, max_size=rows)) for _ in names]


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclass
class Point:
    x: int
    at: dt.datetime | None = None


class PointStruct(msgspec.Struct):
    at: dt.datetime | None = None
    x: int = 0


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


def test_digest_ignores_null_fields() -> None:
    bare = digest({"a": 1, "b": {"c": [{}]}, "p": {"x": 1}})
    assert digest({"a": 1, "b": {"c": [{"d": None}], "e": None}, "f": None, "p": {"x": 1}}) == bare
    assert digest({"a": 1, "b": {"c": [{}]}, "p": Point(1)}) == bare
    assert digest({"a": "null", "b": 1}) != digest({"b": 1})
    assert digest({"a": [None]}) != digest({"a": []})


@given(tables())
@example((["a"], [[[1, 2]]]))
@example((["a", "b"], [[[], {}], [["x\ny"], {"k": [1, [2]]}]]))
@example((["100%", "%s"], [["%d", "%%"], ["\n", "\u2028"]]))
@example((["\ud800"], [["\udfff"]]))
def test_digests_of_columns_equal_the_digests_of_rows(table: tuple[list[str], list[list[Any]]]) -> None:
    names, columns = table
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    assert digests(names, columns) == [digest(row) for row in rows]
    assert digests(names, columns) == [
        hashlib.sha256(canonical(without_nulls(row)).encode("utf-8", "surrogatepass")).digest() for row in rows
    ]


@given(JSON)
def test_canonical_json_parses_to_an_equal_value(value: Any) -> None:
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)


@given(st.dictionaries(TEXT, JSON, min_size=1, max_size=4), st.randoms())
def test_digest_ignores_the_order_of_keys(content: dict[str, Any], random: Any) -> None:
    names = list(content)
    random.shuffle(names)
    assert digest({name: content[name] for name in names}) == digest(content)


@given(JSON, JSON)
@example(1, True)
@example(0, None)
@example("1", 1)
@example([1, 2], [2, 1])
@example({"a": None}, {})
@example([[1], 2], [1, [2]])
@example("a", ["a"])
def test_digest_differs_for_different_content(one: Any, other: Any) -> None:
    texts = [json.dumps(without_nulls({"v": value}), sort_keys=True) for value in (one, other)]
    assert (digest({"v": one}) == digest({"v": other})) == (texts[0] == texts[1])


def test_canonical_json_has_sorted_keys_no_spaces_and_unescaped_unicode() -> None:
    assert canonical({"b": [1, 2.5, None, True], "a": {"ü": "é\n", "A": {}}}) == (
        '{"a":{"A":{},"ü":"é\\n"},"b":[1,2.5,null,true]}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NOON, '"2024-05-01T12:00:00+00:00"'),
        (NOON.astimezone(dt.timezone(dt.timedelta(hours=-9, minutes=-30))), '"2024-05-01T12:00:00+00:00"'),
        (NOON.replace(microsecond=5), '"2024-05-01T12:00:00.000005+00:00"'),
        (NOON.replace(tzinfo=None), '"2024-05-01T12:00:00"'),
        (NOON.date(), '"2024-05-01"'),
        (dt.time(1, 2), '"01:02:00"'),
        (dt.timedelta(seconds=1.5), "1500000.0"),
        (dt.timedelta(microseconds=2**63 - 1), "9223372036854775807"),
        (dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))), '"0001-01-01T00:00:00+14:00"'),
        ({dt.date(2024, 5, 2): 1, dt.date(2024, 5, 1): 2}, '{"2024-05-01":2,"2024-05-02":1}'),
        ([{NOON: {Decimal("1.50"): b"a"}}], '[{"2024-05-01T12:00:00+00:00":{"1.5":"YQ=="}}]'),
        ({True: 1}, '{"true":1}'),
        (Decimal("1.50"), '"1.5"'),
        (Decimal("1E+3"), '"1000"'),
        (Decimal("0.000"), '"0"'),
        (Decimal("-12.30"), '"-12.3"'),
        (Decimal("NaN"), '"NaN"'),
        (Colour.RED, '"red"'),
        (Size.BIG, "3"),
        (b"\x00\xff", '"AP8="'),
        (bytearray(b"\x00\xff"), '"AP8="'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ((1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        (Point(1, NOON), '{"at":"2024-05-01T12:00:00+00:00","x":1}'),
        (PointStruct(NOON, 1), '{"at":"2024-05-01T12:00:00+00:00","x":1}'),
        ([Point(1), {"p": PointStruct(x=1)}], '[{"at":null,"x":1},{"p":{"at":null,"x":1}}]'),
    ],
)
def test_canonical_has_one_form_for_values_json_lacks(value: Any, text: str) -> None:
    assert canonical(value) == text


@given(st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(2, 1, 1)), st.integers(-1439, 1439))  # noqa: DTZ001
def test_digest_is_equal_for_one_instant_in_two_time_zones(moment: dt.datetime, minutes: int) -> None:
    elsewhere = moment.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    assert digest({"at": elsewhere}) == digest({"at": moment})
    assert digest({"at": moment.replace(tzinfo=None)}) != digest({"at": moment})


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4), st.integers(0, 6))
def test_digest_ignores_trailing_zeros_of_a_decimal(number: Decimal, zeros: int) -> None:
    longer = number if number.is_zero() else Decimal(f"{number:f}" + ("0" * zeros))
    assert digest({"n": longer}) == digest({"n": number})


@pytest.mark.parametrize("value", [object(), 1j, range(3), {"deep": [object()]}])
def test_canonical_refuses_unsupported_values(value: Any) -> None:
    with pytest.raises(
        InputError, match=r"has no canonical form; use a dataclass, a msgspec.Struct, a pydantic model or JSON values"
    ):
        canonical(value)


def test_a_dataclass_a_struct_and_a_dict_with_equal_fields_are_duplicates() -> None:
    moment = NOON.astimezone(dt.timezone(dt.timedelta(hours=2)))

    @dataclass
    class Order:
        g: str
        r: int
        at: dt.datetime
        lines: list[Point]
        o: int = 0

    class OrderStruct(msgspec.Struct):
        lines: list[PointStruct]
        g: str
        at: dt.datetime
        r: int
        o: int = 0

    # Each is a duplicate of the first, whichever type the pipeline has.
    forms = [
        Order("a", 1, moment, [Point(1)], o=3),
        OrderStruct([PointStruct(x=1)], "a", moment, 1, o=9),
        {"at": NOON, "r": 1, "g": "a", "lines": [{"x": 1, "at": None}], "o": 7},
    ]
    memories = []
    for message, type_ in zip(forms, [Order, OrderStruct, None], strict=True):
        pipe = pipeline(message=type_, handler=lambda state, _: (state, []))
        assert pipe.replay([message, forms[2]]).counts.duplicate == 1
        memories.append(pipe.replay([message]).timelines["a"].memory)
    assert memories == [digest({"g": "a", "r": 1, "at": NOON, "lines": [Point(1)]})[:8]] * 3


@pytest.mark.parametrize("ignored", ["arrival", "ignore"])
def test_digest_excludes_arrival_and_ignored_fields(ignored: str) -> None:
    pipe = pipeline(arrival="o") if ignored == "arrival" else pipeline(arrival=None, ignore=["o"])
    assert pipe.replay([{"g": "a", "r": 1, "v": 1, "o": n} for n in range(3)]).counts.duplicate == 2
    other = pipeline(arrival=None).replay([{"g": "a", "r": 1, "v": 1, "o": n} for n in range(3)])
    assert other.counts.rejected == {"conflict": 2}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        (7, "7"),
        (-7, "-7"),
        (dt.date(2024, 5, 1), "2024-05-01"),
        (uuid.UUID(int=0), str(uuid.UUID(int=0))),
    ],
)
def test_group_text_of_supported_types(value: Any, text: str) -> None:
    assert group_text(value) == text


@pytest.mark.parametrize("value", [1.0, True, NOON, None, b"a", ("a",), Decimal(1)])
def test_group_text_refuses_unsupported_types(value: Any) -> None:
    with pytest.raises(InputError, match=r"invalid group .*: expected str, int, date or UUID; cast it to text"):
        group_text(value)


def test_a_number_and_its_text_are_one_group() -> None:
    result = pipeline().replay([{"g": 7, "r": 1, "v": 1, "o": 0}, {"g": "7", "r": 2, "v": 2, "o": 1}])
    assert result.states == {"7": [1, 2]}


@given(TEXT, TEXT, st.none() | st.integers(), st.integers() | TEXT, st.integers(0, 9))
def test_effect_id_is_the_sha256_of_its_five_parts(
    name: str, group: str, epoch: int | None, place: int | str, index: int
) -> None:
    text = canonical([name, group, epoch, place, index])
    assert (
        effect_id(name, group, epoch, place, index) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    )


def test_effect_id_and_digest_are_stable() -> None:
    """These are in stores and in other people's databases: a change here is a new format."""
    assert effect_id("ledger", "acct-1", None, 3, 0) == (
        "d76e4ab584e927c14aa7be24ecbecc0df364ee03af933a3a223232ec14ddc4c5"
    )
    assert digest({"account": "acct-1", "revision": 3, "amount": Decimal("2.50"), "at": NOON}).hex() == (
        "16f21e3886e82e24bcb51f7cf8d30ef2b4fabd60240521740864098d29018471"
    )


def test_outputs_have_the_effect_ids_of_their_positions() -> None:
    pipe = pipeline(Gapless("r", epoch="e"), handler=lambda s, m: (s, ["x", "y"]))
    [x, y] = pipe.replay([{"g": 7, "r": 1, "e": 4, "o": 0}]).outputs
    assert (x.group, x.epoch, x.revision, x.id, x.index, x.output) == ("7", 4, 1, None, 0, "x")
    assert (x.effect_id, y.effect_id) == (effect_id("p", "7", 4, 1, 0), effect_id("p", "7", 4, 1, 1))


def test_digest_uses_every_digit_of_a_decimal() -> None:
    one, other = Decimal("12345678901234567890123456789012345678"), Decimal("12345678901234567890123456789012345679")
    assert digest({"n": one}) != digest({"n": other})


@pytest.mark.parametrize("value", [{(1, 2): 1}, {1: "a", "b": 2}, {Colour.RED: 1}])
def test_canonical_refuses_keys_that_json_cannot_hold(value: Any) -> None:
    with pytest.raises(InputError, match="canonical form"):
        canonical(value)
