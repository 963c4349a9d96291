"""Move tasks, as boto3 sees them."""

import base64
import json
import time
from typing import Any

import pytest
from endpoint import Endpoint, in_json


def dead_letters(sqs: Endpoint, *bodies: str, suffix: str = "") -> tuple[str, str]:
    """Two queues: one that lost these messages to the other."""
    dead = sqs.queue(f"dead{suffix}")
    policy = {"deadLetterTargetArn": sqs.arn(f"dead{suffix}"), "maxReceiveCount": 1}
    url = sqs.queue(f"q{suffix}", RedrivePolicy=policy)
    for body in bodies:
        fifo = {"MessageGroupId": body[0], "MessageDeduplicationId": body} if suffix else {}
        sqs.client.send_message(QueueUrl=url, MessageBody=body, **fifo)
    while sqs.receive(url, VisibilityTimeout=0):
        pass
    return url, dead


def start(sqs: Endpoint, suffix: str = "", **more: Any) -> str:
    handle: str = sqs.client.start_message_move_task(SourceArn=sqs.arn(f"dead{suffix}"), **more)["TaskHandle"]
    return handle


def tasks(sqs: Endpoint, suffix: str = "", **more: Any) -> list[dict[str, Any]]:
    answer = sqs.client.list_message_move_tasks(SourceArn=sqs.arn(f"dead{suffix}"), **more)
    return list(answer.get("Results", []))


