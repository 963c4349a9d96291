"""The settings of a queue: what cannot be meant is refused when it is said, not when a message needs it."""

import pytest

from inturn.core.errors import InputError, NoSuchQueue
from inturn.database import Database
from inturn.queue import QueueSettings


@pytest.mark.parametrize("name", ["retention_s", "dedup_window_s"])
def test_an_infinite_setting_is_refused_in_favour_of_none(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is inf"):
        QueueSettings(**{name: float("inf")})  # type: ignore[arg-type] # one of two names, both of which take it


def test_a_dead_letter_queue_must_exist(db: Database) -> None:
    with pytest.raises(NoSuchQueue, match=r"no queue 'dead', the dead_letter queue of 'q'; .* existing queues: none"):
        db.queue("q", QueueSettings(dead_letter="dead", max_receives=3))
    assert db.queues() == []
    db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=3))
    with pytest.raises(NoSuchQueue, match=r"no queue 'daed', .* existing queues: dead, q"):
        queue.configure(dead_letter="daed")
    assert queue.info().settings.dead_letter == "dead"


def test_a_queue_may_be_its_own_dead_letter_queue(db: Database) -> None:
    queue = db.queue("q", QueueSettings(dead_letter="q", max_receives=1, visibility_timeout_s=0))
    queue.send("a", group="g")
    queue.send("b", group="g")
    for _ in range(3):
        (message,) = queue.receive()
        assert (message.body, message.attempts) == ("a", 1), "it stays in its place, and begins anew"
    assert queue.redrive() == 0
    assert queue.depth().messages == 2
