"""A broker of Kafka's protocol."""

from collections.abc import Iterator

import pytest

from kafka_started import tansu


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with tansu() as servers:
        yield servers
