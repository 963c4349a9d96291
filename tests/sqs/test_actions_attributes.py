"""Attributes of queues, and their tags and permissions, as boto3 sees them."""

import json
from typing import Any

import pytest
from endpoint import Endpoint, in_json

from inturn.queue import QueueSettings

FIFO_ONLY = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "DeduplicationWindowSeconds": "600"}


def redrive(sqs: Endpoint, name: str = "dead", count: Any = 3) -> dict[str, Any]:
    return {"deadLetterTargetArn": sqs.arn(name), "maxReceiveCount": count}


# --- what is read ---


def test_a_standard_queue_has_the_default_attributes(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    assert sqs.attributes(url) == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "CreatedTimestamp": "1700000000",
        "DelaySeconds": "0",
        "LastModifiedTimestamp": "1700000000",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": sqs.arn("plain"),
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "false",
        "VisibilityTimeout": "30",
    }


def test_a_fifo_queue_has_the_fifo_attributes_as_well(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    assert (
        sqs.attributes(url).items()
        >= {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }.items()
    )
    assert "DeduplicationWindowSeconds" not in sqs.attributes(url)
    assert sqs.attributes(url, "DeduplicationWindowSeconds") == {"DeduplicationWindowSeconds": "300"}


def test_get_queue_attributes_returns_only_the_requested_ones(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    assert sqs.attributes(url, "VisibilityTimeout", "Policy") == {"VisibilityTimeout": "30"}
    assert sqs.client.get_queue_attributes(QueueUrl=url).get("Attributes", {}) == {}
    refusal = sqs.refused(sqs.client.get_queue_attributes, QueueUrl=url, AttributeNames=["Nonsense"])
    assert refusal == ("InvalidAttributeName", "Unknown Attribute Nonsense.")


def test_queue_attributes_count_visible_hidden_and_delayed_messages(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    for delay_s in (0, 0, 0, 10):
        sqs.client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay_s)
    sqs.receive(url, 1)
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    assert sqs.attributes(url, *names) == {names[0]: "2", names[1]: "1"}
    assert sqs.attributes(url)["ApproximateNumberOfMessagesDelayed"] == "1"
    sqs.clock.forward(31)
    assert sqs.attributes(url, *names) == {names[0]: "4", names[1]: "0"}


def test_attributes_of_a_queue_made_with_the_python_api(sqs: Endpoint) -> None:
    settings = QueueSettings(visibility_timeout_s=0.5, dedup_window_s=None)
    sqs.db.queue("own", settings)
    sqs.db.queue("own.fifo", settings)
    attributes = sqs.attributes(sqs.url("own"))
    assert attributes["VisibilityTimeout"] == "1"
    assert "MessageRetentionPeriod" not in attributes
    assert sqs.attributes(sqs.url("own.fifo"))["DeduplicationWindowSeconds"] == "forever"


# --- what is set ---


def test_set_queue_attributes_leaves_the_others_unchanged(sqs: Endpoint) -> None:
    url = sqs.queue("plain", DelaySeconds=5)
    sqs.clock.forward(100)
    sqs.client.set_queue_attributes(
        QueueUrl=url, Attributes={"VisibilityTimeout": "43200", "ReceiveMessageWaitTimeSeconds": "20"}
    )
    assert (
        sqs.attributes(url).items()
        >= {
            "VisibilityTimeout": "43200",
            "ReceiveMessageWaitTimeSeconds": "20",
            "DelaySeconds": "5",
            "CreatedTimestamp": "1700000000",
            "LastModifiedTimestamp": "1700000100",
        }.items()
    )


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("DelaySeconds", 0, 900),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
    ],
)
@in_json
def test_number_attributes_out_of_range_are_refused(sqs: Endpoint, name: str, least: int, most: int) -> None:
    url = sqs.queue("plain")
    for value in (least, most):
        sqs.client.set_queue_attributes(QueueUrl=url, Attributes={name: str(value)})
        assert sqs.attributes(url, name) == {name: str(value)}
    for value in (str(least - 1), str(most + 1), "x", "", "1.5", "+60"):
        refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={name: value})
        assert refusal == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
        refusal = sqs.refused(sqs.client.create_queue, QueueName="other", Attributes={name: value})
        assert refusal == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


