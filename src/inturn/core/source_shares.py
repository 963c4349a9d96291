"""Sharing of a source's partitions among instances: who owns which, by leases with fencing epochs.

A partition has one owner. Each claim raises its epoch, and a commit is refused unless it has the current one: an
instance that lost a partition while it was paused writes nothing (M. Kleppmann, "How to do distributed locking", 2016).
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

DECIDED: Final = "*"
"""The mark before the incarnation of a partition for which an operator has decided where reading continues."""

MISSING: Final = "missing: "
"""The beginning of the note of a partition that was removed before its end; reading continues if it reappears."""

FORGOTTEN: Final = "(forgotten)"
"""The name under which the counts of partitions that were removed long ago are kept."""


class SourcePartition(NamedTuple):
    """The stored record of a partition of a source.

    Attributes:
        name: the partition's name in its source.
        position: where the next read continues, as JSON; None: at the start.
        incarnation: identity of the partition when the position was written, such as the id of a topic; empty: unknown.
            With :data:`DECIDED` before it, an operator has decided where reading continues, whatever the partition is
            now.
        owner: the instance that reads it; None: no instance.
        epoch: the fencing epoch, raised by each claim and each change by hand.
        until_ms: the end of the owner's lease.
        is_paused: whether no instance may read it.
        received: the number of records that became messages.
        rejected: the number of records that were rejected.
        moved_ms: when the position last changed.
        note: why it is not read, such as a topic that was created again; None: it is read.
        lag: the number of unread records when its owner last checked; None: unknown.
        record_ms: the time of the last committed record; None: unknown.
        is_finished: whether it is read to its end, as a file is; no instance reads it until it changes.
        dropped: the number of rejected records that were not stored, since the source stores as many as it may.
        position_form: the form of its positions; see ``inturn.ingest.positions``; empty: unknown, or any.
        gone_ms: when it was found removed, after it was read to its end; None: it was not.
    """

    name: str
    position: str | None = None
    incarnation: str = ""
    owner: str | None = None
    epoch: int = 0
    until_ms: int = 0
    is_paused: bool = False
    received: int = 0
    rejected: int = 0
    moved_ms: int = 0
    note: str | None = None
    lag: int | None = None
    record_ms: int | None = None
    is_finished: bool = False
    dropped: int = 0
    position_form: str = ""
    gone_ms: int | None = None

    def is_owned(self, now_ms: int) -> bool:
        """Return whether an instance has a valid lease."""
        return self.owner is not None and self.until_ms > now_ms

    @property
    def is_missing(self) -> bool:
        """True if it was removed before it was read to its end."""
        return self.note is not None and self.note.startswith(MISSING)

    def age_s(self, now_ms: int) -> float | None:
        """Return how long ago the last committed record was written, in seconds; 0 if all is read; None: unknown."""
        if self.lag == 0:
            return 0.0
        return None if self.record_ms is None else max(0, now_ms - self.record_ms) / 1000


class PartitionShare(NamedTuple):
    """The decision of an instance about its partitions.

    Attributes:
        kept: partitions whose lease it extends.
        claimed: partitions that it claims.
        given_up: partitions that it leaves to others.
    """

    kept: list[str]
    claimed: list[str]
    given_up: list[str]


def share(partitions: Sequence[SourcePartition], instances: Collection[str], me: str, now_ms: int) -> PartitionShare:
    """Return what an instance keeps, claims and gives up.

    Each of ``k`` instances has a quota of ``n // k`` partitions, the first ``n % k`` by name one more. The quotas add
    up to all partitions, so once each instance has had two turns, every partition has an owner within its quota.

    Args:
        partitions: those that may be read.
        instances: the instances that live, this one too.
        me: this instance.
        now_ms: the time.
    """
    ranked = sorted({*instances, me})
    least, more = divmod(len(partitions), len(ranked))
    quota = least + (ranked.index(me) < more)
    own = [partition.name for partition in partitions if partition.owner == me]
    free = [partition.name for partition in partitions if partition.owner != me and not partition.is_owned(now_ms)]
    return PartitionShare(own[:quota], free[: max(0, quota - len(own))], own[quota:])
