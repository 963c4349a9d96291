"""Records of a source without positions are known by their ids, for ever: none is sent twice, whatever comes again."""

import json
from typing import Any

import pytest

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl

BY_ID = MessageMapping(group="body.account", id="body.id")


class Forgetful(Scripted):
    """A broker: it gives again what was not confirmed, wherever the reader says to go on."""

    has_positions = False

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, None)


def body(id_: str, amount: int = 10, account: str = "a") -> bytes:
    return json.dumps({"account": account, "id": id_, "amount": amount}).encode()


def ingest(db: Database, log: Log, mapping: MessageMapping = BY_ID, *, once: bool = True) -> Ingest:
    return Ingest(Forgetful(log), db.queue("payments"), mapping, name="bank", once=once)


def sent(db: Database) -> list[str]:
    return [message.body["id"] for message in db.queue("payments").peek(100)]


def test_records_with_known_ids_are_not_sent_again_after_the_deduplication_window(db: Database) -> None:
    db.queue("payments", QueueSettings(dedup_window_s=0))
    log = Log(p=[body("1"), body("2"), body("1")])
    assert ingest(db, log).run(until="caught up") == (2, 0, 1, 0)
    log.partitions["p"] += [body("3")]
    assert ingest(db, log).run(until="caught up") == (1, 0, 3, 0)
    assert sent(db) == ["1", "2", "3"]
    (partition,) = SourceControl(db, "bank").partitions()
    assert (partition.received, partition.position) == (3, '"once, by id"')


def test_a_record_that_reuses_an_id_for_another_message_is_rejected(db: Database) -> None:
    log = Log(p=[body("pay-77", 10), body("pay-77", 10), body("pay-77", 12)])
    assert ingest(db, log).run(until="caught up") == (1, 1, 1, 0)
    (rejected,) = SourceControl(db, "bank").rejected()
    assert (rejected.reason, rejected.body) == (
        "the id 'pay-77' was already used for another message",
        body("pay-77", 12),
    )
    assert sent(db) == ["pay-77"]


def test_group_and_revision_serve_as_the_id_of_records_without_one(db: Database) -> None:
    mapping = MessageMapping(group="body.account", revision="body.id")
    log = Log(p=[body("1"), body("2"), body("1", account="b"), body("2")])
    assert ingest(db, log, mapping).run(until="caught up") == (3, 0, 1, 0)


def test_a_source_without_ids_is_refused_unless_once_is_false(db: Database) -> None:
    mapping = MessageMapping(group="body.account")
    with pytest.raises(InputError, match="set once = false"):
        ingest(db, Log(p=[]), mapping)
    log = Log(p=[body("1")])
    ingest(db, log, mapping, once=False).run(until="caught up")
    ingest(db, log, mapping, once=False).run(until="caught up")
    assert sent(db) == ["1", "1"]
    (partition,) = SourceControl(db, "bank").partitions()
    assert partition.position == '"at least once"'


def test_a_record_without_its_id_is_rejected_and_blocks_nothing(db: Database) -> None:
    log = Log(p=[b'{"account": "a"}', body("2")])
    assert ingest(db, log).run(until="caught up") == (1, 1, 0, 0)
    assert [record.reason for record in SourceControl(db, "bank").rejected()] == ["the record has no id"]


def test_two_sources_may_use_the_same_ids(db: Database) -> None:
    log = Log(p=[body("1")])
    db.queue("payments", QueueSettings(dedup_window_s=0))
    for name in ("bank", "shop"):
        source = Forgetful(log)
        assert Ingest(source, db.queue("payments"), BY_ID, name=name).run(until="caught up").received == 1
