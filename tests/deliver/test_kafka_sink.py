"""Outputs are records of a topic, with key and effect id."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import inturn
import kafka_started
from deliver.programs.kafka_worker import LEDGER
from inturn import deliver
from inturn.core import limits
from inturn.core.errors import DeliveryError, DeliveryRefused
from inturn.database import Database
from inturn.queue import draft
from kafka_started import Kafka
from threads import together

pytestmark = pytest.mark.thorough
PROGRAM = Path(__file__).parent / "programs" / "kafka_worker.py"
GROUPS, OUTPUTS = "abc", 300


@pytest.fixture
def topic(kafka_servers: str) -> str:
    name = f"t{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def records(servers: str, topic: str, count: int | None = None) -> list[tuple[Any, Any, Any]]:
    """Return the first records of a topic; without a count those up to one of the account "end"."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages, until = [], time.monotonic() + 60
    while len(messages) < (count or len(messages) + 1) and time.monotonic() < until:
        messages += consumer.consume(count or 1_000, 1)
        if count is None and messages and json.loads(messages[-1].value()) == {"account": "end"}:
            break
    consumer.close()
    return [(message.key(), message.headers(), json.loads(message.value())) for message in messages]


def test_an_output_is_a_kafka_record_with_its_effect_id(kafka_servers: str, topic: str) -> None:
    post = deliver.kafka(kafka_servers, topic, key="to.account")
    post({"to": {"account": "a"}, "n": 1}, "e1")
    post({"to": {"account": 7}, "n": 2}, "e2")
    assert records(kafka_servers, topic, 2) == [
        (b"a", [("effect-id", b"e1")], {"to": {"account": "a"}, "n": 1}),
        (b"7", [("effect-id", b"e2")], {"to": {"account": 7}, "n": 2}),
    ]
    with pytest.raises(DeliveryRefused, match=r"has no field 'to.account', which is the key"):
        post({"n": 3}, "e3")


def test_threads_share_a_producer_and_keep_their_order(kafka_servers: str, topic: str) -> None:
    post = deliver.kafka(kafka_servers, topic)

    def send(group: int) -> None:
        for n in range(20):
            post({"group": group, "n": n}, f"{group}/{n}")

    together(*(partial(send, group) for group in range(4)))
    outputs = [output for _, _, output in records(kafka_servers, topic, 80)]
    for group in range(4):
        assert [output["n"] for output in outputs if output["group"] == group] == list(range(20))


def test_an_oversized_record_is_refused_and_a_timeout_is_retryable(kafka_servers: str, topic: str) -> None:
    with pytest.raises(DeliveryRefused, match="MSG_SIZE_TOO_LARGE"):
        deliver.kafka(kafka_servers, topic)("x" * 10_000_000, "e")
    nowhere = deliver.kafka("127.0.0.1:9", topic, options={"message.timeout.ms": 500, "log_level": 0})
    with pytest.raises(DeliveryError, match="_MSG_TIMED_OUT") as error:
        nowhere({}, "e")
    assert not isinstance(error.value, DeliveryRefused)


def test_a_missing_topic_is_refused(kafka_servers: str) -> None:
    options = {"topic.metadata.propagation.max.ms": 500, "allow.auto.create.topics": False}
    with pytest.raises(DeliveryRefused, match="topic 'nowhere'"):
        deliver.kafka(kafka_servers, "nowhere", options=options)({}, "e")


def first_unrecorded(db: Database) -> dict[str, int]:
    """Return the number of the first output of each group that is not recorded as delivered."""
    first = dict.fromkeys(GROUPS, OUTPUTS + 1)
    for output in db.pipeline("ledger").outputs():
        first[output.group] = min(first[output.group], output.output["n"])
    return first


@pytest.mark.slow
@pytest.mark.soak
def test_a_killed_worker_repeats_at_most_the_unrecorded_outputs_of_its_claim(
    kafka: Kafka, tmp_path: Path, soak_seed: int
) -> None:
    """A process is killed in the middle of claims: what it delivered of them is not recorded, and comes again."""
    chance, path = random.Random(soak_seed), tmp_path / "shop.db"
    topic = kafka_started.topic(kafka.servers, f"t{time.time_ns()}", 1)
    with inturn.open(path, durable=False) as db:
        for account in GROUPS:
            bodies = [{"account": account, "revision": n} for n in range(1, OUTPUTS + 1)]
            db.queue("payments").send_many([draft(body, group=account) for body in bodies])
        inturn.work(LEDGER, db.queue("payments"), until="empty")  # the outputs wait for one that delivers
    command = [sys.executable, str(PROGRAM), str(path), kafka.servers, topic]
    starts = [dict.fromkeys(GROUPS, 1)]
    for _ in range(4):
        point = f"{chance.choice(('delivering', 'delivered'))}@{chance.randint(50, 250)}"
        life = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": point}, check=False, timeout=120)
        assert life.returncode == -signal.SIGKILL
        with inturn.open(path) as db:
            starts.append(first_unrecorded(db))
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
    with inturn.open(path) as db:
        assert set(first_unrecorded(db).values()) == {OUTPUTS + 1}
    deliver.kafka(kafka.servers, topic)({"account": "end"}, "end")
    outputs = [output for _, _, output in records(kafka.servers, topic)]
    repeats = []
    for group in GROUPS:
        lives, last = iter(start[group] for start in starts), 0
        for n in (output["n"] for output in outputs if output["account"] == group):
            if n != last + 1:  # another life: it begins at the first output that the one before did not record
                assert n <= last
                assert n in lives
                repeats.append(last - n + 1)
            last = n
        assert last == OUTPUTS
    assert 1 < max(repeats) <= limits.OUTBOX_OUTPUTS
