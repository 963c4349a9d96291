"""SendMessage and SendMessageBatch.

Sends are frequent, so this module is tuned: it scans a message once and creates no object without need.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from inturn.core import limits as core_limits
from inturn.core.queue.messages import Content, Draft, QueueInfo, Sent
from inturn.sqs import errors, limits
from inturn.sqs.actions import properties, validate
from inturn.sqs.actions.names import MessageNames, md5_of, md5_of_attributes, names_of, sequence_number
from inturn.sqs.context import Context, extra_setting, is_fifo
from inturn.sqs.errors import SqsError
from inturn.sqs.model import (
    BatchResultErrorEntry,
    MessageAttributeValue,
    SendMessage,
    SendMessageAnswer,
    SendMessageBatch,
    SendMessageBatchAnswer,
    SendMessageBatchRequestEntry,
    SendMessageBatchResultEntry,
)
from inturn.store.commands import Command, Send

_NO_ID: Final = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
_TRACE: Final = "AWSTraceHeader"
_draft: Final[Callable[[tuple[Any, ...]], Draft]] = partial(tuple.__new__, Draft)  # takes half the time of Draft(…)
_TEXT: Final = Content.TEXT  # before Python 3.12, access to an enum member takes 0.15 µs


class _Checked(Struct, gc=False):
    """A valid message, and the digests for its sender."""

    draft: Draft
    size: int
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


def send_message(context: Context, params: SendMessage) -> Command[SendMessageAnswer]:
    """Send a message to a queue."""
    queue = context.queue(params.queue_url)
    fifo = is_fifo(queue)
    checked = _checked(context, queue, fifo, params)
    return Send(queue.name, partial(_sent, names_of(context), fifo, checked), (checked.draft,))


def _sent(
    names: MessageNames,
    fifo: bool,  # noqa: FBT001 - bound above
    checked: _Checked,
    sent: Sequence[Sent],
) -> SendMessageAnswer:
    number = sent[0].sequence_number
    return SendMessageAnswer(
        names.message_id(number),
        checked.md5_of_body,
        checked.md5_of_attributes,
        checked.md5_of_system_attributes,
        sequence_number(number) if fifo else None,
    )


def send_message_batch(context: Context, params: SendMessageBatch) -> Command[SendMessageBatchAnswer]:
    """Send messages to a queue. Entries fail independently; an invalid batch is refused as a whole."""
    queue = context.queue(params.queue_url)
    validate.check_batch(params.entries, "SendMessageBatchRequestEntry")
    fifo = is_fifo(queue)
    if fifo:
        _check_fifo_batch(queue, params.entries)
    outcomes: list[tuple[SendMessageBatchRequestEntry, _Checked | SqsError]] = []
    size = 0
    for entry in params.entries:
        try:
            checked = _checked(context, queue, fifo, entry)
            outcomes.append((entry, checked))
            size += checked.size
        except SqsError as error:
            outcomes.append((entry, error))
            size += len(entry.message_body.encode(errors="replace"))
    if size > core_limits.BODY_BYTES:
        raise errors.batch_request_too_long(size)
    drafts = [checked.draft for _, checked in outcomes if isinstance(checked, _Checked)]
    return Send(queue.name, partial(_batch_sent, names_of(context), fifo, outcomes), drafts)


def _check_fifo_batch(queue: QueueInfo, entries: Sequence[SendMessageBatchRequestEntry]) -> None:
    """Refuse the whole batch if an entry lacks its deduplication or group id; the service checks this first."""
    for entry in entries:
        if not entry.message_deduplication_id and not queue.settings.content_dedup:
            raise errors.invalid_parameter_value(_NO_ID)
        if not entry.message_group_id:
            raise errors.invalid_parameter_value(errors.missing_parameter("MessageGroupId").message)


def _batch_sent(
    names: MessageNames,
    fifo: bool,  # noqa: FBT001 - bound above
    outcomes: Sequence[tuple[SendMessageBatchRequestEntry, _Checked | SqsError]],
    sent: Sequence[Sent],
) -> SendMessageBatchAnswer:
    numbers = iter(sent)
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for entry, checked in outcomes:
        if isinstance(checked, SqsError):
            failed.append(validate.failed(entry, checked))
            continue
        number = next(numbers).sequence_number
        successful.append(
            SendMessageBatchResultEntry(
                entry.id,
                names.message_id(number),
                checked.md5_of_body,
                checked.md5_of_attributes,
                checked.md5_of_system_attributes,
                sequence_number(number) if fifo else None,
            )
        )
    return SendMessageBatchAnswer(successful, failed)


def _checked(
    context: Context,
    queue: QueueInfo,
    fifo: bool,  # noqa: FBT001 - looked up once for all messages of a batch
    message: SendMessage | SendMessageBatchRequestEntry,
) -> _Checked:
    """Check a message and return it with its digests."""
    body = message.message_body
    if not body:
        raise errors.missing_parameter("MessageBody")
    data = validate.utf8(body)
    if not validate.check_text(body, data):
        raise errors.invalid_message_contents()
    attributes, system = message.message_attributes, message.message_system_attributes
    size = len(data) + (validate.attributes_size(attributes) if attributes else 0)
    longest = extra_setting(queue.settings, "maximum_message_size", core_limits.BODY_BYTES)
    if size > longest:
        text = f"One or more parameters are invalid. Reason: Message must be shorter than {longest} bytes."
        raise errors.invalid_parameter_value(text)
    group, dedup_id = message.message_group_id, message.message_deduplication_id
    own = _trace(system) if system else {}
    if context.trace and not own:
        own = {properties.TRACE: context.trace}
    if context.caller.sender:
        own[properties.SENDER] = context.caller.sender
    if fifo:
        delay_ms = None
        _check_fifo(queue, message)
    else:
        delay_ms = _check_standard(message)
        if group is not None:
            own[properties.GROUP] = group
            group = None
    more = properties.stored_text(attributes, own) if attributes or own else None
    return _Checked(
        _draft((body, _TEXT, group, None, dedup_id, delay_ms, more, None, None)),
        size,
        md5_of(data),
        md5_of_attributes(attributes) if attributes else None,
        md5_of_attributes(system) if system else None,
    )


def _check_fifo(queue: QueueInfo, message: SendMessage | SendMessageBatchRequestEntry) -> None:
    group, dedup_id = message.message_group_id, message.message_deduplication_id
    if dedup_id is not None:
        validate.check_token(dedup_id, "MessageDeduplicationId")
    if group is not None:
        validate.check_token(group, "MessageGroupId")
    if message.delay_seconds:  # 0 means the queue's own delay
        raise validate.not_for_this_type(message.delay_seconds, "DelaySeconds")
    if group is None:
        raise errors.missing_parameter("MessageGroupId")
    if dedup_id is None and not queue.settings.content_dedup:
        raise errors.invalid_parameter_value(_NO_ID)


def _check_standard(message: SendMessage | SendMessageBatchRequestEntry) -> int | None:
    """Check a message for a standard queue, and return its own delay in milliseconds."""
    group, dedup_id = message.message_group_id, message.message_deduplication_id
    if dedup_id is not None:
        validate.check_token(dedup_id, "MessageDeduplicationId")
    if group is not None:
        validate.check_token(group, "MessageGroupId")
    if dedup_id is not None:
        reason = "The request includes a parameter that is not valid for this queue type."
        raise errors.invalid_value(dedup_id, "MessageDeduplicationId", reason)
    delay_s = message.delay_seconds
    if delay_s is None:
        return None
    reason = f"DelaySeconds must be >= 0 and <= {limits.SEND_DELAY_S}."
    validate.check_range(delay_s, "DelaySeconds", 0, limits.SEND_DELAY_S, reason)
    return delay_s * 1000


def _trace(system: Mapping[str, MessageAttributeValue]) -> dict[str, str]:
    """Return the stored form of the system attributes; the service accepts only one."""
    for name, value in system.items():
        if name != _TRACE:
            raise errors.invalid_parameter_value(f"Message system attribute name '{name}' is invalid.")
        if value.data_type != "String" or not value.string_value:
            text = f"The message system attribute '{name}' must contain non-empty value of type 'String'."
            raise errors.invalid_parameter_value(text)
    return {properties.TRACE: system[_TRACE].string_value or ""}
