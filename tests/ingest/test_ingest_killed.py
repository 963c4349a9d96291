"""A host that is killed at every point loses nothing, sends nothing twice and keeps the order of each file."""

import json
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import inturn
from ingest.source_history import check_came_once
from inturn.faults import OF_A_TRANSACTION
from lives import killed_at_every_point

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "folder_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 6


def test_a_folder_source_killed_at_every_point_sends_each_record_once_in_order(
    address: str, tmp_path: Path, soak_seed: int, soak_times: int
) -> None:
    chance = random.Random(soak_seed)
    folder = tmp_path / "drop"
    folder.mkdir()
    written = []
    revisions: defaultdict[str, int] = defaultdict(int)
    for file in range(4):
        rows = []
        for _ in range(soak_times * 70):
            account = f"{file}-{chance.randrange(5)}"
            revisions[account] += 1
            rows.append({"account": account, "n": revisions[account]})
        (folder / f"{file}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        written += rows
    command = [sys.executable, str(PROGRAM), address, str(folder)]
    killed_at_every_point(command, POINTS, soak_times * LIVES, chance, most=6)
    with inturn.open(address) as db:
        check_came_once(db.queue("payments"), [(row["account"], row["n"]) for row in written])
