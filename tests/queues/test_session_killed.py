"""A session's state and its acknowledgements are one thing, whenever its process dies."""

from pathlib import Path

import pytest

from lives import history_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = 20


def test_killed_sessions_apply_each_message_once_in_order(tmp_path: Path, soak_seed: int, soak_times: int) -> None:
    """More lives by hand: (cd tests; python -m queues.programs.lock_holder DIRECTORY 1000 SEED)."""
    kills = soak_times * KILLS
    history = history_of("queues.programs.lock_holder", tmp_path, kills, soak_seed)
    assert sum(history["sent"].values()) > kills / 2, "too little was done to say anything"
    assert history["states"] == {group: list(range(1, number + 1)) for group, number in history["sent"].items()}