@in_json
def test_unknown_and_read_only_attributes_are_refused(sqs: Endpoint) -> None:
    url = sqs.queue("plain")
    unknown = ("InvalidAttributeName", "Unknown Attribute Nonsense.")
    assert sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"Nonsense": "1"}) == unknown
    assert sqs.refused(sqs.client.create_queue, QueueName="q", Attributes={"Nonsense": "1"}) == unknown
    refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"QueueArn": "1"})
    assert refusal == ("InvalidAttributeName", "Unknown Attribute QueueArn.")


@pytest.mark.parametrize("name", FIFO_ONLY)
@in_json
def test_fifo_only_attributes_are_refused_for_a_standard_queue(sqs: Endpoint, name: str) -> None:
    url = sqs.queue("plain")
    refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={name: FIFO_ONLY[name]})
    assert refusal == ("InvalidAttributeName", f"Unknown Attribute {name}.")


@pytest.mark.parametrize("name", ["DeduplicationScope", "FifoThroughputLimit"])
@in_json
def test_creating_a_standard_queue_with_a_fifo_attribute_says_why_it_is_refused(sqs: Endpoint, name: str) -> None:
    refusal = sqs.refused(sqs.client.create_queue, QueueName="plain", Attributes={name: "queue"})
    assert refusal == ("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")


@in_json
def test_creating_a_standard_queue_with_fifo_queue_false_is_refused(sqs: Endpoint) -> None:
    refusal = sqs.refused(sqs.client.create_queue, QueueName="plain", Attributes={"FifoQueue": "false"})
    assert refusal == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")


@in_json
def test_changing_the_type_of_a_queue_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "true"})
    refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": "false"})
    text = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    assert refusal == ("InvalidAttributeValue", text)


@in_json
def test_per_group_throughput_limit_requires_the_group_deduplication_scope(sqs: Endpoint) -> None:
    url = sqs.queue("q.fifo")
    text = (
        "Invalid value for the parameter FifoThroughputLimit. Reason: "
        "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."
    )
    refusal = sqs.refused(
        sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"FifoThroughputLimit": "perMessageGroupId"}
    )
    assert refusal == ("InvalidAttributeValue", text)
    both = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes=both)
    assert sqs.attributes(url).items() >= both.items()
    refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"DeduplicationScope": "queue"})
    assert refusal == ("InvalidAttributeValue", text)


@pytest.mark.parametrize("value", ["forever", "86400"])
@in_json
def test_a_deduplication_window_of_a_day_or_forever_is_kept(sqs: Endpoint, value: str) -> None:
    url = sqs.queue("q.fifo", DeduplicationWindowSeconds=value)
    assert sqs.attributes(url)["DeduplicationWindowSeconds"] == value
    send = {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    first = sqs.client.send_message(**send)
    sqs.clock.forward(86_399)
    assert sqs.client.send_message(**send)["MessageId"] == first["MessageId"]
    sqs.clock.forward(1)
    assert (sqs.client.send_message(**send)["MessageId"] == first["MessageId"]) == (value == "forever")


def test_kms_attributes_are_stored_and_removable(sqs: Endpoint) -> None:
    url = sqs.queue("plain", KmsMasterKeyId="alias/mine")
    attributes = sqs.attributes(url)
    assert attributes["KmsMasterKeyId"] == "alias/mine"
    assert attributes["KmsDataKeyReusePeriodSeconds"] == "300"
    assert attributes["SqsManagedSseEnabled"] == "false"
    sqs.client.set_queue_attributes(
        QueueUrl=url, Attributes={"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"}
    )
    attributes = sqs.attributes(url)
    assert "KmsMasterKeyId" not in attributes
    assert "KmsDataKeyReusePeriodSeconds" not in attributes
    assert attributes["SqsManagedSseEnabled"] == "false"


@pytest.mark.parametrize(
    ("attributes", "named"),
    [({"KmsMasterKeyId": "alias/mine"}, "KmsMasterKeyId"), ({"SqsManagedSseEnabled": "true"}, "SqsManagedSseEnabled")],
)
def test_encryption_attributes_log_a_warning_that_nothing_is_encrypted(
    sqs: Endpoint, caplog: pytest.LogCaptureFixture, attributes: dict[str, str], named: str
) -> None:
    caplog.set_level("WARNING", "inturn.server")

    def told() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return texts

    text = f"{named} of queue 'plain' is stored, but nothing is encrypted"
    url = sqs.queue("plain", **attributes)
    assert told() == [text]
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={**attributes, "DelaySeconds": "1"})
    sqs.queue("plain", **attributes)
    sqs.queue("other", SqsManagedSseEnabled="false")
    assert told() == []


