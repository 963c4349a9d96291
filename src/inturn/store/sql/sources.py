"""Positions, leases and rejected records of sources, in the same transaction as the messages that they became.

Both databases have the same tables and the same names of statements.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from inturn.core import limits
from inturn.core.override import override
from inturn.core.source_shares import SourcePartition
from inturn.core.texts import storable
from inturn.store.sources import GroupHome, MovedRecord, RejectedPlace, RejectedRecord, RejectedTotal, SourceStore
from inturn.telemetry.figures import SourceFigures


class SqlSources(SourceStore):
    """The sources of one database.

    Args:
        read: runs a statement by its name, with its parameters; returns its rows.
        do: runs a statement that has no result.
    """

    def __init__(self, read: Callable[..., list[tuple[Any, ...]]], do: Callable[..., object]) -> None:
        self._read, self._do = read, do

    def names(self) -> list[str]:
        """Return the names of all sources."""
        return [name for (name,) in self._read("source_names")]

    @override
    def partitions(self, source: str) -> list[SourcePartition]:
        return [self._partition(row) for row in self._read("source_partitions", source)]

    @override
    def locked_partitions(self, source: str) -> list[SourcePartition]:
        self._read("lock_source_partitions", source)
        return self.partitions(source)

    @override
    def lock(self, source: str) -> None:
        self._read("lock_source", source)

    @override
    def unfinished(self, source: str) -> list[SourcePartition]:
        return [self._partition(row) for row in self._read("source_unfinished", source)]

    @override
    def finished(self, source: str) -> dict[str, str]:
        return dict(self._read("source_finished", source))

    @override
    def partition(self, source: str, name: str) -> SourcePartition | None:
        rows = self._read("source_partition", source, name)
        return self._partition(rows[0]) if rows else None

    @override
    def add(self, source: str, names: Iterable[str]) -> None:
        for name in names:
            self._do("add_source_partition", source, name)

    @override
    def save(self, source: str, partition: SourcePartition) -> None:
        name, *values = partition
        self._do("save_source_partition", source, name, *values)

    @override
    def renew(self, source: str, owner: str, until_ms: int) -> None:
        self._do("renew_source_partitions", until_ms, source, owner)

    @override
    def remove(self, source: str, name: str) -> None:
        self._do("remove_source_partition", source, name)

    @override
    def instances(self, source: str, me: str, until_ms: int, now_ms: int, error: str = "") -> list[str]:
        self._do("save_source_instance", source, me, until_ms, storable(error))
        self._do("remove_expired_source_instances", source, now_ms)
        return [name for (name,) in self._read("source_instances", source)]

    @override
    def errors(self, source: str, now_ms: int) -> dict[str, str]:
        return dict(self._read("source_errors", source, now_ms))

    @override
    def remove_instance(self, source: str, me: str) -> None:
        self._do("remove_source_instance", source, me)

    @override
    def reject(self, source: str, rejected: Sequence[RejectedRecord], now_ms: int) -> None:
        for rejection in rejected:
            self._do("add_source_rejection", source, *rejection[:7], now_ms)

    @override
    def rejected_by_number(self, source: str, numbers: Sequence[int]) -> list[RejectedRecord]:
        return [RejectedRecord(*row) for row in self._read("source_rejections_by_number", source, _json(numbers))]

    @override
    def rejected_places(self, source: str) -> list[RejectedPlace]:
        return [RejectedPlace(*row) for row in self._read("source_rejection_places", source)]

    @override
    def rejected_total(self, source: str) -> RejectedTotal:
        return RejectedTotal(*self._read("source_rejection_total", source)[0])

    @override
    def rejecting_names(self) -> list[str]:
        names, name = [], ""
        while name := self._read("next_rejecting_source", name)[0][0] or "":
            names.append(name)
        return names

    @override
    def lock_rejected(self, source: str, numbers: Sequence[int]) -> set[int]:
        return {number for (number,) in self._read("lock_source_rejections", source, _json(numbers))}

    @override
    def save_reasons(self, reasons: Mapping[int, str]) -> None:
        for number, reason in sorted(reasons.items()):
            self._do("save_source_rejection_reason", reason, number)

    @override
    def remove_rejected(self, source: str, numbers: Sequence[int]) -> int:
        return len(self._read("remove_source_rejections", source, _json(numbers)))

    @override
    def known_ids(self, source: str, ids: Sequence[str]) -> dict[str, str]:
        return dict(self._read("source_ids", source, _json(ids)))

    @override
    def save_ids(self, source: str, digests: Mapping[str, str]) -> None:
        if digests:
            self._do("add_source_ids", source, msgspec.json.encode(list(digests.items())).decode())

    @override
    def homes(self, source: str, partition: str, positions: Mapping[str, str]) -> dict[str, GroupHome]:
        self._do("add_source_groups", source, partition, _pairs(positions))
        groups = msgspec.json.encode(list(positions)).decode()
        return {group: GroupHome(*home) for group, *home in self._read("source_groups", source, groups)}

    @override
    def move_homes(self, source: str, partition: str, positions: Mapping[str, str]) -> None:
        self._do("save_source_groups", source, partition, _pairs(positions))

    @override
    def save_moved(self, source: str, moved: Sequence[MovedRecord], now_ms: int) -> None:
        for message in moved:
            self._do("add_source_moved", source, *message[:7], now_ms)

    @override
    def moved(self, source: str, after: int, limit: int) -> list[MovedRecord]:
        return [MovedRecord(*row) for row in self._read("source_moved", source, after, limit)]

    @override
    def moved_of(self, source: str, group: str) -> list[MovedRecord]:
        return [MovedRecord(*row) for row in self._read("source_moved_of_group", source, group)]

    @override
    def moved_groups(self, source: str) -> list[str]:
        return [group for (group,) in self._read("source_moved_groups", source)]

    @override
    def moved_counts(self, source: str) -> dict[str, int]:
        return dict(self._read("source_moved_counts", source))

    @override
    def remove_moved(self, numbers: Sequence[int]) -> None:
        self._do("remove_source_moved", _json(numbers))

    @override
    def figures(self, now_ms: int) -> list[SourceFigures]:
        return [
            SourceFigures.from_row(now_ms, row)
            for row in self._read("source_metrics", now_ms, limits.FIGURES_PARTITIONS)
        ]

    @staticmethod
    def _partition(row: Sequence[Any]) -> SourcePartition:
        partition = SourcePartition(*row)
        return partition._replace(is_paused=bool(partition.is_paused), is_finished=bool(partition.is_finished))


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _pairs(positions: Mapping[str, str]) -> str:
    """Return groups and positions as JSON, in order of the groups, so that transactions lock rows in one order."""
    return msgspec.json.encode(sorted(positions.items())).decode()
