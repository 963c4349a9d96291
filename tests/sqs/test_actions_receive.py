"""Receiving, as boto3 sees it: order, visibility, system attributes, attempts, dead letters."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from endpoint import ACCOUNT, Endpoint, in_json

from inturn.queue import Receipt
from inturn.sqs.actions.names import names_of
from inturn.store.commands import StoreCall


def send(sqs: Endpoint, url: str, *bodies: str, **more: Any) -> None:
    """Bodies such as a1: of group a."""
    for body in bodies:
        fifo = {"MessageGroupId": body[0], "MessageDeduplicationId": body} if url.endswith(".fifo") else {}
        sqs.client.send_message(QueueUrl=url, MessageBody=body, **fifo, **more)


def delete(sqs: Endpoint, url: str, *messages: dict[str, Any]) -> None:
    for message in messages:
        sqs.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def extend(sqs: Endpoint, url: str, message: dict[str, Any], seconds: int) -> None:
    sqs.client.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
    )


# --- order ---


def test_receive_fills_a_batch_from_one_group_before_the_next(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "b1", "a2", "c1", "b2")
    assert sqs.bodies(url, 3) == ["a1", "a2", "b1"]
    assert sqs.bodies(url) == ["c1"]
    assert sqs.bodies(url) == []


def test_messages_made_visible_again_keep_their_place_in_the_group(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "a3")
    first, second = sqs.receive(url, 2)
    extend(sqs, url, second, 0)
    assert sqs.bodies(url) == []
    extend(sqs, url, first, 0)
    assert sqs.bodies(url) == ["a1", "a2", "a3"]


def test_a_group_is_received_again_once_its_whole_batch_is_deleted(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "a3")
    first, second = sqs.receive(url, 2)
    delete(sqs, url, first)
    assert sqs.bodies(url) == []
    delete(sqs, url, second)
    assert sqs.bodies(url) == ["a3"]


def test_receive_from_a_standard_queue_returns_the_oldest_first(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    send(sqs, url, *(f"a{n}" for n in range(12)))
    assert [sqs.bodies(url, n) for n in (1, 10, 10)] == [["a0"], [f"a{n}" for n in range(1, 11)], ["a11"]]


# --- visibility ---


def test_visibility_timeout_comes_from_the_request_or_the_queue(sqs: Endpoint) -> None:
    url = sqs.queue("q", VisibilityTimeout=5)
    send(sqs, url, "a1", "a2")
    assert sqs.bodies(url, 1) == ["a1"]
    assert sqs.bodies(url, 1, VisibilityTimeout=60) == ["a2"]
    sqs.clock.forward(5)
    assert sqs.bodies(url) == ["a1"]
    sqs.clock.forward(55)
    assert sqs.bodies(url) == ["a1", "a2"]


def test_receive_with_visibility_timeout_0_leaves_the_message_visible(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    send(sqs, url, "a1")
    first, second = (sqs.receive(url, VisibilityTimeout=0)[0] for _ in range(2))
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


def bounds(value: int, parameter: str, reason: str) -> tuple[str, str]:
    return "InvalidParameterValue", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"


@pytest.mark.parametrize(
    ("parameter", "value", "reason"),
    [
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
        ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("VisibilityTimeout", -1, "Must be >= 0 and <= 43200, if provided."),
        ("VisibilityTimeout", 43201, "Must be >= 0 and <= 43200, if provided."),
    ],
)
@in_json
def test_receive_parameters_out_of_range_are_refused(sqs: Endpoint, parameter: str, value: int, reason: str) -> None:
    refusal = sqs.refused(sqs.client.receive_message, QueueUrl=sqs.queue("q"), **{parameter: value})
    assert refusal == bounds(value, parameter, reason)


def test_a_long_poll_returns_a_message_sent_meanwhile(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqs.bodies, url, WaitTimeSeconds=20)
        send(sqs, url, "a1")
        assert waiting.result(20) == ["a1"]


def test_receive_waits_for_the_queues_wait_time_by_default(sqs: Endpoint) -> None:
    url = sqs.queue("q", ReceiveMessageWaitTimeSeconds=20)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqs.bodies, url)
        send(sqs, url, "a1")
        assert waiting.result(20) == ["a1"]
    assert sqs.bodies(url, WaitTimeSeconds=0) == []


def test_a_message_past_its_retention_period_is_not_received(sqs: Endpoint) -> None:
    url = sqs.queue("q", MessageRetentionPeriod=60)
    send(sqs, url, "a1")
    sqs.clock.forward(30)
    send(sqs, url, "a2")
    sqs.clock.forward(31)
    assert sqs.bodies(url) == ["a2"]


# --- system attributes ---


def test_receive_returns_every_system_attribute(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    sent = sqs.client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")
    sqs.clock.forward(1.5)
    sqs.receive(url, VisibilityTimeout=1)
    sqs.clock.forward(2)
    (message,) = sqs.receive(url)
    assert message["Attributes"] == {
        "ApproximateFirstReceiveTimestamp": "1700000001500",
        "ApproximateReceiveCount": "2",
        "MessageDeduplicationId": "1",
        "MessageGroupId": "g",
        "SenderId": ACCOUNT,
        "SentTimestamp": "1700000000000",
        "SequenceNumber": sent["SequenceNumber"],
    }


def test_receive_returns_only_the_requested_system_attributes(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    send(sqs, url, "a1")
    no_timeout = {"VisibilityTimeout": 0}
    attributes = sqs.receive(url, MessageSystemAttributeNames=["SentTimestamp"], **no_timeout)[0]["Attributes"]
    assert attributes == {"SentTimestamp": "1700000000000"}
    attributes = sqs.receive(url, MessageSystemAttributeNames=[], AttributeNames=["SenderId"], **no_timeout)[0][
        "Attributes"
    ]
    assert attributes == {"SenderId": ACCOUNT}
    assert "Attributes" not in sqs.receive(url, MessageSystemAttributeNames=[], **no_timeout)[0]
    refusal = sqs.refused(sqs.client.receive_message, QueueUrl=url, MessageSystemAttributeNames=["Nonsense"])
    assert refusal == ("InvalidAttributeName", "Unknown Attribute Nonsense.")


# --- the same once more ---


def test_a_repeated_receive_attempt_gets_the_same_messages_and_handles(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "a3", "b1")
    first = sqs.receive(url, 2, ReceiveRequestAttemptId="once")
    sqs.clock.forward(29)
    assert sqs.receive(url, 2, ReceiveRequestAttemptId="once") == first
    sqs.clock.forward(29)  # the visibility was set anew
    assert sqs.bodies(url, 2) == ["b1"]
    delete(sqs, url, *first)
    assert sqs.bodies(url, 1) == ["a3"]


@in_json
def test_a_repeated_receive_attempt_gets_the_same_handles_at_a_later_time(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1")
    ticks = count(sqs.clock())
    sqs.db.writer.clock = lambda: next(ticks)
    first = sqs.receive(url, 1, ReceiveRequestAttemptId="once")
    assert sqs.receive(url, 1, ReceiveRequestAttemptId="once") == first


def test_a_receive_attempt_is_void_once_a_message_is_deleted(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "b1")
    first, _ = sqs.receive(url, 2, ReceiveRequestAttemptId="once")
    delete(sqs, url, first)
    assert sqs.bodies(url, 2, ReceiveRequestAttemptId="once") == ["b1"]


def test_a_receive_attempt_is_void_once_a_message_is_acked_with_the_python_api(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "b1")
    handle = sqs.receive(url, 2, ReceiveRequestAttemptId="once")[0]["ReceiptHandle"]
    queue = sqs.db.queue("q.fifo")
    receipt = names_of(sqs.app._context).receipt(queue.info(), handle)
    queue.ack([Receipt(receipt.sequence_number, receipt.token)])
    assert sqs.bodies(url, 2, ReceiveRequestAttemptId="once") == ["b1"]


def test_a_receive_attempt_is_void_once_a_visibility_timeout_is_changed(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "b1")
    first, _ = sqs.receive(url, 2, ReceiveRequestAttemptId="once")
    extend(sqs, url, first, 100)
    assert sqs.bodies(url, 2, ReceiveRequestAttemptId="once") == ["b1"]


def test_a_receive_attempt_after_the_visibility_timeout_is_a_new_receive(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1")
    (first,) = sqs.receive(url, ReceiveRequestAttemptId="once")
    sqs.clock.forward(30)
    (second,) = sqs.receive(url, ReceiveRequestAttemptId="once")
    assert first["ReceiptHandle"] != second["ReceiptHandle"]


def test_a_receive_attempt_is_remembered_for_five_minutes(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1")
    first = sqs.receive(url, ReceiveRequestAttemptId="once", VisibilityTimeout=1000)
    sqs.clock.forward(299)
    assert sqs.receive(url, ReceiveRequestAttemptId="once", VisibilityTimeout=1000) == first
    assert sqs.receive(url, ReceiveRequestAttemptId="another") == []
    sqs.clock.forward(1)
    assert sqs.receive(url, ReceiveRequestAttemptId="once") == []


def test_a_receive_attempt_is_remembered_after_a_restart(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "a2", "b1")
    first = sqs.receive(url, 2, ReceiveRequestAttemptId="once")
    sqs.restart()
    assert sqs.receive(url, 2, ReceiveRequestAttemptId="once") == first


def test_the_latest_of_two_receive_attempts_has_the_message(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1")
    sqs.receive(url, ReceiveRequestAttemptId="first")
    sqs.clock.forward(30)
    second = sqs.receive(url, ReceiveRequestAttemptId="second")
    assert sqs.receive(url, ReceiveRequestAttemptId="first") == []
    assert sqs.receive(url, ReceiveRequestAttemptId="second") == second


@in_json
def test_expired_receive_attempts_are_deleted_from_the_database(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    send(sqs, url, "a1", "b1", "c1")
    for attempt in "abc":
        sqs.receive(url, 1, ReceiveRequestAttemptId=attempt)
    sqs.clock.forward(300)
    assert len(sqs.receive(url, 1, ReceiveRequestAttemptId="d")) == 1
    count_of = StoreCall("", lambda store, _now_ms: store.execute("select count(*) from inturn_attempt").fetchone())
    assert sqs.db.writer.run(count_of) == (1,)


@in_json
def test_an_invalid_receive_attempt_id_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    refusal = sqs.refused(sqs.client.receive_message, QueueUrl=url, ReceiveRequestAttemptId="a b")
    reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."
    text = f"Value a b for parameter ReceiveRequestAttemptId is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)
    refusal = sqs.refused(sqs.client.receive_message, QueueUrl=sqs.queue("q"), ReceiveRequestAttemptId="once")
    reason = "The request include parameter that is not valid for this queue type."
    text = f"Value once for parameter ReceiveRequestAttemptId is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)


# --- dead letters ---


def with_dead_letters(sqs: Endpoint, suffix: str = "", count: int = 2) -> tuple[str, str]:
    dead = sqs.queue(f"dead{suffix}")
    policy = {"deadLetterTargetArn": sqs.arn(f"dead{suffix}"), "maxReceiveCount": count}
    return sqs.queue(f"q{suffix}", RedrivePolicy=policy), dead


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_message_over_max_receive_count_moves_to_the_dead_letter_queue(sqs: Endpoint, suffix: str) -> None:
    url, dead = with_dead_letters(sqs, suffix)
    send(sqs, url, "a1")
    ids = [sqs.receive(url, VisibilityTimeout=0)[0]["MessageId"] for _ in range(2)]
    assert sqs.receive(url) == []
    (message,) = sqs.receive(dead)
    assert {message["MessageId"]} == set(ids)
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(f"q{suffix}")
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    if suffix:
        assert message["Attributes"]["MessageDeduplicationId"] == message["MessageId"]
        assert message["Attributes"]["MessageGroupId"] == "a"


def test_a_failing_group_head_does_not_raise_the_receive_count_behind_it(sqs: Endpoint) -> None:
    url, dead = with_dead_letters(sqs, ".fifo")
    send(sqs, url, "a1", "a2")
    assert sqs.bodies(url, VisibilityTimeout=0) == ["a1", "a2"]
    assert sqs.bodies(url, VisibilityTimeout=0) == ["a1"], "the last time it comes alone"
    (message,) = sqs.receive(url)
    assert message["Body"] == "a2"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert sqs.bodies(dead) == ["a1"]


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_queue_may_be_its_own_dead_letter_queue(sqs: Endpoint, suffix: str) -> None:
    url = sqs.queue(f"q{suffix}")
    policy = {"deadLetterTargetArn": sqs.arn(f"q{suffix}"), "maxReceiveCount": 2}
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    assert sqs.client.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    for body in ("a1", "a2"):
        fifo = {"MessageGroupId": "a", "MessageDeduplicationId": body} if suffix else {}
        sqs.client.send_message(QueueUrl=url, MessageBody=body, **fifo)
    by_body, counts = {}, []
    for _ in range(12):
        received = {message["Body"]: message["Attributes"] for message in sqs.receive(url, VisibilityTimeout=0)}
        assert [*received] in (["a1", "a2"], ["a1"], ["a2"]), "each stays in its place; the last time it comes alone"
        by_body |= received
        counts += [received["a1"]["ApproximateReceiveCount"]] if "a1" in received else []
    assert counts[:6] == ["1", "2"] * 3
    assert by_body["a1"]["DeadLetterQueueSourceArn"] == sqs.arn(f"q{suffix}")
    assert sqs.attributes(url)["ApproximateNumberOfMessages"] == "2"
