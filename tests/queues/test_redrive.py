"""Redrive through the queue: what goes back, where to, and what stays."""

from collections.abc import Iterator

import pytest

import inturn
from inturn.core.errors import InputError, NoSuchQueue
from inturn.queue import Queue, QueueSettings


@pytest.fixture
def pair(address: str) -> Iterator[tuple[Queue, Queue]]:
    """A queue whose messages go to the other one when they are given back once."""
    with inturn.open(address, durable=False) as db:
        dead = db.queue("dead")
        yield db.queue("q", QueueSettings(dead_letter="dead", max_receives=1)), dead


def fail(queue: Queue, *bodies: str) -> None:
    """Send messages, and give each back once, so that the next receive moves them."""
    for body in bodies:
        queue.send(body)
    queue.nack(queue.receive(len(bodies)))
    assert queue.receive(len(bodies)) == []


def test_redrive_leaves_messages_in_flight(pair: tuple[Queue, Queue]) -> None:
    queue, dead = pair
    fail(queue, "a", "b")
    (looked_at,) = dead.receive()
    assert dead.redrive() == 1
    assert [message.body for message in queue.peek()] == ["b"]
    looked_at.nack()
    assert dead.redrive() == 1
    assert [message.body for message in queue.peek()] == ["a", "b"]


def test_redrive_limit_ignores_messages_sent_directly_to_the_dead_letter_queue(pair: tuple[Queue, Queue]) -> None:
    queue, dead = pair
    for number in range(3):
        dead.send(f"own {number}")
    fail(queue, "a", "b")
    assert [dead.redrive(1), dead.redrive(1), dead.redrive(1)] == [1, 1, 0]
    assert [message.body for message in queue.peek()] == ["a", "b"]
    assert dead.depth().messages == 3


def test_redrive_refuses_an_invalid_target_or_limit(pair: tuple[Queue, Queue]) -> None:
    _, dead = pair
    with pytest.raises(NoSuchQueue, match="no queue 'x'; existing queues: dead, q"):
        dead.redrive(to="x")
    with pytest.raises(InputError, match="to is 'dead', the queue itself; name another queue"):
        dead.redrive(to="dead")
    for limit in (0, -1, "1"):
        with pytest.raises(InputError, match="limit is"):
            dead.redrive(limit)  # type: ignore[arg-type] # one of them
        with pytest.raises(InputError, match="limit is"):
            dead.groups(limit=limit)  # type: ignore[arg-type] # one of them
