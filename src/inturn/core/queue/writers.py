"""Writers: one producer at a time for each group of a queue with ``single_writer``.

The memory store runs these rules; every other store is tested against it:

1. A group has at most one writer: a producer that has acquired its lease, under a name. Each acquisition begins a new
   epoch.
2. A lease can be acquired if no producer has it, if it has expired, by the same name again (a restarted producer), or
   by force.
3. A message with a group is accepted only with the epoch of the group's lease. Others are refused with an error that
   names the writer.
4. The time of a lease determines when another producer may acquire it, and nothing else. Until then its holder may send
   and renew it, even after it has expired: only messages of an earlier epoch are refused.
5. A lease whose beginning is in the future, because the clock was set back, has expired.
6. A released lease expires at once; its epoch is kept, so epochs only grow. A purge changes nothing of this.
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
        until_ms: when another producer may acquire it.
        since_ms: when it was acquired or renewed.
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
    """Acquire the lease."""
    RENEW = 2
    """Change when the lease expires."""
    RELEASE = 3
    """Release the lease."""


class WriterRequest(NamedTuple):
    """A request about the lease of a group's writer.

    Attributes:
        verb: kind of request.
        name: name of the producer, for ``TAKE``.
        epoch: epoch of the lease, for ``RENEW`` and ``RELEASE``.
        ms: length of the lease from now on.
        by_force: whether to acquire a lease that another producer has.
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
    """Return whether any producer may acquire a lease."""
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
    """Return the groups whose leases are needed for these messages, in order of name."""
    return sorted({draft.group for draft in drafts if draft.group is not None})


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
        text = f"the group {group!r} of {queue!r} has no writer, but the queue accepts messages only from a writer"
        return WriterHeld(f"{text}; send with queue.single_writer({group!r})", None)
    takeover = "" if epoch is None else f"; this producer has epoch {epoch}, so another one has taken over"
    return WriterHeld(
        f"the writer of the group {group!r} of {queue!r} is {lease.name!r}, in epoch {lease.epoch}{takeover}",
        lease.name,
    )
