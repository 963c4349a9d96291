"""A database of each kind for sources, and a broker of Kafka's protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inturn
from inturn.database import Database
from kafka_started import tansu


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "shop.db")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with tansu() as servers:
        yield servers


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db
