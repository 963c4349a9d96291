"""The history of a source and of the queue that it fills, for the checker of histories."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from inturn.core.limits import READ_MESSAGES
from inturn.queue import Peeked, Queue
from inturn.testing.history import AppliedEffect, SendCall, check_or_raise

Name = tuple[str, int]
"""A group and a revision."""


def numbered(chance: random.Random, count: int, groups: int) -> list[Name]:
    """Return messages of random groups, numbered from 1 in each."""
    revisions: defaultdict[str, int] = defaultdict(int)
    names = []
    for _ in range(count):
        group = f"g{chance.randrange(groups)}"
        revisions[group] += 1
        names.append((group, revisions[group]))
    return names


def check_came_once(queue: Queue, sent: Sequence[Name], *, is_total: bool = False) -> None:
    """Check that what was sent is in the queue, once each, in order within each group.

    Args:
        queue: the queue that the source fills.
        sent: what the source was given, in its order.
        is_total: whether the queue has the order of the source across groups too.
    """
    places = {name: place for place, name in enumerate(sent)}
    accepted = [(str(message.group), message.revision or 0) for message in _all(queue)]
    sends = [
        SendCall(
            client="source", asked=place, answered=place, dedup_id=f"{group}/{n}", group=group, body="", number=place
        )
        for place, (group, n) in enumerate(sent)
    ]
    effects = [
        AppliedEffect(
            client="queue", asked=place, dedup_id=f"{group}/{n}", group=group, number=places[group, n], place=place
        )
        for place, (group, n) in enumerate(accepted)
    ]
    check_or_raise([*sends, *effects])
    assert len(accepted) == len(sent)
    if is_total:
        assert all(places[earlier] < places[next_] for earlier, next_ in pairwise(accepted))


def _all(queue: Queue) -> Iterator[Peeked]:
    """Yield the messages of a queue, which are read in pages."""
    last = 0
    while page := queue.peek(READ_MESSAGES, after=last):
        yield from page
        last = page[-1].sequence_number
