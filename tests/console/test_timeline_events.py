"""The time line of a group names each place once, in the order of the group."""

import datetime as dt
from itertools import pairwise
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from inturn.console.picture import picture
from inturn.console.timeline_events import RANGES, SHOWN, EventKind, TimeLineEvent, timeline_events
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.inspection import AppliedDecision, GroupHistory, GroupStatus, HeldMessageStatus, Inspector
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.results import FailingDelivery, Output, RejectedMessage

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Words:
    """An inspector's words, without its store."""

    order = StoredOrder.of("inturn.Gapless(column='n', start=1, epoch=None)")
    unit = "task"
    due = Inspector.due
    gap = Inspector.gap
    place = Inspector.place


def events(reached: int | None, turns: list[int], status: str) -> list[tuple[str, str]]:
    return [(event.kind, event.label) for event in line(reached, turns, status)]


def line(
    reached: int | None, turns: list[int], status: str, skipped: list[tuple[int, int]] | None = None
) -> list[TimeLineEvent]:
    held = [HeldMessageStatus(0, turn, None, AT, "00", {"n": turn}) for turn in turns]
    group = GroupStatus("g", status, 0, reached, None, skipped or [], len(held), None, None, 1, None)
    return timeline_events(cast("Any", Words()), group, held)


def test_the_timeline_of_a_failed_group_lists_applied_failed_held_and_missing() -> None:
    assert events(1, [2, 3, 6], "failed") == [
        (EventKind.APPLIED, "revision 1"),
        (EventKind.FAILED, "revision 2"),
        (EventKind.HELD, "revision 3"),
        (EventKind.MISSING, "revisions 4 to 5"),
        (EventKind.HELD, "revision 6"),
    ]


@given(st.integers(1, 20) | st.none(), st.sets(st.integers(1, 40), max_size=SHOWN))
def test_the_timeline_covers_every_revision_once(reached: int | None, ahead: set[int]) -> None:
    start = reached or 0
    turns = sorted(start + offset for offset in ahead)
    covered: list[int] = []
    for kind, label in events(reached, turns, "waiting"):
        numbers = [int(word) for word in label.split() if word.isdigit()]
        if kind is not EventKind.APPLIED:
            covered += range(numbers[0], numbers[-1] + 1)
    assert covered == list(range(start + 1, (turns[-1] if turns else start) + 1))


def test_a_long_timeline_ends_with_the_number_of_further_events() -> None:
    assert events(0, list(range(2, 40)), "waiting")[-1] == (EventKind.MORE, f"{38 - SHOWN} more")


def test_the_timeline_of_an_open_group_names_the_next_revision() -> None:
    assert events(4, [], "open") == [(EventKind.APPLIED, "revisions 1 to 4"), (EventKind.NEXT, "revision 5")]


@given(st.sets(st.integers(1, 60), max_size=30), st.integers(1, 60))
def test_applied_and_skipped_revisions_are_listed_once_and_in_order(skipped: set[int], reached: int) -> None:
    ranges = [(revision, revision) for revision in sorted(skipped) if revision <= reached]
    shown = [event for event in line(reached, [], "waiting", ranges) if event.positions]
    turns = [turn for event in shown for turn in range(event.positions[0], event.positions[1] + 1)]
    assert turns == list(range(1, reached + 1))
    assert sum(event.kind is EventKind.SKIPPED for event in shown) == min(len(ranges), RANGES)


def test_a_timeline_picture_links_held_revisions_to_missing_ones() -> None:
    layout = picture(line(4, [5, 6, 7, 10], "failed"), [], GroupHistory(), "task", {"balance": 1})
    assert [wait.text for wait in layout.waits] == ["wait for 5", "waits for 8 to 9"]
    boxes = {box.event.place: box for box in layout.boxes}
    assert [wait.to for wait in layout.waits] == [boxes["5"].middle, boxes["8 to 9"].middle]
    assert layout.stop == boxes["1 to 4"].x + boxes["1 to 4"].width
    assert [(lane.name, lane.pins[0].text) for lane in layout.lanes] == [("State", '{"balance": 1}')]


def test_a_timeline_picture_shows_decisions_and_deliveries() -> None:
    decision = Decision(id="1", action=DecisionAction.DROP, group="g", by="ann", at_us=0, position=5)
    history = GroupHistory(
        [AppliedDecision(decision, ""), AppliedDecision(decision, "overtaken")],
        [RejectedMessage("g", "dropped", "", "{}", AT)],
        [Output("g", None, 3, None, 0, "e", {})],
        2,
        FailingDelivery("g", 2, 3, "ConnectionError: no\n", None),
    )
    layout = picture(line(4, [5], "failed"), [decision], history, "task", None)
    pins = {lane.name: lane.pins for lane in layout.lanes}
    box = next(box for box in layout.boxes if box.event.place == "5")
    assert [(pin.kind, pin.x) for pin in pins["Decided"]] == [
        (kind, box.middle) for kind in ("pending", "done", "void")
    ]
    assert [pin.text for pin in pins["Results"]] == [
        "2 outputs not delivered after 3 tries: ConnectionError: no",
        "1 message rejected: 1 as dropped",
    ]


@given(st.integers(0, 10**6), st.sets(st.integers(1, 60), max_size=30), st.sampled_from(["failed", "waiting", "gap"]))
def test_the_boxes_of_a_timeline_picture_do_not_overlap(reached: int, ahead: set[int], status: str) -> None:
    layout = picture(
        line(reached, sorted(reached + offset for offset in ahead), status), [], GroupHistory(), "task", "x" * 500
    )
    for left, right in pairwise(layout.boxes):
        assert left.x + left.width < right.x
    assert all(box.x + box.width <= layout.width for box in layout.boxes)
