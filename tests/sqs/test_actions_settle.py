"""Deleting and changing visibility, as boto3 sees it."""

from typing import Any

import pytest
from endpoint import Endpoint, in_json

BATCH = "AWS.SimpleQueueService."
HOURS_12 = 43_200


def received(sqs: Endpoint, name: str, count: int = 1, **more: Any) -> tuple[str, list[str]]:
    """A queue and the handles of what was received from it."""
    url = sqs.queue(name)
    for n in range(count):
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": str(n)} if name.endswith(".fifo") else {}
        sqs.client.send_message(QueueUrl=url, MessageBody=f"b{n}", **fifo)
    return url, [message["ReceiptHandle"] for message in sqs.receive(url, count, **more)]


def delete(sqs: Endpoint, url: str, handle: str) -> None:
    sqs.client.delete_message(QueueUrl=url, ReceiptHandle=handle)


def extend(sqs: Endpoint, url: str, handle: str, seconds: int) -> None:
    sqs.client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)


def count(sqs: Endpoint, url: str) -> int:
    return sum(int(value) for name, value in sqs.attributes(url).items() if name.startswith("ApproximateNumber"))


def expired(handle: str) -> tuple[str, str]:
    text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    return "InvalidParameterValue", text


# --- deleting ---


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_deleting_a_message_twice_succeeds(sqs: Endpoint, name: str) -> None:
    url, (handle,) = received(sqs, name)
    for _ in range(2):
        delete(sqs, url, handle)
    assert count(sqs, url) == 0
    sqs.clock.forward(100)
    assert sqs.bodies(url) == []
    delete(sqs, url, handle)


