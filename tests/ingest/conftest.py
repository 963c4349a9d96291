"""A database of each kind for sources."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inturn
from inturn.database import Database


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "shop.db")


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db
