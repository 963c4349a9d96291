"""What is asked and answered: the 23 actions of the SQS API as types, and the one table of them.

Source: the public API model of SQS, version 2012-11-05 (botocore's ``sqs/service-2.json``). A type is named as its
action is, its attributes as Python has it; both protocols read and write the API's own names, which `api_name` gives.
A field without a default is one that the API requires: a request without it is refused with ``MissingParameter``.
An answer's field is left out where it is None, and a list or map where it is empty, unless the API requires it. The
service leaves out a batch's two lists too, though the model says that they are required.
"""

from typing import Final, NamedTuple

import msgspec
from msgspec import field

_CAPITALS: Final = {"md5": "MD5", "aws": "AWS"}


def api_name(name: str) -> str:
    """The API's name of an attribute: ``md5_of_message_body`` is MD5OfMessageBody."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


class Shape(msgspec.Struct, omit_defaults=True, gc=False, rename=api_name):
    """What every type here has in common."""


class Empty(Shape):
    """The answer of an action that has nothing to say."""


# What requests and answers hold


class MessageAttributeValue(Shape):
    """One attribute of a message, and of the system's attributes of one: a string, a number in text, or bytes.

    The type may be missing here, since the service then names the attribute: see the actions.
    """

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: tuple[str, ...] = ()
    binary_list_values: tuple[bytes, ...] = ()


class BatchResultErrorEntry(Shape):
    """An entry of a batch that failed; the code is the Query protocol's in both protocols."""

    id: str
    sender_fault: bool
    code: str
    message: str | None = None


class Message(Shape):
    """A message as it is received."""

    message_id: str
    receipt_handle: str
    md5_of_body: str
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}


# Queues


class CreateQueue(Shape):
    """Make a queue, or find it if it is there with the same attributes."""

    queue_name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = field(default_factory=dict, name="tags")


class CreateQueueAnswer(Shape):
    """Where it is."""

    queue_url: str


class DeleteQueue(Shape):
    """Delete a queue and what is in it."""

    queue_url: str


class GetQueueUrl(Shape):
    """Find a queue by its name."""

    queue_name: str
    queue_owner_aws_account_id: str | None = None


class GetQueueUrlAnswer(Shape):
    """Where it is."""

    queue_url: str


class ListQueues(Shape):
    """Find the queues whose names begin so."""

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListQueuesAnswer(Shape):
    """Where they are, and how to go on."""

    queue_urls: list[str] = []
    next_token: str | None = None


class ListDeadLetterSourceQueues(Shape):
    """Find the queues whose dead letters come to this one."""

    queue_url: str
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueuesAnswer(Shape):
    """Where they are, and how to go on. The list's name begins small in the API, and it is there when it is empty."""

    queue_urls: list[str] = field(name="queueUrls")
    next_token: str | None = None


class GetQueueAttributes(Shape):
    """Ask for a queue's settings and numbers."""

    queue_url: str
    attribute_names: tuple[str, ...] = ()


class GetQueueAttributesAnswer(Shape):
    """Each as text."""

    attributes: dict[str, str] = {}


class SetQueueAttributes(Shape):
    """Change a queue's settings."""

    queue_url: str
    attributes: dict[str, str]


class PurgeQueue(Shape):
    """Delete all that is in a queue."""

    queue_url: str


# Tags and permissions


class TagQueue(Shape):
    """Give a queue tags, or change their values."""

    queue_url: str
    tags: dict[str, str]


class UntagQueue(Shape):
    """Take tags from a queue."""

    queue_url: str
    tag_keys: tuple[str, ...]


class ListQueueTags(Shape):
    """Ask for a queue's tags."""

    queue_url: str


class ListQueueTagsAnswer(Shape):
    """All of them."""

    tags: dict[str, str] = {}


class AddPermission(Shape):
    """Let accounts do something with a queue."""

    queue_url: str
    label: str
    aws_account_ids: tuple[str, ...]
    actions: tuple[str, ...]


class RemovePermission(Shape):
    """Take back what was let under this label."""

    queue_url: str
    label: str


# Sending


class SendMessage(Shape):
    """Put a message into a queue."""

    queue_url: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}
    message_system_attributes: dict[str, MessageAttributeValue] = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageAnswer(Shape):
    """What it is known by, and what arrived."""

    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(Shape):
    """One message of a batch."""

    id: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}
    message_system_attributes: dict[str, MessageAttributeValue] = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatch(Shape):
    """Put messages into a queue. No entries is an error of its own, not a missing parameter; so in every batch."""

    queue_url: str
    entries: tuple[SendMessageBatchRequestEntry, ...] = ()