@in_json
def test_kms_and_managed_sse_exclude_each_other(sqs: Endpoint) -> None:
    both = {"KmsMasterKeyId": "mine", "SqsManagedSseEnabled": "true"}
    text = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
    refusal = sqs.refused(sqs.queue, name="q", **both)
    assert refusal == ("InvalidAttributeName", text)
    url = sqs.queue("q", SqsManagedSseEnabled="true")
    assert sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes=both) == refusal
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "mine"})
    assert sqs.attributes(url)["SqsManagedSseEnabled"] == "false"
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    assert "KmsMasterKeyId" not in sqs.attributes(url)
    assert sqs.attributes(url)["SqsManagedSseEnabled"] == "true"


# --- dead letters ---


def test_a_redrive_policy_is_stored_and_removable(sqs: Endpoint) -> None:
    sqs.queue("dead")
    url = sqs.queue("plain", RedrivePolicy=redrive(sqs, count="3"))
    assert json.loads(sqs.attributes(url)["RedrivePolicy"]) == redrive(sqs)
    assert sqs.queue("plain", RedrivePolicy=redrive(sqs)) == url
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(url)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("[]", "Redrive policy is not a valid JSON map."),
        ("{", "Redrive policy is not a valid JSON map."),
        ('{"maxReceiveCount":3}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        ('{"deadLetterTargetArn":"x"}', "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        (
            '{"maxReceiveCount": 3, "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:none"}',
            "Dead letter target does not exist.",
        ),
        ('{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}', "Invalid value for deadLetterTargetArn."),
        ('{"deadLetterTargetArn":7,"maxReceiveCount":42}', "Invalid value for deadLetterTargetArn."),
        (
            '{"deadLetterTargetArn":"x","maxReceiveCount":3,"x":1}',
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        ),
        *(
            (
                f'{{"deadLetterTargetArn":"x","maxReceiveCount":{count}}}',
                f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive.",
            )
            for count in (0, 1001)
        ),
    ],
)
@in_json
def test_invalid_redrive_policies_are_refused(sqs: Endpoint, policy: str, reason: str) -> None:
    refusal = sqs.refused(sqs.client.create_queue, QueueName="q", Attributes={"RedrivePolicy": policy})
    text = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}"
    assert refusal == ("InvalidParameterValue", text)


@in_json
def test_a_dead_letter_queue_of_the_other_type_is_refused(sqs: Endpoint) -> None:
    sqs.queue("dead")
    policy = json.dumps(redrive(sqs), separators=(",", ":"))
    refusal = sqs.refused(sqs.queue, name="q.fifo", RedrivePolicy=policy)
    reason = "Dead-letter queue must be same type of queue as the source."
    assert refusal == (
        "InvalidParameterValue",
        f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}",
    )


@pytest.mark.parametrize(
    ("allow", "is_allowed"),
    [
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:000000000000:q"]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:000000000000:r"]}, False),
    ],
)
@in_json
def test_a_redrive_allow_policy_limits_the_source_queues(
    sqs: Endpoint, allow: dict[str, Any], is_allowed: bool
) -> None:
    dead = sqs.queue("dead", RedriveAllowPolicy=allow)
    assert json.loads(sqs.attributes(dead)["RedriveAllowPolicy"]) == allow
    if is_allowed:
        sqs.queue("q", RedrivePolicy=redrive(sqs))
    else:
        assert sqs.refused(sqs.queue, name="q", RedrivePolicy=redrive(sqs))[0] == "InvalidParameterValue"


