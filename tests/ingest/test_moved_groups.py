"""Groups that come from another partition than before wait, go on there, or are not looked at, as `on_move` says."""

import json
from typing import TYPE_CHECKING

import pytest

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError, QueueFull
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl
from inturn.ingest.moved_groups import OnMove, checked_on_move

if TYPE_CHECKING:
    from collections.abc import Callable

BY_POSITION = MessageMapping(group="body.account", revision="position")


def body(account: str, text: str) -> bytes:
    return json.dumps({"account": account, "text": text}).encode()


def ingest(db: Database, log: Log, on_move: OnMove | None = None, mapping: MessageMapping = BY_POSITION) -> Ingest:
    return Ingest(Scripted(log), db.queue("payments"), mapping, name="bank", on_move=on_move)


def sent(db: Database) -> list[tuple[str | None, int | None, str]]:
    return [(message.group, message.revision, message.body["text"]) for message in db.queue("payments").peek(1000)]


@pytest.fixture
def log(db: Database) -> Log:
    """Account a is in partition p, and comes from q after partitions were added; b stays."""
    log = Log(p=[body("a", "1"), body("b", "1"), body("a", "2")])
    ingest(db, log).run(until="caught up")
    log.partitions["q"] = [body("c", "1"), body("a", "3"), body("a", "4")]
    return log


def test_a_moved_group_waits_by_default_if_ordered_by_position(db: Database, log: Log) -> None:
    log.partitions["p"].append(body("b", "2"))
    assert ingest(db, log).run(until="caught up") == (2, 0, 0, 2)
    assert sorted(sent(db)) == [("a", 1, "1"), ("a", 3, "2"), ("b", 2, "1"), ("b", 4, "2"), ("c", 1, "1")]
    control = SourceControl(db, "bank")
    waiting = list(control.moved())
    assert [(moved.group, moved.partition, moved.position, moved.home, moved.home_position) for moved in waiting] == [
        ("a", "q", "2", "p", "1"),
        ("a", "q", "3", "p", "1"),
    ]
    assert control.moved_counts() == {"q": 2}
    assert {partition.name: partition.position for partition in control.partitions()} == {"p": "4", "q": "3"}
    assert db.figures().sources[1].moved == 2


def test_an_accepted_group_continues_in_its_new_partition(db: Database, log: Log) -> None:
    ingest(db, log).run(until="caught up")
    control = SourceControl(db, "bank")
    with pytest.raises(InputError, match="source 'bank' has no waiting messages of group 'b'"):
        control.accept("a", "b")
    assert control.accept("a") == 2
    assert [message for message in sent(db) if message[0] == "a"][2:] == [("a", 2, "3"), ("a", 3, "4")]
    assert list(control.moved()) == []
    assert control.accept() == 0
    log.partitions["q"].append(body("a", "5"))
    log.partitions["p"].append(body("a", "late"))
    assert ingest(db, log).run(until="caught up") == (1, 0, 0, 1)
    assert ("a", 4, "5") in sent(db)
    assert [moved.partition for moved in control.moved()] == ["p"], "what the old partition still had waits now"


def test_a_moved_group_is_sent_at_once_with_on_move_follow(db: Database, log: Log) -> None:
    assert ingest(db, log, "follow").run(until="caught up") == (3, 0, 0, 0)
    log.partitions["q"].append(body("a", "5"))
    assert ingest(db, log, "park").run(until="caught up") == (1, 0, 0, 0), "its place is known from then on"


def test_a_group_not_ordered_by_position_may_change_its_partition(db: Database, log: Log) -> None:
    mapping = MessageMapping(group="body.account")
    assert ingest(db, log, mapping=mapping).run(until="caught up") == (3, 0, 0, 0)


@pytest.mark.parametrize(
    ("choice", "mapping", "wanted"),
    [
        (None, BY_POSITION, "park"),
        (None, MessageMapping(group="body.account", revision="body.n"), "ignore"),
        (None, MessageMapping(group="partition", revision="position"), "ignore"),
        ("follow", BY_POSITION, "follow"),
    ],
)
def test_the_default_of_on_move_depends_on_the_mapping(
    choice: OnMove | None, mapping: MessageMapping, wanted: str
) -> None:
    assert checked_on_move(choice, mapping) == wanted


def test_an_unknown_on_move_value_is_refused() -> None:
    with pytest.raises(InputError, match=r"on_move is 'stop'; .*'park', 'follow', 'ignore'"):
        checked_on_move("stop", BY_POSITION)  # type: ignore[arg-type]


def test_accept_handles_a_thousand_moved_groups_in_one_call(db: Database) -> None:
    log = Log(p=[body(f"a{n}", "1") for n in range(1000)])
    ingest(db, log).run(until="caught up")
    log.partitions["q"] = [body(f"a{n}", text) for text in "23" for n in range(1000)]
    assert ingest(db, log).run(until="caught up").moved == 2000
    assert SourceControl(db, "bank").accept() == 2000
    assert SourceControl(db, "bank").moved_counts() == {}


def test_a_moved_group_too_large_for_the_queue_is_reported_and_blocks_no_other(db: Database, log: Log) -> None:
    log.partitions["p"] += [body("z", "1")]
    ingest(db, log).run(until="caught up")
    log.partitions["q"] += [body("a", "5"), body("z", "2")]
    ingest(db, log).run(until="caught up")
    payments, control = db.queue("payments"), SourceControl(db, "bank")
    payments.purge()
    payments.configure(max_depth=2)
    with pytest.raises(
        InputError, match=r"group 'a' has 3 waiting messages.*max_depth=2; raise it to 3 .*sent 1 message of other"
    ):
        control.accept()
    assert [message[0] for message in sent(db)] == ["z"], "nothing of a group is sent in parts"
    assert control.moved_counts() == {"q": 3}
    payments.configure(max_depth=4)
    assert control.accept() == 3
    payments.configure(max_depth=2)
    assert [message[2] for message in sent(db)] == ["2", "3", "4", "5"]


def test_a_full_queue_ends_accept_after_the_groups_that_have_room(db: Database) -> None:
    log = Log(p=[body(f"a{n}", "1") for n in range(5)])
    ingest(db, log).run(until="caught up")
    log.partitions["q"] = [body(f"a{n}", "2") for n in range(5)]
    ingest(db, log).run(until="caught up")
    payments, control = db.queue("payments"), SourceControl(db, "bank")
    payments.purge()
    payments.configure(max_depth=3)
    with pytest.raises(QueueFull, match="3 messages already sent: make room"):
        control.accept()
    payments.purge()
    assert control.accept() == 2
    assert len(sent(db)) == 2


def test_lag_and_age_of_a_source_are_stored_for_the_metrics(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(p=[body("a", str(n)) for n in range(5)])
    source = Scripted(log)
    host = Ingest(source, db.queue("payments"), BY_POSITION, name="bank", batch=2)
    polls: list[Callable[[], object]] = [lambda: None, host.stop_soon]
    source.faults = polls
    host.run()
    (figures,) = db.figures().sources
    assert (figures.source, figures.partition, figures.received, figures.lag) == ("bank", "p", 4, 1)
    assert figures.age_s is not None
    assert figures.age_s > 1e9, "the records are of 1970"
    ingest(db, log).run(until="caught up")
    (figures,) = db.figures().sources
    assert (figures.lag, figures.age_s) == (0, 0.0)
