"""A message of which processes die: it alone is parked, and all others are worked off, each exactly once."""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from lives import LIMIT_S, TESTS


def lives(kind: str, address: str) -> tuple[dict[str, Any], list[str]]:
    """Return what some lives leave behind, and what they told."""
    command = [sys.executable, "-m", "worker.programs.poisoned", kind, address]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


def test_a_worker_parks_only_the_message_that_kills_its_process(address: str) -> None:
    result, _ = lives("work", address)
    *died, last = result["ends"]
    assert (set(died), last) == ({9}, 0)
    assert len(died) in {5, 6}, "one among others, which counts if the message was the first of its group, and the rest"
    assert result["done"] == {f"g{n}": 3 for n in range(60)} | {"g30": 1}
    assert list(result["parked"]) == ["g30"]
    assert "ProcessEnded: received 6 times" in result["parked"]["g30"]
    assert result["messages"] == 0


def test_a_consumer_parks_only_the_message_that_kills_its_process(address: str) -> None:
    result, events = lives("consume", address)
    assert result["ends"] == [9] * 7 + [0], "one among others, and six alone: its retries"
    handled = Counter(events)
    assert handled.keys() == {f"g{n} {m}" for n in range(60) for m in (1, 2, 3)} - {"g30 2", "g30 3"}
    assert max(handled.values()) <= 2, "what was in hand at the one death among others may have come twice"
    assert list(result["parked"]) == ["g30"]
    assert "ProcessEnded: received 8 times" in result["parked"]["g30"]
    assert result["messages"] == 2


@pytest.mark.parametrize("kind", ["decide", "wait"])
def test_a_decision_or_wait_end_that_kills_the_process_parks_only_its_group(address: str, kind: str) -> None:
    result, _ = lives(kind, address)
    *died, last = result["ends"]
    assert (set(died), last) == ({9}, 0)
    assert len(died) == 5, "one among others, and the rest alone"
    assert result["done"] == {f"g{n}": 3 for n in range(60)} | {"g30": 1}
    assert list(result["parked"]) == ["g30"]
    assert "ProcessEnded: begun 6 times" in result["parked"]["g30"]


def test_a_delivery_that_kills_the_process_is_refused_and_the_others_are_delivered(address: str) -> None:
    result, events = lives("deliver", address)
    *died, last = result["ends"]
    assert (set(died), last) == ({9}, 0)
    assert len(died) == 5, "once or twice among others, if it was not the first of its claim, and the rest alone"
    assert result["done"] == {f"g{n}": 3 for n in range(60)}
    delivered = Counter(events)
    assert delivered.keys() == {f"g{n} {m}" for n in range(60) for m in (1, 2, 3)} - {"g30 2", "g30 3"}
    assert max(delivered.values()) <= 3, "what was in hand at a death among others may have come once more"
    assert list(result["refused"]) == ["g30"]
    assert "ProcessEnded: begun 6 times" in result["refused"]["g30"]
