"""A shop for each kind of store: a queue, a worker over it, and what is kept, to be compared with the replay."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shop import SHOPS, Shop

from inturn.core import limits


@pytest.fixture(autouse=True, scope="session")
def quick() -> Iterator[None]:
    """A worker that has nothing to do looks around more often than it need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "WORKER_IDLE_S", 0.01)
        yield


@pytest.fixture(params=SHOPS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with Shop(request.param, tmp_path / "shop.db", lambda: request.getfixturevalue("postgres_url")) as shop:
        yield shop