class SendMessageBatchResultEntry(Shape):
    """One that was taken."""

    id: str
    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchAnswer(Shape):
    """What became of each."""

    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


# Receiving


class ReceiveMessage(Shape):
    """Take messages from a queue for a while. ``attribute_names`` is the older name of the system attributes'."""

    queue_url: str
    attribute_names: tuple[str, ...] = ()
    message_system_attribute_names: tuple[str, ...] = ()
    message_attribute_names: tuple[str, ...] = ()
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class ReceiveMessageAnswer(Shape):
    """The messages, or nothing."""

    messages: list[Message] = []


class DeleteMessage(Shape):
    """Be done with a message."""

    queue_url: str
    receipt_handle: str


class DeleteMessageBatchRequestEntry(Shape):
    """One of a batch to be done with."""

    id: str
    receipt_handle: str


class DeleteMessageBatch(Shape):
    """Be done with messages."""

    queue_url: str
    entries: tuple[DeleteMessageBatchRequestEntry, ...] = ()


class DeleteMessageBatchResultEntry(Shape):
    """One that is done with."""

    id: str


class DeleteMessageBatchAnswer(Shape):
    """What became of each."""

    successful: list[DeleteMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ChangeMessageVisibility(Shape):
    """Keep a message for longer or shorter, in seconds from now."""

    queue_url: str
    receipt_handle: str
    visibility_timeout: int


class ChangeMessageVisibilityBatchRequestEntry(Shape):
    """One of a batch to be kept for longer or shorter."""

    id: str
    receipt_handle: str
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(Shape):
    """Keep messages for longer or shorter, in seconds from now."""

    queue_url: str
    entries: tuple[ChangeMessageVisibilityBatchRequestEntry, ...] = ()


class ChangeMessageVisibilityBatchResultEntry(Shape):
    """One that is kept so."""

    id: str


class ChangeMessageVisibilityBatchAnswer(Shape):
    """What became of each."""

    successful: list[ChangeMessageVisibilityBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


# Dead letters


class StartMessageMoveTask(Shape):
    """Move dead letters to another queue, or to where each came from."""

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskAnswer(Shape):
    """What the task is known by."""

    task_handle: str


class ListMessageMoveTasks(Shape):
    """Ask for the latest tasks of a queue."""

    source_arn: str
    max_results: int | None = None


class ListMessageMoveTasksResultEntry(Shape):
    """One task; its handle only while it runs, its start in milliseconds of the epoch."""

    status: str
    source_arn: str
    approximate_number_of_messages_moved: int
    started_timestamp: int
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None


class ListMessageMoveTasksAnswer(Shape):
    """The tasks, the latest first."""

    results: list[ListMessageMoveTasksResultEntry]


class CancelMessageMoveTask(Shape):
    """Stop a task; what it has moved stays where it is."""

    task_handle: str


class CancelMessageMoveTaskAnswer(Shape):
    """How many it has moved."""

    approximate_number_of_messages_moved: int


class Action(NamedTuple):
    """What an action is asked with and how it answers."""

    name: str
    params: type[Shape]
    answer: type[Shape]


ACTIONS: Final = {
    params.__name__: Action(params.__name__, params, answer)
    for params, answer in (
        (AddPermission, Empty),
        (CancelMessageMoveTask, CancelMessageMoveTaskAnswer),
        (ChangeMessageVisibility, Empty),
        (ChangeMessageVisibilityBatch, ChangeMessageVisibilityBatchAnswer),
        (CreateQueue, CreateQueueAnswer),
        (DeleteMessage, Empty),
        (DeleteMessageBatch, DeleteMessageBatchAnswer),
        (DeleteQueue, Empty),
        (GetQueueAttributes, GetQueueAttributesAnswer),
        (GetQueueUrl, GetQueueUrlAnswer),
        (ListDeadLetterSourceQueues, ListDeadLetterSourceQueuesAnswer),
        (ListMessageMoveTasks, ListMessageMoveTasksAnswer),
        (ListQueueTags, ListQueueTagsAnswer),
        (ListQueues, ListQueuesAnswer),
        (PurgeQueue, Empty),
        (ReceiveMessage, ReceiveMessageAnswer),
        (RemovePermission, Empty),
        (SendMessage, SendMessageAnswer),
        (SendMessageBatch, SendMessageBatchAnswer),
        (SetQueueAttributes, Empty),
        (StartMessageMoveTask, StartMessageMoveTaskAnswer),
        (TagQueue, Empty),
        (UntagQueue, Empty),
    )
}
"""Every action by its name."""
