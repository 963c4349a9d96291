"""The table of pending messages over SQLite: what is in it, when, and that it is never asked for what it lacks.

What the queue answers whatever is in the table is for the suite of all stores and the oracle, which run with a store
that puts messages into it at once, and with several processes.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from desk import Desk

from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Content, Draft, ReceiveRequest
from inturn.store.sqlite import SqliteStore

KEPT = 10  # how many messages are new


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return opened(tmp_path)


def opened(path: Path) -> Desk:
    store = SqliteStore(str(path / "q.db"), durable=False)
    store.pending.newest_messages = KEPT
    desk = Desk(store)
    desk.make("q")
    return desk


def table(path: Path) -> list[tuple[str, int]]:
    """What is in the table: groups, and places in the queue."""
    with closing(sqlite3.connect(path / "q.db")) as connection:
        return connection.execute("select grp, sequence_number & 1048575 from inturn_pending").fetchall()


def test_messages_go_into_the_table_once_as_many_newer_ones_have_come(desk: Desk, tmp_path: Path) -> None:
    for at in range(2 * KEPT - 1):
        desk.send("ab"[at % 2])
    assert table(tmp_path) == []
    desk.send("b")
    assert table(tmp_path) == [*(("a", at) for at in range(1, KEPT, 2)), *(("b", at) for at in range(2, KEPT + 1, 2))]
    assert desk.take(99) == [*"a" * KEPT, *"b" * KEPT]


def test_what_is_moved_here_is_as_new_as_what_is_sent(desk: Desk, tmp_path: Path) -> None:
    desk.make("other")
    for _ in range(2 * KEPT):
        desk.send("a", queue="other")
    assert len(table(tmp_path)) == KEPT
    desk.move("q", *desk.read(queue="other"), queue="other")
    assert [at for _, at in table(tmp_path)] == [*range(1, KEPT + 1)], "of q: all of the other's have left"
    assert desk.take(99) == ["a"] * 2 * KEPT


def test_what_is_done_with_before_never_comes_into_the_table(desk: Desk, tmp_path: Path) -> None:
    for _ in range(5 * KEPT):
        desk.send("a")
        desk.ack(*desk.receive())
    assert table(tmp_path) == []
    desk.send(*"a" * 3)
    desk.cancel(desk.read()[1].sequence_number)
    desk.defer(*desk.receive())
    desk.make("q", retention_s=1)
    desk.wait(2)
    desk.take()
    for _ in range(2 * KEPT):
        desk.send("b")
    assert {group for group, _ in table(tmp_path)} == {"b"}


def test_what_is_kept_for_a_reader_is_not_pending(desk: Desk, tmp_path: Path) -> None:
    desk.readers(r=0)
    desk.send(*"a" * 3 * KEPT)
    desk.ack(*desk.receive(2 * KEPT))
    assert table(tmp_path) == []
    desk.send(*"b" * 2 * KEPT)
    assert len(table(tmp_path)) == 2 * KEPT, "the rest of a's, and the first of b's"
    assert desk.take(99) == [*"a" * KEPT, *"b" * 2 * KEPT]


def test_all_leave_the_table_whatever_becomes_of_them(desk: Desk, tmp_path: Path) -> None:
    desk.make("other")
    desk.send("d", delay_ms=1)
    desk.send(*"abc" * KEPT)
    assert len(table(tmp_path)) == 2 * KEPT + 1
    verdicts = [
        *desk.cancel(desk.read()[0].sequence_number),
        *desk.ack(*desk.receive()),
        *desk.defer(*desk.receive(group="b")),
        *desk.move("other", desk.read()[1]),
    ]
    assert set(verdicts) == {SettleResult.DONE}
    assert not {1, 2, 3, 4} & {at for _, at in table(tmp_path)}
    desk.purge()
    assert table(tmp_path) == []


def test_one_between_others_stays_when_these_are_acknowledged(desk: Desk, tmp_path: Path) -> None:
    desk.send(*"a" * 3 * KEPT)
    got = desk.receive(5)
    desk.ack(got[0], got[2])
    assert [at for _, at in table(tmp_path)][:3] == [2, 4, 5]
    desk.ack(*got[1:2], *got[3:])
    assert [at for _, at in table(tmp_path)][:1] == [6]


def test_what_other_processes_did_meanwhile_is_seen(desk: Desk, tmp_path: Path) -> None:
    other = opened(tmp_path)
    desk.send("a1")
    assert desk.take() == ["a1"]
    other.send("a2", "b1")
    desk.send("single", group=None)  # for which nothing need be looked up
    other.wait(60)
    other.ack(*other.receive(group="a"))
    desk.wait(60)
    assert [desk.take(9, group=group) for group in "ab"] == [["a2"], ["b1"]]
    other.close()


def test_what_another_process_took_from_the_midst_is_made_up_for(desk: Desk, tmp_path: Path) -> None:
    desk.send("a1", "a2", "a3", "a4", "a5", "a6")
    desk.nack(*desk.receive())  # so that all of them are listed here
    other = opened(tmp_path)
    first, *more = other.receive(3)
    other.ack(*more)
    other.nack(first)
    assert desk.take(4) == ["a1", "a4", "a5", "a6"]
    other.close()


def test_one_that_comes_back_is_before_all_that_are_newer(desk: Desk, tmp_path: Path) -> None:
    desk.make("other")
    desk.send("a1", "a2", "a3", "a4")
    desk.move("other", *desk.read()[1:3])
    assert desk.take(9) == ["a1", "a4"]
    desk.wait(60)
    desk.move("q", *desk.read(queue="other"), queue="other")
    assert [at for _, at in table(tmp_path)] == [1, 2, 3], "up to its place, so that the newest are behind all others"
    assert desk.take(9) == ["a1", "a2", "a3", "a4"]


def test_what_was_rolled_back_was_never_there(desk: Desk, tmp_path: Path) -> None:
    desk.send("a1", "a2")
    (first,) = desk.receive()
    store = desk.store
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012 - all of it is to be rolled back
        info = store.queues["q"]
        store.send(info, [Draft("b", Content.TEXT, "b")] * 3 * KEPT, desk.now)
        store.settle(info, [Settlement(first.entry.sequence_number, first.token, SettleAction.ACK)], desk.now)
        assert [each.entry.body for each in store.receive(info, [ReceiveRequest(1, group="a")], desk.now)[0]] == ["a2"]
        raise ZeroDivisionError
    assert table(tmp_path) == []
    desk.send("c1")  # it has the number that a message of b had
    assert desk.take(9) == ["c1"]
    desk.wait(60)
    assert desk.take(2) == ["a1", "a2"]


def test_who_opens_the_file_next_knows_both_kinds(desk: Desk, tmp_path: Path) -> None:
    desk.send(*"ab" * KEPT, *"ab" * (KEPT // 2))
    desk.close()
    again = opened(tmp_path)
    assert again.take(99) == [*"a" * (KEPT + KEPT // 2), *"b" * (KEPT + KEPT // 2)]
    again.close()
