"""Writers: one producer at a time for each group of a queue with ``single_writer``.

The memory store runs these rules; every other store is tested against it:

1. A group has at most one writer: a producer that has taken its lease, under a name. Each taking begins a new epoch.
2. A lease can be taken if nobody has it, if it is over, by the same name again (a producer that was restarted), or by
   force.
3. A message with a group is taken only with the epoch of the group's lease. Others are refused, and told the writer's
   name.
4. The time of a lease says from when on another producer may take it, and nothing else. Until one has, its holder may
   send and renew it, even when it is over: what is refused is a message of an earlier epoch.
5. A lease of which the beginning lies ahead, since the clock was set back, is over.
6. A lease that is given up is over at once; its epoch stays, so epochs only grow. A purge changes nothing of this.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from inturn.core import limits
from inturn.core.errors import WriterHeld
from inturn.core.queue.messages import Draft


class WriterLease(NamedTuple):
    """The lease of a group's writer.

    Attributes:
        name: name of the producer.
        epoch: number of the lease among those of the group, from 1.
        until_ms: when another producer may take it.
        since_ms: when it was taken or renewed.
    """

    name: str
    epoch: int
    until_ms: int
    since_ms: int


class WriterVerb(IntEnum):
    """The kinds of request about a writer's lease."""

    LOOK = 0
    """Return the lease."""
    TAKE = 1
    """Take the lease."""
    RENEW = 2
    """Change when the lease is over."""
    RELEASE = 3
    """Give the lease up."""


class WriterRequest(NamedTuple):
    """A request about the lease of a group's writer.

    Attributes:
        verb: kind of request.
        name: name of the producer, for ``TAKE``.
        epoch: epoch of the lease, for ``RENEW`` and ``RELEASE``.
        ms: length of the lease from now on.
        by_force: whether to take a lease that another producer has.
    """

    verb: WriterVerb
    name: str = ""
    epoch: int = 0
    ms: int = 0
    by_force: bool = False


class WriterAnswer(NamedTuple):
    """The result of a request.

    Attributes:
        done: whether it was done.
        lease: the lease now; None: the group never had a writer.
    """

    done: bool
    lease: WriterLease | None


def is_over(lease: WriterLease, now_ms: int) -> bool:
    """Return whether any producer may take a lease."""
    return lease.until_ms <= now_ms or lease.since_ms > now_ms + limits.CLOCK_SLACK_MS


def decide(lease: WriterLease | None, request: WriterRequest, now_ms: int) -> WriterAnswer:
    """Return the result of a request."""
    verb = request.verb
    if verb is WriterVerb.LOOK:
        return WriterAnswer(done=True, lease=lease)
    if verb is WriterVerb.TAKE:
        is_free = lease is None or is_over(lease, now_ms) or lease.name == request.name or request.by_force
        if not is_free:
            return WriterAnswer(done=False, lease=lease)
        epoch = 1 if lease is None else lease.epoch + 1
        return WriterAnswer(done=True, lease=WriterLease(request.name, epoch, now_ms + request.ms, now_ms))
    if lease is None or lease.epoch != request.epoch:
        return WriterAnswer(done=False, lease=lease)
    ms = request.ms if verb is WriterVerb.RENEW else 0
    return WriterAnswer(done=True, lease=lease._replace(until_ms=now_ms + ms, since_ms=now_ms))


def groups_to_check(drafts: Iterable[Draft]) -> list[str]:
    """Return the groups whose leases decide about these messages, in order of name."""
    return sorted({each.group for each in drafts if each.group is not None})


def check(queue: str, drafts: Iterable[Draft], leases: Mapping[str, WriterLease]) -> None:
    """Check that each message is sent by the writer of its group.

    Raises:
        WriterHeld: if one is not.
    """
    for draft in drafts:
        if draft.group is None:
            continue
        lease = leases.get(draft.group)
        if lease is None or draft.epoch != lease.epoch:
            raise held(queue, draft.group, lease, draft.epoch)


def held(queue: str, group: str, lease: WriterLease | None, epoch: int | None = None) -> WriterHeld:
    """Return the error for a producer that is not the writer of a group."""
    if lease is None:
        text = f"the group {group!r} of {queue!r} has no writer, and the queue takes messages of its writer only"
        return WriterHeld(f"{text}: send with queue.single_writer({group!r})", None)
    ours = "" if epoch is None else f"; this is of epoch {epoch}, so another producer has taken over"
    return WriterHeld(
        f"the writer of the group {group!r} of {queue!r} is {lease.name!r}, in epoch {lease.epoch}{ours}", lease.name
    )
