"""ReceiveMessage, and its repetition by attempt id."""

import base64
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from inturn.core import limits as core_limits
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest
from inturn.sqs import limits
from inturn.sqs.actions import properties, validate
from inturn.sqs.actions.names import md5_of, md5_of_attributes, names_of, sequence_number
from inturn.sqs.actions.properties import AttributeSelection
from inturn.sqs.context import Context, extra_setting, is_fifo, queue_in, store_command
from inturn.sqs.model import ApiMessage, ReceiveMessage, ReceiveMessageAnswer
from inturn.store.commands import Command, Receive
from inturn.store.protocols import Store
from inturn.store.servers import ReceivedLease, ServerStore

_NOTHING: Final = ReceiveMessageAnswer()


def receive_message(context: Context, params: ReceiveMessage) -> Command[ReceiveMessageAnswer]:
    """Receive messages of a queue, each with a lease."""
    queue = context.queue(params.queue_url)
    limit, wait_s, visibility_s = params.max_number_of_messages, params.wait_time_seconds, params.visibility_timeout
    if limit is None:
        limit = 1
    else:
        reason = f"Must be between 1 and {limits.BATCH_ENTRIES}, if provided."
        validate.check_range(limit, "MaxNumberOfMessages", 1, limits.BATCH_ENTRIES, reason)
    if wait_s is None:
        wait_s = extra_setting(queue.settings, "receive_wait_s", 0)
    else:
        reason = f"Must be >= 0 and <= {limits.RECEIVE_WAIT_S}, if provided."
        validate.check_range(wait_s, "WaitTimeSeconds", 0, limits.RECEIVE_WAIT_S, reason)
    if visibility_s is not None:
        reason = f"Must be >= 0 and <= {core_limits.VISIBILITY_S}, if provided."
        validate.check_range(visibility_s, "VisibilityTimeout", 0, core_limits.VISIBILITY_S, reason)
    visibility_ms = None if visibility_s is None else visibility_s * 1000
    selection = properties.parse_selection(
        params.attribute_names + params.message_system_attribute_names, params.message_attribute_names
    )
    attempt_id = params.receive_request_attempt_id
    if attempt_id is None:
        answer = partial(_received, context, queue, selection)
        return Receive(queue.name, answer, ReceiveRequest(limit, visibility_ms), wait_s=wait_s)
    if not is_fifo(queue):
        raise validate.not_for_this_type(attempt_id, "ReceiveRequestAttemptId")
    validate.check_token(attempt_id, "ReceiveRequestAttemptId")
    remember = partial(_remember, context, queue, selection, attempt_id)
    first: Receive[Any] = Receive(queue.name, remember, ReceiveRequest(limit, visibility_ms), wait_s=wait_s)
    return _repeated_receive(context, queue, selection, attempt_id, first)


def _received(
    context: Context, queue: QueueInfo, selection: AttributeSelection, deliveries: Sequence[Delivery]
) -> ReceiveMessageAnswer:
    return _answer(context, queue, selection, deliveries, context.now_ms()) if deliveries else _NOTHING


def _answer(
    context: Context, queue: QueueInfo, selection: AttributeSelection, deliveries: Sequence[Delivery], received_ms: int
) -> ReceiveMessageAnswer:
    return ReceiveMessageAnswer([_message(context, queue, selection, delivery, received_ms) for delivery in deliveries])


# --- repeated receives: the database holds the leases, so any server of it can repeat them ---


def _remember(
    context: Context, queue: QueueInfo, selection: AttributeSelection, attempt_id: str, deliveries: Sequence[Delivery]
) -> Any:
    """Return a command that saves the leases of a receive before it is answered."""
    if not deliveries:
        return _NOTHING
    received_ms = context.now_ms()
    answer = _answer(context, queue, selection, deliveries, received_ms)
    leases = [
        ReceivedLease(
            delivery.message.sequence_number,
            delivery.token,
            delivery.attempts,
            delivery.first_ms,
            received_ms,
            delivery.until_ms,
        )
        for delivery in deliveries
    ]

    def remember(store: Any, now_ms: int) -> None:
        until_ms = now_ms + limits.RECEIVE_ATTEMPT_S * 1000
        servers: ServerStore = store.servers
        servers.remember(queue, attempt_id, leases, until_ms, now_ms)

    return store_command(remember, lambda _nothing: answer)


