"""An SQLite file with an outbox table that is replaced while it is read: nothing of either is mixed up."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import inturn
from inturn.core.errors import SourceError
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, OutboxSource, SourceControl
from inturn.ingest import limits as source_limits
from inturn.ingest.sources import outbox as outbox_source
from inturn.ingest.sources.creation_time import creation_time
from waiting import until

MAPPING = MessageMapping(group="body.account", revision="body.n")


def made(path: Path, *numbers: int) -> Path:
    """Make a file with rows; its ids begin at 1."""
    with closing(sqlite3.connect(path)) as app, app:
        app.execute("create table outbox (id integer primary key autoincrement, account text, n integer)")
        app.executemany("insert into outbox (account, n) values ('a', ?)", [(n,) for n in numbers])
    return path


def added(path: Path, n: int) -> None:
    with closing(sqlite3.connect(path)) as app, app:
        app.execute("insert into outbox (account, n) values ('a', ?)", [n])


def replaced(path: Path, how: str, *numbers: int) -> None:
    if how == "made anew":
        path.unlink()
        made(path, *numbers)
    else:
        made(path.with_name("new.db"), *numbers).rename(path)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.05)
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        yield db


def sent(db: Database) -> list[int | None]:
    return [message.revision for message in db.queue("payments").peek(1000)]


@pytest.mark.parametrize("how", ["made anew", "renamed"])
def test_a_replaced_outbox_file_is_refused_until_a_seek(db: Database, tmp_path: Path, how: str) -> None:
    path, control = made(tmp_path / "app.db", 1, 2), SourceControl(db, "app")
    source = OutboxSource(path, "outbox")
    with Ingest(source, db.queue("payments"), MAPPING, name="app", lease_s=0.3) as host:
        until(lambda: host.counts.received == 2)
        replaced(path, how, 11, 12, 13)
        until(lambda: "recreated" in (control.partitions()[0].note or ""))
        assert sent(db) == [1, 2], "the position of the old file skips no row of the new one"
        control.seek(None)
        until(lambda: host.counts.received == 5)
        added(path, 14)
        until(lambda: host.counts.received == 6)
        assert control.partitions()[0].position == "4"
    assert sent(db) == [1, 2, 11, 12, 13, 14]


@pytest.mark.parametrize("how", ["made anew", "renamed"])
def test_an_outbox_file_replaced_before_any_read_is_read_from_its_start(db: Database, tmp_path: Path, how: str) -> None:
    path = made(tmp_path / "app.db")
    with Ingest(OutboxSource(path, "outbox"), db.queue("payments"), MAPPING, name="app", lease_s=0.3) as host:
        until(lambda: SourceControl(db, "app").partitions()[0].incarnation)
        replaced(path, how, 11, 12)
        until(lambda: host.counts.received == 2)
    assert sent(db) == [11, 12]


def test_a_missing_outbox_file_or_table_is_retried(db: Database, tmp_path: Path) -> None:
    path = made(tmp_path / "app.db", 1)
    with Ingest(OutboxSource(path, "outbox"), db.queue("payments"), MAPPING, name="app", lease_s=0.3) as host:
        until(lambda: host.counts.received == 1)
        path.rename(tmp_path / "away.db")
        until(lambda: "is missing" in host.problem)
        sqlite3.connect(path).close()
        assert path.stat().st_size == 0
        SourceControl(db, "app").seek(None)
        until(lambda: "table 'outbox' does not exist" in host.problem)
        (tmp_path / "away.db").rename(path)
        added(path, 2)
        until(lambda: sent(db)[-1] == 2)
    assert sent(db) in ([1, 2], [1, 1, 2])


def stored(db: Database, incarnation: str) -> None:
    control = SourceControl(db, "app")
    row = control.partitions()[0]._replace(incarnation=incarnation)
    control._transact(lambda store, _now_ms: store.sources.save("app", row))


def caught_up(db: Database, path: Path) -> int:
    return Ingest(OutboxSource(path, "outbox"), db.queue("payments"), MAPPING, name="app").run(
        until="caught up"
    ).received  # fmt: skip


def made_anew_with_the_same_inode(path: Path, *numbers: int) -> None:
    """As ext4 nearly always does it."""
    inode = path.stat().st_ino
    for _ in range(50):
        replaced(path, "made anew", *numbers)
        if path.stat().st_ino == inode and creation_time(path):
            return
    pytest.skip("the file system gives no inode again, or does not tell when a file was made")


def test_a_new_outbox_file_with_the_inode_of_a_deleted_one_is_refused(db: Database, tmp_path: Path) -> None:
    path = made(tmp_path / "app.db", 1, 2)
    assert caught_up(db, path) == 2
    made_anew_with_the_same_inode(path, 11, 12, 13)
    assert caught_up(db, path) == 0
    assert "recreated" in (SourceControl(db, "app").partitions()[0].note or "")
    assert sent(db) == [1, 2], "the position of the old file skips no row of the new one"


def test_a_position_stored_with_only_the_inode_is_still_valid(db: Database, tmp_path: Path) -> None:
    path = made(tmp_path / "app.db", 1, 2)
    assert caught_up(db, path) == 2
    stored(db, str(path.stat().st_ino))
    added(path, 3)
    assert caught_up(db, path) == 1
    made_anew_with_the_same_inode(path, 11, 12, 13, 14)
    assert caught_up(db, path) == 0
    assert "recreated" in (SourceControl(db, "app").partitions()[0].note or "")


def test_the_inode_identifies_an_outbox_file_without_a_creation_time(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "app.db", 1, 2)
    assert caught_up(db, path) == 2
    monkeypatch.setattr(outbox_source, "creation_time", lambda _path: "")
    added(path, 3)
    assert caught_up(db, path) == 1
    assert SourceControl(db, "app").partitions()[0].incarnation == str(path.stat().st_ino)


def test_a_poll_fails_if_the_opened_outbox_file_was_replaced(tmp_path: Path) -> None:
    path = made(tmp_path / "app.db", 1, 2)
    source = OutboxSource(path, "outbox")
    first = source.incarnation("outbox")
    source.open("outbox", 2)
    replaced(path, "renamed", 11, 12, 13)
    with pytest.raises(SourceError, match=r"app\.db' was replaced while it was read"):
        source.poll(10, 0)
    assert source.incarnation("outbox") != first
    source.close("outbox")
    source.open("outbox", None)
    assert [record.position for record in source.poll(10, 0)] == [1, 2, 3]
    source.shutdown()
