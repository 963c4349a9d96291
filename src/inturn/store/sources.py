"""Records of sources: the position and the reader of each partition, and the rejected records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from inturn.core.source_shares import SourcePartition
from inturn.telemetry.figures import SourceFigures


class RejectedRecord(NamedTuple):
    """A record that could not become a message, kept with its bytes.

    Attributes:
        partition: its partition.
        position: its position, as JSON.
        reason: why it was rejected.
        key: its key.
        headers: its headers, as JSON, for display: bytes that are not UTF-8 are replaced.
        body: its body.
        exact: its original headers and time, as MessagePack.
        number: its number; 0 before it is stored.
        at_ms: when it was rejected.
    """

    partition: str
    position: str
    reason: str
    key: bytes | None
    headers: str
    body: bytes | None
    exact: bytes
    number: int = 0
    at_ms: int = 0


class RejectedPlace(NamedTuple):
    """A rejected record without its content.

    Attributes:
        number: its number.
        partition: its partition.
        size: the size of its key, headers and body, in bytes.
    """

    number: int
    partition: str
    size: int


class RejectedTotal(NamedTuple):
    """The number and the size, in bytes, of the rejected records that a source keeps."""

    records: int
    size: int


class GroupHome(NamedTuple):
    """The partition of a group, and the position, as JSON, of its first record there."""

    partition: str
    position: str


class MovedRecord(NamedTuple):
    """A message that is not sent yet, since its group was in another partition before.

    Attributes:
        group: the message's group.
        partition: its partition.
        position: its position, as JSON.
        home: the previous partition of the group.
        home_position: the position of the group's first record there, as JSON.
        queue: the queue that it is for.
        draft: the message, as MessagePack.
        number: its number; 0 before it is stored.
        at_ms: the time of its arrival.
    """

    group: str
    partition: str
    position: str
    home: str
    home_position: str
    queue: str
    draft: bytes
    number: int = 0
    at_ms: int = 0


class SourceStore(Protocol):
    """Positions, leases and rejected records of sources. All methods are called inside a transaction of the store."""

    def names(self) -> list[str]:
        """Return the names of all sources."""
        ...

    def partitions(self, source: str) -> list[SourcePartition]:
        """Return the partitions of a source by name; nothing is locked."""
        ...

    def locked_partitions(self, source: str) -> list[SourcePartition]:
        """Return the partitions of a source by name, locked until the end of the transaction."""
        ...

    def lock(self, source: str) -> None:
        """Keep other instances from looking at the partitions of a source until the end of the transaction."""
        ...

    def unfinished(self, source: str) -> list[SourcePartition]:
        """Return the partitions that are not read to their end, by name, locked until the end of the transaction."""
        ...

    def finished(self, source: str) -> dict[str, str]:
        """Return the incarnations of the partitions that are read to their end, by name; nothing is locked.

        Those that were seen to be removed are left out.
        """
        ...

    def partition(self, source: str, name: str) -> SourcePartition | None:
        """Return a partition, locked until the end of the transaction."""
        ...

    def add(self, source: str, names: Iterable[str]) -> None:
        """Add the partitions that are not known yet."""
        ...

    def save(self, source: str, partition: SourcePartition) -> None:
        """Write the record of a known partition."""
        ...

    def renew(self, source: str, owner: str, until_ms: int) -> None:
        """Extend the leases of an owner on the partitions of a source."""
        ...

    def remove(self, source: str, name: str) -> None:
        """Remove a partition, with its position."""
        ...

    def instances(self, source: str, me: str, until_ms: int, now_ms: int, error: str = "") -> list[str]:
        """Record that an instance lives until a time, remove expired instances, and return all others.

        ``error`` is the error that the instance waits out; empty: none.
        """
        ...

    def errors(self, source: str, now_ms: int) -> dict[str, str]:
        """Return the errors that living instances wait out, by instance."""
        ...

    def remove_instance(self, source: str, me: str) -> None:
        """Forget an instance."""
        ...

    def reject(self, source: str, rejected: Sequence[RejectedRecord], now_ms: int) -> None:
        """Keep rejected records."""
        ...

    def rejected_by_number(self, source: str, numbers: Sequence[int]) -> list[RejectedRecord]:
        """Return the named rejected records that exist, in order."""
        ...

    def rejected_places(self, source: str) -> list[RejectedPlace]:
        """Return all rejected records without their content, in order, as they are at one time."""
        ...

    def rejected_total(self, source: str) -> RejectedTotal:
        """Return the number of a source's rejected records, and their size."""
        ...

    def rejecting_names(self) -> list[str]:
        """Return the names of sources and webhooks that keep rejected records."""
        ...

    def lock_rejected(self, source: str, numbers: Sequence[int]) -> set[int]:
        """Return the numbers that exist, locked until the end of the transaction."""
        ...

    def save_reasons(self, reasons: Mapping[int, str]) -> None:
        """Write why records are rejected now, by number."""
        ...

    def remove_rejected(self, source: str, numbers: Sequence[int]) -> int:
        """Remove rejected records; return their number."""
        ...

    def known_ids(self, source: str, ids: Sequence[str]) -> dict[str, str]:
        """Return the ids that are known, each with the digest of its message."""
        ...

    def save_ids(self, source: str, digests: Mapping[str, str]) -> None:
        """Keep new ids, each with the digest of its message, for ever."""
        ...

    def homes(self, source: str, partition: str, positions: Mapping[str, str]) -> dict[str, GroupHome]:
        """Note that new groups, with their positions, are in a partition; return where each of the groups is."""
        ...

    def move_homes(self, source: str, partition: str, positions: Mapping[str, str]) -> None:
        """Note that groups, with their positions, are in a partition from now on."""
        ...

    def save_moved(self, source: str, moved: Sequence[MovedRecord], now_ms: int) -> None:
        """Keep messages of groups that moved."""
        ...

    def moved(self, source: str, after: int, limit: int) -> list[MovedRecord]:
        """Return kept messages of groups that moved after a number, in order."""
        ...

    def moved_of(self, source: str, group: str) -> list[MovedRecord]:
        """Return the kept messages of a group, in order, locked until the end of the transaction."""
        ...

    def moved_groups(self, source: str) -> list[str]:
        """Return the groups that have kept messages."""
        ...

    def moved_counts(self, source: str) -> dict[str, int]:
        """Return the number of stored messages by partition."""
        ...

    def remove_moved(self, numbers: Sequence[int]) -> None:
        """Remove kept messages."""
        ...

    def figures(self, now_ms: int) -> list[SourceFigures]:
        """Return the figures of all sources, by partition or summed up; nothing is locked."""
        ...
