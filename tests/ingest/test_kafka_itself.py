"""Kafka itself: transactions, retention, new topics and partitions; hosts, connections and brokers that die."""

import json
import random
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ingest.source_history import check_came_once, numbered
from inturn import Gapless, Pipeline
from inturn.core.errors import SourceError
from inturn.database import Database
from inturn.faults import OF_A_TRANSACTION
from inturn.ingest import Ingest, KafkaSource, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from kafka_started import Kafka, produce, topic, transaction
from lives import killed_at_every_point
from waiting import until

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "kafka_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 6
RAW = MessageMapping(group="partition", revision="position", format="text")
BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n")


@pytest.fixture
def name(kafka: Kafka) -> str:
    return topic(kafka.servers, f"t{time.time_ns()}")


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.servers})


def ingest(db: Database, servers: str, name: str, mapping: MessageMapping = RAW, **more: float) -> Ingest:
    return Ingest(KafkaSource(servers, name), db.queue("payments"), mapping, name="kafka", **more)  # type: ignore[arg-type]


def sent(db: Database) -> list[tuple[int | None, object]]:
    return [(message.revision, message.body) for message in db.queue("payments").peek(1000)]


def test_k1_k2_transaction_markers_and_aborted_records_are_skipped(db: Database, kafka: Kafka, name: str) -> None:
    transaction(kafka.servers, name, b"one")  # offsets 0 and, for the marker, 1
    transaction(kafka.servers, name, b"never", abort=True)
    source = KafkaSource(kafka.servers, name)
    assert Ingest(source, db.queue("payments"), RAW, name="kafka").run(until="caught up").received == 1
    source.open("0", 1)
    assert source.poll(10, 0.1) == []
    assert source.lag("0") == 0, "the end is 4; the position is not 1 but beyond the markers"
    source.shutdown()
    produce(kafka.servers, name, [b"two"])
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 1
    assert sent(db) == [(1, "one"), (5, "two")]


def test_k5_an_expired_position_is_reported_until_a_seek(
    db: Database, kafka: Kafka, name: str, admin: AdminClient
) -> None:
    produce(kafka.servers, name, [b"0", b"1"])
    ingest(db, kafka.servers, name).run(until="caught up")
    produce(kafka.servers, name, [b"%d" % number for number in range(2, 9)])
    admin.delete_records([TopicPartition(name, 0, 6)])[TopicPartition(name, 0)].result(60)
    control = SourceControl(db, "kafka")
    ingest(db, kafka.servers, name).run(until="caught up")
    assert control.partitions()[0].note == (
        "4 offsets are gone: the log begins at 6, the next one to read was 2; set an offset with `inturn ingest seek`"
    )
    control.seek(6)
    ingest(db, kafka.servers, name).run(until="caught up")
    assert [body for _, body in sent(db)] == ["0", "1", "6", "7", "8"]


def test_k6_a_recreated_topic_is_refused_until_a_seek(
    db: Database, kafka: Kafka, name: str, admin: AdminClient
) -> None:
    produce(kafka.servers, name, [b"old"] * 3)
    ingest(db, kafka.servers, name).run(until="caught up")
    admin.delete_topics([name])[name].result(60)
    until(lambda: name not in admin.list_topics(timeout=60).topics)
    topic(kafka.servers, name)
    produce(kafka.servers, name, [b"new"] * 5)
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 0
    control = SourceControl(db, "kafka")
    assert "recreated" in (control.partitions()[0].note or "")
    control.seek(None)
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 5


@pytest.mark.parametrize(("old", "new"), [(5, 20), (5, 3), (0, 7)])
def test_k6_a_topic_recreated_during_reading_is_not_continued_at_an_old_position(
    db: Database, kafka: Kafka, name: str, admin: AdminClient, old: int, new: int
) -> None:
    produce(kafka.servers, name, [b"old"] * old)
    control = SourceControl(db, "kafka")
    with ingest(db, kafka.servers, name):  # the lease of the defaults: it is made again between two looks
        until(lambda: control.partitions()[0].lag is not None or control.partitions()[0].received == old)
        wait_for(db, old)
        admin.delete_topics([name])[name].result(60)
        until(lambda: name not in admin.list_topics(timeout=60).topics)
        topic(kafka.servers, name)
        produce(kafka.servers, name, [b"new"] * new)
        if old:
            until(lambda: control.partitions()[0].note)
            assert sent(db) == [(number + 1, "old") for number in range(old)], (
                "none of the new ones came under an old position"
            )
            control.seek(None)
        wait_for(db, old + new)
    assert ingest(db, kafka.servers, name).run(until="caught up") == (0, 0, 0, 0)
    assert control.partitions()[0].note is None
    assert [body for _, body in sent(db)] == ["old"] * old + ["new"] * new
    assert [revision for revision, _ in sent(db)][old:] == [*range(1, new + 1)]


