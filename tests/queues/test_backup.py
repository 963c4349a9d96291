"""A copy of a file that is in use, and a copy put back: nothing of another history is taken for this one's."""

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli.main import app
from inturn.core.errors import InputError, LeaseExpired, StoreError, StoreMismatch
from inturn.queue.message import Receipt
from inturn.store.sqlite.backup import restore
from threads import Running

SENDER = """
import sys, inturn
db = inturn.open(sys.argv[1])
queues = db.queue("a"), db.queue("b")
for number in range(3000):
    with db.transaction() as tx:  # both or none
        for queue in queues:
            queue.send(str(number), tx=tx)
    print(number, flush=True)
"""


def bodies(path: Path, queue: str = "q") -> list[object]:
    with inturn.open(path) as db:
        return [message.body for message in db.queue(queue).peek(1000)]


@pytest.mark.thorough
def test_backup_during_writes_of_another_process_copies_one_consistent_state(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with subprocess.Popen([sys.executable, "-c", SENDER, str(path)], stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        with closing(sender.stdout):
            for number in range(4):
                seen = int([sender.stdout.readline() for _ in range(20)][-1])
                with inturn.open(path) as db:
                    db.backup(tmp_path / f"copy{number}.db")
                with inturn.open(tmp_path / f"copy{number}.db") as copy:
                    sent = [copy.queue(name).depth().messages for name in ("a", "b")]
                    assert sent[0] == sent[1] > seen
            sender.kill()


def test_backup_and_restore_write_a_whole_file_or_none(tmp_path: Path) -> None:
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    with inturn.open(path) as db:
        db.queue("q").send("a")
        db.backup(copy)
        files = {f"shop.db{suffix}" for suffix in ("", "-wal", "-shm", "-reserve")}
        assert {file.name for file in tmp_path.iterdir()} == {*files, "copy.db"}
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        with pytest.raises(StoreError, match="already exists"):
            db.backup(copy)
        with pytest.raises(InputError, match="none' does not exist; create it first"):
            db.backup(tmp_path / "none" / "copy.db")
        with db.transaction() as tx:  # nobody waits for who writes
            db.queue("q", tx=tx).send("b", tx=tx)
            Running(db.backup, tmp_path / "within.db").end()
    assert bodies(copy) == bodies(tmp_path / "within.db") == ["a"]
    with inturn.open(":memory:") as memory, pytest.raises(InputError, match="in memory"):
        memory.backup(tmp_path / "memory.db")
    content = copy.read_bytes()
    for page in range(1, len(content) // 4096):
        copy.write_bytes(content[: page * 4096] + b"\xff" * 4096 + content[(page + 1) * 4096 :])
        with pytest.raises(StoreError, match="damaged"):
            restore(str(copy), str(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()


def test_a_restored_database_refuses_positions_and_leases_newer_than_the_copy(tmp_path: Path) -> None:
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    with inturn.open(path) as db:
        queue = db.queue("q")
        queue.send_many([inturn.queue.draft(number) for number in range(3)])
        db.backup(copy)
        queue.send("lost")
        late = queue.reader("r").place(queue.send("lost too").sequence_number)
        handles = [Receipt(message.sequence_number, message.fencing_token) for message in queue.receive(10)]
        lock = db.idempotency_keys("k").try_lock("x")
        numbers, aside = restore(str(copy), str(tmp_path / "new.db"))
        assert (list(numbers), aside) == (["q"], None)
        with pytest.raises(StoreError, match="already exists"):
            restore(str(copy), str(path))
        with pytest.raises(StoreError, match="is open; stop the processes"):
            restore(str(copy), str(path), replace=True)
        with pytest.raises(InputError, match="is the target itself; name a copy"):
            restore(str(path), str(path), replace=True)
    _, aside = restore(str(copy), str(path), replace=True)
    assert aside is not None
    assert bodies(Path(aside)) == [0, 1, 2, "lost", "lost too"]
    assert bodies(path) == [0, 1, 2]
    with inturn.open(path) as db:
        queue = db.queue("q")
        queue.send_many([inturn.queue.draft(f"new {number}") for number in range(9)])
        with pytest.raises(StoreMismatch):
            queue.reader("r").commit(late)
        queue.receive(10)
        with pytest.raises(LeaseExpired):  # of another message, that has the number and would have the token
            queue.ack(handles)
        assert queue.depth().messages == 12
        second_lock = db.idempotency_keys("k").try_lock("x")
        assert second_lock.fencing_token > lock.fencing_token  # type: ignore[union-attr]
        with db.transaction() as tx:
            notes = tx.execute("select note from inturn_incarnation where note is not null").fetchall()
        assert notes == [("restored from copy.db",)]


def test_restore_ignores_the_wal_of_a_deleted_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    with inturn.open(path) as db:
        db.queue("q").send("a")
        db.backup(copy)
        db.queue("q").send("b")
        for name in ("-wal", "-shm"):
            shutil.copy(f"{path}{name}", f"{tmp_path}/left{name}")
    path.unlink()
    for name in ("-wal", "-shm"):
        (tmp_path / f"left{name}").rename(f"{path}{name}")
    restore(str(copy), str(path))
    assert bodies(path) == ["a"]
    assert len([*tmp_path.glob("shop.db.before-*-wal")]) == 1


def test_restore_replaces_a_damaged_file_and_keeps_it_under_another_name(tmp_path: Path) -> None:
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    with inturn.open(path) as db:
        db.queue("q").send("a")
        db.backup(copy)
    path.write_bytes(b"no database " * 1000)
    _, aside = restore(str(copy), str(path), replace=True)
    assert bodies(path) == ["a"]
    assert aside is not None
    assert Path(aside).read_bytes().startswith(b"no database")


def test_backup_and_restore_commands(tmp_path: Path) -> None:
    run = CliRunner()
    path, copy = str(tmp_path / "shop.db"), str(tmp_path / "copy.db")
    with inturn.open(path) as db:
        db.queue("q").send("a")
        done = run.invoke(app, ["backup", path, copy])
        assert done.exit_code == 0, done.output
        assert "was copied to" in done.output
    result = run.invoke(app, ["restore", copy, path])
    assert result.exit_code == 1
    assert "--replace" in result.output
    done = run.invoke(app, ["restore", copy, path, "--replace", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["queues"] == {"q": 2**44 + 1}
    assert Path(report["replaced"]).exists()
    for arguments in (["backup", str(tmp_path / "none.db"), copy], ["restore", str(tmp_path), path]):
        assert run.invoke(app, arguments).exit_code == 1


def test_backup_and_restore_of_postgres_name_pg_dump_and_pg_restore(postgres_url: str, tmp_path: Path) -> None:
    run = CliRunner()
    for arguments, tool in (
        (["backup", postgres_url, str(tmp_path / "c")], "pg_dump"),
        (["restore", str(tmp_path / "c"), postgres_url], "pg_restore"),
    ):
        inturn.open(postgres_url).close()
        result = run.invoke(app, arguments)
        assert result.exit_code == 1
        assert tool in result.output


def test_restore_refuses_a_file_that_is_not_an_inturn_database(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, I am no database at all, and longer than a header of one is, I hope. " * 9)
    with closing(sqlite3.connect(tmp_path / "strange.db")) as strange:
        strange.execute("create table t (x)")
    for name in ("text", "strange.db", "none"):
        with pytest.raises(StoreError):
            restore(str(tmp_path / name), str(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()
