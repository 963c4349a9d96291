"""Back-pressure: a queue with a ``max_depth`` refuses sends that it has no room for.

The memory store runs these rules; every other store is tested against it:

1. Every message that is not acknowledged counts: leased, delayed, deferred and parked ones too.
2. A send fits if its new messages do not take the queue beyond its bound; of a send that does not fit nothing is added.
   A duplicate adds nothing, so it needs no room.
3. A dead letter or a rejected message moves in even if there is no room, since it must not be lost. A redrive moves no
   more messages than there is room for.
4. A bound below the depth removes nothing: sends are refused until enough messages are acknowledged.
5. Sends of one process that wait for room get it in the order of their arrival, and no later send overtakes them.
"""

from inturn.core.errors import InputError, QueueFull
from inturn.core.queue.messages import QueueInfo


def fits(queue: QueueInfo, new: int, pending: int = 0) -> bool:
    """Return whether a queue has room for new messages after others that already wait for room."""
    bound = queue.settings.max_depth
    return bound is None or not new or queue.depth + pending + new <= bound


def check_room(queue: QueueInfo, new: int, pending: int = 0) -> None:
    """Check that a queue has room for new messages after others that already wait for room.

    Raises:
        QueueFull: if there is no room for them now.
        InputError: if there can never be room for them.
    """
    if fits(queue, new, pending):
        return
    name, bound = queue.name, queue.settings.max_depth or 0
    if new > bound:
        raise InputError(
            f"{new} messages at once do not fit into the queue {name!r} with max_depth={bound}; send fewer at a time, "
            "or raise max_depth"
        )
    waiting = f", and {pending} are waiting to be sent" if pending else ""
    raise QueueFull(
        f"the queue {name!r} has {queue.depth} messages with max_depth={bound}{waiting}; there is no room for {new} "
        "more: send again later, or with a longer wait_s="
    )


def room(queue: QueueInfo) -> int | None:
    """Return the number of messages that a queue has room for; None: any number."""
    bound = queue.settings.max_depth
    return None if bound is None else max(0, bound - queue.depth)