def test_k6_a_position_beyond_the_end_is_reported(db: Database, kafka: Kafka, name: str) -> None:
    produce(kafka.servers, name, [b"0"])
    ingest(db, kafka.servers, name).run(until="caught up")
    control = SourceControl(db, "kafka")
    control.seek(2_707_875)
    ingest(db, kafka.servers, name).run(until="caught up")
    assert (control.partitions()[0].note or "").startswith(
        "the log ends at 1, before the next offset to read, 2,707,875"
    )


def test_k3_k4_a_key_in_two_partitions_is_ordered_by_its_revision(
    db: Database, kafka: Kafka, name: str, admin: AdminClient
) -> None:
    def change(n: int) -> bytes:
        return json.dumps({"account": "acct-2", "n": n}).encode()

    produce(kafka.servers, name, [change(1)])
    with ingest(db, kafka.servers, name, BY_ACCOUNT, lease_s=0.6):
        admin.create_partitions([NewPartitions(name, 2)])[name].result(60)
        produce(kafka.servers, name, [change(3)], 1)  # its key is in another partition from now on
        wait_for(db, 2)
        produce(kafka.servers, name, [change(2)])
        wait_for(db, 3)
    messages = [message.body for message in db.queue("payments").peek()]
    assert [body["n"] for body in messages] == [1, 3, 2]
    order = Pipeline(name="order", group="account", order=Gapless("n"), handler=lambda state, body: (body, [body["n"]]))
    assert [output.output for output in order.replay(messages).outputs] == [1, 2, 3]


def test_k7_reordering_by_the_producer_is_detected_by_revisions_not_by_offsets(
    db: Database, kafka: Kafka, name: str
) -> None:
    """Azure/azure-event-hubs-for-kafka#137: the partition itself has numbers 33 to 39 before 0 to 3."""
    numbers = [*range(33, 40), *range(4)]
    produce(kafka.servers, name, [json.dumps({"device": "d", "no": no}).encode() for no in numbers])
    by_number = MessageMapping(group="body.device", id="body.no")
    assert ingest(db, kafka.servers, name, by_number).run(until="caught up").received == len(numbers)
    messages = [message.body for message in db.queue("payments").peek(100)]
    assert [body["no"] for body in messages] == numbers, "the order of the partition is kept, as wrong as it is"

    order = Gapless("no", start=0)
    pipeline = Pipeline(name="d", group="device", order=order, handler=lambda state, body: (state, [body["no"]]))
    applied = [output.output for output in pipeline.replay(messages).outputs]
    assert applied == [0, 1, 2, 3], "33 to 39 wait for 4 to 32"


def test_a_kafka_record_of_ten_megabytes_is_rejected_and_blocks_nothing(db: Database, kafka: Kafka, name: str) -> None:
    produce(kafka.servers, name, [b"0", b"x" * 10_000_000, b"1"])
    assert ingest(db, kafka.servers, name).run(until="caught up") == (2, 1, 0, 0)
    assert [body for _, body in sent(db)] == ["0", "1"]


def test_a_wrong_kafka_password_is_reported(kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_REQUEST_S", 2.0)
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    assert KafkaSource(kafka.login, name, options=login | {"sasl.password": "right"}).partitions() == ["0"]
    with pytest.raises(SourceError, match="Invalid username or password"):
        KafkaSource(kafka.login, name, options=login | {"sasl.password": "wrong"}).partitions()


@pytest.mark.soak
def test_killed_kafka_hosts_lose_and_repeat_nothing(
    address: str, db: Database, kafka: Kafka, name: str, soak_seed: int, soak_times: int
) -> None:
    chance = random.Random(soak_seed)
    names = numbered(chance, soak_times * 300, 9)
    produce(kafka.servers, name, [json.dumps({"account": a, "n": n}).encode() for a, n in names])
    command = [sys.executable, str(PROGRAM), address, kafka.servers, name]
    killed_at_every_point(command, POINTS, soak_times * LIVES, chance, most=4)
    check_came_once(db.queue("payments"), names, is_total=True)


def wait_for(db: Database, count: int) -> None:
    until = time.monotonic() + 120
    while db.queue("payments").depth().messages < count:
        assert time.monotonic() < until, f"{db.queue('payments').depth().messages} of {count} came"
        time.sleep(0.05)
