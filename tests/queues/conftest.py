"""A store of each kind behind a desk with a clock that can be moved: the suite is written against the desk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import STORES, Desk


@pytest.fixture(params=STORES)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk with one queue, named q."""
    desk = Desk(STORES[request.param](tmp_path, lambda: request.getfixturevalue("postgres_url")))
    desk.make("q")
    yield desk
    desk.close()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without queues of each kind, for ``inturn.open``."""
    return str(tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
