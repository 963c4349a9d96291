"""A session's state and its acknowledgements are one thing, whenever its process dies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "lock_holder.py"
KILLS = 150


def test_sessions_that_are_killed_at_every_point_apply_each_message_once_in_its_order(
    tmp_path: Path, soak_seed: int
) -> None:
    """More lives by hand: python tests/queues/programs/lock_holder.py DIRECTORY 1000 SEED."""
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, str(KILLS), str(soak_seed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout)
    assert history["killed"] == KILLS, "lives that ended otherwise"
    assert sum(history["sent"].values()) > KILLS / 2, "too little was done to say anything"
    assert history["states"] == {group: list(range(1, number + 1)) for group, number in history["sent"].items()}
