"""A database of each kind, and consumers that look around often."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inturn
from inturn.core import limits
from inturn.database import Database


@pytest.fixture(autouse=True, scope="session")
def quick_consumers() -> Iterator[None]:
    """A consumer that has nothing to do looks around more often than it need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "WORKER_IDLE_S", 0.01)
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "shop.db")


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db
