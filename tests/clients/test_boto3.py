"""boto3 against the endpoint: its clients and its resources, in the protocol of today and in the Query protocol."""

import hashlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from boto3.resources.base import ServiceResource
from boto_halves import service
from botocore.config import Config
from botocore.exceptions import ClientError
from served_endpoint import ACCOUNT, ARN, DEADLINE_S, READER, REGION, Key, Serving, unique

NO_RETRIES = Config(retries={"total_max_attempts": 1}, read_timeout=DEADLINE_S)


def client(serving: Serving, key: Key | None = None, url: str | None = None, session: Any = boto3) -> Any:
    key = key or serving.key
    return session.client(
        "sqs",
        endpoint_url=url or serving.url,
        region_name=REGION,
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        config=NO_RETRIES,
    )


@pytest.fixture(scope="module")
def sqs(serving: Serving) -> Any:
    return client(serving)


@pytest.fixture(scope="module")
def resource(serving: Serving) -> ServiceResource:
    return boto3.resource(
        "sqs",
        endpoint_url=serving.url,
        region_name=REGION,
        aws_access_key_id=serving.key.id,
        aws_secret_access_key=serving.key.secret,
        config=NO_RETRIES,
    )


@pytest.fixture(scope="module")
def query(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """boto3 as it was: with a description of the API that knows only the Query protocol."""
    described = tmp_path_factory.mktemp("api") / "sqs/2012-11-05"
    described.mkdir(parents=True)
    description = dict(service("query")._service_description)
    description["metadata"] = {**description["metadata"], "protocol": "query", "protocols": ["query"]}
    (described / "service-2.json").write_text(json.dumps(description))
    session = botocore.session.get_session()
    session.get_component("data_loader").search_paths.insert(0, str(described.parent.parent))
    return client(serving, session=boto3.Session(botocore_session=session))


@pytest.fixture(params=["json", "query"])
def either(request: pytest.FixtureRequest, sqs: Any, query: Any) -> Any:
    """A client of each protocol."""
    return sqs if request.param == "json" else query


def made(sqs: Any, name: str = "orders", **attributes: str) -> str:
    if name.endswith(".fifo"):
        attributes["FifoQueue"] = "true"
    url: str = sqs.create_queue(QueueName=unique(name), Attributes=attributes)["QueueUrl"]
    return url


def received(sqs: Any, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, MessageSystemAttributeNames=["All"], **more)
    return list(answer.get("Messages", []))


def bodies(sqs: Any, url: str) -> list[str]:
    return [message["Body"] for message in received(sqs, url)]


def arn_of(url: str) -> str:
    return ARN + url.rpartition("/")[2]


# --- one message ---

KINDS = {
    "text": {"DataType": "String", "StringValue": "grüß <&> \U0001f600"},
    "number": {"DataType": "Number", "StringValue": "-12.50"},
    "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    "own": {"DataType": "String.currency", "StringValue": "EUR"},
}
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"


def test_send_receive_and_delete_a_message(either: Any) -> None:
    url = made(either)
    body = 'a body with "quotes", <tags> & lines\nand more: äöü \U0001f680'
    sent = either.send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageAttributes=KINDS,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}},
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
    (message,) = received(either, url, MessageAttributeNames=["All"])
    assert (message["Body"], message["MessageId"]) == (body, sent["MessageId"])
    assert message["MessageAttributes"] == KINDS
    for part in ("MD5OfMessageBody", "MD5OfMessageAttributes"):
        assert message[part if part.endswith("Attributes") else "MD5OfBody"] == sent[part]
    attributes = message["Attributes"]
    assert (attributes["AWSTraceHeader"], attributes["ApproximateReceiveCount"]) == (TRACE, "1")
    assert int(attributes["ApproximateFirstReceiveTimestamp"]) >= int(attributes["SentTimestamp"])
    either.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = either.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]
    assert attributes == dict.fromkeys(counts, "0")


