"""JSON as clients send it, and what is told of what cannot be read."""

import json

import pytest
from boto_halves import plain

from inturn.serving.http.http1 import Request
from inturn.sqs import errors, wire
from inturn.sqs.errors import SqsError
from inturn.sqs.model import Empty, SendMessage
from inturn.sqs.wire import ApiCall, Protocol

DEEP = 100_000


def request(action: str, body: bytes | str) -> Request:
    text = body if isinstance(body, bytes) else body.encode()
    return Request("POST", b"/", {b"x-amz-target": f"AmazonSQS.{action}".encode()}, text, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("action", "body", "params"),
    [
        ("ListQueues", "", {}),
        ("ListQueues", "{}", {}),
        ("ListQueues", '{"MaxResults": null, "Other": [1, null]}', {}),
        ("ListQueues", '{"MaxResults": 3, "QueueNamePrefix": ""}', {"MaxResults": 3, "QueueNamePrefix": ""}),
        ("CreateQueue", '{"QueueName":"q","Attributes":null,"tags":{"a":"1"}}', {"QueueName": "q", "tags": {"a": "1"}}),
        ("ReceiveMessage", '{"QueueUrl":"q","AttributeNames":null}', {"QueueUrl": "q"}),
        (
            "SendMessage",
            (
                '{"QueueUrl":"q","MessageBody":"","MessageAttributes":{"a":{"DataType":"Binary","StringValue":null,'
                '"BinaryValue":"AAE="},"b":null}}'
            ),
            {
                "QueueUrl": "q",
                "MessageBody": "",
                "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": b"\0\1"}},
            },
        ),
        ("SendMessageBatch", '{"QueueUrl":"q","Entries":null}', {"QueueUrl": "q"}),
        (
            "SendMessageBatch",
            '{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"b","MessageAttributes":{"n":{"StringListValues":null}}}]}',
            {"QueueUrl": "q", "Entries": [{"Id": "a", "MessageBody": "b"}]},
        ),
    ],
)
def test_a_json_null_counts_as_a_missing_field(action: str, body: str, params: object) -> None:
    assert plain(wire.parse(request(action, body)).params) == params


@pytest.mark.parametrize(
    ("action", "body", "code", "says"),
    [
        ("DropQueue", "{}", "UnknownOperationException", "The action DropQueue is not valid for this endpoint."),
        ("", "{}", "UnknownOperationException", "The action  is not valid for this endpoint."),
        (5000 * "x", "{}", "UnknownOperationException", "xxx is not valid"),
        ("PurgeQueue", "{}", "MissingRequiredParameterException", "The request must contain the parameter QueueUrl."),
        ("PurgeQueue", '{"QueueUrl":null}', "MissingRequiredParameterException", "parameter QueueUrl."),
        (
            "SendMessageBatch",
            '{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"b"},{"Id":"a","MessageBody":null}]}',
            "MissingRequiredParameterException",
            "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody.",
        ),
        ("PurgeQueue", '{"QueueUrl":1}', "SerializationException", "Expected `str`, got `int` - at `$.QueueUrl`"),
        ("ListQueues", '{"MaxResults":"1"}', "SerializationException", "$.MaxResults"),
        ("ListQueues", '{"MaxResults":1.5}', "SerializationException", "$.MaxResults"),
        ("ListQueues", '{"MaxResults":true}', "SerializationException", "$.MaxResults"),
        ("ListQueues", '{"MaxResults":' + 5000 * "9" + "}", "SerializationException", "out of range"),
        ("GetQueueAttributes", '{"QueueUrl":"q","AttributeNames":[null]}', "SerializationException", "AttributeNames"),
        ("GetQueueAttributes", '{"QueueUrl":"q","AttributeNames":"All"}', "SerializationException", "AttributeNames"),
        (
            "SendMessage",
            '{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"BinaryValue":"%"}}}',
            "SerializationException",
            "base64",
        ),
        ("ListQueues", "[]", "SerializationException", "Expected `object`, got `array`"),
        ("ListQueues", "null", "SerializationException", "Expected `object`, got `null`"),
        ("ListQueues", "{", "SerializationException", "not valid JSON"),
        ("ListQueues", "{}{}", "SerializationException", "not valid JSON"),
        ("ListQueues", "Action=ListQueues", "SerializationException", "not valid JSON"),
        ("ListQueues", b'{"QueueNamePrefix":"\xff"}', "SerializationException", "utf-8"),
        ("ListQueues", '{"QueueNamePrefix":"\\ud800"}', "SerializationException", "not valid JSON"),
        ("ListQueues", DEEP * "[", "SerializationException", "not valid JSON"),
        ("ListQueues", '{"Other":' + DEEP * "[" + DEEP * "]" + "}", "SerializationException", "not valid JSON"),
        ("CreateQueue", '{"tags":' + DEEP * '{"a":', "SerializationException", "not valid JSON"),
    ],
)
def test_malformed_json_is_refused_with_the_reason(action: str, body: bytes | str, code: str, says: str) -> None:
    with pytest.raises(SqsError) as refused:
        wire.parse(request(action, body))
    assert refused.value.code == code
    assert says in refused.value.message
    assert len(refused.value.message) < 400


def test_a_json_request_without_a_target_is_refused_with_a_hint() -> None:
    with pytest.raises(SqsError, match=r"X-Amz-Target: AmazonSQS\.SendMessage") as refused:
        wire.parse(Request("POST", b"/", {b"content-type": b"application/x-amz-json-1.0"}, b"{}", ""))
    assert refused.value.code == "MissingActionException"


def test_a_target_of_another_service_is_refused() -> None:
    with pytest.raises(SqsError, match="DynamoDB"):
        wire.parse(Request("POST", b"/", {b"x-amz-target": b"DynamoDB_20120810.SendMessage"}, b"{}", ""))


def test_a_response_without_fields_is_an_empty_json_object() -> None:
    call = ApiCall(Protocol.JSON, "PurgeQueue", SendMessage("q", "b"))
    response = wire.answered(call, Empty(), "r")
    assert (response.status, response.body, response.content_type) == (200, b"{}", "application/x-amz-json-1.0")
    assert response.headers == ((b"x-amzn-RequestId", b"r"),)


@pytest.mark.parametrize(
    ("error", "kind", "query_error"),
    [
        (
            errors.queue_does_not_exist(),
            "com.amazonaws.sqs#QueueDoesNotExist",
            b"AWS.SimpleQueueService.NonExistentQueue;Sender",
        ),
        (
            errors.missing_parameter("MessageBody"),
            "com.amazon.coral.service#MissingRequiredParameterException",
            b"MissingParameter;Sender",
        ),
        (errors.internal_failure(), "com.amazon.coral.service#InternalFailure", b"InternalFailure;Receiver"),
    ],
)
def test_a_json_error_carries_its_type_and_query_code(error: SqsError, kind: str, query_error: bytes) -> None:
    response = wire.refused(Protocol.JSON, error, "r")
    assert response.status == error.status
    assert json.loads(response.body) == {"__type": kind, "message": error.message}
    assert dict(response.headers) == {b"x-amzn-RequestId": b"r", b"x-amzn-query-error": query_error}
