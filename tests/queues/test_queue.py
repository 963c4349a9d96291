"""The queue as its users see it: verbs, words and errors."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inturn
from clocks import Clock
from inturn.core.errors import InputError, LeaseExpired, NoSuchQueue, QueueExists, StoreError
from inturn.core.queue.messages import GroupAvailability, QueueSettings
from inturn.database import Database
from inturn.queue import draft
from inturn.store.sqlite import SqliteStore


@pytest.fixture
def db(address: str, clock: Clock) -> Iterator[Database]:
    with inturn.open(address, clock=clock) as db:
        yield db


def test_a_received_message_equals_the_sent_one(db: Database, clock: Clock) -> None:
    queue = db.queue("payments")
    sent = queue.send({"amount": 5}, group="acct-1", revision=1, dedup_id="tx-77", attributes={"from": "web"})
    (message,) = queue.receive()
    assert (message.body, message.group, message.revision, message.dedup_id) == ({"amount": 5}, "acct-1", 1, "tx-77")
    assert message.attributes == {"from": "web"}
    assert message.sequence_number == message.id == sent.sequence_number
    assert message.sent_at == clock.time
    assert message.leased_until == message.sent_at + dt.timedelta(seconds=30)
    assert (message.attempts, message.came_from, message.note) == (1, None, None)
    message.ack()
    assert queue.depth().messages == 0


BODIES = ["text", "", "7", "it's \\ so", b"'\\\x00\xff", {"a": [1, None]}, [1.5], 7, None, True, "ünï\U0001f600"]


@pytest.mark.parametrize("body", BODIES)
def test_text_and_bytes_bodies_keep_their_type_and_others_are_json(db: Database, body: Any) -> None:
    queue = db.queue("q")
    queue.send(body)
    (message,) = queue.receive()
    assert message.body == body
    assert type(message.body) is type(body)


def test_send_accepts_a_group_of_any_type(db: Database) -> None:
    queue = db.queue("q")
    for group in (7, "7", dt.date(2026, 1, 2)):
        queue.send("x", group=group)
    assert [(view.group, view.depth) for view in queue.groups()] == [("7", 2), ("2026-01-02", 1)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"body": {1, 2, object()}}, "body{} is <object .*: it is not JSON"),
        ({"body": "x" * 1_048_577}, "1,048,577 bytes; at most 1,048,576 are allowed"),
        ({"body": "x", "group": ""}, "group is ''; expected a text of 1 to"),
        ({"body": "x", "group": 1.5}, "invalid group"),
        ({"body": "x", "dedup_id": 7}, "dedup_id is 7; expected a text"),
        ({"body": "x", "delay_s": -1}, "delay_s is -1; expected a number of seconds from 0"),
        ({"body": "x", "attributes": {"a": object()}}, r"attributes\.a is <object .*: it is not JSON"),
    ],
)
def test_send_refuses_invalid_arguments_and_sends_nothing(db: Database, wrong: dict[str, Any], words: str) -> None:
    queue = db.queue("q")
    with pytest.raises(InputError, match=words):
        queue.send(**wrong)
    assert queue.depth().messages == 0


def test_send_many_sends_no_message_if_one_is_invalid(db: Database) -> None:
    queue = db.queue("q")
    sent = queue.send_many(draft(n, group=f"g{n % 3}") for n in range(10))
    assert [receipt.duplicate for receipt in sent] == [False] * 10
    with pytest.raises(InputError):
        queue.send_many(draft("x", group=group) for group in ("a", ""))
    assert queue.depth().messages == 10


def test_ack_nack_and_extend_accept_several_messages(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many(draft(n, group="g") for n in range(3))
    first = queue.receive(3)
    queue.nack(first)
    redelivered = queue.receive(3)
    queue.extend(redelivered, 60)
    queue.ack(redelivered[:2])
    with pytest.raises(LeaseExpired, match=rf"message {redelivered[0].sequence_number} was not changed.*1 more"):
        queue.ack(redelivered)  # each for itself: the third is done all the same
    assert queue.depth().messages == 0


def test_every_verb_of_an_expired_lease_raises_lease_expired(db: Database, clock: Clock) -> None:
    queue = db.queue("q")
    queue.send("x")
    (old,) = queue.receive(visibility_timeout_s=5)
    clock.forward(5)
    (new,) = queue.receive(visibility_timeout_s=5)
    for act in (old.ack, old.nack, lambda: old.extend(5), lambda: old.reject("bad", to="q")):
        with pytest.raises(LeaseExpired, match="its lease has expired"):
            act()
    assert new.fencing_token > old.fencing_token
    new.ack()
    with pytest.raises(LeaseExpired, match="not in the queue"):
        old.ack()


def test_reject_moves_the_message_with_its_note_and_the_group_continues(db: Database) -> None:
    db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=5))
    queue.send_many(draft(n, group="g") for n in range(2))
    (message,) = queue.receive()
    message.reject("no such account")
    assert [message.body for message in queue.receive(10)] == [1]
    (dead,) = db.queue("dead").peek()
    assert (dead.body, dead.group, dead.note, dead.came_from, dead.id) == (0, "g", "no such account", "q", message.id)
    with pytest.raises(InputError, match="queue 'dead' has no dead_letter queue; name the target"):
        db.queue("dead").receive()[0].reject("again")


def test_redrive_returns_messages_to_their_old_positions(db: Database) -> None:
    dead = db.queue("dead")
    queue = db.queue("q", QueueSettings(dead_letter="dead", max_receives=1))
    queue.send_many(draft(n, group="g") for n in range(4))
    for _ in range(2):
        queue.receive()[0].reject("not now")
    dead.send("of its own")
    assert dead.redrive() == 2
    assert dead.depth().messages == 1
    assert [message.body for message in queue.receive(10)] == [0, 1, 2, 3]
    with pytest.raises(NoSuchQueue):
        dead.redrive(to="nowhere")
    other = db.queue("other")
    assert dead.redrive(to="other") == 1
    assert [message.body for message in other.peek()] == ["of its own"]


def test_redrive_skips_a_message_in_flight(db: Database) -> None:
    dead, queue = db.queue("dead"), db.queue("q")
    queue.send("x", group="g")
    queue.receive()[0].reject("bad", to="dead")
    (held,) = dead.receive()
    assert dead.redrive() == 0
    held.nack()
    assert dead.redrive() == 1


def test_opening_a_queue_with_different_settings_is_refused(db: Database) -> None:
    settings = QueueSettings(visibility_timeout_s=60)
    db.queue("q", settings)
    assert db.queue("q", settings).info().settings == db.queue("q").info().settings == settings
    with pytest.raises(QueueExists, match=r"visibility_timeout_s is 60, not 5"):
        db.queue("q", QueueSettings(visibility_timeout_s=5))
    assert db.queue("q").configure(visibility_timeout_s=5).visibility_timeout_s == 5
    assert db.queues() == ["q"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"visibility_timeout_s": -1}, "visibility_timeout_s is -1; expected a number from 0"),
        ({"dedup_scope": "galaxy"}, "dedup_scope is 'galaxy'; expected 'queue' or 'group'"),
        ({"dead_letter": "dead"}, "max_receives is None; set both"),
        ({"dead_letter": "dead", "max_receives": 0}, "max_receives is 0"),
        ({"colour": "red"}, "no setting 'colour'; existing settings: visibility_timeout_s"),
    ],
)
def test_configure_refuses_invalid_settings(db: Database, settings: dict[str, Any], words: str) -> None:
    queue = db.queue("q")
    with pytest.raises(InputError, match=words):
        queue.configure(**settings)
    assert queue.info().settings == QueueSettings()


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_invalid_queue_and_reader_names_are_refused(db: Database, name: str) -> None:
    with pytest.raises(InputError, match="invalid name"):
        db.queue(name)
    with pytest.raises(InputError, match="invalid name"):
        db.queue("q").reader(name)


def test_purge_removes_all_messages_and_delete_removes_the_queue(db: Database) -> None:
    queue = db.queue("q")
    queue.send_many(draft(n) for n in range(5))
    assert queue.purge() == 5
    assert queue.receive() == []
    queue.delete()
    for act in (queue.receive, queue.depth, lambda: queue.send("x"), queue.delete):
        with pytest.raises(NoSuchQueue, match="no queue 'q'; existing queues: none"):
            act()


def test_groups_shows_why_each_group_is_blocked(db: Database) -> None:
    queue = db.queue("q")
    queue.send("x", group="a")
    queue.send("x", group="b", delay_s=5)
    queue.receive()
    assert [(view.group, view.availability) for view in queue.groups("b", "a")] == [
        ("a", GroupAvailability.IN_FLIGHT),
        ("b", GroupAvailability.DELAYED),
    ]


def test_a_reader_reads_all_messages_and_can_seek_back(db: Database) -> None:
    queue = db.queue("q")
    reader = queue.reader("audit")
    assert reader.read() == []  # from now on what it has not read is kept
    sent = queue.send_many(draft(n, group=f"g{n}") for n in range(5))
    queue.ack(queue.receive(10))
    assert [message.body for message in reader.read(3)] == [0, 1, 2]
    reader.commit(sent[2].sequence_number)
    assert [message.body for message in reader.read()] == [3, 4]
    reader.commit(sent[0].sequence_number)  # an old one changes nothing
    assert reader.position() == sent[2].sequence_number
    assert [message.body for message in reader.read(after=0)] == [3, 4]  # what all have read is gone
    queue.send(5)
    reader.seek(sent[3].sequence_number)
    assert [message.body for message in reader.read()] == [4, 5]
    with pytest.raises(InputError, match=r"is beyond the end of queue 'q'; its last message is \d"):
        reader.seek(sent[4].sequence_number + 2)
    reader.delete()
    assert [message.body for message in queue.peek()] == [5]


def test_a_transaction_commits_all_of_it_or_nothing(db: Database) -> None:
    queue, done = db.queue("q"), db.queue("done")
    with db.transaction() as tx:
        tx.execute("create table account (id text primary key, balance integer)")
        tx.execute("insert into account values ('a', 0)")
    queue.send({"amount": 5}, group="a")

    def pay(message: Any, *, fail: bool) -> None:
        with db.transaction() as tx:
            amount = ":amount" if isinstance(db.store, SqliteStore) else "%(amount)s"
            tx.execute(f"update account set balance = balance + {amount}", message.body)  # noqa: S608 - a placeholder
            message.ack(tx)
            done.send({"paid": message.body["amount"]}, group="a", tx=tx)
            if fail:
                raise ZeroDivisionError

    (message,) = queue.receive()
    with pytest.raises(ZeroDivisionError):
        pay(message, fail=True)
    assert (queue.depth().messages, done.depth().messages) == (1, 0)
    pay(message, fail=False)
    with pytest.raises(LeaseExpired):  # so a second holder's account is not touched either
        pay(message, fail=False)
    assert (queue.depth().messages, done.depth().messages) == (0, 1)
    with db.transaction() as tx:
        assert tx.execute("select balance from account").fetchall() == [(5,)]


def test_every_verb_works_within_a_transaction(db: Database) -> None:
    with db.transaction() as tx:
        queue = db.queue("q", tx=tx)
        reader = queue.reader("r")
        assert reader.read(tx=tx) == []
        sent = queue.send("x", group="a", tx=tx)
        assert (queue.depth(tx).messages, [view.group for view in queue.groups(tx=tx)]) == (1, ["a"])
        assert [message.body for message in (*queue.peek(tx=tx), *reader.read(tx=tx))] == ["x", "x"]
        reader.commit(sent.sequence_number, tx)
        assert reader.position(tx) == queue.info(tx).readers["r"] == sent.sequence_number
        reader.delete(tx)
        assert queue.purge(tx) == 1
        queue.delete(tx)
    assert db.queues() == []


def test_a_receive_in_a_rolled_back_transaction_has_no_effect(db: Database) -> None:
    queue = db.queue("q")
    queue.send("x", group="a")
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:  # noqa: PT012 - the block is what is tested
        assert len(queue.receive(tx=tx)) == 1
        raise ZeroDivisionError
    assert len(queue.receive()) == 1  # as if it had not been received


@pytest.mark.parametrize("sql", ["commit", " ROLLBACK", "begin", "savepoint x"])
def test_tx_execute_refuses_commit_and_rollback(db: Database, sql: str) -> None:
    with db.transaction() as tx, pytest.raises(StoreError, match="is not allowed here"):
        tx.execute(sql)


def test_tx_execute_refuses_changes_to_connection_settings(tmp_path: Path, postgres_url: str) -> None:
    for target, sql in ((tmp_path / "a.db", "pragma synchronous=off"), (postgres_url, "set synchronous_commit = off")):
        with inturn.open(target) as db, db.transaction() as tx, pytest.raises(StoreError, match="is not allowed here"):
            tx.execute(sql)


def test_open_refuses_an_unknown_scheme_or_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown scheme 'mysql'; expected an SQLite file"):
        inturn.open("mysql://here/there")
    with pytest.raises(InputError, match=r"directory '.*' does not exist; create it"):
        inturn.open(tmp_path / "nowhere" / "shop.db")


def test_an_in_memory_database_works_and_closes() -> None:
    with inturn.open(":memory:") as db:
        db.queue("q").send("x")
        assert [message.body for message in db.queue("q").receive()] == ["x"]
    with pytest.raises(StoreError, match="the database is closed"):
        db.queue("q")
