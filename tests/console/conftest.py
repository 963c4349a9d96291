"""A console over a database with parked and waiting groups, asked as a browser asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from console_shop import AMOUNTS, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    shop.send(*AMOUNTS)
    with shop.browser:
        yield shop
