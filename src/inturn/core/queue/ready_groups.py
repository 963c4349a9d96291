"""The ready queue: the order in which groups are received.

The memory store runs these rules; every other store is tested against it. A message without a group is a group of its
own:

1. A group joins the ready queue when it becomes ready: its first message was sent, its lease or delay has ended, it was
   unlocked or resumed, or the message that blocked it was settled. It leaves when it is received or locked. Until then
   it keeps its place.
2. A group whose first message was tried before is a *requeued* group: it joins at the end. A message that was returned
   without being tried, so that its attempt does not count, is as new.
3. Any other group joins by the sequence number of its first message, the oldest first, but after all groups that have
   been requeued so far.
4. Groups whose lease or delay expires join at the next receive, in the order of the deadlines. Those already due before
   a group is nacked join before it, unless the queue delays retries.
5. Groups whose messages are only acknowledged, in one call, join in the order of their new first messages. Of a group
   that several changes make ready, the last change counts.

6. In a queue with a ``priority_lead`` a group may have a priority. For each level it then joins that many messages
   before the place that these rules give; for levels below zero, after it. So it passes only groups that joined up to
   that many messages before it: a waiting group is passed only by messages sent up to that many numbers after its first
   one, and no group waits forever. A requeued group has no lead, so that a failing group does not come again and again.
   A new priority applies to a group in the ready queue as if the group became ready then, unless it was requeued.

So a failed group is retried after all groups that were ready then, and waits for none that became ready later.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from inturn.core.queue.delivery import DeliveryState, SettleAction, Settlement, blocks_all, is_deferred, is_hidden
from inturn.core.queue.messages import QueueSettings, first_number

T = TypeVar("T")


class ReadyPlace(NamedTuple):
    """A place in the ready queue; the smaller is first, and of equal places that with the smaller sequence number.

    Attributes:
        number: sequence number assigned before the group joined.
        rank: for a requeued group, twice the number of requeued groups so far; one more for the groups after it; never
            0 for a group with a lead.
    """

    number: int
    rank: int = 0


START = ReadyPlace(0)
"""The last place of a requeued group, before any group was requeued."""


def is_ready(
    head: DeliveryState | None, holds: Iterable[DeliveryState | None], now_ms: int, *, is_closed: bool = False
) -> bool:
    """Return whether a group is ready; ``holds`` are the states of its messages that are not deferred."""
    if is_closed or is_hidden(head, now_ms) or is_deferred(head):
        return False
    return not any(blocks_all(hold, now_ms) for hold in holds)


def is_requeued(head: DeliveryState | None) -> bool:
    """Return whether a group whose first message is in this state is a requeued one."""
    return head is not None and head.attempts > 0


def place_of_joining(back: ReadyPlace, head: int, last: int, *, is_back: bool) -> tuple[ReadyPlace, ReadyPlace]:
    """Return the place of a group that becomes ready, and the last place of a requeued group.

    Args:
        back: last place so far of a requeued group.
        head: sequence number of the group's first message.
        last: last sequence number of the queue.
        is_back: whether the group is a requeued one.
    """
    if is_back:
        place = ReadyPlace(max(last, back.number), back.rank + 2)
        return place, place
    if head > back.number:
        return ReadyPlace(head), back
    return ReadyPlace(back.number, back.rank + 1), back


def moved_forward(place: ReadyPlace, lead: int, queue: int) -> ReadyPlace:
    """Return the place of a group that is moved forward by ``lead`` messages of the queue with this number."""
    if not lead:
        return place
    return ReadyPlace(max(place.number - lead, first_number(queue) + 1), max(place.rank, 1))


def lead_of(priority: int, settings: QueueSettings) -> int:
    """Return the number of messages by which a group of this priority is moved forward."""
    return priority * (settings.priority_lead or 0)


def in_join_order(touched: Sequence[T]) -> list[T]:
    """Return changed groups, each once, in the order in which they join; of repeated ones the last change counts."""
    return list(reversed(dict.fromkeys(reversed(touched))))


def ended_go_first(changes: Iterable[Settlement], settings: QueueSettings) -> bool:
    """Return whether groups with an expired lease or delay join before these changes are applied."""
    return not settings.retry_delay_s and any(change.act is SettleAction.NACK for change in changes)


def are_ordered(changes: Iterable[Settlement]) -> bool:
    """Return whether groups join in the order of these changes, or in the order of their new first messages."""
    return any(change.act is not SettleAction.ACK for change in changes)
