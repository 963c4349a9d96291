"""A bad delivery of a clean history: nothing is made up, and the seed decides all of it."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from inturn.core.errors import InputError
from inturn.testing import disorder

CLEAN = list(range(500))


def test_disorder_is_determined_by_its_seed() -> None:
    assert disorder(CLEAN, seed=1) == disorder(CLEAN, seed=1) != disorder(CLEAN, seed=2)


def test_disorder_keeps_all_messages_and_duplicates_and_delays_some() -> None:
    delivered = disorder(CLEAN, seed=3)
    counts = Counter(delivered)
    assert counts.keys() == set(CLEAN)
    assert len(delivered) - len(CLEAN) == sum(count == 2 for count in counts.values())
    assert 20 < len(delivered) - len(CLEAN) < 100
    assert delivered != sorted(delivered)


def test_disorder_places_duplicates_near_and_far() -> None:
    delivered = disorder(CLEAN, seed=3, displaced=0)
    places = [(delivered.index(message), len(delivered) - 1 - delivered[::-1].index(message)) for message in CLEAN]
    apart = [last - first for first, last in places if last > first]
    assert min(apart) <= 20
    assert max(apart) > 200


def test_disorder_displaces_messages_by_at_most_the_distance() -> None:
    delivered = disorder(CLEAN, seed=4, duplicates=0, displaced=1, distance=5)
    assert sorted(delivered) == CLEAN
    assert 0 < max(place - message for place, message in enumerate(delivered)) <= 5


def test_disorder_loses_the_given_share_of_messages() -> None:
    delivered = disorder(CLEAN, seed=5, duplicates=0, lost=0.1)
    assert 420 < len(delivered) < 480


def test_disorder_adds_the_given_share_of_conflicts() -> None:
    delivered = disorder(
        CLEAN, seed=6, duplicates=0, displaced=0, contradict=lambda message: message + 0.5, conflicts=0.1
    )
    contradicting = [message for message in delivered if isinstance(message, float)]
    assert 25 < len(contradicting) < 75
    assert [message for message in delivered if isinstance(message, int)] == CLEAN


@dataclass(frozen=True)
class Paid:
    n: int
    offset: int = 0


class Posted(msgspec.Struct, frozen=True):
    n: int
    offset: int = 0


@pytest.mark.parametrize("kind", [Paid, Posted, lambda n: {"n": n}])
def test_disorder_renumbers_the_arrival_field(kind: Any) -> None:
    delivered = disorder([kind(n) for n in range(50)], seed=1, arrival="offset")
    assert [message["offset"] if isinstance(message, dict) else message.offset for message in delivered] == list(
        range(len(delivered))
    )


def test_disorder_refuses_a_share_outside_0_to_1() -> None:
    with pytest.raises(InputError, match=r"lost=5; expected a share from 0 to 1"):
        disorder(CLEAN, lost=5)