def _repeated_receive(
    context: Context, queue: QueueInfo, selection: AttributeSelection, attempt_id: str, first: Receive[Any]
) -> Command[Any]:
    """Return the messages of an earlier receive with a new visibility timeout; if one is deleted, receive again."""

    def redeliver(store: Any, now_ms: int) -> tuple[list[Delivery], list[ReceivedLease]] | None:
        info = queue_in(store, queue.name)
        servers: ServerStore = store.servers
        leases = servers.attempt(info, attempt_id, now_ms)
        deliveries = _redelivered(store, info, leases, first.want, now_ms) if leases else None
        if not deliveries:
            return None
        leases = [
            lease._replace(until_ms=delivery.until_ms) for lease, delivery in zip(leases, deliveries, strict=True)
        ]
        servers.remember_leases(info, attempt_id, leases)
        return deliveries, leases

    def answer(redelivered: tuple[list[Delivery], list[ReceivedLease]] | None) -> Any:
        if redelivered is None:
            return first
        pairs = zip(*redelivered, strict=True)
        return ReceiveMessageAnswer(
            [_message(context, queue, selection, delivery, it.received_ms) for delivery, it in pairs]
        )

    return store_command(redeliver, answer)


def _redelivered(
    store: Store, queue: QueueInfo, leases: Sequence[ReceivedLease], request: ReceiveRequest, now_ms: int
) -> list[Delivery] | None:
    visibility_ms = queue.settings.visibility_ms if request.visibility_ms is None else request.visibility_ms
    changes = [Settlement(lease.sequence_number, lease.token, SettleAction.EXTEND, visibility_ms) for lease in leases]
    if any(verdict is not SettleResult.DONE for verdict in store.settle(queue, changes, now_ms)):
        return None
    entries = [store.read(queue, lease.sequence_number - 1, 1, pending=True)[0] for lease in leases]
    return [
        Delivery(entry, lease.token, now_ms + visibility_ms, lease.attempts, lease.first_ms)
        for entry, lease in zip(entries, leases, strict=True)
    ]


# --- messages ---


def _message(
    context: Context, queue: QueueInfo, selection: AttributeSelection, delivery: Delivery, received_ms: int
) -> ApiMessage:
    entry, names = delivery.message, names_of(context)
    body = entry.body if isinstance(entry.body, str) else base64.b64encode(entry.body).decode()
    message = ApiMessage(
        names.message_id(entry.origin or entry.sequence_number),
        names.handle(entry.sequence_number, delivery.token, received_ms),
        md5_of(body.encode()),
        body,
    )
    if selection.system:
        message.attributes = _system_attributes(context, queue, selection.system, delivery, message)
    if (selection.names or selection.prefixes) and entry.attributes is not None:
        chosen = selection.select(properties.parse_stored(entry.attributes))
        if chosen:
            message.message_attributes = chosen
            message.md5_of_message_attributes = md5_of_attributes(chosen)
    return message


def _system_attributes(
    context: Context, queue: QueueInfo, requested: frozenset[str], delivery: Delivery, message: ApiMessage
) -> dict[str, str]:
    """Return the requested system attributes that the message has."""
    entry, fifo = delivery.message, is_fifo(queue)
    values: dict[str, str | None] = {
        "SentTimestamp": str(entry.sent_ms),
        "ApproximateReceiveCount": str(delivery.attempts + _source_receives(context, queue.name, delivery)),
        "ApproximateFirstReceiveTimestamp": None if delivery.first_ms is None else str(delivery.first_ms),
        "SequenceNumber": sequence_number(entry.sequence_number) if fifo else None,
        "MessageGroupId": entry.group,
        "MessageDeduplicationId": entry.dedup_id,
    }
    stored = properties.parse_stored(entry.attributes) if entry.attributes is not None else {}
    values["SenderId"] = stored.get(properties.SENDER, context.home.account)
    values["AWSTraceHeader"] = stored.get(properties.TRACE)
    if entry.group is None:
        values["MessageGroupId"] = stored.get(properties.GROUP)
    if entry.note is not None and entry.came_from is not None:  # a dead letter; a message moved back has no note
        values["DeadLetterQueueSourceArn"] = context.arn(entry.came_from)
        if fifo:
            values["MessageDeduplicationId"] = message.message_id
    elif fifo and entry.dedup_id is None and queue.settings.content_dedup and "MessageDeduplicationId" in requested:
        values["MessageDeduplicationId"] = hashlib.sha256(message.body.encode()).hexdigest()
    return {name: value for name, value in values.items() if value is not None and name in requested}


def _source_receives(context: Context, queue: str, delivery: Delivery) -> int:
    """Return a dead letter's receives in its source queue: SQS continues the count, a queue here restarts it."""
    entry = delivery.message
    if entry.note is None or entry.came_from in (None, queue):
        return 0
    info = context.db.store.queues.get(entry.came_from or "")
    return 0 if info is None else info.settings.max_receives or 0
