"""Consumers that look around often."""

from collections.abc import Iterator

import pytest

from inturn.core import limits


@pytest.fixture(autouse=True, scope="session")
def quick_consumers() -> Iterator[None]:
    """A consumer that has nothing to do looks around more often than it need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "WORKER_IDLE_S", 0.01)
        yield