def test_delete_from_a_fifo_queue_refuses_an_expired_handle(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q.fifo")
    sqs.clock.forward(30)
    assert sqs.refused(delete, sqs=sqs, url=url, handle=handle) == expired(handle)
    assert sqs.bodies(url) == ["b0"]
    assert sqs.refused(delete, sqs=sqs, url=url, handle=handle) == expired(handle)


def test_delete_from_a_standard_queue_accepts_an_expired_handle(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    sqs.clock.forward(30)
    delete(sqs, url, handle)
    assert count(sqs, url) == 0


def test_delete_with_an_old_handle_leaves_a_message_that_was_received_again(sqs: Endpoint) -> None:
    url, (old,) = received(sqs, "q")
    sqs.clock.forward(30)
    (new,) = sqs.receive(url)
    delete(sqs, url, old)
    assert count(sqs, url) == 1
    delete(sqs, url, new["ReceiptHandle"])
    assert count(sqs, url) == 0


def test_delete_from_a_standard_queue_accepts_the_handle_of_a_released_message(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    extend(sqs, url, handle, 0)
    delete(sqs, url, handle)
    assert sqs.bodies(url) == []


@pytest.mark.parametrize("handle", ["garbage", "x" * 40, "", "ü" * 40])
@in_json
def test_a_malformed_receipt_handle_is_refused(sqs: Endpoint, handle: str) -> None:
    url, _ = received(sqs, "q")
    refusal = sqs.refused(delete, sqs=sqs, url=url, handle=handle)
    text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
    assert refusal == ("ReceiptHandleIsInvalid", text)
    assert sqs.refused(extend, sqs=sqs, url=url, handle=handle, seconds=1) == ("ReceiptHandleIsInvalid", text)


@in_json
def test_a_receipt_handle_with_one_changed_character_is_refused(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    for index in range(len(handle)):
        damaged = handle[:index] + ("A" if handle[index] != "A" else "B") + handle[index + 1 :]
        assert sqs.refused(delete, sqs=sqs, url=url, handle=damaged)[0] == "ReceiptHandleIsInvalid"
    assert count(sqs, url) == 1


def test_a_receipt_handle_of_another_queue_is_refused(sqs: Endpoint) -> None:
    _, (handle,) = received(sqs, "a")
    url, _ = received(sqs, "b")
    assert sqs.refused(delete, sqs=sqs, url=url, handle=handle)[0] == "ReceiptHandleIsInvalid"


def test_delete_message_batch_reports_each_entry(sqs: Endpoint) -> None:
    url, handles = received(sqs, "q.fifo", 3)
    sqs.client.delete_message(QueueUrl=url, ReceiptHandle=handles[1])
    entries = [{"Id": f"e{n}", "ReceiptHandle": handle} for n, handle in enumerate([*handles[:2], "garbage"])]
    answer = sqs.client.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["e0", "e1"]
    assert answer["Failed"] == [
        {
            "Id": "e2",
            "SenderFault": True,
            "Code": "ReceiptHandleIsInvalid",
            "Message": 'The input receipt handle "garbage" is not a valid receipt handle.',
        }
    ]
    sqs.clock.forward(30)
    assert sqs.bodies(url) == ["b2"]


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_delete_message_batch_with_expired_handles_fails_only_in_a_fifo_queue(sqs: Endpoint, name: str) -> None:
    url, handles = received(sqs, name, 2)
    sqs.clock.forward(30)
    entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
    answer = sqs.client.delete_message_batch(QueueUrl=url, Entries=entries)
    if name == "q":
        assert [entry["Id"] for entry in answer["Successful"]] == ["0", "1"]
        assert count(sqs, url) == 0
    else:
        assert [(entry["Code"], entry["Message"]) for entry in answer["Failed"]] == [
            expired(handle) for handle in handles
        ]
        assert count(sqs, url) == 2


# --- keeping ---


def test_change_visibility_extends_and_shortens_the_timeout(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    extend(sqs, url, handle, 100)
    sqs.clock.forward(99)
    assert sqs.bodies(url) == []
    extend(sqs, url, handle, 10)
    sqs.clock.forward(10)
    assert sqs.bodies(url) == ["b0"]


def test_change_visibility_hides_a_visible_standard_message_again(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    sqs.clock.forward(30)
    extend(sqs, url, handle, 0)
    extend(sqs, url, handle, 10)
    sqs.clock.forward(9)
    assert sqs.bodies(url) == []
    sqs.clock.forward(1)
    (message,) = sqs.receive(url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "2"


def test_change_visibility_with_an_old_handle_applies_to_a_standard_message(sqs: Endpoint) -> None:
    url, (old,) = received(sqs, "q")
    sqs.clock.forward(30)
    (new,) = sqs.receive(url)
    extend(sqs, url, old, 100)
    sqs.clock.forward(99)
    assert sqs.bodies(url) == []
    extend(sqs, url, new["ReceiptHandle"], 50)
    sqs.clock.forward(49)
    assert sqs.bodies(url) == [], "the receiver has it still"
    extend(sqs, url, old, 0)
    (delivery,) = sqs.receive(url)
    assert delivery["Attributes"]["ApproximateReceiveCount"] == "3"
    delete(sqs, url, delivery["ReceiptHandle"])
    reason = "Message does not exist or is not available for visibility timeout change."
    text = f"Value {old} for parameter ReceiptHandle is invalid. Reason: {reason}"
    assert sqs.refused(extend, sqs=sqs, url=url, handle=old, seconds=1) == ("InvalidParameterValue", text)


def test_the_current_handle_deletes_after_an_old_handle_changed_visibility(sqs: Endpoint) -> None:
    url, (old,) = received(sqs, "q")
    sqs.clock.forward(30)
    (new,) = sqs.receive(url)
    extend(sqs, url, old, 100)
    delete(sqs, url, new["ReceiptHandle"])
    assert count(sqs, url) == 0


def test_change_visibility_with_an_old_handle_is_refused_for_a_fifo_message(sqs: Endpoint) -> None:
    url, (old,) = received(sqs, "q.fifo")
    sqs.clock.forward(30)
    (new,) = sqs.receive(url)
    for seconds in (0, 100):
        refusal = sqs.refused(extend, sqs=sqs, url=url, handle=old, seconds=seconds)
        assert refusal == (f"{BATCH}MessageNotInflight", "The specified message isn't in flight.")
    sqs.clock.forward(29)
    delete(sqs, url, new["ReceiptHandle"])


def test_change_visibility_batch_accepts_expired_standard_handles(sqs: Endpoint) -> None:
    url, handles = received(sqs, "q", 3)
    delete(sqs, url, handles[1])
    sqs.clock.forward(30)
    sqs.receive(url, 1)
    entries = [
        {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": 10} for n, handle in enumerate([*handles, "x"])
    ]
    answer = sqs.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "2"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("1", "InvalidParameterValue"),
        ("3", "ReceiptHandleIsInvalid"),
    ]
    sqs.clock.forward(9)
    assert sqs.bodies(url) == []
    sqs.clock.forward(1)
    assert sorted(sqs.bodies(url)) == ["b0", "b2"], "also the one that another had for longer"


def test_change_visibility_of_a_visible_fifo_message_is_refused(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q.fifo")
    extend(sqs, url, handle, 0)
    refusal = sqs.refused(extend, sqs=sqs, url=url, handle=handle, seconds=10)
    assert refusal == (f"{BATCH}MessageNotInflight", "The specified message isn't in flight.")


@in_json
def test_change_visibility_of_a_deleted_message_is_refused(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q")
    delete(sqs, url, handle)
    refusal = sqs.refused(extend, sqs=sqs, url=url, handle=handle, seconds=10)
    reason = "Message does not exist or is not available for visibility timeout change."
    text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)


@pytest.mark.parametrize("seconds", [-1, HOURS_12 + 1])
@in_json
def test_a_visibility_timeout_out_of_range_is_refused(sqs: Endpoint, seconds: int) -> None:
    url, (handle,) = received(sqs, "q")
    refusal = sqs.refused(extend, sqs=sqs, url=url, handle=handle, seconds=seconds)
    text = (
        f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided."
    )
    assert refusal == ("InvalidParameterValue", text)


def test_change_visibility_beyond_12_hours_in_total_is_refused(sqs: Endpoint) -> None:
    url, (handle,) = received(sqs, "q", VisibilityTimeout=HOURS_12)
    sqs.clock.forward(3600)
    extend(sqs, url, handle, HOURS_12 - 3600)
    refusal = sqs.refused(extend, sqs=sqs, url=url, handle=handle, seconds=HOURS_12 - 3599)
    reason = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    text = f"Value {HOURS_12 - 3599} for parameter VisibilityTimeout is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)
    sqs.clock.forward(HOURS_12 - 3601)
    extend(sqs, url, handle, 0)


def test_change_visibility_batch_reports_each_entry(sqs: Endpoint) -> None:
    url, handles = received(sqs, "q", 3)
    delete(sqs, url, handles[1])
    entries = [
        {"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 0},
        {"Id": "b", "ReceiptHandle": handles[1], "VisibilityTimeout": 5},
        {"Id": "c", "ReceiptHandle": "garbage", "VisibilityTimeout": 5},
        {"Id": "d", "ReceiptHandle": handles[2], "VisibilityTimeout": HOURS_12 + 1},
        {"Id": "e", "ReceiptHandle": handles[2]},
        {"Id": "f", "ReceiptHandle": handles[2], "VisibilityTimeout": 100},
    ]
    answer = sqs.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["a", "f"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("b", "InvalidParameterValue"),
        ("c", "ReceiptHandleIsInvalid"),
        ("d", "InvalidParameterValue"),
        ("e", "MissingParameter"),
    ]
    sqs.clock.forward(50)
    assert sqs.bodies(url) == ["b0"]


def test_a_released_group_head_waits_until_the_rest_of_the_batch_is_settled(sqs: Endpoint) -> None:
    """The service gives it out at once, though what is behind it in its group is being worked on."""
    url, (first, second, third) = received(sqs, "q.fifo", 3)
    extend(sqs, url, first, 0)
    assert sqs.bodies(url) == [], "the others are leased still"
    delete(sqs, url, second)
    assert sqs.bodies(url) == []
    extend(sqs, url, third, 0)
    assert sqs.bodies(url) == ["b0", "b2"]


# --- batches ---


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("delete_message_batch", "DeleteMessageBatchRequestEntry"),
        ("change_message_visibility_batch", "ChangeMessageVisibilityBatchRequestEntry"),
    ],
)
@in_json
def test_invalid_settle_batches_are_refused(sqs: Endpoint, action: str, kind: str) -> None:
    url = sqs.queue("q")

    def told(*ids: str) -> tuple[str, str]:
        entries = [{"Id": entry_id, "ReceiptHandle": "x", "VisibilityTimeout": 1} for entry_id in ids]
        if action == "delete_message_batch":
            entries = [{"Id": entry["Id"], "ReceiptHandle": "x"} for entry in entries]
        return sqs.refused(getattr(sqs.client, action), QueueUrl=url, Entries=entries)

    assert told() == (f"{BATCH}EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    assert told(*map(str, range(11))) == (
        f"{BATCH}TooManyEntriesInBatchRequest",
        "Maximum number of entries per request are 10. You have sent 11.",
    )
    assert told("a", "a") == (f"{BATCH}BatchEntryIdsNotDistinct", "Id a repeated.")
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long."
    )
    assert told("a b") == (f"{BATCH}InvalidBatchEntryId", text)


# --- who fails is not in the way of others ---


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize("way", ["visible at once", "expired"])
def test_released_messages_are_received_in_rotation(sqs: Endpoint, name: str, way: str) -> None:
    url = sqs.queue(name)
    for body in "abc":
        fifo = {"MessageGroupId": body, "MessageDeduplicationId": body} if name.endswith(".fifo") else {}
        sqs.client.send_message(QueueUrl=url, MessageBody=body, **fifo)
    seen = ""
    for _ in range(30):
        (message,) = sqs.receive(url, 1)
        seen += message["Body"]
        if way == "expired":
            sqs.clock.forward(30)
        else:
            extend(sqs, url, message["ReceiptHandle"], 0)
    assert seen == "abc" * 10


def test_retry_delay_applies_only_if_configured(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    assert "RetryDelaySeconds" not in sqs.attributes(url)
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"RetryDelaySeconds": "10"})
    assert sqs.attributes(url)["RetryDelaySeconds"] == "10"
    sqs.client.send_message(QueueUrl=url, MessageBody="b")
    (message,) = sqs.receive(url, 1)
    extend(sqs, url, message["ReceiptHandle"], 0)
    assert sqs.bodies(url) == ["b"], "a visibility of 0 is a time that was stated"
    sqs.clock.forward(30)
    assert sqs.bodies(url) == []
    sqs.clock.forward(20)
    assert sqs.bodies(url) == ["b"]
