"""Making, finding, purging and deleting queues, as boto3 sees it."""

import pytest
from endpoint import Endpoint, in_json

import inturn
from inturn.queue import QueueSettings
from inturn.sqs import limits

PLAIN = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
WITH_SUFFIX = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


def no_queue(sqs: Endpoint) -> tuple[str, str]:
    more = " for this wsdl version" if sqs.protocol == "query" else ""
    return NO_QUEUE, f"The specified queue does not exist{more}."


def test_a_queue_is_created_found_and_deleted(sqs: Endpoint) -> None:
    assert sqs.queue("plain") == sqs.url("plain")
    assert sqs.client.get_queue_url(QueueName="plain")["QueueUrl"] == sqs.url("plain")
    sqs.client.delete_queue(QueueUrl=sqs.url("plain"))
    assert sqs.refused(sqs.client.get_queue_url, QueueName="plain") == no_queue(sqs)
    assert sqs.refused(sqs.client.delete_queue, QueueUrl=sqs.url("plain")) == no_queue(sqs)


def test_a_deleted_queue_can_be_recreated_at_once_and_is_empty(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    sqs.client.send_message(QueueUrl=url, MessageBody="old")
    sqs.client.delete_queue(QueueUrl=url)
    sqs.queue("plain", VisibilityTimeout=7)
    assert sqs.bodies(url) == []
    assert sqs.attributes(url)["VisibilityTimeout"] == "7"


@pytest.mark.parametrize("name", ["", "a" * 81, "with space", "dots.in.it", "late.fifo", "ü"])
@in_json
def test_invalid_standard_queue_names_are_refused(sqs: Endpoint, name: str) -> None:
    assert sqs.refused(sqs.client.create_queue, QueueName=name) == ("InvalidParameterValue", PLAIN)


@pytest.mark.parametrize("name", ["no-suffix", ".fifo", "a" * 76 + ".fifo", "a.b.fifo"])
@in_json
def test_invalid_fifo_queue_names_are_refused(sqs: Endpoint, name: str) -> None:
    refusal = sqs.refused(sqs.client.create_queue, QueueName=name, Attributes={"FifoQueue": "true"})
    assert refusal == ("InvalidParameterValue", WITH_SUFFIX)


@in_json
def test_queue_names_of_80_characters_are_accepted(sqs: Endpoint) -> None:
    assert sqs.queue("a" * 80).endswith("a" * 80)
    assert sqs.queue("a" * 75 + ".fifo").endswith(".fifo")


def test_creating_an_existing_queue_succeeds_only_with_equal_attributes(sqs: Endpoint) -> None:
    url = sqs.queue("plain", VisibilityTimeout=60)
    assert sqs.queue("plain") == url
    assert sqs.queue("plain", VisibilityTimeout=60, DelaySeconds=0) == url
    refusal = sqs.refused(sqs.queue, name="plain", VisibilityTimeout=61)
    text = "A queue already exists with the same name and a different value for attribute VisibilityTimeout"
    assert refusal == ("QueueAlreadyExists", text)
    assert sqs.attributes(url)["VisibilityTimeout"] == "60"


@in_json
def test_queue_already_exists_is_also_raised_as_queue_name_exists(sqs: Endpoint) -> None:
    sqs.queue("plain")
    with pytest.raises(sqs.client.exceptions.QueueNameExists):
        sqs.queue("plain", DelaySeconds=1)


def test_queues_are_listed_by_prefix(sqs: Endpoint) -> None:
    for name in ("b1", "a2", "a1.fifo"):
        sqs.queue(name)
    assert sqs.client.list_queues()["QueueUrls"] == [sqs.url("a1.fifo"), sqs.url("a2"), sqs.url("b1")]
    assert sqs.client.list_queues(QueueNamePrefix="a")["QueueUrls"] == [sqs.url("a1.fifo"), sqs.url("a2")]
    assert "QueueUrls" not in sqs.client.list_queues(QueueNamePrefix="c")


def test_list_queues_pages_only_with_max_results(sqs: Endpoint) -> None:
    urls = [sqs.queue(f"q{n}") for n in range(5)]
    assert "NextToken" not in sqs.client.list_queues()
    page = sqs.client.list_queues(MaxResults=2)
    assert page["QueueUrls"] == urls[:2]
    page = sqs.client.list_queues(MaxResults=2, NextToken=page["NextToken"])
    assert page["QueueUrls"] == urls[2:4]
    page = sqs.client.list_queues(MaxResults=2, NextToken=page["NextToken"])
    assert page["QueueUrls"] == urls[4:]
    assert "NextToken" not in page
    assert "NextToken" not in sqs.client.list_queues(MaxResults=5)


def test_list_queues_without_max_results_ends_at_the_limit_without_a_token(
    sqs: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIST_RESULTS", 2)
    urls = [sqs.queue(f"q{n}") for n in range(3)]
    answer = sqs.client.list_queues()
    assert answer["QueueUrls"] == urls[:2]
    assert "NextToken" not in answer


@pytest.mark.parametrize("most", [0, 1001])
@in_json
def test_list_queues_refuses_max_results_out_of_range(sqs: Endpoint, most: int) -> None:
    text = (
        f"Value {most} for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000."
    )
    assert sqs.refused(sqs.client.list_queues, MaxResults=most) == ("InvalidParameterValue", text)


@in_json
def test_list_queues_refuses_an_unknown_next_token(sqs: Endpoint) -> None:
    refusal = sqs.refused(sqs.client.list_queues, MaxResults=1, NextToken="x")
    assert refusal == ("InvalidParameterValue", "Invalid or expired next token.")


def test_source_queues_of_a_dead_letter_queue_are_listed_in_pages(sqs: Endpoint) -> None:
    dead = sqs.queue("dead")
    policy = {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": 3}
    urls = [sqs.queue(f"q{n}", RedrivePolicy=policy) for n in range(3)]
    sqs.queue("other")
    listed = sqs.client.list_dead_letter_source_queues
    assert listed(QueueUrl=dead)["queueUrls"] == urls
    page = listed(QueueUrl=dead, MaxResults=2)
    assert page["queueUrls"] == urls[:2]
    assert listed(QueueUrl=dead, MaxResults=2, NextToken=page["NextToken"])["queueUrls"] == urls[2:]
    assert listed(QueueUrl=urls[0]).get("queueUrls", []) == []
    assert sqs.refused(listed, QueueUrl=sqs.url("none")) == no_queue(sqs)


def test_get_queue_url_finds_only_queues_of_the_given_owner(sqs: Endpoint) -> None:
    sqs.queue("plain")
    answer = sqs.client.get_queue_url(QueueName="plain", QueueOwnerAWSAccountId="000000000000")
    assert answer["QueueUrl"] == sqs.url("plain")
    refusal = sqs.refused(sqs.client.get_queue_url, QueueName="plain", QueueOwnerAWSAccountId="123456789012")
    assert refusal == no_queue(sqs)


def test_a_purge_empties_a_queue_and_its_deduplication_ids(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    for group in ("a", "b"):
        sqs.client.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=group)
    assert sqs.bodies(url, 1) == ["a"]
    sqs.client.purge_queue(QueueUrl=url)
    assert sqs.bodies(url) == []
    sqs.client.send_message(QueueUrl=url, MessageBody="again", MessageGroupId="a", MessageDeduplicationId="a")
    assert sqs.bodies(url) == ["again"]


def test_a_second_purge_within_60_seconds_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    sqs.client.purge_queue(QueueUrl=url)
    sqs.clock.forward(59.9)
    refusal = sqs.refused(sqs.client.purge_queue, QueueUrl=url)
    text = "Only one PurgeQueue operation on plain is allowed every 60 seconds."
    assert refusal == ("AWS.SimpleQueueService.PurgeQueueInProgress", text)
    assert sqs.status(sqs.client.purge_queue, QueueUrl=url) == 403
    sqs.clock.forward(0.1)
    sqs.client.purge_queue(QueueUrl=url)
    assert sqs.refused(sqs.client.purge_queue, QueueUrl=sqs.url("none")) == no_queue(sqs)


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("add_permission", {"Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["SendMessage"]}),
        ("change_message_visibility", {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
        ("change_message_visibility_batch", {"Entries": [{"Id": "1", "ReceiptHandle": "x", "VisibilityTimeout": 1}]}),
        ("delete_message", {"ReceiptHandle": "x"}),
        ("delete_message_batch", {"Entries": [{"Id": "1", "ReceiptHandle": "x"}]}),
        ("get_queue_attributes", {"AttributeNames": ["All"]}),
        ("list_queue_tags", {}),
        ("receive_message", {}),
        ("remove_permission", {"Label": "l"}),
        ("send_message", {"MessageBody": "x"}),
        ("send_message_batch", {"Entries": [{"Id": "1", "MessageBody": "x"}]}),
        ("set_queue_attributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("tag_queue", {"Tags": {"a": "b"}}),
        ("untag_queue", {"TagKeys": ["a"]}),
    ],
)
@in_json
def test_every_action_on_a_missing_queue_gets_queue_does_not_exist(
    sqs: Endpoint, action: str, params: dict[str, object]
) -> None:
    refusal = sqs.refused(getattr(sqs.client, action), QueueUrl=sqs.url("none"), **params)
    assert refusal == no_queue(sqs)


def test_a_queue_created_by_another_process_is_found_at_once(sqs: Endpoint) -> None:
    sqs.queue("mine")
    with inturn.open(sqs.path) as other:
        other.queue("theirs", QueueSettings(content_dedup=True))
        other.queue("theirs.fifo", QueueSettings(content_dedup=True))
    sent = sqs.client.send_message(QueueUrl=sqs.url("theirs.fifo"), MessageBody="x", MessageGroupId="g")
    assert sqs.receive(sqs.url("theirs.fifo"))[0]["MessageId"] == sent["MessageId"]


@in_json
def test_a_queue_name_is_accepted_as_the_queue_url(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    sqs.client.send_message(QueueUrl="plain", MessageBody="x")
    assert sqs.bodies(url) == ["x"]


@in_json
def test_a_queue_url_without_a_name_gets_404(sqs: Endpoint) -> None:
    url = f"{sqs.shared_server.naming.base_url}/"
    refusal = sqs.refused(sqs.client.send_message, QueueUrl=url, MessageBody="x")
    assert refusal == ("InvalidAddress", f"The address {url} is not valid for this endpoint.")
    assert sqs.status(sqs.client.send_message, QueueUrl=url, MessageBody="x") == 404


def test_queues_with_their_attributes_and_tags_survive_a_restart(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo", ContentBasedDeduplication="true", MaximumMessageSize=2048)
    sqs.client.tag_queue(QueueUrl=url, Tags={"team": "blue"})
    before = sqs.attributes(url)
    sqs.restart()
    assert sqs.attributes(url) == before
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue"}
