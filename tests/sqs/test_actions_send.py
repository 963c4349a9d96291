"""Sending, as boto3 sees it; it compares every MD5 digest by itself."""

import hashlib
import uuid
from itertools import product
from typing import Any

import boto3
import pytest
from botocore.config import Config
from endpoint import Endpoint, in_json

from inturn.queue import QueueSettings
from inturn.sqs.actions import validate
from inturn.sqs.errors import SqsError
from inturn.sqs.model import SendMessageBatchRequestEntry

NO_ID = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
MIB = 1_048_576
BATCH = "AWS.SimpleQueueService."


def send(sqs: Endpoint, url: str, body: str = "x", **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = sqs.client.send_message(QueueUrl=url, MessageBody=body, **more)
    return answer


def fifo(group: str = "g", dedup_id: str | None = None) -> dict[str, str]:
    return {"MessageGroupId": group} | ({} if dedup_id is None else {"MessageDeduplicationId": dedup_id})


def refused(sqs: Endpoint, url: str, **params: Any) -> tuple[str, str]:
    return sqs.refused(sqs.client.send_message, QueueUrl=url, **{"MessageBody": "x", **params})


def invalid(value: object, parameter: str, reason: str) -> tuple[str, str]:
    return "InvalidParameterValue", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"


# --- one message ---


@pytest.mark.parametrize("body", ["x", "<a>&amp;</a> \r\n\t", "äöü 漢字 🐟", "\ufffd\ud7ff\ue000", " " * 5])
def test_a_body_is_received_as_sent(sqs: Endpoint, body: str) -> None:
    url = sqs.queue("q")
    sent = send(sqs, url, body)
    (message,) = sqs.receive(url)
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()  # noqa: S324
    assert uuid.UUID(sent["MessageId"]).version == 4
    assert "SequenceNumber" not in sent


@in_json
def test_every_message_has_its_own_id(sqs: Endpoint) -> None:
    urls = [sqs.queue("a"), sqs.queue("b")]
    ids = [send(sqs, url)["MessageId"] for url in urls for _ in range(20)]
    assert len(set(ids)) == 40


def test_sequence_numbers_increase_and_have_20_digits(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    numbers = [send(sqs, url, **fifo("g", str(n)))["SequenceNumber"] for n in range(3)]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}
    received = [message["Attributes"]["SequenceNumber"] for message in sqs.receive(url)]
    assert received == numbers


@pytest.mark.parametrize("body", ["a\0b", "\x0b", "\x1f", "\ufffe", "ü\uffff"])
def test_characters_invalid_in_xml_are_refused(sqs: Endpoint, body: str) -> None:
    text = (
        "Invalid characters found. Valid unicode characters are "
        "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
    )
    assert refused(sqs, sqs.queue("q"), MessageBody=body) == ("InvalidMessageContents", text)


def test_an_empty_body_is_refused(sqs: Endpoint) -> None:
    refusal = refused(sqs, sqs.queue("q"), MessageBody="")
    assert refusal == ("MissingParameter", "The request must contain the parameter MessageBody.")


def test_a_message_over_1_mib_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    send(sqs, url, "ü" * (MIB // 2))
    assert refused(sqs, url, MessageBody="ü" * (MIB // 2) + "x") == ("InvalidParameterValue", text)
    attribute = {"name": {"DataType": "String", "StringValue": "value"}}  # 4 + 6 + 5 bytes
    send(sqs, url, "x" * (MIB - 15), MessageAttributes=attribute)
    refusal = refused(sqs, url, MessageBody="x" * (MIB - 14), MessageAttributes=attribute)
    assert refusal == ("InvalidParameterValue", text)


def test_a_message_over_the_queues_maximum_size_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q", MaximumMessageSize=1024)
    send(sqs, url, "x" * 1024)
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    assert refused(sqs, url, MessageBody="x" * 1025) == ("InvalidParameterValue", text)


def test_delay_comes_from_the_message_or_the_queue(sqs: Endpoint) -> None:
    url = sqs.queue("q", DelaySeconds=10)
    send(sqs, url, "as the queue says")
    send(sqs, url, "at once", DelaySeconds=0)
    send(sqs, url, "last", DelaySeconds=900)
    assert sqs.bodies(url) == ["at once"]
    sqs.clock.forward(10)
    assert "as the queue says" in sqs.bodies(url)
    sqs.clock.forward(890)
    assert "last" in sqs.bodies(url)


@pytest.mark.parametrize("delay_s", [-1, 901])
@in_json
def test_a_delay_out_of_range_is_refused(sqs: Endpoint, delay_s: int) -> None:
    refusal = refused(sqs, sqs.queue("q"), DelaySeconds=delay_s)
    assert refusal == invalid(delay_s, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")


# --- FIFO ---


@in_json
def test_a_fifo_message_requires_a_group_and_a_deduplication_id(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    refusal = refused(sqs, url, MessageDeduplicationId="1")
    assert refusal == ("MissingParameter", "The request must contain the parameter MessageGroupId.")
    assert refused(sqs, url, MessageGroupId="g") == ("InvalidParameterValue", NO_ID)


@pytest.mark.parametrize("value", ["a b", "ü", "x" * 129, "\n"])
@in_json
def test_invalid_group_and_deduplication_ids_are_refused(sqs: Endpoint, value: str) -> None:
    url = sqs.queue("q.fifo")
    for parameter in ("MessageGroupId", "MessageDeduplicationId"):
        refusal = refused(sqs, url, **{**fifo("g", "1"), parameter: value})
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        assert refusal == invalid(value, parameter, reason)
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    send(sqs, url, **fifo(punctuation, punctuation + "x" * 96))
    attributes = sqs.receive(url)[0]["Attributes"]
    assert attributes["MessageGroupId"] == punctuation
    assert attributes["MessageDeduplicationId"] == punctuation + "x" * 96


@in_json
def test_a_delay_of_a_single_fifo_message_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo", DelaySeconds=5)
    reason = "The request include parameter that is not valid for this queue type."
    assert refused(sqs, url, DelaySeconds=1, **fifo("g", "1")) == invalid(1, "DelaySeconds", reason)
    send(sqs, url, DelaySeconds=0, **fifo("g", "1"))
    assert sqs.bodies(url) == []
    sqs.clock.forward(5)
    assert sqs.bodies(url) == ["x"]


def test_sending_a_duplicate_returns_the_id_of_the_first_message(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    first = send(sqs, url, "x", **fifo("g", "1"))
    sqs.clock.forward(299)
    duplicate = send(sqs, url, "another", **fifo("h", "1"))
    assert duplicate["MessageId"] == first["MessageId"]
    assert duplicate["SequenceNumber"] == first["SequenceNumber"]
    assert duplicate["MD5OfMessageBody"] == hashlib.md5(b"another").hexdigest()  # noqa: S324
    (message,) = sqs.receive(url)
    sqs.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    sqs.restart()
    assert send(sqs, url, "x", **fifo("g", "1"))["MessageId"] == first["MessageId"]
    sqs.clock.forward(1)
    assert send(sqs, url, "x", **fifo("g", "1"))["MessageId"] != first["MessageId"]


def test_content_based_deduplication_applies_without_a_deduplication_id(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo", ContentBasedDeduplication="true")
    first = send(sqs, url, "x", **fifo())
    attribute = {"a": {"DataType": "String", "StringValue": "another"}}
    assert send(sqs, url, "x", MessageAttributes=attribute, **fifo())["MessageId"] == first["MessageId"]
    digest = hashlib.sha256(b"x").hexdigest()
    assert send(sqs, url, "y", **fifo("g", digest))["MessageId"] == first["MessageId"]
    assert send(sqs, url, "x", **fifo("g", "own"))["MessageId"] != first["MessageId"]
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in sqs.receive(url)]
    assert ids == [digest, "own"]


def test_deduplication_scope_message_group_compares_within_the_group(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    ids = [send(sqs, url, **fifo(group, "1"))["MessageId"] for group in ("a", "b", "a")]
    assert ids[0] == ids[2] != ids[1]


def test_changing_the_deduplication_scope_does_not_affect_deduplication(sqs: Endpoint) -> None:
    groups = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    queue_wide = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    url, other = sqs.queue("q.fifo"), sqs.queue("other.fifo", **groups)
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes=groups)
    sqs.client.set_queue_attributes(QueueUrl=other, Attributes=queue_wide)
    assert sqs.attributes(url).items() >= groups.items()
    assert sqs.attributes(other).items() >= queue_wide.items()
    assert len({send(sqs, url, **fifo(group, "1"))["MessageId"] for group in "ab"}) == 1
    assert len({send(sqs, other, **fifo(group, "1"))["MessageId"] for group in "ab"}) == 2


# --- standard queues ---


def test_a_group_in_a_standard_queue_is_stored_but_does_not_block(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    for body in ("1", "2"):
        send(sqs, url, body, MessageGroupId="tenant")
    assert sqs.bodies(url, 1) == ["1"]
    (message,) = sqs.receive(url)
    assert message["Body"] == "2"
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    assert message.get("MessageAttributes") is None
    reason = "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length."
    assert refused(sqs, url, MessageGroupId="a b") == invalid("a b", "MessageGroupId", reason)


def test_a_standard_queue_does_not_deduplicate(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    assert send(sqs, url)["MessageId"] != send(sqs, url)["MessageId"]
    reason = "The request includes a parameter that is not valid for this queue type."
    assert refused(sqs, url, MessageDeduplicationId="1") == invalid("1", "MessageDeduplicationId", reason)


# --- attributes ---

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": 'ä "<x>"'},
    "number": {"DataType": "Number", "StringValue": "1.50"},
    "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    "Own_type-1.a": {"DataType": "Number.byte", "StringValue": "7"},
    "größe": {"DataType": "String", "StringValue": "x"},
}


def test_message_attributes_are_received_as_sent(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    sent = send(sqs, url, MessageAttributes=ATTRIBUTES)
    (message,) = sqs.receive(url, MessageAttributeNames=["All"], VisibilityTimeout=0)
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    (message,) = sqs.receive(url)
    assert "MessageAttributes" not in message
    assert "MD5OfMessageAttributes" not in message


@pytest.mark.parametrize(
    ("requested", "returned"),
    [
        ([".*"], set(ATTRIBUTES)),
        (["*"], set(ATTRIBUTES)),
        (["number", "none"], {"number"}),
        (["Own_type-1.*", "bytes"], {"Own_type-1.a", "bytes"}),
        (["t.*"], {"text"}),
        (["none"], set()),
    ],
)
def test_receive_returns_only_the_requested_message_attributes(
    sqs: Endpoint, requested: list[str], returned: set[str]
) -> None:
    url = sqs.queue("q")
    send(sqs, url, MessageAttributes=ATTRIBUTES)
    (message,) = sqs.receive(url, MessageAttributeNames=requested)
    assert set(message.get("MessageAttributes", {})) == returned
    assert ("MD5OfMessageAttributes" in message) == bool(returned)


RESERVED = (
    "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
    "internal use. Additionally, they cannot start or end with '.'."
)


@pytest.mark.parametrize("name", ["AWS.x", "aws.x", "Amazon.x", ".x", "x."])
@in_json
def test_reserved_message_attribute_names_are_refused(sqs: Endpoint, name: str) -> None:
    refusal = refused(sqs, sqs.queue("q"), MessageAttributes={name: {"DataType": "String", "StringValue": "x"}})
    assert refusal == ("InvalidParameterValue", RESERVED)


STRING = {"DataType": "String", "StringValue": "x"}
NAME = (
    "The message attribute name 'a b' is invalid. Attribute name can contain "
    "A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters."
)
TYPE = (
    "The message attribute 'a' has an invalid message attribute type, "
    "the set of supported type prefixes is Binary, Number, and String."
)
EMPTY = "Message (user) attribute 'a' must contain a non-empty value of type"
CONTENTS = (
    "Invalid characters found. Valid unicode characters are "
    "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"a b": STRING}, NAME),
        ({"a..b": STRING}, ("The message attribute name 'a..b' is invalid. "
         "Attribute name can't contain successive periods.")),
        ({"a" * 257: STRING}, "Message (user) attribute names must be shorter than 256 Bytes"),
        ({"a": {"StringValue": "x"}}, "The message attribute 'a' must contain non-empty message attribute type."),
        ({"a": {"DataType": "Text", "StringValue": "x"}}, TYPE),
        ({"a": {"DataType": "String." + "x" * 250, "StringValue": "x"}},
         "Message (user) attribute types must be shorter than 256 Bytes"),
        ({"a": {"DataType": "String", "StringValue": ""}}, f"{EMPTY} 'String'."),
        ({"a": {"DataType": "Number", "BinaryValue": b"1"}}, f"{EMPTY} 'Number'."),
        ({"a": {"DataType": "Binary", "StringValue": "x"}}, f"{EMPTY} 'Binary'."),
        ({"a": {"DataType": "Number", "StringValue": "x"}},
         "Can't cast the value of message (user) attribute 'a' to a number."),
        ({"a": {"DataType": "String", "StringValue": "\0"}}, CONTENTS),
        ({str(n): STRING for n in range(11)}, "Number of message attributes [11] exceeds the allowed maximum [10]."),
    ],
)  # fmt: skip
@in_json
def test_invalid_message_attributes_are_refused(sqs: Endpoint, attributes: dict[str, Any], text: str) -> None:
    assert refused(sqs, sqs.queue("q"), MessageAttributes=attributes) == ("InvalidParameterValue", text)


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize("parameter", ["MessageGroupId", "MessageDeduplicationId"])
def test_empty_group_and_deduplication_ids_are_refused(sqs: Endpoint, name: str, parameter: str) -> None:
    reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
    assert refused(sqs, sqs.queue(name), **{**fifo("g"), parameter: ""}) == invalid("", parameter, reason)


@in_json
def test_message_attribute_list_values_are_refused(sqs: Endpoint) -> None:
    attributes = {"a": {**STRING, "StringListValues": ["x"]}}
    refusal = refused(sqs, sqs.queue("q"), MessageAttributes=attributes)
    text = "Message attribute list values in SendMessage operation are not supported."
    assert refusal == ("AWS.SimpleQueueService.UnsupportedOperation", text)


def test_the_trace_header_of_the_message_is_received(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    sent = send(sqs, url, MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}})
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32
    (message,) = sqs.receive(url, MessageAttributeNames=["All"])
    assert message["Attributes"]["AWSTraceHeader"] == trace
    assert "MessageAttributes" not in message


def test_the_trace_header_of_the_request_is_stored_unless_the_message_has_one(sqs: Endpoint) -> None:
    def add(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = "Root=1"

    url = sqs.queue("q")
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=2"}}
    sqs.client.meta.events.register("before-send.sqs", add)
    try:
        sent = send(sqs, url)
        send(sqs, url, MessageSystemAttributes=own)
        batch(sqs, url, entry("a"), entry("b", MessageSystemAttributes=own))
    finally:
        sqs.client.meta.events.unregister("before-send.sqs", add)
    send(sqs, url)
    assert "MD5OfMessageSystemAttributes" not in sent
    traces = [message["Attributes"].get("AWSTraceHeader") for message in sqs.receive(url)]
    assert traces == ["Root=1", "Root=2", "Root=1", "Root=2", None]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"Other": STRING}, "Message system attribute name 'Other' is invalid."),
        (
            {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}},
            "The message system attribute 'AWSTraceHeader' must contain non-empty value of type 'String'.",
        ),
    ],
)
@in_json
def test_invalid_system_attributes_are_refused(sqs: Endpoint, attributes: dict[str, Any], text: str) -> None:
    assert refused(sqs, sqs.queue("q"), MessageSystemAttributes=attributes) == ("InvalidParameterValue", text)


# --- batches ---


def batch(sqs: Endpoint, url: str, *entries: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = sqs.client.send_message_batch(QueueUrl=url, Entries=list(entries))
    return answer


def entry(name: str, body: str = "x", **more: Any) -> dict[str, Any]:
    return {"Id": name, "MessageBody": body, **more}


def test_send_message_batch_sends_every_entry(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    entries = [entry(str(n), f"b{n}", MessageAttributes=ATTRIBUTES, **fifo("g", str(n % 9))) for n in range(10)]
    answer = batch(sqs, url, *entries)
    assert "Failed" not in answer
    results = answer["Successful"]
    assert [result["Id"] for result in results] == [str(n) for n in range(10)]
    assert results[9]["MessageId"] == results[0]["MessageId"]
    assert results[9]["SequenceNumber"] == results[0]["SequenceNumber"]
    messages = sqs.receive(url, MessageAttributeNames=["All"])
    assert [message["Body"] for message in messages] == [f"b{n}" for n in range(9)]
    assert [message["MD5OfMessageAttributes"] for message in messages] == [
        result["MD5OfMessageAttributes"] for result in results[:9]
    ]


def test_an_invalid_batch_entry_fails_alone(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    answer = batch(sqs, url, entry("a"), entry("b", DelaySeconds=901), entry("c", "\0"), entry("d"))
    assert [result["Id"] for result in answer["Successful"]] == ["a", "d"]
    assert [(failure["Id"], failure["Code"], failure["SenderFault"]) for failure in answer["Failed"]] == [
        ("b", "InvalidParameterValue", True),
        ("c", "InvalidMessageContents", True),
    ]
    reason = "DelaySeconds must be >= 0 and <= 900."
    assert answer["Failed"][0]["Message"] == invalid(901, "DelaySeconds", reason)[1]
    assert len(sqs.receive(url)) == 2


def test_a_batch_of_invalid_entries_reports_only_failures(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    answer = batch(sqs, url, entry("a", DelaySeconds=901))
    assert [failure["Id"] for failure in answer["Failed"]] == ["a"]
    assert answer.get("Successful", []) == []


@pytest.mark.parametrize(
    ("entries", "code", "text"),
    [
        ([], f"{BATCH}EmptyBatchRequest", "There should be at least one SendMessageBatchRequestEntry in the request."),
        (
            [entry(str(n)) for n in range(11)],
            f"{BATCH}TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        ([entry("a"), entry("b"), entry("a")], f"{BATCH}BatchEntryIdsNotDistinct", "Id a repeated."),
        *(
            (
                [entry(name)],
                f"{BATCH}InvalidBatchEntryId",
                (
                    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                    "It can be at most 80 letters long."
                ),
            )
            for name in ("", "a b", "ü", "x" * 81)
        ),
        (
            [entry("a", "x" * MIB), entry("b", "x")],
            f"{BATCH}BatchRequestTooLong",
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
        ),
    ],
)
@in_json
def test_invalid_batches_are_refused_as_a_whole(
    sqs: Endpoint, entries: list[dict[str, Any]], code: str, text: str
) -> None:
    url = sqs.queue("q")
    assert sqs.refused(sqs.client.send_message_batch, QueueUrl=url, Entries=entries) == (code, text)
    assert sqs.receive(url) == []


def test_a_batch_of_1_mib_is_accepted(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    assert len(batch(sqs, url, entry("a", "x" * (MIB - 1)), entry("b", "x"))["Successful"]) == 2


@in_json
def test_a_fifo_batch_without_a_group_or_deduplication_id_is_refused_as_a_whole(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    refusal = sqs.refused(
        sqs.client.send_message_batch,
        QueueUrl=url,
        Entries=[entry("a", **fifo("g", "1")), entry("b", MessageDeduplicationId="2")],
    )
    assert refusal == ("InvalidParameterValue", "The request must contain the parameter MessageGroupId.")
    refusal = sqs.refused(
        sqs.client.send_message_batch,
        QueueUrl=url,
        Entries=[entry("a", **fifo("g", "1")), entry("b", MessageGroupId="g")],
    )
    assert refusal == ("InvalidParameterValue", NO_ID)
    assert sqs.receive(url) == []


# --- what was sent by inturn's own API ---


def test_messages_sent_with_the_python_api_are_received_over_sqs(sqs: Endpoint) -> None:
    queue = sqs.db.queue("own", QueueSettings())
    queue.send({"a": [1, "ü"]}, group="g", attributes={"s": "x", "n": 5, "f": 0.5, "b": True, "l": [1], "AWS.x": "y"})
    queue.send(b"\0\xff")
    queue.send("text", dedup_id="1")
    first, second, third = sqs.receive(sqs.url("own"), MessageAttributeNames=["All"])
    assert first["Body"] == '{"a":[1,"ü"]}'
    assert first["Attributes"]["MessageGroupId"] == "g"
    assert first["MessageAttributes"] == {
        "s": {"DataType": "String", "StringValue": "x"},
        "n": {"DataType": "Number", "StringValue": "5"},
        "f": {"DataType": "Number", "StringValue": "0.5"},
        "b": {"DataType": "String", "StringValue": "true"},
        "l": {"DataType": "String", "StringValue": "[1]"},
    }
    assert second["Body"] == "AP8="
    assert third["Body"] == "text"
    assert third["Attributes"]["MessageDeduplicationId"] == "1"


def test_messages_sent_over_sqs_are_received_with_the_python_api(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, '{"a":1}', MessageAttributes=ATTRIBUTES, **fifo("g", "1"))
    (message,) = sqs.db.queue("q.fifo").receive()
    assert message.body == '{"a":1}'
    assert message.group == "g"
    assert message.dedup_id == "1"
    assert message.attributes["text"] == 'ä "<x>"'
    assert message.attributes["bytes"] == {"DataType": "Binary", "BinaryValue": "AP8="}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_batch_is_accepted_exactly_if_its_ids_are_valid_and_distinct(size: int) -> None:
    candidates = ["a", "b", " ", "a b", "", "a ", "é", "a\n", "x" * 80, "x" * 81, "-_9"]
    right = {"a", "b", "x" * 80, "-_9"}
    for ids in product(candidates, repeat=size):
        entries = [SendMessageBatchRequestEntry(entry_id, "body") for entry_id in ids]
        if right.issuperset(ids) and len(set(ids)) == size:
            validate.check_batch(entries, "SendMessageBatchRequestEntry")
        else:
            with pytest.raises(SqsError, match=r"Id|id"):
                validate.check_batch(entries, "SendMessageBatchRequestEntry")


def test_a_full_queue_throttles_and_the_sdk_retries(sqs: Endpoint) -> None:
    url = sqs.queue("q", MaximumQueueDepth="2")
    assert sqs.attributes(url)["MaximumQueueDepth"] == "2"
    entries = [{"Id": str(number), "MessageBody": f"b{number}"} for number in range(3)]
    assert sqs.client.send_message_batch(QueueUrl=url, Entries=entries[:2])["Successful"]
    assert sqs.refused(sqs.client.send_message, QueueUrl=url, MessageBody="b") == (
        "RequestThrottled",
        "Request is throttled.",
    )
    assert sqs.status(sqs.client.send_message_batch, QueueUrl=url, Entries=entries[:1]) == 403
    code, text = sqs.refused(sqs.client.send_message_batch, QueueUrl=url, Entries=entries)
    assert (code, "3 messages at once do not fit" in text) == ("InvalidParameterValue", True)
    tries: list[object] = []

    def make_room(**_more: object) -> None:
        tries.append(None)
        if len(tries) == 2:
            sqs.db.queue("q").receive()[0].ack()

    options = Config(retries={"mode": "standard", "max_attempts": 3})
    client = boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=sqs.shared_server.naming.base_url,
        aws_access_key_id="x",
        aws_secret_access_key="x",  # noqa: S106 - nobody looks at it
        config=options,
    )
    client.meta.events.register("before-send.sqs.SendMessage", make_room)
    client.send_message(QueueUrl=url, MessageBody="b")
    assert len(tries) == 2
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"MaximumQueueDepth": "0"})
    sqs.client.send_message(QueueUrl=url, MessageBody="b")
    assert "MaximumQueueDepth" not in sqs.attributes(url)


def test_queue_attributes_set_the_retention_of_acknowledged_messages(sqs: Endpoint) -> None:
    url = sqs.queue("q", KeepAcknowledgedSeconds="3600", KeepAcknowledgedBytes="1000000")
    assert sqs.attributes(url)["KeepAcknowledgedSeconds"] == "3600"
    assert sqs.attributes(url)["KeepAcknowledgedBytes"] == "1000000"
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"KeepAcknowledgedBytes": "0"})
    assert "KeepAcknowledgedBytes" not in sqs.attributes(url)
    code, _ = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"KeepAcknowledgedSeconds": "x"})
    assert code == "InvalidAttributeValue"
