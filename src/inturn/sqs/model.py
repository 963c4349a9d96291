"""The requests and answers of the SQS API: its 23 actions as types, and the one table of them.

Source: the public API model of SQS, version 2012-11-05 (botocore's ``sqs/service-2.json``). A type has the name of its
action and Python names for its attributes; both protocols use the API's names, which `api_name` gives.
A field without a default is one that the API requires: a request without it is refused with ``MissingParameter``.
An answer's field is left out where it is None, and a list or map where it is empty, unless the API requires it. The
service leaves out a batch's two lists too, though the model says that they are required.
"""

from typing import Final, NamedTuple

import msgspec
from msgspec import field

_CAPITALS: Final = {"md5": "MD5", "aws": "AWS"}


def api_name(name: str) -> str:
    """Return the API's name of an attribute: ``md5_of_message_body`` is MD5OfMessageBody."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


class Shape(msgspec.Struct, omit_defaults=True, gc=False, rename=api_name):
    """The base of all types of the API."""


class Empty(Shape):
    """An answer without content."""


class MessageAttributeValue(Shape):
    """A message attribute, or a message system attribute: a string, a number as text, or bytes.

    The type may be missing here, since the service's error for that names the attribute: see the actions.
    """

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: tuple[str, ...] = ()
    binary_list_values: tuple[bytes, ...] = ()


class BatchResultErrorEntry(Shape):
    """A failed entry of a batch; the code is the Query protocol's in both protocols."""

    id: str
    sender_fault: bool
    code: str
    message: str | None = None


class ApiMessage(Shape):
    """A received message."""

    message_id: str
    receipt_handle: str
    md5_of_body: str
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}


class _QueueRequest(Shape):
    """Parameters that begin with a queue's URL."""

    queue_url: str


class CreateQueue(Shape):
    """Create a queue, or return an existing one with the same attributes."""

    queue_name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = field(default_factory=dict, name="tags")


class CreateQueueAnswer(Shape):
    """The queue's URL."""

    queue_url: str


class DeleteQueue(_QueueRequest):
    """Delete a queue with its messages."""


class GetQueueUrl(Shape):
    """Find a queue by its name."""

    queue_name: str
    queue_owner_aws_account_id: str | None = None


class GetQueueUrlAnswer(CreateQueueAnswer):
    """The queue's URL."""


class ListQueues(Shape):
    """List the queues whose names have a prefix."""

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListQueuesAnswer(Shape):
    """The queues' URLs, and the token of the next page."""

    queue_urls: list[str] = []
    next_token: str | None = None


class ListDeadLetterSourceQueues(_QueueRequest):
    """List the queues that have this dead-letter queue."""

    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueuesAnswer(Shape):
    """The queues' URLs, and the token of the next page. The list is ``queueUrls`` in the API, and kept when empty."""

    queue_urls: list[str] = field(name="queueUrls")
    next_token: str | None = None


class GetQueueAttributes(_QueueRequest):
    """Read a queue's settings and message counts."""

    attribute_names: tuple[str, ...] = ()


class GetQueueAttributesAnswer(Shape):
    """The attributes, each as text."""

    attributes: dict[str, str] = {}


class SetQueueAttributes(_QueueRequest):
    """Change a queue's settings."""

    attributes: dict[str, str]


class PurgeQueue(_QueueRequest):
    """Delete all messages of a queue."""


class TagQueue(_QueueRequest):
    """Add tags to a queue, or change their values."""

    tags: dict[str, str]


class UntagQueue(_QueueRequest):
    """Remove tags from a queue."""

    tag_keys: tuple[str, ...]


class ListQueueTags(_QueueRequest):
    """List a queue's tags."""


class ListQueueTagsAnswer(Shape):
    """The tags."""

    tags: dict[str, str] = {}


class AddPermission(_QueueRequest):
    """Allow accounts to perform actions on a queue."""

    label: str
    aws_account_ids: tuple[str, ...]
    actions: tuple[str, ...]


class RemovePermission(_QueueRequest):
    """Remove the permission with this label."""

    label: str


