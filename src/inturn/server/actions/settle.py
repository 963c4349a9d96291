"""Actions on received messages: DeleteMessage, ChangeMessageVisibility, and their batches.

A standard queue accepts a receipt handle whose visibility timeout has passed: the action is then repeated without the
lease. A message that another receiver has leased by then is not deleted; its visibility changes. A FIFO queue refuses
such a handle.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from inturn.core import limits
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo
from inturn.server import errors
from inturn.server.actions import validate
from inturn.server.actions.names import MessageNames, names_of
from inturn.server.context import Context, is_fifo
from inturn.server.errors import SqsError
from inturn.server.model import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchAnswer,
    ChangeMessageVisibilityBatchRequestEntry,
    ChangeMessageVisibilityBatchResultEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchAnswer,
    DeleteMessageBatchRequestEntry,
    DeleteMessageBatchResultEntry,
    Empty,
)
from inturn.store.commands import Command, Settle

_EMPTY: Final = Empty()
_ACK: Final = SettleAction.ACK  # before Python 3.12, access to an enum member takes 0.15 µs
_EXPIRED: Final = SettleResult.EXPIRED
_change: Final[Callable[[tuple[Any, ...]], Settlement]] = partial(
    tuple.__new__, Settlement
)  # takes half the time of Change(…)
E = TypeVar("E")

# --- deleting ---


def delete_message(context: Context, params: DeleteMessage) -> Command[Empty]:
    """Delete a received message."""
    queue = context.queue(params.queue_url)
    change = _deleting(names_of(context), queue, params.receipt_handle)
    return Settle(queue.name, partial(_deleted, context, queue, change, params.receipt_handle), (change,))


def _deleting(names: MessageNames, queue: QueueInfo, handle: str) -> Settlement:
    receipt = names.receipt(queue, handle)
    return _change((receipt.sequence_number, receipt.token, _ACK, 0, None, None, False))


def _deleted(
    context: Context, queue: QueueInfo, change: Settlement, handle: str, verdicts: Sequence[SettleResult]
) -> Any:
    context.attempts.void(change.sequence_number)
    if verdicts[0] is not SettleResult.EXPIRED:  # a message that is gone was deleted, and deleting it again succeeds
        return _EMPTY
    if is_fifo(queue):
        raise errors.receipt_handle_expired(handle)
    return Settle(queue.name, _nothing_more, _without_leases([change]))


def _without_leases(changes: Iterable[Settlement]) -> list[Settlement]:
    return [change._replace(token=None) for change in changes]


def _whoever_has_them(changes: Iterable[Settlement]) -> list[Settlement]:
    return [change._replace(token=None, any_holder=True) for change in changes]


def _nothing_more(_verdicts: Sequence[SettleResult]) -> Empty:
    return _EMPTY


def delete_message_batch(context: Context, params: DeleteMessageBatch) -> Command[DeleteMessageBatchAnswer]:
    """Delete received messages; each entry fails by itself."""
    queue = context.queue(params.queue_url)
    validate.check_batch(params.entries, "DeleteMessageBatchRequestEntry")
    names = names_of(context)
    outcomes = _each(params.entries, lambda entry: _deleting(names, queue, entry.receipt_handle))
    return Settle(queue.name, partial(_batch_deleted, context, queue, outcomes), _changes(outcomes))


def _each(entries: Sequence[E], change_of: Callable[[E], Settlement]) -> list[tuple[E, Settlement | SqsError]]:
    """Return the change for each entry of a batch, or its error."""
    outcomes: list[tuple[E, Settlement | SqsError]] = []
    for entry in entries:
        try:
            outcomes.append((entry, change_of(entry)))
        except SqsError as error:
            outcomes.append((entry, error))
    return outcomes


def _changes(outcomes: Sequence[tuple[E, Settlement | SqsError]]) -> list[Settlement]:
    return [change for _, change in outcomes if isinstance(change, Settlement)]


def _batch_deleted(
    context: Context,
    queue: QueueInfo,
    outcomes: Sequence[tuple[DeleteMessageBatchRequestEntry, Settlement | SqsError]],
    verdicts: Sequence[SettleResult],
) -> Any:
    answer = DeleteMessageBatchAnswer([], [])
    fifo, given = is_fifo(queue), iter(verdicts)
    late: list[Settlement] = []
    for entry, change in outcomes:
        error = change if isinstance(change, SqsError) else None
        if isinstance(change, Settlement):
            context.attempts.void(change.sequence_number)
            if next(given) is _EXPIRED:
                late.append(change)
                error = errors.receipt_handle_expired(entry.receipt_handle) if fifo else None
        if error is None:
            answer.successful.append(DeleteMessageBatchResultEntry(entry.id))
        else:
            answer.failed.append(validate.failed(entry, error))
    if fifo or not late:
        return answer
    return Settle(queue.name, lambda _verdicts: answer, _without_leases(late))


# --- visibility ---


def change_message_visibility(context: Context, params: ChangeMessageVisibility) -> Command[Empty]:
    """Set the visibility timeout of a received message, in seconds from now."""
    queue = context.queue(params.queue_url)
    change = _keeping(context, queue, params.receipt_handle, params.visibility_timeout)
    return Settle(queue.name, partial(_kept, context, queue, change, params.receipt_handle), (change,))


def _keeping(context: Context, queue: QueueInfo, handle: str, visibility_s: int | None) -> Settlement:
    """Return the change that sets a message's visibility timeout; 0 gives the message back.

    Raises:
        SqsError: if the handle or the timeout is invalid, or the timeout ends more than twelve hours after the receive.
    """
    if visibility_s is None:
        raise errors.missing_parameter("VisibilityTimeout")
    reason = f"Must be >= 0 and <= {limits.VISIBILITY_S}, if provided."
    validate.check_range(visibility_s, "VisibilityTimeout", 0, limits.VISIBILITY_S, reason)
    receipt = names_of(context).receipt(queue, handle)
    held_s = (context.now_ms() - receipt.received_ms) // 1000
    reason = f"Total VisibilityTimeout for the message is beyond the limit [{limits.VISIBILITY_S} seconds]"
    if visibility_s and held_s + visibility_s > limits.VISIBILITY_S:
        raise errors.invalid_value(visibility_s, "VisibilityTimeout", reason)
    act = SettleAction.EXTEND if visibility_s else SettleAction.NACK
    return Settlement(receipt.sequence_number, receipt.token, act, visibility_s * 1000)


def _refused(handle: str, verdict: SettleResult) -> SqsError | None:
    if verdict is SettleResult.DONE:
        return None
    if verdict is not SettleResult.EXPIRED:
        reason = "Message does not exist or is not available for visibility timeout change."
        return errors.invalid_value(handle, "ReceiptHandle", reason)
    return errors.message_not_inflight("The specified message isn't in flight.")


def _kept(context: Context, queue: QueueInfo, change: Settlement, handle: str, verdicts: Sequence[SettleResult]) -> Any:
    context.attempts.void(change.sequence_number)
    if verdicts[0] is SettleResult.EXPIRED and not is_fifo(queue):
        return Settle(queue.name, partial(_kept_late, handle), _whoever_has_them([change]))
    return _kept_late(handle, verdicts)


def _kept_late(handle: str, verdicts: Sequence[SettleResult]) -> Empty:
    error = _refused(handle, verdicts[0])
    if error is not None:
        raise error
    return _EMPTY


def change_message_visibility_batch(
    context: Context, params: ChangeMessageVisibilityBatch
) -> Command[ChangeMessageVisibilityBatchAnswer]:
    """Set the visibility timeouts of received messages; each entry fails by itself."""
    queue = context.queue(params.queue_url)
    validate.check_batch(params.entries, "ChangeMessageVisibilityBatchRequestEntry")
    outcomes = _each(
        params.entries, lambda entry: _keeping(context, queue, entry.receipt_handle, entry.visibility_timeout)
    )
    return Settle(queue.name, partial(_batch_kept, context, queue, outcomes), _changes(outcomes))


def _batch_kept(
    context: Context,
    queue: QueueInfo,
    outcomes: Sequence[tuple[ChangeMessageVisibilityBatchRequestEntry, Settlement | SqsError]],
    verdicts: Sequence[SettleResult],
) -> Any:
    changes = _changes(outcomes)
    for change in changes:
        context.attempts.void(change.sequence_number)
    late = [change for change, verdict in zip(changes, verdicts, strict=True) if verdict is SettleResult.EXPIRED]
    if is_fifo(queue) or not late:
        return _batch_answer(outcomes, verdicts)

    def once_more(others: Sequence[SettleResult]) -> ChangeMessageVisibilityBatchAnswer:
        given = iter(others)
        return _batch_answer(outcomes, [next(given) if each is SettleResult.EXPIRED else each for each in verdicts])

    return Settle(queue.name, once_more, _whoever_has_them(late))


def _batch_answer(
    outcomes: Sequence[tuple[ChangeMessageVisibilityBatchRequestEntry, Settlement | SqsError]],
    verdicts: Sequence[SettleResult],
) -> ChangeMessageVisibilityBatchAnswer:
    answer = ChangeMessageVisibilityBatchAnswer([], [])
    given = iter(verdicts)
    for entry, change in outcomes:
        error = change if isinstance(change, SqsError) else _refused(entry.receipt_handle, next(given))
        if error is None:
            answer.successful.append(ChangeMessageVisibilityBatchResultEntry(entry.id))
        else:
            answer.failed.append(validate.failed(entry, error))
    return answer
