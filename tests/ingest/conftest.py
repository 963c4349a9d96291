"""A database of each kind for sources."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inturn
from inturn.database import Database
from kafka_started import Kafka, missing


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "shop.db")


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Kafka itself; whoever kills it starts it again."""
    if why := missing():
        pytest.skip(why)
    kafka = Kafka(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.kill()
