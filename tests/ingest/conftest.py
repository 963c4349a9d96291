"""A broker of Kafka's protocol, and a log without the limits of the tests before."""

from collections.abc import Iterator

import pytest

from inturn.ingest.events import EVENTS
from kafka_started import tansu


@pytest.fixture(autouse=True)
def _all_events_are_logged() -> None:
    EVENTS.forget()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with tansu() as servers:
        yield servers
