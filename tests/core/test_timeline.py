"""The table of verdicts is whole, every part of it is reached, and the page shows what it says."""

import runpy
from itertools import product
from pathlib import Path

import pytest
from reference import pipeline

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Timestamp
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.timeline import TABLE, Relation, Status, Timeline, TimelineVerdict

DOCS = Path(__file__).parents[2] / "docs"


def test_the_verdict_table_covers_every_status_and_position() -> None:
    assert set(TABLE) == set(Status)
    for status, row in TABLE.items():
        assert set(row) == set(Relation), status
    assert {verdict for row in TABLE.values() for verdict in row.values()} == set(TimelineVerdict)


def test_the_verdict_on_known_messages_does_not_depend_on_the_status() -> None:
    for place in set(Relation) - {Relation.NEXT, Relation.AHEAD}:
        assert len({row[place] for row in TABLE.values()}) == 1


def test_a_parked_group_applies_only_the_missing_predecessor() -> None:
    applies = {(status, place) for status, row in TABLE.items() for place in row if row[place] is TimelineVerdict.APPLY}
    assert applies == {(status, Relation.NEXT) for status in (Status.OPEN, Status.WAITING, Status.GAP)}


def test_the_design_page_shows_the_verdict_table() -> None:
    script = runpy.run_path(str(DOCS / "timeline.py"))
    assert script["render"]() in (DOCS / "design.md").read_text(encoding="utf-8"), "run: python docs/timeline.py"


def test_the_timeline_script_changes_only_text_between_its_markers(tmp_path: Path) -> None:
    script = runpy.run_path(str(DOCS / "timeline.py"))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{script['BEGIN']}\nold\n{script['END']}\nafter\n", encoding="utf-8")
    for _ in range(2):
        script["write"](page)
        assert page.read_text(encoding="utf-8") == f"before\n{script['render']()}\nafter\n"


def entry(position: int, content: str = "x", epoch: int = 0) -> TimelineEntry:
    return TimelineEntry(
        position=position,
        digest=content.encode().ljust(32),
        message=content,
        epoch=epoch,
        id=str(position),
        tie=str(position),
    )


REACHED: dict[type[Order], set[Relation]] = {
    Gapless: set(Relation) - {Relation.LATE},
    Monotone: {Relation.NEXT, Relation.AHEAD, Relation.COPY, Relation.OTHER, Relation.FORGOTTEN},
    MonotoneFields: {Relation.NEXT, Relation.AHEAD, Relation.COPY, Relation.OTHER, Relation.FORGOTTEN},
    Timestamp: {Relation.AHEAD, Relation.COPY, Relation.OTHER, Relation.LATE},
    Arrival: {Relation.NEXT, Relation.COPY, Relation.OTHER},
}
ORDERS = [
    Gapless("r", epoch="e"),
    Monotone("r", epoch="e"),
    MonotoneFields(("r",), epoch="e"),
    Timestamp("t", "0 seconds"),
    Arrival(),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_each_order_reaches_exactly_its_positions(order: Order) -> None:
    relations = set()
    for revisions in product(range(1, 4), repeat=3):
        for revision, content, epoch in product((1, 2, 3), "xy", (0, 1)):
            timeline = _applied(order, revisions)
            relations.add(timeline.relation(entry(revision, content, epoch if order.epoch else 0)))
    if isinstance(order, Gapless):
        timeline = _applied(order, ())
        timeline.skip(1, 2)  # type: ignore[attr-defined]
        relations.add(timeline.relation(entry(2)))
        timeline.memory = b""
        timeline.skipped = []
        relations.add(timeline.relation(entry(2)))
    assert relations == REACHED[type(order)]


def _applied(order: Order, revisions: tuple[int, ...]) -> Timeline:
    """A timeline that has taken these, as a group would offer them."""
    timeline = order.timeline()
    timeline.epoch = 0
    for revision in revisions:
        message = entry(revision)
        if timeline.relation(message) in (Relation.NEXT, Relation.AHEAD):
            timeline.record_seen(message)
            timeline.hold(message, 0)
        while (ready := timeline.ready()) is not None:
            timeline.record_applied(ready)
    return timeline


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_judge_changes_nothing(order: Order) -> None:
    timeline = _applied(order, (1, 3, 2, 5))
    before = (timeline.reached, timeline.memory, dict(timeline.held), timeline.status)
    for revision in (0, 1, 2, 5, 9):
        timeline.verdict(entry(revision))
    assert (timeline.reached, timeline.memory, dict(timeline.held), timeline.status) == before


def test_a_new_group_has_status_open() -> None:
    result = pipeline().replay([{"g": "a", "r": 1, "v": 1, "o": 0}])
    assert result.timelines["a"].status is Status.OPEN
