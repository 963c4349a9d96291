"""The table of pending messages over SQLite: what is in it, when, and that it is never asked for what it lacks.

What the queue answers whatever is in the table is for the suite of all stores and the oracle, which run with a store
that puts messages into it at once, and with several processes.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_harness import StoreHarness

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Content, Draft, ReceiveRequest
from inturn.store.sqlite import SqliteStore

KEPT = 10  # how many messages are new


@pytest.fixture
def harness(tmp_path: Path) -> StoreHarness:
    return opened(tmp_path)


def opened(path: Path) -> StoreHarness:
    store = SqliteStore(str(path / "q.db"), durable=False)
    store.pending.newest_messages = KEPT
    harness = StoreHarness(store)
    harness.make("q")
    return harness


def table(path: Path) -> list[tuple[str, int]]:
    """What is in the table: groups, and places in the queue."""
    with closing(sqlite3.connect(path / "q.db")) as connection:
        return connection.execute("select grp, sequence_number & 1048575 from inturn_pending").fetchall()


def test_messages_enter_the_pending_table_once_enough_newer_ones_exist(harness: StoreHarness, tmp_path: Path) -> None:
    for number in range(2 * KEPT - 1):
        harness.send("ab"[number % 2])
    assert table(tmp_path) == []
    harness.send("b")
    assert table(tmp_path) == [
        *(("a", number) for number in range(1, KEPT, 2)),
        *(("b", number) for number in range(2, KEPT + 1, 2)),
    ]
    assert harness.take(99) == [*"a" * KEPT, *"b" * KEPT]


def test_a_moved_message_enters_the_pending_table_like_a_sent_one(harness: StoreHarness, tmp_path: Path) -> None:
    harness.make("other")
    for _ in range(2 * KEPT):
        harness.send("a", queue="other")
    assert len(table(tmp_path)) == KEPT
    harness.move("q", *harness.read(queue="other"), queue="other")
    assert [number for _, number in table(tmp_path)] == [*range(1, KEPT + 1)], "of q: all of the other's have left"
    assert harness.take(99) == ["a"] * 2 * KEPT


def test_messages_settled_early_never_enter_the_pending_table(harness: StoreHarness, tmp_path: Path) -> None:
    for _ in range(5 * KEPT):
        harness.send("a")
        harness.ack(*harness.receive())
    assert table(tmp_path) == []
    harness.send(*"a" * 3)
    harness.cancel(harness.read()[1].sequence_number)
    harness.defer(*harness.receive())
    harness.make("q", retention_s=1)
    harness.wait(2)
    harness.take()
    for _ in range(2 * KEPT):
        harness.send("b")
    assert {group for group, _ in table(tmp_path)} == {"b"}


def test_acknowledged_messages_kept_for_a_reader_are_not_in_the_pending_table(
    harness: StoreHarness, tmp_path: Path
) -> None:
    harness.readers(r=0)
    harness.send(*"a" * 3 * KEPT)
    harness.ack(*harness.receive(2 * KEPT))
    assert table(tmp_path) == []
    harness.send(*"b" * 2 * KEPT)
    assert len(table(tmp_path)) == 2 * KEPT, "the rest of a's, and the first of b's"
    assert harness.take(99) == [*"a" * KEPT, *"b" * 2 * KEPT]


def test_every_way_to_settle_a_message_removes_it_from_the_pending_table(harness: StoreHarness, tmp_path: Path) -> None:
    harness.make("other")
    harness.send("d", delay_ms=1)
    harness.send(*"abc" * KEPT)
    assert len(table(tmp_path)) == 2 * KEPT + 1
    verdicts = [
        *harness.cancel(harness.read()[0].sequence_number),
        *harness.ack(*harness.receive()),
        *harness.defer(*harness.receive(group="b")),
        *harness.move("other", harness.read()[1]),
    ]
    assert set(verdicts) == {SettleResult.DONE}
    assert not {1, 2, 3, 4} & {number for _, number in table(tmp_path)}
    harness.purge()
    assert table(tmp_path) == []


def test_an_unacknowledged_message_between_others_stays_in_the_pending_table(
    harness: StoreHarness, tmp_path: Path
) -> None:
    harness.send(*"a" * 3 * KEPT)
    deliveries = harness.receive(5)
    harness.ack(deliveries[0], deliveries[2])
    assert [number for _, number in table(tmp_path)][:3] == [2, 4, 5]
    harness.ack(*deliveries[1:2], *deliveries[3:])
    assert [number for _, number in table(tmp_path)][:1] == [6]


def test_receive_notices_changes_by_another_process(harness: StoreHarness, tmp_path: Path) -> None:
    other = opened(tmp_path)
    harness.send("a1")
    assert harness.take() == ["a1"]
    other.send("a2", "b1")
    harness.send("single", group=None)  # for which nothing need be looked up
    other.wait(60)
    other.ack(*other.receive(group="a"))
    harness.wait(60)
    assert [harness.take(9, group=group) for group in "ab"] == [["a2"], ["b1"]]
    other.close()


def test_receive_fills_a_batch_after_another_process_acknowledged_messages_between(
    harness: StoreHarness, tmp_path: Path
) -> None:
    harness.send("a1", "a2", "a3", "a4", "a5", "a6")
    harness.nack(*harness.receive())  # so that all of them are listed here
    other = opened(tmp_path)
    first, *more = other.receive(3)
    other.ack(*more)
    other.nack(first)
    assert harness.take(4) == ["a1", "a4", "a5", "a6"]
    other.close()


def test_a_message_moved_back_precedes_newer_ones_in_the_pending_table(harness: StoreHarness, tmp_path: Path) -> None:
    harness.make("other")
    harness.send("a1", "a2", "a3", "a4")
    harness.move("other", *harness.read()[1:3])
    assert harness.take(9) == ["a1", "a4"]
    harness.wait(60)
    harness.move("q", *harness.read(queue="other"), queue="other")
    assert [number for _, number in table(tmp_path)] == [1, 2, 3], (
        "up to its place, so that the newest are behind all others"
    )
    assert harness.take(9) == ["a1", "a2", "a3", "a4"]


def test_a_rolled_back_send_leaves_the_pending_table_unchanged(harness: StoreHarness, tmp_path: Path) -> None:
    harness.send("a1", "a2")
    (first,) = harness.receive()
    store = harness.store
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012 - all of it is to be rolled back
        info = store.queues["q"]
        store.send(info, [Draft("b", Content.TEXT, "b")] * 3 * KEPT, harness.now)
        store.settle(info, [Settlement(first.message.sequence_number, first.token, SettleAction.ACK)], harness.now)
        assert [
            delivery.message.body for delivery in store.receive(info, [ReceiveRequest(1, group="a")], harness.now)[0]
        ] == ["a2"]
        raise ZeroDivisionError
    assert table(tmp_path) == []
    harness.send("c1")  # it has the number that a message of b had
    assert harness.take(9) == ["c1"]
    harness.wait(60)
    assert harness.take(2) == ["a1", "a2"]


def test_a_reopened_file_delivers_messages_inside_and_outside_the_pending_table(
    harness: StoreHarness, tmp_path: Path
) -> None:
    harness.send(*"ab" * KEPT, *"ab" * (KEPT // 2))
    harness.close()
    reopened = opened(tmp_path)
    assert reopened.take(99) == [*"a" * (KEPT + KEPT // 2), *"b" * (KEPT + KEPT // 2)]
    reopened.close()
