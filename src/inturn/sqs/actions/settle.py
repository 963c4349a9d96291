"""Actions on received messages: DeleteMessage, ChangeMessageVisibility, and their batches.

A standard queue accepts a receipt handle whose visibility timeout has passed: the action is then repeated without the
lease. A message that another receiver has leased by then is not deleted; its visibility changes. A FIFO queue refuses
such a handle.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from inturn.core import limits
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo
from inturn.sqs import errors
from inturn.sqs.actions import validate
from inturn.sqs.actions.names import MessageNames, names_of
from inturn.sqs.context import Context, is_fifo
from inturn.sqs.errors import SqsError
from inturn.sqs.model import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchAnswer,
    ChangeMessageVisibilityBatchResultEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchAnswer,
    DeleteMessageBatchResultEntry,
    Empty,
)
from inturn.store.commands import Command, Settle

_EMPTY: Final = Empty()
_ACK: Final = SettleAction.ACK  # before Python 3.12, access to an enum member takes 0.15 µs
_DONE: Final = SettleResult.DONE
_EXPIRED: Final = SettleResult.EXPIRED
_change: Final[Callable[[tuple[Any, ...]], Settlement]] = partial(tuple.__new__, Settlement)  # in half the time

_Refused = Callable[[str, SettleResult], SqsError | None]


class _Received(validate.BatchEntry, Protocol):
    receipt_handle: str


E = TypeVar("E", bound=_Received)


class _SettleRule(NamedTuple):
    """The rules by which a kind of action settles messages.

    Attributes:
        refused: the error for a receipt handle and the result of its change, if the client gets an error.
        refused_late: the same for the change that is repeated without the lease.
        any_holder: whether that also changes a message that another receiver has leased by then.
    """

    refused: _Refused
    refused_late: _Refused
    any_holder: bool

    def late(self, change: Settlement) -> Settlement:
        """Return a change without its lease."""
        return change._replace(token=None, any_holder=self.any_holder)


def _settle(queue: QueueInfo, kind: _SettleRule, change: Settlement, handle: str) -> Command[Empty]:
    return Settle(queue.name, partial(_settled, queue, kind, change, handle), (change,))


def _settled(
    queue: QueueInfo, kind: _SettleRule, change: Settlement, handle: str, verdicts: Sequence[SettleResult]
) -> Any:
    if verdicts[0] is _EXPIRED and not is_fifo(queue):
        return Settle(queue.name, partial(_answer, kind.refused_late, handle), (kind.late(change),))
    return _answer(kind.refused, handle, verdicts)


def _answer(refused: _Refused, handle: str, verdicts: Sequence[SettleResult]) -> Empty:
    error = refused(handle, verdicts[0])
    if error is not None:
        raise error
    return _EMPTY


def _settle_batch(
    queue: QueueInfo,
    kind: _SettleRule,
    entries: Sequence[E],
    change_of: Callable[[E], Settlement],
    answer_of: Callable[[list[str], list[Any]], Any],
) -> Command[Any]:
    """Return the command for a batch, whose entries fail independently."""
    outcomes: list[tuple[E, Settlement | SqsError]] = []
    for entry in entries:
        try:
            outcomes.append((entry, change_of(entry)))
        except SqsError as error:
            outcomes.append((entry, error))
    changes = [change for _, change in outcomes if isinstance(change, Settlement)]

    def answer(refused: _Refused, verdicts: Sequence[SettleResult]) -> Any:
        successful, failed, results = [], [], iter(verdicts)
        for entry, change in outcomes:
            error = change if isinstance(change, SqsError) else refused(entry.receipt_handle, next(results))
            if error is None:
                successful.append(entry.id)
            else:
                failed.append(validate.failed(entry, error))
        return answer_of(successful, failed)

    def settled(verdicts: Sequence[SettleResult]) -> Any:
        if is_fifo(queue) or _EXPIRED not in verdicts:
            return answer(kind.refused, verdicts)

        def answer_late(late: Sequence[SettleResult]) -> Any:
            late_results = iter(late)
            return answer(
                kind.refused_late, [next(late_results) if verdict is _EXPIRED else verdict for verdict in verdicts]
            )

        pairs = zip(changes, verdicts, strict=True)
        return Settle(queue.name, answer_late, [kind.late(change) for change, verdict in pairs if verdict is _EXPIRED])

    return Settle(queue.name, settled, changes)


# --- deleting: a message that does not exist was deleted before, so its deletion succeeds ---


_DELETING: Final = _SettleRule(
    refused=lambda handle, verdict: errors.receipt_handle_expired(handle) if verdict is _EXPIRED else None,
    refused_late=lambda _handle, _verdict: None,
    any_holder=False,
)


def delete_message(context: Context, params: DeleteMessage) -> Command[Empty]:
    """Delete a received message."""
    queue = context.queue(params.queue_url)
    return _settle(queue, _DELETING, _deleting(names_of(context), queue, params.receipt_handle), params.receipt_handle)


def delete_message_batch(context: Context, params: DeleteMessageBatch) -> Command[DeleteMessageBatchAnswer]:
    """Delete received messages; the entries fail independently."""
    queue = context.queue(params.queue_url)
    validate.check_batch(params.entries, "DeleteMessageBatchRequestEntry")
    names = names_of(context)
    return _settle_batch(
        queue,
        _DELETING,
        params.entries,
        lambda entry: _deleting(names, queue, entry.receipt_handle),
        lambda ids, failed: DeleteMessageBatchAnswer([*map(DeleteMessageBatchResultEntry, ids)], failed),
    )


def _deleting(names: MessageNames, queue: QueueInfo, handle: str) -> Settlement:
    receipt = names.receipt(queue, handle)
    return _change((receipt.sequence_number, receipt.token, _ACK, 0, None, None, False, None))


# --- visibility ---


def _not_changed(handle: str, verdict: SettleResult) -> SqsError | None:
    if verdict is _DONE:
        return None
    if verdict is not _EXPIRED:
        reason = "Message does not exist or is not available for visibility timeout change."
        return errors.invalid_value(handle, "ReceiptHandle", reason)
    return errors.message_not_inflight()


_CHANGING: Final = _SettleRule(refused=_not_changed, refused_late=_not_changed, any_holder=True)


def change_message_visibility(context: Context, params: ChangeMessageVisibility) -> Command[Empty]:
    """Set the visibility timeout of a received message, in seconds from now."""
    queue = context.queue(params.queue_url)
    change = _changing(context, queue, params.receipt_handle, params.visibility_timeout)
    return _settle(queue, _CHANGING, change, params.receipt_handle)


def change_message_visibility_batch(
    context: Context, params: ChangeMessageVisibilityBatch
) -> Command[ChangeMessageVisibilityBatchAnswer]:
    """Set the visibility timeouts of received messages; the entries fail independently."""
    queue, result = context.queue(params.queue_url), ChangeMessageVisibilityBatchResultEntry
    validate.check_batch(params.entries, "ChangeMessageVisibilityBatchRequestEntry")
    return _settle_batch(
        queue,
        _CHANGING,
        params.entries,
        lambda entry: _changing(context, queue, entry.receipt_handle, entry.visibility_timeout),
        lambda ids, failed: ChangeMessageVisibilityBatchAnswer([*map(result, ids)], failed),
    )


def _changing(context: Context, queue: QueueInfo, handle: str, visibility_s: int | None) -> Settlement:
    """Return the change that sets a message's visibility timeout; 0 makes the message available at once."""
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
