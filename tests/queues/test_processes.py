"""Several processes over one file at once."""

import subprocess
import sys
from pathlib import Path

import pytest

import inturn

PROGRAM = Path(__file__).parent / "programs" / "colleague.py"
GROUPS = ["a,b,c", "d,e,f"]
MESSAGES = 40


@pytest.mark.thorough
def test_concurrent_processes_keep_group_order_and_process_each_message_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with inturn.open(path) as db:
        reader = db.queue("q").reader("all")
        reader.read()
        with db.transaction() as tx:
            tx.execute("create table applied (place integer primary key, grp, number, process)")
            tx.execute("create table present (process)")
        every = MESSAGES * 6
        commands = [["send", path, groups, MESSAGES] for groups in GROUPS] + [["take", path, every]] * 3
        running = [subprocess.Popen([sys.executable, PROGRAM, *map(str, command)]) for command in commands]
        seen: list[int] = []
        while len(seen) < every:  # somebody reads along while they send
            assert not any(process.poll() for process in running), "one of them has failed"
            for entry in reader.read(7):
                seen.append(entry.sequence_number)
                reader.commit(entry.sequence_number)
        assert [process.wait(120) for process in running] == [0] * 5
        with db.transaction() as tx:
            applied = tx.execute("select grp, number from applied order by place").fetchall()
    assert len(applied) == every
    for group in "abcdef":
        assert [number for name, number in applied if name == group] == list(range(1, MESSAGES + 1))
    assert seen == sorted(set(seen)), "a reader saw a number out of turn, or twice"
