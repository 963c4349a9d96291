"""Outputs are records of a topic, with key and effect id."""

import json
import time
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused
from threads import together

pytestmark = pytest.mark.thorough


@pytest.fixture
def topic(kafka_servers: str) -> str:
    name = f"t{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def records(servers: str, topic: str, count: int) -> list[tuple[Any, Any, Any]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, until = [], time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(count, 1)
    consumer.close()
    return [(each.key(), each.headers(), json.loads(each.value())) for each in found]


def test_an_output_is_a_record_with_its_effect_id(kafka_servers: str, topic: str) -> None:
    post = deliver.kafka(kafka_servers, topic, key="to.account")
    post({"to": {"account": "a"}, "n": 1}, "e1")
    post({"to": {"account": 7}, "n": 2}, "e2")
    assert records(kafka_servers, topic, 2) == [
        (b"a", [("effect-id", b"e1")], {"to": {"account": "a"}, "n": 1}),
        (b"7", [("effect-id", b"e2")], {"to": {"account": 7}, "n": 2}),
    ]
    with pytest.raises(DeliveryRefused, match=r"has no 'to.account', which is its key"):
        post({"n": 3}, "e3")


def test_threads_share_a_producer_and_each_keeps_its_order(kafka_servers: str, topic: str) -> None:
    post = deliver.kafka(kafka_servers, topic)

    def send(group: int) -> None:
        for n in range(20):
            post({"group": group, "n": n}, f"{group}/{n}")

    together(*(partial(send, group) for group in range(4)))
    found = [output for _, _, output in records(kafka_servers, topic, 80)]
    for group in range(4):
        assert [each["n"] for each in found if each["group"] == group] == list(range(20))


def test_what_is_refused_and_what_may_pass(kafka_servers: str, topic: str) -> None:
    with pytest.raises(DeliveryRefused, match="MSG_SIZE_TOO_LARGE"):
        deliver.kafka(kafka_servers, topic)("x" * 10_000_000, "e")
    nowhere = deliver.kafka("127.0.0.1:9", topic, options={"message.timeout.ms": 500, "log_level": 0})
    with pytest.raises(DeliveryError, match="_MSG_TIMED_OUT") as error:
        nowhere({}, "e")
    assert not isinstance(error.value, DeliveryRefused)


def test_a_topic_that_does_not_exist_is_refused(kafka_servers: str) -> None:
    options = {"topic.metadata.propagation.max.ms": 500, "allow.auto.create.topics": False}
    with pytest.raises(DeliveryRefused, match="topic 'nowhere'"):
        deliver.kafka(kafka_servers, "nowhere", options=options)({}, "e")
