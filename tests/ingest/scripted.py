"""A source in memory that tests write to, and that fails as they say."""

from collections.abc import Callable, Sequence
from typing import Any

from inturn.core.errors import PositionGone
from inturn.ingest import Source, SourceRecord


class Log:
    """What a broker keeps: partitions of records, which several sources read."""

    def __init__(self, **partitions: list[bytes | None]) -> None:
        self.partitions = partitions
        self.gone_before = 0
        self.incarnation = ""


class Scripted(Source):
    """A reader of a log; ``faults`` are called before each poll."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.at: dict[str, int] = {}
        self.confirmed: list[tuple[str, Any]] = []
        self.faults: list[Callable[[], object]] = []
        self.is_shut = False
        self.headers: dict[str, Any] = {"h": b"v"}

    def partitions(self) -> Sequence[str]:
        return list(self.log.partitions)

    def incarnation(self, partition: str) -> str:
        return self.log.incarnation

    def open(self, partition: str, position: Any) -> None:
        assert partition not in self.at
        if (position or 0) < self.log.gone_before:
            raise PositionGone(f"{position} is before {self.log.gone_before}, the first that is left")
        self.at[partition] = position or 0

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        if self.faults:
            self.faults.pop(0)()
        records = []
        for name in self.at:
            for body in self.log.partitions[name][self.at[name] :][: limit - len(records)]:
                self.at[name] += 1
                records.append(SourceRecord(name, self.at[name], body, b"k", self.headers, 7))
        return records

    def lag(self, partition: str) -> int | None:
        return len(self.log.partitions[partition]) - self.at[partition]

    def confirm(self, partition: str, position: Any) -> None:
        self.confirmed.append((partition, position))

    def close(self, partition: str) -> None:
        del self.at[partition]

    def shutdown(self) -> None:
        self.is_shut = True
