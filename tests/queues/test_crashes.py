"""Nothing is lost and nothing is done twice, however often the process dies: the history of hundreds of lives."""

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "crash_worker.py"
KILLS = {"sqlite": 400, "postgres": 60}


@pytest.mark.parametrize("kind", KILLS)
def test_processes_that_are_killed_at_every_point_lose_nothing_and_do_nothing_twice(
    kind: str, tmp_path: Path, soak_seed: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: python tests/queues/programs/crash_worker.py DIRECTORY 5000 SEED."""
    kills = KILLS[kind]
    command = [sys.executable, PROGRAM, tmp_path, str(kills), str(soak_seed)]
    if kind == "postgres":
        command.append(request.getfixturevalue("postgres_url"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout)
    assert history["killed"] == kills, "lives that ended otherwise"
    assert history["sound"] == [["ok"]]
    applied = [(account, number) for account, number, _ in history["applied"]]
    answered = {(account, int(number)) for account, number in history["sent"]}
    assert len(answered) > kills / 10, "too little was done to say anything"
    assert len(applied) == len(set(applied)), "done twice"
    assert answered <= set(applied), "lost"
    for account, each in groupby(sorted(set(applied)), key=lambda pair: pair[0]):
        in_turn = [number for name, number in applied if name == account]
        assert in_turn == [number for _, number in each] == list(range(1, len(in_turn) + 1)), "out of order"
        receipts = [number for name, number in history["receipts"] if name == account]
        assert receipts == in_turn, "outputs do not belong to what was done"
