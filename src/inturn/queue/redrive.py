"""Redrive: messages of a dead-letter queue return to their old places."""

from collections.abc import Callable

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import StoredMessage
from inturn.queue.message import NamedQueue, check_limit
from inturn.queue.operation import operation
from inturn.store.commands import Command, StoreCall, Transaction, queue_of
from inturn.store.protocols import Store
from inturn.store.rooms import QueueCapacity


@operation
def redrive(
    queue: NamedQueue,
    limit: int = limits.READ_MESSAGES,
    *,
    to: str | None = None,
    where: Callable[[StoredMessage], bool] | None = None,
    tx: Transaction | None = None,
) -> Command[int]:
    """Move messages out of a dead-letter queue: each back to the queue that it came from, or all to one queue.

    A message that returns to the queue of its first send takes its old place there, ahead of all messages sent after
    it. A message stays if it is leased, or if its target queue has ``max_depth`` messages.

    Args:
        queue: the dead-letter queue.
        limit: the maximum number of messages, the oldest first.
        to: the target queue; None: the queue that each message came from.
        where: returns whether a message is moved; None: all messages. It is called in the transaction.
        tx: the caller's transaction.

    Returns:
        The number of messages moved; messages that were sent here directly stay, unless ``to`` is given.

    Raises:
        InputError: if ``to`` is the queue itself.
        NoSuchQueue: if the target does not exist.
    """
    check_limit(limit)
    check_type("to", to, str | None, "the name of a queue")
    if to == queue.name:
        msg = f"to is {to!r}, the queue itself; name another queue, or omit it to return each message to its own queue"
        raise InputError(msg)

    def move(store: Store, now_ms: int) -> int:
        info = queue_of(store, queue.name)
        if to is not None:
            queue_of(store, to)
        moved = after = 0
        while moved < limit and (entries := store.read(info, after, limit - moved, pending=True)):
            after = entries[-1].sequence_number
            rooms = QueueCapacity(store)
            changes = [
                Settlement(entry.sequence_number, None, SettleAction.MOVE, to=target)
                for entry in entries
                if (where is None or where(entry))
                and (target := to or entry.came_from or queue.name) != queue.name
                and target in store.queues
                and rooms.reserve(target)
            ]
            moved += sum(verdict is SettleResult.DONE for verdict in store.settle(info, changes, now_ms))
        return moved

    return StoreCall(queue.name, move).within(tx)
