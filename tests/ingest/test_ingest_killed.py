"""A host that is killed at every point loses nothing, sends nothing twice and keeps the order of each file."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import inturn
from ingest.source_history import check_came_once
from inturn.faults import OF_A_TRANSACTION

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "folder_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 20


def test_lives_that_end_at_every_point(address: str, tmp_path: Path, soak_seed: int) -> None:
    chance = random.Random(soak_seed)
    folder = tmp_path / "drop"
    folder.mkdir()
    written = []
    revisions: defaultdict[str, int] = defaultdict(int)
    for file in range(4):
        rows = []
        for _ in range(60):
            account = f"{file}-{chance.randrange(5)}"
            revisions[account] += 1
            rows.append({"account": account, "n": revisions[account]})
        (folder / f"{file}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
        written += rows
    killed = 0
    for _ in range(LIVES):
        at = f"{chance.choice(POINTS)}@{chance.randint(1, 6)}"
        command = [sys.executable, str(PROGRAM), address, str(folder)]
        life = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": at}, check=False, timeout=60)
        assert life.returncode in (0, -signal.SIGKILL)
        killed += life.returncode != 0
    assert subprocess.run([sys.executable, str(PROGRAM), address, str(folder)], check=False, timeout=60).returncode == 0
    assert killed > LIVES / 4
    print(f"{killed} of {LIVES} lives were killed")
    with inturn.open(address) as db:
        check_came_once(db.queue("payments"), [(each["account"], each["n"]) for each in written])
