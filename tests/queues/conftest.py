"""A store of each kind behind a harness with a clock that can be moved: the suite is written against the harness."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_harness import STORES, StoreHarness


@pytest.fixture(params=STORES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """A harness with one queue, named q."""
    harness = StoreHarness(STORES[request.param](tmp_path, lambda: request.getfixturevalue("postgres_url")))
    harness.make("q")
    yield harness
    harness.close()
