"""The timeline of ``Arrival``; a store may keep a part of its memory in separate rows."""

from collections.abc import Iterable

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.grades import RECORD, KeyedTimeline
from inturn.core.pipeline.timeline import Key, Relation, Remembered


class ArrivalTimeline(KeyedTimeline):
    """A timeline of ``Arrival``; ``reached`` counts the arrivals.

    Every id is remembered, since no position could refuse an old copy. A store may keep ids outside the timeline:
    ``part`` hands them over, ``remind`` puts some back for one step.
    """

    __slots__ = ("_reminded",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reminded: set[bytes] = set()

    @override
    def external_marks(self, entries: Iterable[TimelineEntry]) -> list[bytes]:
        return (
            list({mark: None for mark in map(self.mark, entries) if mark not in self._known})
            if self.external_ids
            else []
        )

    @override
    def add_external(self, remembered: Iterable[Remembered]) -> None:
        for mark, known, position in remembered:
            self._known[mark] = (known, position)
            self._reminded.add(mark)

    @override
    def take_external(self) -> list[Remembered]:
        if len(self.memory) <= limits.REMEMBERED_TOGETHER * RECORD.size:
            return []
        parted = list(RECORD.iter_unpack(self.memory))
        self.memory, self.external_ids = b"", self.external_ids + len(parted)
        return parted

    def trim(self) -> None:
        for mark in self._reminded:
            del self._known[mark]
        self._reminded = set()
        super().trim()

    def key(self, entry: TimelineEntry) -> Key:
        return (entry.position,)

    def relation(self, entry: TimelineEntry) -> Relation:
        return self.recall(entry) or Relation.NEXT

    def record_seen(self, entry: TimelineEntry) -> None:
        self.reached = entry.position = (self.reached or 0) + 1

    def ready(self) -> TimelineEntry | None:
        return None if self.parked or self.first() is None else self.pop()
