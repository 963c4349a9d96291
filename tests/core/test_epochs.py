"""A higher epoch starts the timeline again: the state stays, the revisions begin anew."""

import datetime as dt

import pytest
from reference import BAD, Message, arrive, cut, pipeline, steps

from inturn import Gapless, Monotone, MonotoneFields, Wait
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.timeline import Relation, Status
from inturn.core.values.instant import instant_us

GAPLESS = Gapless("r", epoch="e")
MONOTONE = Monotone("r", epoch="e")
FIELDS = MonotoneFields(("r",), epoch="e")
every = pytest.mark.parametrize("order", [GAPLESS, MONOTONE, FIELDS], ids=["gapless", "monotone", "fields"])


def history(*places: tuple[int, int], bad: tuple[int, int] | None = None) -> list[Message]:
    """Messages at (epoch, revision), arriving in this order."""
    values = {place: BAD if place == bad else f"{place[0]}/{place[1]}" for place in places}
    return arrive([{"e": epoch, "r": number, "v": values[epoch, number]} for epoch, number in places])


@every
def test_a_new_epoch_keeps_the_state_and_restarts_revisions(order: Order) -> None:
    for ends in ([], [2], [1, 2, 3]):
        last = steps(pipeline(order), cut(history((1, 1), (1, 2), (2, 1), (2, 2)), ends))[-1]
        assert last.states == {"a": ["1/1", "1/2", "2/1", "2/2"]}
        places = [(output.epoch, output.revision or int(output.id or "")) for output in last.outputs]
        assert places == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert len({output.effect_id for output in last.outputs}) == 4


@every
def test_the_first_epoch_may_be_any_number(order: Order) -> None:
    for first in (-1, 0, 7):
        result = pipeline(order).replay(history((first, 1), (first, 2), (first + 5, 1)))
        assert result.states == {"a": [f"{first}/1", f"{first}/2", f"{first + 5}/1"]}


@every
def test_a_message_of_an_older_epoch_is_stale(order: Order) -> None:
    for ends in ([], [1]):
        last = steps(pipeline(order), cut(history((2, 1), (1, 1), (1, 2), (2, 2)), ends))[-1]
        assert last.states == {"a": ["2/1", "2/2"]}
        assert last.counts.stale == 2


@every
def test_without_arrival_epochs_are_applied_in_order_within_a_step(order: Order) -> None:
    result = pipeline(order, arrival=None, ignore=["o"]).replay(history((3, 1), (1, 2), (2, 1), (1, 1)))
    assert result.states == {"a": ["1/1", "1/2", "2/1", "3/1"]}
    assert result.counts.stale == 0


def test_a_new_epoch_rejects_held_messages_of_the_old_epoch_as_late() -> None:
    for ends in ([], [2]):
        last = steps(pipeline(GAPLESS), cut(history((1, 3), (1, 5), (2, 1)), ends))[-1]
        assert last.states == {"a": ["2/1"]}
        assert [(rejection.reason, rejection.message["r"]) for rejection in last.rejected] == [("late", 3), ("late", 5)]
        assert last.rejected[0].detail == "epoch 2 began before it could be applied"
        assert last.held == []


def test_a_new_epoch_may_begin_with_a_gap() -> None:
    first, second = steps(pipeline(GAPLESS), cut(history((1, 1), (2, 2), (1, 2), (2, 1)), [2]))
    assert (first.states, len(first.held)) == ({"a": ["1/1"]}, 1)
    assert (second.states, second.counts.stale) == ({"a": ["1/1", "2/1", "2/2"]}, 1)


def test_a_new_epoch_resumes_a_group_parked_at_a_gap() -> None:
    pipe = pipeline(GAPLESS, on_gap=Wait("0 seconds", then="park"))
    first, second = steps(pipe, cut(history((1, 2), (2, 1)), [1]))
    assert first.held[0].status == "gap"
    assert second.states == {"a": ["2/1"]}
    assert (second.errors, second.counts.released, second.counts.rejected) == ({}, 1, {"late": 1})


def test_a_new_epoch_forgets_skipped_revisions() -> None:
    pipe = pipeline(GAPLESS, on_gap=Wait("0 seconds", then="skip"))
    results = steps(pipe, cut(history((1, 2), (1, 1), (2, 1), (2, 1)), [1, 2]))
    assert results[1].counts.rejected == {"skipped": 1}
    assert results[2].states == {"a": ["1/2", "2/1"]}
    assert (results[2].counts.rejected, results[2].counts.duplicate) == ({}, 1)


@every
def test_a_new_epoch_does_not_resume_a_failed_group(order: Order) -> None:
    places = history((1, 1), (2, 2), (2, 1), (1, 2), bad=(1, 1))
    for ends in ([], [1], [1, 2, 3]):
        last = steps(pipeline(order), cut(places, ends))[-1]
        assert last.states == {"a": []}
        assert [(held.message["e"], held.message["r"]) for held in last.held] == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert {held.status for held in last.held} == {"failed"}


@every
def test_a_failed_group_detects_duplicates_and_conflicts_in_every_epoch(order: Order) -> None:
    places = history((1, 1), (2, 2), (1, 1), (2, 2), bad=(1, 1))
    result = pipeline(order).replay([*places, {**places[1], "v": "other", "o": 8}])
    assert (result.counts.held, result.counts.duplicate, result.counts.rejected) == (2, 2, {"conflict": 1})


def test_a_failed_group_distinguishes_equal_revisions_of_two_epochs() -> None:
    """The copy of the failed message is not a conflict with the one of the next epoch."""
    result = pipeline(MONOTONE).replay(history((1, 5), (2, 5), (1, 5), bad=(1, 5)))
    assert (result.counts.held, result.counts.duplicate, result.counts.rejected) == (2, 1, {})


@every
def test_held_messages_of_the_next_epoch_are_released_when_it_begins(order: Order) -> None:
    """A decision lets the group go on; the failed message and what is behind it are of an epoch that is over then."""
    timeline = order.timeline(epoch=1)
    for message in history((1, 1), (1, 2), (2, 1), (2, 3), (3, 1)):
        entry = TimelineEntry(message["r"], bytes(32), message["v"], epoch=message["e"], tie=str(message["r"]))
        if timeline.parked:
            timeline.hold(entry, now_us=0)
        else:
            timeline.park(entry, "an error", now_us=0)
    timeline.parked = timeline.error = None
    assert [lost.message for lost in timeline.begin_epoch(2)] == ["1/1", "1/2"]
    first = timeline.ready()
    assert first is not None
    assert first.message == "2/1"
    assert sorted(entry.message for entry in timeline.held.values()) == ["2/3", "3/1"]


@pytest.mark.parametrize(
    "order",
    [
        GAPLESS,
        MONOTONE,
    ],
    ids=["gapless", "monotone"],
)
def test_a_message_held_when_its_epoch_begins_is_recognized_as_a_copy(order: Order) -> None:
    timeline = order.timeline(epoch=1, parked=Status.FAILED)
    timeline.hold(TimelineEntry(3, bytes(32), "2/3", epoch=2), now_us=0)
    timeline.parked = None
    timeline.begin_epoch(2)
    assert timeline.relation(TimelineEntry(3, bytes(32), "2/3", epoch=2)) is Relation.COPY


def test_instant_us_returns_microseconds_since_1970() -> None:
    assert instant_us(dt.datetime(1970, 1, 1, 0, 0, 1, 5)) == 1_000_005  # noqa: DTZ001 - that is what it is for
    assert instant_us(dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))) == 0