@pytest.mark.parametrize(
    "allow",
    [
        "x",
        "{}",
        '{"redrivePermission":"some"}',
        '{"redrivePermission":"byQueue"}',
        '{"redrivePermission":["byQueue"]}',
        '{"redrivePermission":"allowAll","other":1}',
        '{"redrivePermission":"byQueue","sourceQueueArns":["x"]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":"arn:aws:sqs:us-east-1:000000000000:q"}',
        '{"redrivePermission":"denyAll","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:q"]}',
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:000000000000:q"] * 11}),
    ],
)
@in_json
def test_invalid_redrive_allow_policies_are_refused(sqs: Endpoint, allow: str) -> None:
    reason = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."
    text = f"Value {allow} for parameter RedriveAllowPolicy is invalid. Reason: {reason}"
    assert sqs.refused(sqs.queue, name="q", RedriveAllowPolicy=allow) == ("InvalidParameterValue", text)


# --- tags ---


def test_tags_are_added_replaced_and_removed(sqs: Endpoint) -> None:
    url = sqs.client.create_queue(QueueName="q", tags={"a": "1", "b": "2"})["QueueUrl"]
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "1", "b": "2"}
    sqs.client.tag_queue(QueueUrl=url, Tags={"b": "3", "c": ""})
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["a", "none"])
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"b": "3", "c": ""}
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["b", "c"])
    assert sqs.client.list_queue_tags(QueueUrl=url).get("Tags", {}) == {}


@in_json
def test_too_many_or_too_long_tags_are_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    sqs.client.tag_queue(QueueUrl=url, Tags={str(n): "x" for n in range(50)})
    refusal = sqs.refused(sqs.client.tag_queue, QueueUrl=url, Tags={"one more": "x"})
    assert refusal == ("InvalidParameterValue", "Too many tags added for queue q.")
    sqs.client.tag_queue(QueueUrl=url, Tags={"0": "another"})
    refusal = sqs.refused(sqs.client.tag_queue, QueueUrl=url, Tags={"k" * 129: "x"})
    assert refusal == ("InvalidParameterValue", "Too many tags added for queue q.")
    other = sqs.queue("other")
    refusal = sqs.refused(sqs.client.tag_queue, QueueUrl=other, Tags={"k" * 129: "x"})
    assert refusal == ("InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length.")
    refusal = sqs.refused(sqs.client.tag_queue, QueueUrl=other, Tags={"k": "x" * 257})
    assert refusal == ("InvalidParameterValue", "Tag values must be between 0 and 256 characters in length.")


@in_json
def test_empty_tag_lists_are_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    refusal = sqs.refused(sqs.client.tag_queue, QueueUrl=url, Tags={})
    assert refusal == ("MissingParameter", "The request must contain the parameter Tags.")
    refusal = sqs.refused(sqs.client.untag_queue, QueueUrl=url, TagKeys=[])
    assert refusal == ("InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length.")


# --- permissions ---


def permit(sqs: Endpoint, url: str, **changed: Any) -> Any:
    params = {"QueueUrl": url, "Label": "mine", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    return sqs.client.add_permission(**{**params, **changed})


def test_add_permission_adds_a_statement_to_the_policy(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    permit(sqs, url)
    permit(sqs, url, Label="all", AWSAccountIds=["1" * 12, "2" * 12], Actions=["*", "ReceiveMessage"])
    assert json.loads(sqs.attributes(url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{sqs.arn('q')}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "mine",
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
                "Action": "SQS:SendMessage",
                "Resource": sqs.arn("q"),
            },
            {
                "Sid": "all",
                "Effect": "Allow",
                "Principal": {"AWS": [f"arn:aws:iam::{n * 12}:root" for n in "12"]},
                "Action": ["SQS:*", "SQS:ReceiveMessage"],
                "Resource": sqs.arn("q"),
            },
        ],
    }
    sqs.client.remove_permission(QueueUrl=url, Label="mine")
    statements = json.loads(sqs.attributes(url, "Policy")["Policy"])["Statement"]
    assert [statement["Sid"] for statement in statements] == ["all"]
    sqs.client.remove_permission(QueueUrl=url, Label="all")
    assert sqs.attributes(url, "Policy") == {}


def test_add_permission_extends_an_existing_policy(sqs: Endpoint) -> None:
    own = {"Sid": "own", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": own}
    url = sqs.queue("q", Policy=policy)
    assert json.loads(sqs.attributes(url, "Policy")["Policy"]) == policy
    permit(sqs, url)
    statements = json.loads(sqs.attributes(url, "Policy")["Policy"])["Statement"]
    assert [statement["Sid"] for statement in statements] == ["own", "mine"]


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        (
            {"Actions": ["DeleteQueue"]},
            "InvalidParameterValue",
            (
                "Value SQS:DeleteQueue for parameter ActionName is invalid. "
                "Reason: Only the queue owner is allowed to invoke this action."
            ),
        ),
        (
            {"Actions": ["Fly"]},
            "InvalidParameterValue",
            (
                "Value SQS:Fly for parameter ActionName is invalid. "
                "Reason: Please refer to the appropriate WSDL for a list of valid actions. "
            ),
        ),
        ({"Actions": ["SendMessage"] * 8}, "OverLimit", "8 Actions were found, maximum allowed is 7."),
        (
            {"AWSAccountIds": ["12"]},
            "InvalidParameterValue",
            "Value [12] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (
            {"Label": "with space"},
            "InvalidParameterValue",
            (
                "Value with space for parameter Label is invalid. Reason: "
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
            ),
        ),
        (
            {"Label": "mine"},
            "InvalidParameterValue",
            "Value mine for parameter Label is invalid. Reason: Already exists.",
        ),
    ],
)
@in_json
def test_invalid_permissions_are_refused(sqs: Endpoint, changed: dict[str, Any], code: str, text: str) -> None:
    url = sqs.queue("q")
    permit(sqs, url)
    assert sqs.refused(permit, sqs=sqs, url=url, **{"Label": "other", **changed}) == (code, text)