def ended(sqs: Endpoint, suffix: str = "") -> dict[str, Any]:
    """The latest task, when it has ended."""
    deadline = time.monotonic() + 20
    while (task := tasks(sqs, suffix)[0])["Status"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return task


def test_a_move_task_returns_each_message_to_its_source_queue(sqs: Endpoint) -> None:
    url, dead = dead_letters(sqs, "a1", "b1", "a2", suffix=".fifo")
    sent = sqs.receive(dead, VisibilityTimeout=0)
    sqs.client.send_message(QueueUrl=url, MessageBody="a3", MessageGroupId="a", MessageDeduplicationId="a3")
    start(sqs, ".fifo")
    assert ended(sqs, ".fifo") == {
        "Status": "COMPLETED",
        "SourceArn": sqs.arn("dead.fifo"),
        "ApproximateNumberOfMessagesMoved": 3,
        "ApproximateNumberOfMessagesToMove": 3,
        "StartedTimestamp": sqs.clock.ms,
    }
    back = sqs.receive(url)
    assert [message["Body"] for message in back] == ["a1", "a2", "a3", "b1"]
    assert {message["MessageId"] for message in sent} < {message["MessageId"] for message in back}
    assert "DeadLetterQueueSourceArn" not in back[0]["Attributes"]
    assert back[0]["Attributes"]["MessageDeduplicationId"] == "a1"
    assert sqs.bodies(dead) == []


def test_a_move_task_with_a_destination_moves_every_message_there(sqs: Endpoint) -> None:
    _, dead = dead_letters(sqs, "a", "b")
    other = sqs.queue("other")
    start(sqs, DestinationArn=sqs.arn("other"), MaxNumberOfMessagesPerSecond=500)
    task = ended(sqs)
    assert task["DestinationArn"] == sqs.arn("other")
    assert task["MaxNumberOfMessagesPerSecond"] == 500
    assert sqs.bodies(other) == ["a", "b"]
    assert sqs.bodies(dead) == []


def test_a_move_task_skips_messages_in_flight(sqs: Endpoint) -> None:
    url, dead = dead_letters(sqs, "a", "b")
    (held,) = sqs.receive(dead, 1)
    start(sqs)
    assert ended(sqs)["ApproximateNumberOfMessagesMoved"] == 1
    assert sqs.bodies(url) == ["b"]
    sqs.client.delete_message(QueueUrl=dead, ReceiptHandle=held["ReceiptHandle"])
    assert sqs.attributes(dead)["ApproximateNumberOfMessages"] == "0"


@pytest.mark.thorough
def test_a_running_move_task_is_listed_and_cancelled_and_a_second_is_refused(sqs: Endpoint) -> None:
    _, dead = dead_letters(sqs, *(f"a{n}" for n in range(5)))
    handle = start(sqs, MaxNumberOfMessagesPerSecond=1)
    refusal = sqs.refused(start, sqs=sqs)
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert refusal == ("InvalidParameterValue", text)
    (task,) = tasks(sqs)
    assert task["Status"] == "RUNNING"
    assert task["TaskHandle"] == handle
    moved = sqs.client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    (task,) = tasks(sqs)
    assert task["Status"] == "CANCELLED"
    assert task["ApproximateNumberOfMessagesMoved"] == moved <= 2
    assert "TaskHandle" not in task
    refusal = sqs.refused(sqs.client.cancel_message_move_task, TaskHandle=handle)
    assert refusal == ("AWS.SimpleQueueService.UnsupportedOperation", "Only active tasks can be cancelled.")
    start(sqs)
    assert ended(sqs)["Status"] == "COMPLETED"
    assert sqs.bodies(dead) == []
    assert [task["Status"] for task in tasks(sqs, MaxResults=10)] == ["COMPLETED", "CANCELLED"]


def test_a_move_task_resumes_after_a_restart(sqs: Endpoint) -> None:
    url, _ = dead_letters(sqs, "a", "b", "c")
    start(sqs, MaxNumberOfMessagesPerSecond=2)
    sqs.restart()
    task = ended(sqs)
    assert task["Status"] == "COMPLETED"
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert sorted(sqs.bodies(url)) == ["a", "b", "c"]


@in_json
def test_a_move_task_leaves_messages_sent_after_its_start(sqs: Endpoint) -> None:
    _, dead = dead_letters(sqs, "a", "b", "c")
    start(sqs, MaxNumberOfMessagesPerSecond=2)
    sqs.client.send_message(QueueUrl=dead, MessageBody="late")
    assert ended(sqs)["Status"] == "COMPLETED"
    assert sqs.bodies(dead) == ["late"]


def test_a_move_task_fails_for_a_message_without_a_source_queue(sqs: Endpoint) -> None:
    _, dead = dead_letters(sqs)
    sqs.client.send_message(QueueUrl=dead, MessageBody="x")
    start(sqs)
    task = ended(sqs)
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "CouldNotDetermineMessageSource"
    assert sqs.bodies(dead) == ["x"]


def test_a_move_task_fails_if_the_source_queue_was_deleted(sqs: Endpoint) -> None:
    url, dead = dead_letters(sqs, "a")
    policy = {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": 1}
    sqs.queue("another", RedrivePolicy=policy)
    sqs.client.delete_queue(QueueUrl=url)
    start(sqs)
    task = ended(sqs)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert sqs.bodies(dead) == ["a"]


@in_json
def test_move_tasks_refuse_arns_of_missing_queues(sqs: Endpoint) -> None:
    dead_letters(sqs)
    text = "The resource that you specified for the {} parameter doesn't exist."
    source = ("ResourceNotFoundException", text.format("SourceArn"))
    for arn in (sqs.arn("none"), "arn:aws:sns:::x", sqs.arn("dead").replace("000000000000", "123456789012")):
        assert sqs.refused(sqs.client.start_message_move_task, SourceArn=arn) == source
        assert sqs.refused(sqs.client.list_message_move_tasks, SourceArn=arn) == source
    refusal = sqs.refused(start, sqs=sqs, DestinationArn=sqs.arn("none"))
    assert refusal == ("ResourceNotFoundException", text.format("DestinationArn"))
    assert sqs.status(sqs.client.list_message_move_tasks, SourceArn=sqs.arn("none")) == 404


def test_a_move_task_requires_a_dead_letter_queue_as_source(sqs: Endpoint) -> None:
    sqs.queue("dead")
    for more in ({}, {"DestinationArn": sqs.arn("none")}):
        refusal = sqs.refused(start, sqs=sqs, **more)
        assert refusal == ("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")


@pytest.mark.parametrize("arn", ["nonsense", "arn:aws:sqs:us-east-1:000000000000", "aws:sqs:us-east-1:0:0:dead"])
@in_json
def test_move_tasks_refuse_malformed_arns(sqs: Endpoint, arn: str) -> None:
    dead_letters(sqs)
    form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    source = ("InvalidParameterValue", f"You must use this format to specify the SourceArn: {form}")
    assert sqs.refused(sqs.client.start_message_move_task, SourceArn=arn) == source
    assert sqs.refused(sqs.client.list_message_move_tasks, SourceArn=arn) == source
    target = ("InvalidParameterValue", f"You must use this format to specify the DestinationArn: {form}")
    assert sqs.refused(start, sqs=sqs, DestinationArn=arn) == target


@in_json
def test_a_move_task_refuses_its_source_and_the_other_type_as_destination(sqs: Endpoint) -> None:
    dead_letters(sqs)
    sqs.queue("q.fifo")
    refusal = sqs.refused(start, sqs=sqs, DestinationArn=sqs.arn("dead"))
    assert refusal == ("InvalidParameterValue", "Source queue arn and destination queue arn cannot be the same.")
    refusal = sqs.refused(start, sqs=sqs, DestinationArn=sqs.arn("q.fifo"))
    assert refusal == ("InvalidParameterValue", "Source and destination queues must be of the same type.")


@pytest.mark.parametrize("rate", [0, 501])
@in_json
def test_a_move_task_refuses_a_rate_out_of_range(sqs: Endpoint, rate: int) -> None:
    dead_letters(sqs)
    refusal = sqs.refused(start, sqs=sqs, MaxNumberOfMessagesPerSecond=rate)
    reason = "Must be between 1 and 500, if provided."
    text = f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)


@pytest.mark.parametrize("most", [0, 11])
@in_json
def test_listing_move_tasks_refuses_max_results_out_of_range(sqs: Endpoint, most: int) -> None:
    dead_letters(sqs)
    refusal = sqs.refused(tasks, sqs=sqs, MaxResults=most)
    text = f"Value {most} for parameter MaxResults is invalid. Reason: Must be between 1 and 10, if provided."
    assert refusal == ("InvalidParameterValue", text)


def handle_of(**fields: Any) -> str:
    return base64.b64encode(json.dumps(fields).encode()).decode()


@in_json
def test_cancelling_an_unknown_task_handle_is_refused(sqs: Endpoint) -> None:
    dead_letters(sqs)
    cancel = sqs.client.cancel_message_move_task
    for handle in ("garbage", "bnVsbA==", handle_of(taskId="x")):
        refusal = sqs.refused(cancel, TaskHandle=handle)
        assert refusal == ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.")
    text = "The resource that you specified for the SourceArn parameter doesn't exist."
    refusal = sqs.refused(cancel, TaskHandle=handle_of(taskId="x", sourceArn=sqs.arn("none")))
    assert refusal == ("ResourceNotFoundException", text)
    refusal = sqs.refused(cancel, TaskHandle=handle_of(taskId="x", sourceArn=sqs.arn("dead")))
    assert refusal == ("ResourceNotFoundException", "Task does not exist.")


def test_a_move_task_leaves_messages_that_the_queue_dead_lettered_to_itself(sqs: Endpoint) -> None:
    url, dead = dead_letters(sqs, "a", "b")
    policy = {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": 1}
    sqs.client.set_queue_attributes(QueueUrl=dead, Attributes={"RedrivePolicy": json.dumps(policy)})
    sqs.client.send_message(QueueUrl=dead, MessageBody="own")
    for _ in range(3):
        sqs.receive(dead, VisibilityTimeout=0)
    start(sqs)
    task = ended(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 2)
    assert sorted(sqs.bodies(url)) == ["a", "b"]
    assert sqs.bodies(dead) == ["own"]


@pytest.mark.thorough
def test_a_move_task_waits_for_room_in_a_full_destination(sqs: Endpoint) -> None:
    url, dead = dead_letters(sqs, "a", "b")
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"MaximumQueueDepth": "1"})
    start(sqs)
    bodies: list[str] = []
    for _ in range(2):
        assert sqs.db.queue("q").depth().messages <= 1
        for message in sqs.db.queue("q").receive(wait_s=60):
            bodies.append(str(message.body))
            message.ack()
    assert (bodies, sqs.bodies(dead)) == (["a", "b"], [])
    assert ended(sqs)["ApproximateNumberOfMessagesMoved"] == 2
