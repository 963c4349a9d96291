"""The time line of a group names each place once, in the order of the group."""

import datetime as dt
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from inturn.console.time_line import SHOWN, EventKind, time_line
from inturn.core.pipeline.inspection import GroupStatus, HeldStatus, Inspector
from inturn.core.pipeline.order import StoredOrder

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Words:
    """An inspector's words, without its store."""

    order = StoredOrder.of("inturn.Gapless(column='n', start=1, epoch=None)")
    unit = "turn"
    due = Inspector.due
    gap = Inspector.gap
    place = Inspector.place


def events(reached: int | None, turns: list[int], status: str) -> list[tuple[str, str]]:
    held = [HeldStatus(0, turn, None, AT, "00", {"n": turn}) for turn in turns]
    group = GroupStatus("g", status, 0, reached, None, [], len(held), None, None, 1, None)
    return [(each.kind, each.label) for each in time_line(cast("Any", Words()), group, held)]


def test_the_line_of_a_failed_group() -> None:
    assert events(1, [2, 3, 6], "failed") == [
        (EventKind.APPLIED, "up to revision 1"),
        (EventKind.FAILED, "revision 2"),
        (EventKind.HELD, "revision 3"),
        (EventKind.MISSING, "revisions 4 to 5"),
        (EventKind.HELD, "revision 6"),
    ]


@given(st.integers(1, 20) | st.none(), st.sets(st.integers(1, 40), max_size=SHOWN))
def test_every_revision_is_applied_held_or_missing_once(reached: int | None, ahead: set[int]) -> None:
    start = reached or 0
    turns = sorted(start + each for each in ahead)
    covered: list[int] = []
    for kind, label in events(reached, turns, "waiting"):
        numbers = [int(word) for word in label.split() if word.isdigit()]
        if kind is not EventKind.APPLIED:
            covered += range(numbers[0], numbers[-1] + 1)
    assert covered == list(range(start + 1, (turns[-1] if turns else start) + 1))


def test_a_long_line_ends_with_a_number() -> None:
    assert events(0, list(range(2, 40)), "waiting")[-1] == (EventKind.MORE, f"{38 - SHOWN} messages")