def test_receive_returns_only_the_requested_attributes(sqs: Any) -> None:
    url = made(sqs, VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=KINDS)

    def names(*requested: str) -> set[str]:
        (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=list(requested))["Messages"]
        return set(message.get("MessageAttributes", {}))

    assert names() == set()
    assert names("number", "nothing") == {"number"}
    assert names("t.*", "own") == {"text", "own"}
    assert names(".*") == set(KINDS)


def test_change_message_visibility_releases_messages(either: Any) -> None:
    url = made(either)
    for body in "ab":
        either.send_message(QueueUrl=url, MessageBody=body)
    first, second = received(either, url)
    assert bodies(either, url) == []
    either.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(either, url) == [first["Body"]]
    entries = [
        {"Id": "good", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "bad", "ReceiptHandle": "nonsense", "VisibilityTimeout": 0},
    ]
    answer = either.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    assert [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid", True)
    ]
    assert bodies(either, url) == [second["Body"]]


def test_a_long_poll_receives_a_message_sent_meanwhile(sqs: Any, serving: Serving) -> None:
    url = made(sqs, "waited.fifo")
    before = serving.requests()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(received, client(serving), url, WaitTimeSeconds=20)
        serving.wait_for_a_request(before)
        sqs.send_message(QueueUrl=url, MessageBody="at last", MessageGroupId="g", MessageDeduplicationId="1")
        assert [message["Body"] for message in answer.result(DEADLINE_S)] == ["at last"]


# --- batches ---


def test_partly_failing_batches_report_both_parts(either: Any) -> None:
    url = made(either)
    entries = [
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "good", "MessageBody": "y", "MessageAttributes": KINDS},
    ]
    sent = either.send_message_batch(QueueUrl=url, Entries=entries)
    (failed,) = sent["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("late", "InvalidParameterValue", True)
    (entry,) = sent["Successful"]
    (message,) = received(either, url, MessageAttributeNames=["All"])
    assert (message["Body"], message["MessageAttributes"]) == ("y", KINDS)
    assert message["MD5OfMessageAttributes"] == entry["MD5OfMessageAttributes"]
    handles = {"there": message["ReceiptHandle"], "not": "nonsense"}
    entries = [{"Id": entry_id, "ReceiptHandle": handle} for entry_id, handle in handles.items()]
    deleted = either.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in deleted["Successful"]] == ["there"]
    assert [(entry["Id"], entry["Code"]) for entry in deleted["Failed"]] == [("not", "ReceiptHandleIsInvalid")]


# --- order and deduplication ---