@in_json
def test_add_permission_without_actions_or_accounts_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    refusal = sqs.refused(permit, sqs=sqs, url=url, Actions=[])
    assert refusal == ("MissingParameter", "The request must contain the parameter Actions.")
    refusal = sqs.refused(permit, sqs=sqs, url=url, AWSAccountIds=[])
    assert refusal == (
        "InvalidParameterValue",
        "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
    )


@in_json
def test_remove_permission_with_an_unknown_label_is_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    text = "Value none for parameter Label is invalid. Reason: can't find label"
    refusal = sqs.refused(sqs.client.remove_permission, QueueUrl=url, Label="none")
    assert refusal == ("InvalidParameterValue", f"{text}.")
    permit(sqs, url)
    refusal = sqs.refused(sqs.client.remove_permission, QueueUrl=url, Label="none")
    assert refusal == ("InvalidParameterValue", f"{text} on existing policy.")


@in_json
def test_an_invalid_policy_is_refused(sqs: Endpoint) -> None:
    refusal = sqs.refused(sqs.queue, name="q", Policy="nonsense")
    text = "Invalid value for the parameter Policy. Reason: 'nonsense' is not a JSON object."
    assert refusal == ("InvalidAttributeValue", text)
    url = sqs.queue("q")
    broken = json.dumps({"Statement": {"Effect": "Allow", "Principal": "*", "Action": "sqs:Fly", "Resource": "*"}})
    refusal = sqs.refused(sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"Policy": broken})
    text = "Statement 1: Action names 'sqs:Fly', which is not an SQS action."
    assert refusal == ("InvalidAttributeValue", f"Invalid value for the parameter Policy. Reason: {text}")
    assert "Policy" not in sqs.attributes(url)


def test_a_policy_resource_that_matches_nothing_logs_a_warning(sqs: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "inturn.server")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": ["*", "orders\n", "x"]}
    policy = {"Version": "2012-10-17", "Statement": statement}
    url = sqs.queue("orders", Policy=policy)
    assert json.loads(sqs.attributes(url, "Policy")["Policy"]) == policy
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy), "DelaySeconds": "1"})
    sqs.queue("other", Policy={**policy, "Statement": {**statement, "Resource": "*"}})
    texts = [record.getMessage() for record in caplog.records if "resource" in record.getMessage()]
    assert texts == [
        "a resource in the policy of queue 'orders' is not an ARN and matches nothing: 'orders\\n' and 1 more"
    ]


@in_json
def test_permissions_over_the_policy_size_limit_are_refused(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    accounts = [f"{n:012}" for n in range(150)]
    permit(sqs, url, AWSAccountIds=accounts)
    code, text = sqs.refused(permit, sqs=sqs, url=url, Label="other", AWSAccountIds=accounts)
    assert (code, text.endswith("bytes; at most 8192 are allowed.")) == ("OverLimit", True)
