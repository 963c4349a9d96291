"""One group may have any number of messages: none costs more for those that came before it."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import pipeline

from inturn import Gapless, Monotone, Retry, Retryable, Timestamp
from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.fold import Fold
from inturn.core.pipeline.grades import GaplessTimeline, MonotoneTimeline, TimestampTimeline
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.timeline import Status

MANY = 2_000


class Watched(list[Any]):
    """Counts the elements that slices copy."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(key, slice):
            self.copied += len(value)
        return value


class Counted(dict[Any, Any]):
    """Counts the walks over all of it."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def entry(position: int, epoch: int = 0) -> TimelineEntry:
    return TimelineEntry(position, position.to_bytes(32, "big", signed=True), None, epoch)


def test_gapless_memory_grows_in_place_without_copies() -> None:
    timeline = Gapless("r").timeline(epoch=0)
    assert isinstance(timeline, GaplessTimeline)
    timeline.record_applied(entry(1))
    buffer = timeline.memory
    for revision in range(2, MANY):
        timeline.record_applied(entry(revision))
        assert timeline.memory is buffer, "what was remembered before was copied"
    timeline.skip(MANY, MANY)
    assert timeline.memory is buffer, "what was remembered before was copied"
    timeline.trim()
    assert len(timeline.memory) == 8 * limits.REMEMBERED_REVISIONS


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(-2, 200))
def test_is_skipped_equals_a_search_through_all_gaps(steps: list[tuple[int, int]], revision: int) -> None:
    timeline = Gapless("r", start=0).timeline(epoch=0)
    assert isinstance(timeline, GaplessTimeline)
    for applied, missing in steps:
        for _ in range(applied):
            timeline.record_applied(entry(timeline.next()))
        if missing:
            timeline.skip(timeline.next(), timeline.next() + missing - 1)
    assert timeline.is_skipped(revision) == any(first <= revision <= last for first, last in timeline.skipped)


@pytest.mark.parametrize("order", [Gapless("r", epoch="e"), Monotone("r", epoch="e")], ids=str)
def test_a_failed_group_advances_through_epochs_without_scanning_all_held_messages(order: Order) -> None:
    timeline = order.timeline(epoch=0)
    timeline.held = held = Counted()
    timeline.parked = Status.FAILED
    for epoch in range(1, MANY):
        timeline.hold(entry(1, epoch), 0)
    timeline.parked, held.walks = None, 0
    for epoch in timeline.later_epochs():
        assert timeline.begin_epoch(epoch) == []
        released = timeline.ready()
        assert released is not None
        assert released.epoch == epoch
        timeline.record_applied(released)
    assert (len(held), timeline.epoch) == (0, MANY - 1)
    assert held.walks <= 2, f"all {MANY} held messages were looked through {held.walks} times"


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=20), st.sampled_from([Gapless, Monotone]))
def test_a_new_epoch_removes_the_held_messages_of_older_epochs(
    places: list[tuple[int, int]], grade: type[Gapless] | type[Monotone]
) -> None:
    timeline = grade("r", epoch="e").timeline(epoch=0, parked=Status.FAILED)
    for epoch, revision in dict.fromkeys(places):
        timeline.hold(entry(revision, epoch), 0)
    lost = timeline.begin_epoch(3)
    assert [(dropped.epoch, dropped.position) for dropped in lost] == sorted(
        {place for place in places if place[0] < 3}
    )
    assert {(held.epoch, held.position) for held in timeline.held.values()} == {
        place for place in places if place[0] >= 3
    }
    if isinstance(timeline, MonotoneTimeline):
        assert timeline.reached == max((revision for epoch, revision in places if epoch == 3), default=None)


def test_equal_timestamps_are_forgotten_one_by_one_from_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_IDS", 3)
    timeline = Timestamp("t").timeline()
    assert isinstance(timeline, TimestampTimeline)
    for number in range(10):
        message = TimelineEntry(0, bytes(32), None, id=str(number))
        timeline.record_seen(message)
        timeline.record_applied(message)
    later = TimelineEntry(1, bytes(32), None, id="later")
    timeline.record_seen(later)
    timeline.record_applied(later)
    known = [timeline.recall(TimelineEntry(0, bytes(32), None, id=str(number))) is not None for number in range(10)]
    assert known == [False] * 8 + [True] * 2
    assert timeline.recall(later) is not None


def test_retries_copy_no_more_messages_than_the_snapshot_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one group in which each tenth message is tried twice."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY", 50)
    failed = set()

    def apply(state: list[int], message: int) -> Any:
        if message % 10 == 0 and message not in failed:
            failed.add(message)
            msg = "try again"
            raise Retryable(msg)
        return [*state[-3:], message], [message]

    fold = Fold(pipeline(handler=apply, retry=Retry(1, dt.timedelta(0))), list)
    messages = Watched(range(MANY))
    emitted, count = fold.run(messages)
    assert (count, fold.state) == (MANY, [MANY - 4, MANY - 3, MANY - 2, MANY - 1])
    assert [(index, list(outputs)) for index, outputs in emitted] == [(index, [index]) for index in range(MANY)]
    assert messages.copied <= MANY * 6, f"{messages.copied} messages were copied for {MANY}"
