"""Positions of logs are compared as their databases mean them, and not as texts."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.core.values.position import LogPosition, position_of, shown_positions, sortable_positions

numbers = st.integers(0, 2**64 - 1)
position = st.lists(numbers, max_size=8).map(tuple)


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("9", "10"),
        (9, "10"),
        ("2122185", "10000000"),
        ("00000027:00000758:0005", "00000027:00000758:000A"),
        ("00000027:00000ac0:0001", "00000027:00000AC0:0002"),
        ("9/FFFFFFFF", "16/B374D848"),
        ("mysql-bin.000009", "mysql-bin.000010"),
        ("mysql-bin.999999", "mysql-bin.1000000"),
        ("0x000074.000012cf.0010", "0x000074.000012D0.0010"),
        ("001234.00012345.0124", "001234.00012345.0200"),
        (None, 0),
        (None, "00000000:00000000:0000"),
        (Decimal("2"), Decimal(10) ** 20),
    ],
)
def test_position_of_orders_log_positions(lower: Any, higher: Any) -> None:
    first, second = position_of(lower), position_of(higher)
    assert first is not None
    assert second is not None
    assert first < second
    assert sortable_positions([first]) < sortable_positions([second])


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-1", -1, True, 1.5, 2**63, "1.5", "0x", "27:", ":27", "1:2:3:4:5:6:7:8:9", "\u0661", Decimal("1.5"),
     Decimal("NaN"), "9" * 40, "bin.", b"1", " 1", Decimal("1E+39"), Decimal("1E+9999999"), Decimal("0E+9999999"),
     Decimal("1E-9999999"), "2026-11-29T100000.900000", "1-100.000009", "-1.000009", "mysql-bin.1"],
)  # fmt: skip
def test_position_of_returns_none_for_an_invalid_position(value: Any) -> None:
    assert position_of(value) is None


@pytest.mark.parametrize(
    ("one", "other"), [("0000000F:1", "f:0001"), ("007", 7), (Decimal("7.0"), 7), ("a-b.000001", "x.1.0000001")]
)
def test_position_of_is_equal_for_two_texts_of_one_position(one: Any, other: Any) -> None:
    assert position_of(one) == position_of(other)


@given(st.lists(position, min_size=1, max_size=4), st.data())
def test_sortable_positions_sort_like_positions(one: list[LogPosition], data: st.DataObject) -> None:
    """Positions of one field have one form: the same count of numbers, or none."""
    shapes = [st.just(()) | st.tuples(*[numbers] * len(log_position)) for log_position in one]
    other = [data.draw(shape) for shape in shapes]
    assert (sortable_positions(one) < sortable_positions(other)) == (one < other)
    assert (sortable_positions(one) == sortable_positions(other)) == (one == other)
    assert (shown_positions(one) == shown_positions(other)) == (one == other)


@given(st.lists(position, max_size=4), st.lists(position, max_size=4))
def test_sortable_positions_are_unique(one: list[LogPosition], other: list[LogPosition]) -> None:
    assert (sortable_positions(one) == sortable_positions(other)) == (one == other)
