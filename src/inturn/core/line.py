"""The line of ready groups: who is received next.

The rules, as the memory store runs them and every other store is tested against; a message without a group is a group
of its own:

1. A group joins the line when it becomes ready: its first message came, its lease or delay is over, it was unlocked or
   resumed, what was in its way was settled. It leaves the line when it is received or locked. In the line it keeps its
   place.
2. A group whose first message was received before has been given back: it joins at the end of the line.
3. Any other group joins by the sequence number of its first message, the oldest first, but behind all groups that
   have been given back so far.
4. What is over by itself joins when a receiver looks, in the order of the deadlines; what was over before something is
   given back by hand joins before that.

So who fails is tried again after all who were ready then, and waits for none who became ready later.
"""

from typing import NamedTuple

from inturn.core.delivery import Hold


class LinePlace(NamedTuple):
    """A place in the line; the smaller comes first, and of equal ones that with the smaller sequence number.

    Attributes:
        number: a sequence number that was given before the group joined.
        turn: how many groups have been given back; twice that for one of them, one more for those behind it.
    """

    number: int
    turn: int = 0


START = LinePlace(0)
"""The last place of a group that was given back, when there is none."""


def was_tried(head: Hold | None) -> bool:
    """Return whether a group whose first message has this hold has been given back."""
    return head is not None and head.attempts > 0


def joined(back: LinePlace, head: int, last: int, *, is_back: bool) -> tuple[LinePlace, LinePlace]:
    """Return the place of a group that becomes ready, and the last place of one that was given back.

    Args:
        back: the last place so far of a group that was given back.
        head: the sequence number of the group's first message.
        last: the last sequence number of the queue.
        is_back: whether the group was given back.
    """
    if is_back:
        place = LinePlace(max(last, back.number), back.turn + 2)
        return place, place
    if head > back.number:
        return LinePlace(head), back
    return LinePlace(back.number, back.turn + 1), back
