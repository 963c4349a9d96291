"""The erasure of a group: its content is in no byte of the files, what must be known is known, others are untouched."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core import limits
from inturn.core.errors import InturnError, LeaseExpired, StoreError
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.erasure import forget
from inturn.faults import OF_AN_ERASURE
from inturn.store.sources import MovedRecord, RejectedRecord

SECRET, OPEN = "s3cr3t-of-the-group", "0pen-to-everybody"
GROUP, OTHER = "acct-77", "acct-78"
PROGRAM = Path(__file__).parent / "programs" / "forgetting.py"


def handle(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    if message["revision"] == 6:
        raise ValueError(message["text"])
    return {"last": message["text"], "count": state.get("count", 0) + 1}, [{"said": message["text"]}]


def pipeline(name: str) -> Any:
    return inturn.Pipeline(name=name, group="account", order=inturn.Gapless("revision"), handler=handle)


def fill(db: Database) -> None:
    """Content of two groups in every place: the secret one's, and the other's."""
    trades = db.queue("trades", QueueSettings(keep_for="30 days"))
    dead = db.queue("dead", QueueSettings(keep_for="30 days"))
    slow = db.queue("slow", QueueSettings(dead_letter="dead", max_receives=1))
    deleted = db.queue("gone")
    for group, text in ((GROUP, SECRET), (OTHER, OPEN)):
        for revision in (1, 2, 2, 3, 5, 6, 7, 8):  # 2 comes twice, 4 is missing
            trades.send(
                {"text": text, "revision": revision}, group=group, revision=revision, attributes={"about": text}
            )
        trades.send({"text": f"{text}, but otherwise", "revision": 1}, group=group, revision=1)
    inturn.work(pipeline("ledger"), trades, until="empty")  # applies, holds, rejects, makes outputs
    for group in (GROUP, OTHER):
        db.pipeline("ledger").replace(group, content={"text": f"{SECRET if group == GROUP else OPEN}, mended"}, by="me")
    inturn.work(pipeline("ledger"), trades, until="empty")
    for group, text in ((GROUP, SECRET), (OTHER, OPEN)):
        for _ in range(4):
            slow.send(text, group=group)
            deleted.send(text, group=group)
        slow.send(text, group=group, delay_s=1_000)
    deleted.ack(deleted.receive(100))  # removed without a trace, but for what is left in the pages
    for _ in range(3):
        slow.nack(slow.receive(8))
    slow.receive(3, group=GROUP)
    dead.receive(1)[0].defer()
    for group, text in ((GROUP, SECRET), (OTHER, OPEN)):
        with dead.session(group) as session:
            session.set_state(text.encode())
        dead.park(group, text)
        rejected = RejectedRecord("0", "1", "bad", group.encode(), f'{{"h":"{text}"}}', text.encode(), b"")
        moved = MovedRecord(group, "0", "1", "1", "2", "trades", text.encode())

        def note(store: Any, now_ms: int, rejected: Any = rejected, moved: Any = moved) -> None:
            store.sources.reject("broker", [rejected], now_ms)
            store.sources.save_moved("broker", [moved], now_ms)

        from inturn.store.commands import StoreCall

        db.writer.run(StoreCall("", note))


def files_of(target: str) -> Iterator[Path]:
    """All files of a database: those beside an SQLite file, those of the tables on a server."""
    if "://" not in target:
        yield from Path(target).parent.glob(f"{Path(target).name}*")
        return
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("checkpoint")
        (folder,) = connection.execute("show data_directory").fetchone() or ("",)
        for (path,) in connection.execute(
            "select pg_relation_filepath(oid) from pg_class "
            "where relnamespace = current_schema()::regnamespace and relkind in ('r', 'i') or relname like 'pg_toast%'"
        ).fetchall():
            if path is not None:
                yield from Path(folder, path).parent.glob(f"{Path(path).name}*")


def places(target: str, text: str) -> list[str]:
    """The files in whose bytes a text is."""
    return [path.name for path in files_of(target) if path.is_file() and text.encode() in path.read_bytes()]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shop.db") if request.param == "sqlite" else str(request.getfixturevalue("own_postgres_url"))


def test_forget_leaves_no_byte_of_the_group_and_does_not_change_others(target: str) -> None:
    with inturn.open(target) as db:
        fill(db)
        before = db.pipeline("ledger").group(OTHER), db.queue("trades").log(group=OTHER)
        assert places(target, SECRET)
        done = forget(db, GROUP, by="officer", why="asked for it")
        assert done.pipelines == ["ledger"]
        assert sorted(done.messages) == ["dead", "slow", "trades"]
        assert done.messages["trades"] == 9
        assert db.pipeline("ledger").group(OTHER) == before[0]
        assert [message.body for message in db.queue("trades").log(group=OTHER)] == [
            message.body for message in before[1]
        ]
        for queue in db.queues():
            assert db.queue(queue).log(group=GROUP) == db.queue(queue).peek(group=GROUP) == []
        assert {message.group for message in db.queue("dead").log()} == {OTHER}
        assert not list(db.pipeline("ledger").outputs(GROUP))
        assert not list(db.pipeline("ledger").rejected(GROUP))
        assert list(db.pipeline("ledger").outputs(OTHER))
        assert db.store.sources.names() == []
    assert places(target, SECRET) == []
    assert places(target, OPEN)


def test_after_forget_a_copy_of_a_conflict_is_not_stored(target: str) -> None:
    with inturn.open(target) as db:
        fill(db)
        forget(db, GROUP, by="officer", why="asked for it")
        db.queue("trades").send({"text": f"{SECRET}, but otherwise", "revision": 1}, group=GROUP, revision=1)
        inturn.work(pipeline("ledger"), db.queue("trades"), until="empty")
        assert not list(db.pipeline("ledger").rejected(GROUP))


def test_forget_keeps_its_decision_and_the_counts_balance(target: str) -> None:
    with inturn.open(target) as db:
        fill(db)
        forget(db, GROUP, by="officer", why="asked for it")
        ledger = db.pipeline("ledger")
        status, counts = ledger.group(GROUP), ledger.counts()
        assert (status.status, status.error, status.held, status.state) == (
            "given up",
            "forgotten by officer: asked for it",
            0,
            None,
        )
        assert counts is not None
        assert counts.balanced
        assert counts.rejected["forgotten"] == 4
        with db.transaction() as tx:
            rows = tx.execute("select decision from inturn_decision").fetchall()
        recorded = [row[0] for row in rows if "forgotten: asked for it" in row[0]]
        assert len(recorded) == 1
        assert "officer" in recorded[0]
        assert forget(db, GROUP, by="officer", why="asked for it") == ({}, ["ledger"])
        with db.transaction() as tx:
            assert len(tx.execute("select decision from inturn_decision").fetchall()) == len(rows), "once"


def test_after_forget_a_late_copy_is_a_duplicate_and_no_message_is_applied(target: str) -> None:
    with inturn.open(target) as db:
        fill(db)
        forget(db, GROUP, by="officer")
        trades, ledger = db.queue("trades"), pipeline("ledger")
        trades.send({"text": SECRET, "revision": 2}, group=GROUP, revision=2)
        trades.send({"text": "new", "revision": 9}, group=GROUP, revision=9)
        counts = inturn.work(ledger, trades, until="empty")
        assert (counts.applied, counts.duplicate, counts.rejected) == (0, 1, {"given up": 1})
        assert not list(db.pipeline("ledger").outputs(GROUP))


def test_forget_ends_the_lease_of_a_receiver(target: str) -> None:
    with inturn.open(target) as db:
        queue = db.queue("q")
        queue.send("x", group=GROUP)
        queue.send("y", group=GROUP)
        (message,) = queue.receive()
        assert forget(db, GROUP, by="me").messages == {"q": 2}
        with pytest.raises(LeaseExpired):
            message.ack()
        queue.send("z", group=GROUP)
        assert [message.body for message in queue.receive(5)] == ["z"]
        assert queue.depth().messages == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", [*OF_AN_ERASURE, "before commit@2", "after commit@3", "between messages@3"])
def test_a_killed_forget_can_be_repeated(target: str, point: str) -> None:
    with inturn.open(target) as db:
        fill(db)
    command = [sys.executable, str(PROGRAM), target, GROUP]
    killed = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": point}, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=120)
    assert places(target, SECRET) == []
    with inturn.open(target) as db:
        counts = db.pipeline("ledger").counts()
        assert counts is not None
        assert (counts.balanced, counts.rejected["forgotten"]) == (True, 4)
        assert len(db.queue("trades").log(group=OTHER)) == 9
        inturn.work(pipeline("ledger"), db.queue("trades"), until="empty")
        assert db.pipeline("ledger").state(OTHER)["count"] == 3


def test_forget_fails_while_a_reader_keeps_the_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write-ahead log cannot be emptied while somebody reads an older state."""
    import sqlite3

    monkeypatch.setattr(limits, "BUSY_S", 0.3)
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("q").send(SECRET, group=GROUP)
        other = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        other.execute("begin")
        other.execute("select count(*) from inturn_message").fetchone()
        with pytest.raises(StoreError):
            forget(db, GROUP, by="me")
        other.execute("rollback")
        other.close()
        forget(db, GROUP, by="me")
    assert places(str(tmp_path / "shop.db"), SECRET) == []


