"""Outputs are messages of SQS, of moto and of this project's own endpoint."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError
from inturn.sqs.config import Config, ServerConfig
from sqs.served import Served

pytestmark = pytest.mark.thorough
OPTIONS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
}


@pytest.fixture(params=["moto", "inturn"])
def options(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[dict[str, Any]]:
    if request.param == "moto":
        yield OPTIONS | {"endpoint_url": request.getfixturevalue("endpoint")}
        return
    with Served(tmp_path / "queues.db", Config(server=ServerConfig(port=0))) as served:
        yield OPTIONS | {"endpoint_url": served.url}


def test_an_output_is_sent_to_sqs_once_with_its_effect_id(options: dict[str, Any]) -> None:
    client = boto3.client("sqs", **options)
    url = client.create_queue(QueueName="paid.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    post = deliver.sqs(url, group="account", **options)
    post({"account": "a", "n": 1}, "e1")
    post({"account": "a", "n": 2}, "e2")
    post({"account": "a", "n": 1}, "e1")
    asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "AttributeNames": ["All"]}
    messages = client.receive_message(QueueUrl=url, **asked)["Messages"]
    assert [json.loads(message["Body"]) for message in messages] == [{"account": "a", "n": 1}, {"account": "a", "n": 2}]
    assert [message["MessageAttributes"]["effect-id"]["StringValue"] for message in messages] == ["e1", "e2"]
    assert [message["Attributes"]["MessageGroupId"] for message in messages] == ["a", "a"]
    plain = client.create_queue(QueueName="plain")["QueueUrl"]
    deliver.sqs(plain, **options)([1], "e3")
    assert client.receive_message(QueueUrl=plain)["Messages"][0]["Body"] == "[1]"


def test_an_oversized_message_is_refused_and_an_unreachable_endpoint_is_retryable(options: dict[str, Any]) -> None:
    client = boto3.client("sqs", **options)
    url = client.create_queue(QueueName="small")["QueueUrl"]
    post = deliver.sqs(url, **options)
    with pytest.raises(DeliveryRefused):
        post("x" * 2_000_000, "e")
    client.delete_queue(QueueUrl=url)
    with pytest.raises(DeliveryRefused):
        post({}, "e")
    nobody = deliver.sqs("http://127.0.0.1:9/q", **(options | {"endpoint_url": "http://127.0.0.1:9"}))
    with pytest.raises(DeliveryError) as error:
        nobody({}, "e")
    assert not isinstance(error.value, DeliveryRefused)
    with pytest.raises(InputError, match="is a FIFO queue; set group="):
        deliver.sqs("http://x/q.fifo", **options)
