"""The SQLite file: what is wrong with it is told in words, nothing is lost, and no query looks through it."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core import limits
from inturn.core.errors import StoreError, StoreMismatch
from inturn.queue import QueueSettings, draft
from inturn.store.sqlite import file
from inturn.store.sqlite.statements import SQL


def pages(db: Any) -> int:
    return int(db.store.connection.execute("pragma page_count").fetchone()[0])


def test_a_full_disk_loses_no_message_and_sends_succeed_when_there_is_room(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        sent = [queue.send("x" * 1_000, group="a")]
        db.store.connection.execute(f"pragma max_page_count = {pages(db)}")  # what SQLite makes of a full disk
        with pytest.raises(StoreError, match="disk is full: the transaction was rolled back"):
            sent += queue.send_many([draft("y" * 1_000, group="a") for _ in range(100)])
        with pytest.raises(StoreError, match="disk is full"), db.transaction() as tx:
            queue.send_many([draft("y" * 1_000, group="a") for _ in range(100)], tx=tx)
        assert queue.depth().messages == 1
        (message,) = queue.receive()
        message.ack()  # what makes room is possible
        db.store.connection.execute("pragma max_page_count = 1000000")
        assert queue.send("z").sequence_number > sent[0].sequence_number


def test_send_to_a_read_only_file_is_refused(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        db.store.connection.execute("pragma query_only = 1")  # root may write whatever the permissions say
        with pytest.raises(StoreError, match="is not writable; open it as a user who may"):
            queue.send("x")


def test_opening_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_text("dear diary " * 500)
    with pytest.raises(StoreError, match=r"shop.db: the file is not an SQLite database; name another file"):
        inturn.open(path)
    assert path.read_text() == "dear diary " * 500


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with inturn.open(path) as db:
        db.queue("q").send_many([draft("x" * 500, group=str(n)) for n in range(200)])
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x07" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="the file is damaged; save a copy"), inturn.open(path) as db:
        db.queue("q").receive()


def test_opening_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="a directory; expected a file in it"):
        inturn.open(tmp_path)


def test_a_file_of_a_newer_format_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    inturn.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("update inturn_meta set value = 99 where name = 'version'")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="written by a newer inturn: its format is 99"):
        inturn.open(path)
    assert path.read_bytes() == before


def test_extra_queue_settings_are_stored(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("payments", QueueSettings(extra={"tags": {"team": "ledger"}}))
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("payments")
        queue.configure(extra={**queue.info().settings.extra, "policy": None})
        assert db.queue("payments").info().settings.extra == {"tags": {"team": "ledger"}, "policy": None}


@pytest.mark.parametrize("sends", [1, limits.UNCOUNTED_MESSAGES - 1, limits.UNCOUNTED_MESSAGES + 1])
def test_depth_after_reopening_counts_messages_that_were_only_sent(tmp_path: Path, sends: int) -> None:
    with inturn.open(tmp_path / "shop.db") as db, inturn.open(tmp_path / "shop.db") as other:
        queue, other_queue = db.queue("payments"), other.queue("payments")
        for number in range(sends):
            queue.send(number)
        depth = queue.depth()
        assert depth.messages == sends
        assert other_queue.depth() == depth
        assert other_queue.send("one more").sequence_number == depth.last + 1
        assert queue.depth()[::3] == (sends + 1, depth.last + 1)
        queue.ack(other_queue.receive(1))
        assert other_queue.depth()[::3] == queue.depth()[::3] == (sends, depth.last + 1)
    with inturn.open(tmp_path / "shop.db") as db:
        assert db.queue("payments").depth()[::3] == (sends, depth.last + 1)


@pytest.mark.parametrize("messages", [1, 2, 7, 8, 9, 63, 64, 65, 71, 72, 130, 200])
def test_send_many_of_any_size_keeps_order_and_dedup(tmp_path: Path, messages: int) -> None:
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        queue = db.queue("q")
        drafts = [draft(n, group=f"g{n % 5}", dedup_id=str(n), delay_s=3600 * (n % 3)) for n in range(messages)]
        assert not any(sent.duplicate for sent in queue.send_many(drafts))
        assert all(sent.duplicate for sent in queue.send_many(drafts))
        assert [entry.body for entry in queue.peek(messages + 1)] == list(range(messages))
        assert queue.depth()[:3] == (messages, 0, sum(n % 3 > 0 for n in range(messages)))


def test_a_batch_is_one_lease_row_until_one_message_is_settled_differently(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        queue.send_many([draft(n, group="a") for n in range(10)])

        def rows() -> tuple[int, int]:
            (result,) = db.store.connection.execute(
                "select (select count(*) from inturn_lease), (select count(*) from inturn_hold)"
            )
            return result

        batch = queue.receive(10)
        assert rows() == (1, 0)
        queue.ack(batch[:3])
        queue.ack(batch[5:6])
        assert rows() == (1, 0)
        batch[4].extend(100)
        assert rows() == (0, 6)
        queue.ack([*batch[3:5], *batch[6:]])
        assert rows() == (0, 0)


def test_an_open_file_changed_by_a_newer_version_is_not_written(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "shop.db") as db:
        queue = db.queue("q")
        queue.send("x")
        with closing(sqlite3.connect(tmp_path / "shop.db")) as newer, newer:
            newer.execute("update inturn_meta set value = 99 where name = 'version'")
        for act in (lambda: queue.send("y"), queue.receive, queue.depth):
            with pytest.raises(StoreMismatch, match="written by a newer inturn: its format is 99, this one knows"):
                act()


def test_a_database_with_existing_tables_and_user_version_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table account (id)")
        connection.execute("pragma user_version = 42")
    connection.close()
    with inturn.open(path) as db, db.transaction() as tx:
        assert tx.execute("select count(*) from account").fetchone() == (0,)
        assert tx.execute("select * from pragma_user_version").fetchone() == (42,)


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
def test_durable_sets_synchronous_full_for_each_commit(tmp_path: Path, durable: bool, synchronous: int) -> None:
    with inturn.open(tmp_path / "shop.db", durable=durable) as db:
        assert db.store.connection.execute("pragma synchronous").fetchone() == (synchronous,)
        assert db.store.connection.execute("pragma journal_mode").fetchone() == ("wal",)


def test_sequence_numbers_and_tokens_are_unique_across_reopening(tmp_path: Path) -> None:
    numbers, tokens = [], []
    for _ in range(3):
        with inturn.open(tmp_path / "shop.db") as db:
            queue = db.queue("q")
            numbers.append(queue.send("x").sequence_number)
            (message,) = queue.receive()
            tokens.append(message.fencing_token)
            message.ack()
    assert numbers == sorted(set(numbers))
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("name", sorted(SQL))
@pytest.mark.thorough
def test_no_sqlite_statement_scans_a_table_or_sorts(tmp_path: Path, name: str) -> None:
    sql = SQL[name]
    with inturn.open(tmp_path / "shop.db") as db:
        values = [1] * (max(map(int, re.findall(r"\?(\d+)", sql)), default=0) or sql.count("?"))
        plan = [row[3] for row in db.store.connection.execute(f"explain query plan {sql}", values)]
    allowed = {
        "queues": {"SCAN q"},  # all of them are wanted
        "latest_group_rejections": {
            "SCAN latest",
            "USE TEMP B-TREE FOR ORDER BY",
        },  # for people: of the newest, a limited number
        "latest_group_decisions": {"SCAN latest", "USE TEMP B-TREE FOR ORDER BY"},  # likewise
        "erase_source_moved": {"SCAN inturn_source_moved"},  # an erasure, which goes through everything
        "erase_source_rejections": {"SCAN inturn_source_rejection"},  # likewise
        "pipelines": {"SCAN inturn_pipeline USING COVERING INDEX sqlite_autoindex_inturn_pipeline_1"},  # likewise
        "source_metrics": {  # likewise; partitions of many are summed up
            "SCAN p",
            "SCAN (subquery-4)",
            "SCAN each_partition",
            "USE TEMP B-TREE FOR GROUP BY",
        },
        "spans_begun_after": {  # when the clock went back
            "SCAN inturn_hold USING INDEX inturn_hold_due",
            "SCAN inturn_lease",
            "SCAN inturn_group_lock USING INDEX inturn_group_lock_due",
            "USE TEMP B-TREE FOR ORDER BY",
        },
        "groups": {"USE TEMP B-TREE FOR ORDER BY"},  # for people; the rows are found by an index
        "ungrouped": {"USE TEMP B-TREE FOR ORDER BY", "UNION USING TEMP B-TREE"},  # likewise
        "hidden_groups": {"UNION USING TEMP B-TREE"},  # for people; it goes through what is in flight
        "group_head": {"SCAN first"},  # one row
        "group_status_counts": {"SCAN g", "USE TEMP B-TREE FOR GROUP BY"},  # metrics: of a limited number of rows
        "outbox_metrics": {"SCAN o", "SCAN b"},  # likewise
        "source_names": {"SCAN inturn_source_partition"},  # all of a few
        "index_log": {"USE TEMP B-TREE FOR ORDER BY"},  # likewise: a block
        "index_pending": {"USE TEMP B-TREE FOR ORDER BY"},  # thousands at once, in the order of the table
    }
    bad = {step for step in plan if re.search(r"SCAN|TEMP B-TREE", step)} - allowed.get(name, set())
    assert not {step for step in bad if "CONSTANT ROW" not in step and "json_each" not in step}, plan


@pytest.mark.parametrize(
    ("changed_ns", "later_ns", "is_past"),
    [
        (7_000_000_001, 50_000_000, False),
        (7_000_000_001, 200_000_000, True),
        (7_000_000_000, 200_000_000, False),  # the file system may know whole seconds only
        (7_000_000_000, 2_900_000_000, False),
        (7_000_000_000, 3_100_000_000, True),
    ],
)
def test_a_directory_timestamp_is_trusted_once_the_file_system_clock_has_advanced(
    monkeypatch: pytest.MonkeyPatch, changed_ns: int, later_ns: int, *, is_past: bool
) -> None:
    monkeypatch.setattr(file.time, "time_ns", lambda: changed_ns + later_ns)
    assert file._is_past(changed_ns) is is_past