def test_forget_fails_while_a_reader_uses_an_older_postgres_snapshot(
    own_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewritten table keeps the removed rows that some transaction still sees."""
    monkeypatch.setattr(limits, "BUSY_S", 0.3)
    with inturn.open(own_postgres_url) as db:
        fill(db)
        with psycopg.connect(own_postgres_url) as reader:
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from inturn_group_lock")  # another table: the snapshot is of all
            with pytest.raises(StoreError, match=r"an older state of inturn_message for more than 0.3 s"):
                forget(db, GROUP, by="me")
            assert places(own_postgres_url, SECRET)
        forget(db, GROUP, by="me")
    assert places(own_postgres_url, SECRET) == []


def test_forget_command_asks_and_removes_the_group(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    with inturn.open(path) as db:
        fill(db)
    run = CliRunner()
    assert run.invoke(app, ["forget", path, GROUP], input="n\n").exit_code == 1
    assert places(path, SECRET)
    done = run.invoke(app, ["forget", path, GROUP, "--yes", "--by", "officer", "--why", "asked for it"])
    assert done.exit_code == 0, done.stderr
    assert "Pipeline ledger gave the group up." in done.stdout
    assert places(path, SECRET) == []
    refused = run.invoke(app, ["forget", f"{path}#ledger", GROUP, "--yes"])
    assert refused.exit_code == 1
    assert "removed from all of them" in " ".join(refused.stderr.split())


def test_forget_refuses_an_invalid_group_name(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db, pytest.raises(InturnError):
        forget(db, "", by="me")