def test_a_duplicate_gets_the_answer_of_the_first_message(either: Any) -> None:
    url = made(either, "orders.fifo", ContentBasedDeduplication="true")

    def send(body: str, **more: str) -> tuple[str, str]:
        answer = either.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", **more)
        return answer["MessageId"], answer["SequenceNumber"]

    first = send("x")
    assert send("x") == first
    assert send("y", MessageDeduplicationId="1") == send("z", MessageDeduplicationId="1") != first
    messages = received(either, url)
    assert [message["Body"] for message in messages] == ["x", "y"]
    entries = [{"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]} for index, message in enumerate(messages)]
    either.delete_message_batch(QueueUrl=url, Entries=entries)
    assert send("x") == first
    assert bodies(either, url) == []


def test_a_repeated_receive_attempt_gets_the_same_handle(sqs: Any) -> None:
    url = made(sqs, "orders.fifo")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")
    (first,) = received(sqs, url, ReceiveRequestAttemptId="attempt")
    (redelivered,) = received(sqs, url, ReceiveRequestAttemptId="attempt")
    assert redelivered["ReceiptHandle"] == first["ReceiptHandle"]
    assert bodies(sqs, url) == []


GROUPS, LENGTH = 4, 15


class Worker:
    """A consumer that gives each fifth message back the first time, with those of its group that came behind it."""

    def __init__(self, sqs: Any, url: str, done: dict[str, list[int]], lock: threading.Lock) -> None:
        self._sqs, self._url, self._done, self._lock = sqs, url, done, lock

    def __call__(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while sum(map(len, self._done.values())) < GROUPS * LENGTH:
            assert time.monotonic() < deadline, self._done
            self._take(received(self._sqs, self._url, most=3, WaitTimeSeconds=1))

    def _take(self, messages: list[dict[str, Any]]) -> None:
        stopped: set[str] = set()
        for message in messages:
            attributes, number = message["Attributes"], int(message["Body"])
            handle = {"QueueUrl": self._url, "ReceiptHandle": message["ReceiptHandle"]}
            group = attributes["MessageGroupId"]
            if group in stopped or (number % 5 == 2 and attributes["ApproximateReceiveCount"] == "1"):
                stopped.add(group)
                self._sqs.change_message_visibility(**handle, VisibilityTimeout=0)
                continue
            with self._lock:
                self._done[group].append(number)
            self._sqs.delete_message(**handle)


@pytest.mark.thorough
def test_groups_keep_their_order_with_many_consumers(sqs: Any, serving: Serving) -> None:
    url = made(sqs, "orders.fifo")
    for number in range(LENGTH):
        entries = [
            {
                "Id": str(group),
                "MessageBody": str(number),
                "MessageGroupId": f"g{group}",
                "MessageDeduplicationId": f"{group}-{number}",
            }
            for group in range(GROUPS)
        ]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == GROUPS
    done: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()
    workers = [Worker(client(serving), url, done, lock) for _ in range(4)]
    with ThreadPoolExecutor(len(workers)) as threads:
        for future in [threads.submit(worker) for worker in workers]:
            future.result(DEADLINE_S)
    assert done == {f"g{group}": list(range(LENGTH)) for group in range(GROUPS)}


# --- queues ---


def test_paginators_list_every_queue(either: Any) -> None:
    dead = made(either, "dead")
    prefix = unique("page")
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 2})
    names = [f"{prefix}-{number}" for number in range(5)]
    urls = [
        either.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
        for name in reversed(names)
    ]
    options = {"PageSize": 2}
    pages = list(either.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig=options))
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]
    assert sorted(url for page in pages for url in page["QueueUrls"]) == sorted(urls)
    paginator = either.get_paginator("list_dead_letter_source_queues")
    listed = paginator.paginate(QueueUrl=dead, PaginationConfig=options).search("queueUrls[]")
    assert sorted(listed) == sorted(urls)