class SendMessage(_QueueRequest):
    """Send a message to a queue."""

    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}
    message_system_attributes: dict[str, MessageAttributeValue] = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageAnswer(Shape):
    """The message's id, and the digests of what arrived."""

    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(Shape):
    """A message of a batch."""

    id: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] = {}
    message_system_attributes: dict[str, MessageAttributeValue] = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatch(_QueueRequest):
    """Send messages to a queue. Entries are not required here: an empty batch, of any kind, has its own error."""

    entries: tuple[SendMessageBatchRequestEntry, ...] = ()


class SendMessageBatchResultEntry(Shape):
    """A message that was accepted."""

    id: str
    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchAnswer(Shape):
    """The result of each entry."""

    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ReceiveMessage(_QueueRequest):
    """Receive messages of a queue. ``attribute_names`` is the older name of ``message_system_attribute_names``."""

    attribute_names: tuple[str, ...] = ()
    message_system_attribute_names: tuple[str, ...] = ()
    message_attribute_names: tuple[str, ...] = ()
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class ReceiveMessageAnswer(Shape):
    """The messages, if any."""

    messages: list[ApiMessage] = []


class DeleteMessage(_QueueRequest):
    """Delete a received message."""

    receipt_handle: str


class DeleteMessageBatchRequestEntry(Shape):
    """A receipt handle of a batch."""

    id: str
    receipt_handle: str


class DeleteMessageBatch(_QueueRequest):
    """Delete received messages."""

    entries: tuple[DeleteMessageBatchRequestEntry, ...] = ()


class DeleteMessageBatchResultEntry(Shape):
    """A message that was deleted."""

    id: str


class DeleteMessageBatchAnswer(Shape):
    """The result of each entry."""

    successful: list[DeleteMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ChangeMessageVisibility(_QueueRequest):
    """Set the visibility timeout of a received message, in seconds from now."""

    receipt_handle: str
    visibility_timeout: int


class ChangeMessageVisibilityBatchRequestEntry(DeleteMessageBatchRequestEntry):
    """A receipt handle of a batch, with its new visibility timeout."""

    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(_QueueRequest):
    """Set the visibility timeouts of received messages, in seconds from now."""

    entries: tuple[ChangeMessageVisibilityBatchRequestEntry, ...] = ()


class ChangeMessageVisibilityBatchResultEntry(DeleteMessageBatchResultEntry):
    """A message whose visibility timeout was changed."""


class ChangeMessageVisibilityBatchAnswer(Shape):
    """The result of each entry."""

    successful: list[ChangeMessageVisibilityBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class StartMessageMoveTask(Shape):
    """Move dead letters to another queue, or back to their source queues."""

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskAnswer(Shape):
    """The task's handle."""

    task_handle: str


class ListMessageMoveTasks(Shape):
    """List the latest move tasks of a queue."""

    source_arn: str
    max_results: int | None = None


class ListMessageMoveTasksResultEntry(Shape):
    """A move task; it has a handle only while it runs, and its start is in milliseconds since 1970."""

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
    """Cancel a move task; the messages already moved stay where they are."""

    task_handle: str


class CancelMessageMoveTaskAnswer(Shape):
    """The number of messages already moved."""

    approximate_number_of_messages_moved: int


class ApiAction(NamedTuple):
    """An action's name with the types of its parameters and its answer."""

    name: str
    params: type[Shape]
    answer: type[Shape]


_PARAMS: Final[tuple[type[Shape], ...]] = (
    *(AddPermission, CancelMessageMoveTask, ChangeMessageVisibility, ChangeMessageVisibilityBatch, CreateQueue),
    *(DeleteMessage, DeleteMessageBatch, DeleteQueue, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues),
    *(ListMessageMoveTasks, ListQueueTags, ListQueues, PurgeQueue, ReceiveMessage, RemovePermission, SendMessage),
    *(SendMessageBatch, SetQueueAttributes, StartMessageMoveTask, TagQueue, UntagQueue),
)

ACTIONS: Final = {
    params.__name__: ApiAction(params.__name__, params, globals().get(f"{params.__name__}Answer", Empty))
    for params in _PARAMS
}
"""Every action by its name; an action without an answer type of its own has an empty answer."""
