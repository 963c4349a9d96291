"""The line of ready groups: the order in which groups are received.

The memory store runs these rules; every other store is tested against it. A message without a group is a group of its
own:

1. A group joins the line when it becomes ready: its first message came, its lease or delay is over, it was unlocked or
   resumed, or the message that blocked it was settled. It leaves the line when it is received or locked. In the line it
   keeps its place.
2. A group whose first message was received before has been given back: it joins at the end of the line.
3. Any other group joins by the sequence number of its first message, the oldest first, but behind all groups that have
   been given back so far.
4. Groups whose lease or delay ends by itself join when a receiver looks, in the order of the deadlines. Those already
   due before a group is given back by hand join before it, unless the queue delays retries.
5. Groups whose messages are only acknowledged, in one call, join in the order of their new first messages. Of a group
   that several changes make ready, the last change counts.

6. In a queue with a ``priority_lead`` a group may have a priority. It then joins that many messages ahead of the place
   that these rules give, for each level; below zero, behind it. So it passes those that have joined up to so many
   messages before, and no others: a group that waits is passed only by messages sent up to so many numbers after its
   first one, and none is left behind for ever. A group that was given back has no lead, so that a failing group does
   not come again and again. A new priority holds for a group in the line as if the group became ready then, unless it
   was given back.

So a group that fails is retried after all groups that were ready then, and waits for none that became ready later.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, blocks_all, is_deferred, is_hidden
from inturn.core.queue.messages import QueueSettings, first_number

T = TypeVar("T")


class LinePlace(NamedTuple):
    """A place in the line; the smaller comes first, and of equal ones that with the smaller sequence number.

    Attributes:
        number: sequence number given out before the group joined.
        turn: twice the number of groups given back, for such a group itself; one more for the groups behind it; never 0
            for one that goes ahead.
    """

    number: int
    turn: int = 0


START = LinePlace(0)
"""The last place of a group that was given back, before any was."""


def is_ready(
    head: DeliveryState | None, holds: Iterable[DeliveryState | None], now_ms: int, *, is_closed: bool = False
) -> bool:
    """Return whether a group belongs into the line; ``holds`` are the states of its messages that are not deferred."""
    if is_closed or is_hidden(head, now_ms) or is_deferred(head):
        return False
    return not any(blocks_all(hold, now_ms) for hold in holds)


def was_tried(head: DeliveryState | None) -> bool:
    """Return whether a group whose first message is in this state has been given back."""
    return head is not None and head.attempts > 0


def joined(back: LinePlace, head: int, last: int, *, is_back: bool) -> tuple[LinePlace, LinePlace]:
    """Return the place of a group that becomes ready, and the last place of one that was given back.

    Args:
        back: last place so far of a group that was given back.
        head: sequence number of the group's first message.
        last: last sequence number of the queue.
        is_back: whether the group was given back.
    """
    if is_back:
        place = LinePlace(max(last, back.number), back.turn + 2)
        return place, place
    if head > back.number:
        return LinePlace(head), back
    return LinePlace(back.number, back.turn + 1), back


def ahead(place: LinePlace, lead: int, queue: int) -> LinePlace:
    """Return the place of a group that goes ahead of its place by so many messages of the queue, its number."""
    if not lead:
        return place
    return LinePlace(max(place.number - lead, first_number(queue) + 1), max(place.turn, 1))


def lead_of(priority: int, settings: QueueSettings) -> int:
    """Return the number of messages by which a group of this priority goes ahead."""
    return priority * (settings.priority_lead or 0)


def by_turn(touched: Sequence[T]) -> list[T]:
    """Return changed groups, each once, in the order in which they join: of repeated ones the last counts."""
    return list(reversed(dict.fromkeys(reversed(touched))))


def ended_go_first(changes: Iterable[Settlement], settings: QueueSettings) -> bool:
    """Return whether what is over by itself joins the line before these changes are made."""
    return not settings.retry_delay_s and any(change.act is SettleAction.NACK for change in changes)


def are_ordered(changes: Iterable[Settlement]) -> bool:
    """Return whether groups join in the order of these changes; otherwise in that of their new first messages."""
    return any(change.act is not SettleAction.ACK for change in changes)