def test_queue_attributes_tags_and_permissions_round_trip(either: Any) -> None:
    name = unique("orders.fifo")
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    attributes = {
        "FifoQueue": "true",
        "VisibilityTimeout": "45",
        "DelaySeconds": "1",
        "MaximumMessageSize": "2048",
        "MessageRetentionPeriod": "3600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "Policy": policy,
    }
    url = either.create_queue(QueueName=name, Attributes=attributes, tags={"team": "shop", "a b": "ä=&"})["QueueUrl"]
    assert url == either.get_queue_url(QueueName=name)["QueueUrl"]
    assert url.endswith(f"/{ACCOUNT}/{name}")
    either.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "50"})
    stored = either.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert stored["QueueArn"] == ARN + name
    assert {name: stored[name] for name in attributes} == attributes | {"VisibilityTimeout": "50"}
    either.tag_queue(QueueUrl=url, Tags={"stage": "test"})
    either.untag_queue(QueueUrl=url, TagKeys=["team"])
    assert either.list_queue_tags(QueueUrl=url)["Tags"] == {"a b": "ä=&", "stage": "test"}
    either.add_permission(QueueUrl=url, Label="send", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    stored = either.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    assert [statement["Sid"] for statement in json.loads(stored["Policy"])["Statement"]] == ["send"]
    either.remove_permission(QueueUrl=url, Label="send")
    either.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    either.purge_queue(QueueUrl=url)
    either.delete_queue(QueueUrl=url)
    with pytest.raises(either.exceptions.QueueDoesNotExist):
        either.get_queue_url(QueueName=name)


def test_dead_letters_are_moved_back_to_their_source(either: Any) -> None:
    dead = made(either, "dead.fifo")
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    source = made(either, "orders.fifo", RedrivePolicy=policy, VisibilityTimeout="0")
    either.send_message(QueueUrl=source, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")
    assert bodies(either, source) == ["x"]
    assert bodies(either, source) == []
    (message,) = received(either, dead, VisibilityTimeout=0)
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("x", "g")
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(source)
    handle = either.start_message_move_task(SourceArn=arn_of(dead), MaxNumberOfMessagesPerSecond=500)["TaskHandle"]
    assert handle
    deadline = time.monotonic() + DEADLINE_S
    while (task := either.list_message_move_tasks(SourceArn=arn_of(dead))["Results"][0])["Status"] != "COMPLETED":
        assert time.monotonic() < deadline, task
        time.sleep(0.05)
    assert (task["ApproximateNumberOfMessagesMoved"], task["SourceArn"]) == (1, arn_of(dead))
    assert bodies(either, dead) == []
    assert bodies(either, source) == ["x"]


# --- resources ---


def test_boto3_resources_manage_queues_and_messages(resource: Any) -> None:
    name = unique("mails.fifo")
    queue = resource.create_queue(QueueName=name, Attributes={"FifoQueue": "true", "VisibilityTimeout": "45"})
    assert resource.get_queue_by_name(QueueName=name).url == queue.url
    assert [listed.url for listed in resource.queues.filter(QueueNamePrefix=name)] == [queue.url]
    queue.load()
    assert (queue.attributes["QueueArn"], queue.attributes["VisibilityTimeout"]) == (ARN + name, "45")
    queue.set_attributes(Attributes={"VisibilityTimeout": "50"})
    queue.reload()
    assert queue.attributes["VisibilityTimeout"] == "50"
    entries = [
        {"Id": letter, "MessageBody": letter, "MessageGroupId": "g", "MessageDeduplicationId": letter}
        for letter in "abc"
    ]
    assert len(queue.send_messages(Entries=entries)["Successful"]) == 3
    first, *rest = queue.receive_messages(MaxNumberOfMessages=10, AttributeNames=["All"])
    assert (first.body, first.attributes["MessageGroupId"]) == ("a", "g")
    first.delete()
    for message in rest:
        message.change_visibility(VisibilityTimeout=0)
    redelivered = queue.receive_messages(MaxNumberOfMessages=10)
    assert [message.body for message in redelivered] == ["b", "c"]
    queue.delete_messages(
        Entries=[{"Id": message.body, "ReceiptHandle": message.receipt_handle} for message in redelivered]
    )
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    queue.delete()


# --- errors ---


def refused(call: Any, **parameters: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return caught.value


def test_errors_have_their_boto3_classes_and_codes(either: Any) -> None:
    url, fifo = made(either), made(either, "orders.fifo")
    prefix = "AWS.SimpleQueueService."
    entry = {"Id": "a", "MessageBody": "x"}
    nowhere = f"{url}-nowhere"
    either.purge_queue(QueueUrl=fifo)
    cases: list[tuple[str, dict[str, Any], str, str]] = [
        ("receive_message", {"QueueUrl": nowhere}, "QueueDoesNotExist", f"{prefix}NonExistentQueue"),
        ("purge_queue", {"QueueUrl": fifo}, "PurgeQueueInProgress", f"{prefix}PurgeQueueInProgress"),
        (
            "create_queue",
            {"QueueName": url.rpartition("/")[2], "Attributes": {"VisibilityTimeout": "1"}},
            "QueueNameExists",
            "QueueAlreadyExists",
        ),
        (
            "send_message_batch",
            {"QueueUrl": url, "Entries": [entry] * 2},
            "BatchEntryIdsNotDistinct",
            f"{prefix}BatchEntryIdsNotDistinct",
        ),
        (
            "send_message_batch",
            {"QueueUrl": url, "Entries": [{**entry, "Id": str(number)} for number in range(11)]},
            "TooManyEntriesInBatchRequest",
            f"{prefix}TooManyEntriesInBatchRequest",
        ),
        ("delete_message", {"QueueUrl": url, "ReceiptHandle": "x"}, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
        (
            "set_queue_attributes",
            {"QueueUrl": url, "Attributes": {"Colour": "red"}},
            "InvalidAttributeName",
            "InvalidAttributeName",
        ),
        (
            "start_message_move_task",
            {"SourceArn": f"{ARN}nowhere"},
            "ResourceNotFoundException",
            "ResourceNotFoundException",
        ),
        ("send_message", {"QueueUrl": fifo, "MessageBody": "x"}, "ClientError", "MissingParameter"),
    ]
    for action, parameters, kind, code in cases:
        error = refused(getattr(either, action), **parameters)
        assert error.response["Error"]["Code"] == code, (action, error)
        assert isinstance(error, getattr(either.exceptions, kind, ClientError)), (action, error)
        assert 400 <= error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
        assert error.response["Error"]["Type"] == "Sender", (action, error)


def test_wrong_keys_and_missing_permissions_are_refused(serving: Serving, sqs: Any) -> None:
    name = unique("read")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    reader = client(serving, READER)
    assert bodies(reader, url) == ["x"]
    calls = (
        (client(serving, Key(serving.key.id, "guessed")), "SignatureDoesNotMatch"),
        (client(serving, Key("AKIDNOBODY0000000001", "guessed")), "InvalidClientTokenId"),
        (reader, "AccessDenied"),
    )
    for caller, code in calls:
        if serving.is_signed:
            error = refused(caller.send_message, QueueUrl=url, MessageBody="y")
            assert error.response["Error"]["Code"] == code
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        else:
            caller.send_message(QueueUrl=url, MessageBody="y")


# --- addresses ---


def test_a_presigned_url_sends_a_message(query: Any, serving: Serving) -> None:
    url = made(query)
    parameters = {"QueueUrl": url, "MessageBody": "by anybody & everybody"}
    signed = query.generate_presigned_url("send_message", Params=parameters, ExpiresIn=60, HttpMethod="GET")
    with urllib.request.urlopen(signed, timeout=DEADLINE_S) as answer:  # noqa: S310 - this machine's
        assert b"<SendMessageResult>" in answer.read()
    assert bodies(query, url) == [parameters["MessageBody"]]
    if serving.is_signed:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(signed.replace("anybody", "nobody"), timeout=DEADLINE_S)  # noqa: S310
        with caught.value as refusal:
            assert (refusal.status, b"<Code>SignatureDoesNotMatch</Code>" in refusal.read()) == (403, True)


def test_a_presigned_url_of_the_json_protocol_is_refused(serving: Serving, sqs: Any) -> None:
    url = made(sqs)
    parameters = {"QueueUrl": url, "MessageBody": "x"}
    signed = sqs.generate_presigned_url("send_message", Params=parameters, ExpiresIn=60, HttpMethod="GET")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(signed, timeout=DEADLINE_S)  # noqa: S310 - this machine's
    with caught.value as refusal:
        assert refusal.status == (403 if serving.is_signed else 404), "and the header that it was signed with"
    assert bodies(sqs, url) == []


def test_the_endpoint_accepts_another_host_name_than_in_its_queue_urls(serving: Serving) -> None:
    by_name = client(serving, url=serving.local_url)
    url = made(by_name)
    assert url.startswith(serving.url)
    by_name.send_message(QueueUrl=url, MessageBody="x")
    by_name.send_message(QueueUrl=url.replace(serving.url, serving.local_url), MessageBody="y")
    assert sorted(bodies(by_name, url)) == ["x", "y"]


def test_boto3_is_configured_by_environment_variables(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in serving.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    sqs = boto3.Session().client("sqs")
    assert made(sqs).startswith(serving.url)
