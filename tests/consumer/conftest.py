"""Consumers that look around often."""

from collections.abc import Iterator

import pytest

from inturn.core import limits
from inturn.database import Database
from inturn.queue import Message, draft


@pytest.fixture(autouse=True, scope="session")
def quick_consumers() -> Iterator[None]:
    """A consumer that has nothing to do looks around more often than it need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "WORKER_IDLE_S", 0.01)
        yield


@pytest.fixture
def fetched(db: Database, monkeypatch: pytest.MonkeyPatch) -> Message:
    """A deferred message of queue ``q`` and group ``a`` that a receiver has: until it is acknowledged, the group cannot
    be parked for the message ``bad`` behind it."""
    queue = db.queue("q")
    queue.send_many([draft(body, group="a") for body in ("deferred", "bad")])
    (message,) = queue.receive()
    message.defer()
    fetched = queue.fetch(message.sequence_number)
    assert fetched is not None
    monkeypatch.setattr(limits, "PARK_AGAIN_MS", 50)
    return fetched
