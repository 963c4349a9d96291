"""Kafka itself: transactions, retention, new topics and partitions; hosts, connections and brokers that die."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

import inturn
from inturn import Gapless, Pipeline
from inturn.core.errors import SourceError
from inturn.database import Database
from inturn.faults import OF_A_TRANSACTION
from inturn.ingest import Ingest, KafkaSource, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from inturn.testing.history import AppliedEffect, SendCall, check_or_raise
from kafka_started import Kafka, produce, topic, transaction

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "kafka_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 20
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
    return [(each.revision, each.body) for each in db.queue("payments").peek(1000)]


def test_markers_and_aborted_records_are_passed_over(db: Database, kafka: Kafka, name: str) -> None:
    transaction(kafka.servers, name, b"one")  # offsets 0 and, for the marker, 1
    transaction(kafka.servers, name, b"never", abort=True)
    source = KafkaSource(kafka.servers, name)
    assert Ingest(source, db.queue("payments"), RAW, name="kafka").run(until="caught up").received == 1
    source.open("0", 1)
    assert source.poll(10, 0.1) == []
    assert source.lag("0") == 0, "the end is 4; the position is not 1 but beyond the markers"
    source.shut()
    produce(kafka.servers, name, [b"two"])
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 1
    assert sent(db) == [(1, "one"), (5, "two")]


def test_an_expired_position_is_a_named_gap(db: Database, kafka: Kafka, name: str, admin: AdminClient) -> None:
    produce(kafka.servers, name, [b"0", b"1"])
    ingest(db, kafka.servers, name).run(until="caught up")
    produce(kafka.servers, name, [b"%d" % number for number in range(2, 9)])
    admin.delete_records([TopicPartition(name, 0, 6)])[TopicPartition(name, 0)].result(60)
    control = SourceControl(db, "kafka")
    ingest(db, kafka.servers, name).run(until="caught up")
    assert control.partitions()[0].note == (
        "4 offsets are gone: the log begins at 6, and 2 was to be read next; seek says where to go on"
    )
    control.seek(6)
    ingest(db, kafka.servers, name).run(until="caught up")
    assert [body for _, body in sent(db)] == ["0", "1", "6", "7", "8"]


def test_a_topic_that_was_made_again_is_not_confused_with_the_old(
    db: Database, kafka: Kafka, name: str, admin: AdminClient
) -> None:
    produce(kafka.servers, name, [b"old"] * 3)
    ingest(db, kafka.servers, name).run(until="caught up")
    admin.delete_topics([name])[name].result(60)
    while name in admin.list_topics(timeout=60).topics:
        time.sleep(0.1)
    topic(kafka.servers, name)
    produce(kafka.servers, name, [b"new"] * 5)
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 0
    control = SourceControl(db, "kafka")
    assert "made again" in (control.partitions()[0].note or "")
    control.seek(None)
    assert ingest(db, kafka.servers, name).run(until="caught up").received == 5


def test_a_position_beyond_the_end_is_told(db: Database, kafka: Kafka, name: str) -> None:
    produce(kafka.servers, name, [b"0"])
    ingest(db, kafka.servers, name).run(until="caught up")
    control = SourceControl(db, "kafka")
    control.seek(2_707_875)
    ingest(db, kafka.servers, name).run(until="caught up")
    assert (control.partitions()[0].note or "").startswith("the log ends at 1, before 2,707,875")


def test_partitions_that_are_added_are_taken_and_a_revision_keeps_the_order(
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
    messages = [each.body for each in db.queue("payments").peek()]
    assert [each["n"] for each in messages] == [1, 3, 2]
    order = Pipeline(name="order", group="account", order=Gapless("n"), handler=lambda state, body: (body, [body["n"]]))
    assert [each.output for each in order.replay(messages).outputs] == [1, 2, 3]


def test_a_record_of_ten_megabytes_is_rejected_and_stalls_nothing(db: Database, kafka: Kafka, name: str) -> None:
    produce(kafka.servers, name, [b"0", b"x" * 10_000_000, b"1"])
    assert ingest(db, kafka.servers, name).run(until="caught up") == (2, 1, 0)
    assert [body for _, body in sent(db)] == ["0", "1"]


def test_a_wrong_password_is_named(kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_REQUEST_S", 2.0)
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    assert KafkaSource(kafka.login, name, options=login | {"sasl.password": "right"}).partitions() == ["0"]
    with pytest.raises(SourceError, match="Invalid username or password"):
        KafkaSource(kafka.login, name, options=login | {"sasl.password": "wrong"}).partitions()


@pytest.mark.soak
def test_hosts_that_are_killed_lose_and_repeat_nothing(
    address: str, db: Database, kafka: Kafka, name: str, soak_seed: int
) -> None:
    chance = random.Random(soak_seed)
    written = accounts(chance, 300)
    produce(kafka.servers, name, [json.dumps(each).encode() for each in written])
    command = [sys.executable, str(PROGRAM), address, kafka.servers, name]
    killed = 0
    for _ in range(LIVES):
        at = f"{chance.choice(POINTS)}@{chance.randint(1, 4)}"
        life = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": at}, check=False, timeout=60)
        assert life.returncode in (0, -signal.SIGKILL)
        killed += life.returncode != 0
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert killed > LIVES / 4
    check_sent(db, written)


@pytest.mark.soak
def test_connections_and_brokers_that_die_lose_and_repeat_nothing(
    tmp_path: Path, kafka: Kafka, name: str, soak_seed: int
) -> None:
    chance = random.Random(soak_seed)
    written = accounts(chance, 200)
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        with Proxy(kafka) as proxy, ingest(db, kafka.proxy, name, BY_ACCOUNT, lease_s=2.0, batch=5):
            for at in range(0, 200, 10):
                produce(kafka.servers, name, [json.dumps(each).encode() for each in written[at : at + 10]])
                if at == 100:
                    kafka.kill()
                    kafka.start()
                else:
                    time.sleep(chance.random() / 10)
                    proxy.cut()
            wait_for(db, 200)
        check_sent(db, written)


def accounts(chance: random.Random, count: int) -> list[dict[str, object]]:
    revisions: defaultdict[str, int] = defaultdict(int)
    written = []
    for _ in range(count):
        account = f"a{chance.randrange(9)}"
        revisions[account] += 1
        written.append({"account": account, "n": revisions[account]})
    return written


def check_sent(db: Database, written: list[dict[str, object]]) -> None:
    """Check that what was written came once each, in order."""
    messages = db.queue("payments").peek(1000)
    calls = [
        SendCall(client="kafka", asked=at, answered=at, dedup_id=f"{a}/{n}", group=str(a), body="", number=at)
        for at, (a, n) in enumerate(each.values() for each in written)
    ]
    places = {each.dedup_id: each.number for each in calls}
    effects = []
    for at, each in enumerate(messages):
        id_ = f"{each.group}/{each.revision}"
        effects.append(
            AppliedEffect(client="q", asked=at, dedup_id=id_, group=str(each.group), number=places[id_], place=at)
        )
    check_or_raise([*calls, *effects])
    assert len(messages) == len(written)
    assert all(places[f"{a.group}/{a.revision}"] < places[f"{b.group}/{b.revision}"] for a, b in pairwise(messages))


def wait_for(db: Database, count: int) -> None:
    until = time.monotonic() + 120
    while db.queue("payments").depth().messages < count:
        assert time.monotonic() < until, f"{db.queue('payments').depth().messages} of {count} came"
        time.sleep(0.05)


class Proxy:
    """What stands between a host and the broker, and cuts all connections when asked."""

    def __init__(self, kafka: Kafka) -> None:
        self._to = ("127.0.0.1", kafka.ports["cut"])
        self._listener = socket.create_server(("127.0.0.1", kafka.ports["proxy"]))
        self._open: list[socket.socket] = []

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # close() alone would leave it open while accept() waits
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                try:
                    theirs = socket.create_connection(self._to)
                except OSError:
                    ours.close()
                    continue
                self._open += [ours, theirs]
                for one, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
