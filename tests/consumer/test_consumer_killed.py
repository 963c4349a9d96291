"""However often consumers are killed, each message is handled, in order, and each effect in tx is there once."""

from collections import defaultdict
from pathlib import Path

import pytest

from lives import history_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = {"sqlite": 10, "postgres": 6}


@pytest.mark.parametrize("kind", KILLS)
def test_killed_consumers_lose_no_message_and_write_no_effect_twice(
    kind: str, tmp_path: Path, soak_seed: int, soak_times: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: (cd tests; python -m consumer.programs.crash_consumer DIRECTORY 2000 SEED)."""
    kills = soak_times * KILLS[kind]
    arguments = [request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    history = history_of("consumer.programs.crash_consumer", tmp_path, kills, soak_seed, *arguments)
    assert history["messages"] == 0
    calls, effects = defaultdict(list), defaultdict(list)
    for _, group, body in sorted(history["calls"]):  # by lease: who has lost one may be late to begin
        calls[group].append(body)
    for group, body in history["effects"]:
        effects[group].append(body)
    assert sum(map(len, calls.values())) > kills, "too little was done to say anything"
    for group, sent in history["sent"].items():
        called = calls[group]
        last = max(called)
        assert last >= sent, "lost"  # what a life sent and did not live to note may be there too
        assert called == sorted(called), "a message was given out before the one before it was acknowledged"
        assert sorted(set(called)) == list(range(1, last + 1)), "lost"
        assert effects[group] == list(range(1, last + 1, 2)), "each once, in order"
