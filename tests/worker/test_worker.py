"""The worker makes of a queue what the replay makes of the same messages, whatever the order in which they come."""

import random
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathlib import Path
from shop import Gate, Row, Shop, expected, ledger, post, row, stepwise

from inturn import Arrival, Gapless, Monotone, Timestamp, Wait
from inturn.core.order import Order


def test_messages_are_applied_in_their_order_and_outputs_have_effect_ids(shop: Shop) -> None:
    line = ledger()
    messages = [row(revision, revision, account) for revision in range(1, 6) for account in "abc"]
    shop.send(messages)
    worker = shop.work(line)
    assert shop.seen(line) == expected(line.replay(messages))
    assert worker.counts == shop.counts() == line.replay(messages).counts
    assert shop.queue.depth().messages == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_arrival_has_the_same_result(shop: Shop, seed: int) -> None:
    line, chance = ledger(), random.Random(seed)
    messages = [row(revision, revision, account) for revision in range(1, 9) for account in "abc"]
    messages += chance.choices(messages, k=10)
    chance.shuffle(messages)
    for cut in range(0, len(messages), 7):
        shop.send(messages[cut : cut + 7])
        shop.work(line)
    assert shop.seen(line) == expected(line.replay(messages))
    counts = shop.counts()
    assert counts.balanced
    assert (counts.received, counts.applied, counts.duplicate) == (34, 24, 10)
