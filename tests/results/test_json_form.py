"""States as JSON: in Python, in the column of SQLite and by the function of PostgreSQL they are the same."""

import dataclasses
import datetime as dt
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inturn import json_form


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a map that is a map itself."""

    at: tuple[int, ...]


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INSTANTS = st.timedeltas(dt.timedelta(-719_000), dt.timedelta(2_932_000)).map(lambda since: EPOCH + since)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary() | INSTANTS
)
INTS = st.integers(-(2**63), 2**63)
KEYS = st.none() | st.booleans() | INTS | st.text() | st.binary() | INSTANTS
KEYS = KEYS | st.builds(Key, st.tuples(INTS)) | st.tuples(INTS, st.text(st.characters(min_codepoint=1)))  # type: ignore[assignment]
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)
DEEP: Any = 1
for _ in range(100):
    DEEP = {"in": [DEEP]}
EXAMPLES = [
    {"a": 1, "b": [1.5, -0.0, 5e-324, 1.7976931348623157e308, math.inf, math.nan]},
    [0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -1, -32, -33, -128, -129],
    [-32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)],
    ["", "a" * 31, "a" * 32, "é" * 200, "\U0001f600" * 40_000, '"\\\n\t\x7f'],
    [b"", b"\0" * 300, b"\xff" * 70_000],
    [dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)],
    [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 5, dt.UTC), dt.date(2026, 1, 1)],
    [dt.datetime(9999, 12, 30, 1, 2, 3, 4, dt.UTC), Decimal("1.50"), dt.timedelta(seconds=1.5)],
    {Key((1, 2)): {Key(()): {(): [], (1, "a"): {}}}, "plain": 1},
    {None: 1, True: 2, False: 3, 7: 4, b"x": 5, dt.datetime(2026, 1, 1, tzinfo=dt.UTC): 6},
    {str(number): number for number in range(70_000)},
    list(range(20)),
    DEEP,
    None,
]
Form = Any


@pytest.fixture(scope="module")
def server(postgres_schemas: Any) -> Iterator[psycopg.Connection[Any]]:
    url = postgres_schemas.take()
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection
    postgres_schemas.give_back(url)


def form(value: Any) -> Form:
    """What is shown of a value, without the NULs that PostgreSQL has none of."""
    return parsed(json_form.of_message_pack(msgspec.msgpack.encode(value)).replace("\\u0000", "\ufffd"))


def form_of_server(connection: psycopg.Connection[Any], value: Any) -> Form:
    row = connection.execute("select inturn_json(%s)::text", (msgspec.msgpack.encode(value),)).fetchone()
    assert row is not None
    return parsed(row[0])


def parsed(text: str) -> Form:
    """JSON with all numbers as floats: jsonb writes a great one without its exponent, as an integer."""
    return json.loads(text, parse_int=float)


def test_values_without_a_json_type_become_text() -> None:
    value = {
        1: b"\0\xff",
        (1, None): dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "nan": math.nan,
        Key((1,)): Decimal("1.50"),
    }
    shown = {"1": "AP8=", "[1,null]": "2026-01-01T00:00:00Z", "nan": None, '{"at":[1]}': "1.50"}
    assert json.loads(json_form.of_value(value)) == form(value) == shown


@pytest.mark.thorough
@given(VALUES)
@settings(max_examples=100)
def test_every_value_has_a_json_form(value: Any) -> None:
    assert parsed(json_form.of_value(value)) == parsed(json_form.of_message_pack(msgspec.msgpack.encode(value)))


@pytest.mark.parametrize("value", EXAMPLES, ids=range(len(EXAMPLES)))
@pytest.mark.postgres
def test_postgres_gives_the_same_json(server: psycopg.Connection[Any], value: Any) -> None:
    assert form_of_server(server, value) == form(value)


@pytest.mark.postgres
def test_postgres_keeps_integers_exact(server: psycopg.Connection[Any]) -> None:
    for value in (*EXAMPLES[1], *EXAMPLES[2]):
        row = server.execute("select inturn_json(%s)::text", (msgspec.msgpack.encode(value),)).fetchone()
        assert row == (str(value),)


@pytest.mark.postgres
@pytest.mark.thorough
@given(VALUES)
@example({"a\0b": "\0"})
@settings(max_examples=150, deadline=None)
def test_postgres_gives_the_same_json_for_any_value(server: psycopg.Connection[Any], value: Any) -> None:
    assert form_of_server(server, value) == form(value)
