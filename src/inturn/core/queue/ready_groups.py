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
   due before a group is given back by hand join before it.

So a group that fails is retried after all groups that were ready then, and waits for none that became ready later.
"""

from typing import NamedTuple

from inturn.core.queue.delivery import DeliveryState


class LinePlace(NamedTuple):
    """A place in the line; the smaller comes first, and of equal ones that with the smaller sequence number.

    Attributes:
        number: sequence number given out before the group joined.
        turn: twice the number of groups given back, for such a group itself; one more for the groups behind it.
    """

    number: int
    turn: int = 0


START = LinePlace(0)
"""The last place of a group that was given back, before any was."""


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
