"""Selection of groups by name and by patterns, and the report of what became of decisions."""

import pytest

from inturn.core.errors import InputError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.selection import DecisionReport, Selection, patterns
from inturn.core.texts import last_line

ERROR = "Traceback (most recent call last):\n  File …\nValueError: amount -1 is below zero\n"


@pytest.mark.parametrize(
    ("selection", "name", "error", "matches"),
    [
        (Selection(is_all=True), "eu-1", None, True),
        (Selection(groups=("eu-*",)), "eu-1", None, True),
        (Selection(groups=("eu-*",)), "EU-1", None, False),
        (Selection(groups=("us-*", "eu-[12]")), "eu-2", ERROR, True),
        (Selection(groups=("us-*", "eu-[12]")), "eu-3", ERROR, False),
        (Selection(error="ValueError*"), "eu-1", ERROR, True),
        (Selection(error="Traceback*"), "eu-1", ERROR, False),
        (Selection(error="*"), "eu-1", None, False),
        (Selection(groups=("eu-*",), error="KeyError*"), "eu-1", ERROR, False),
        (Selection(groups=("eu-*",), error="*below zero"), "eu-1", ERROR, True),
        (Selection(groups=("us-*",), error="*below zero", is_all=True), "eu-1", ERROR, False),
    ],
)
def test_a_selection_matches_only_if_every_pattern_kind_matches(
    selection: Selection, name: str, error: str | None, matches: bool
) -> None:
    assert selection.matches(name, error) is matches


def test_an_empty_selection_or_names_with_patterns_are_refused() -> None:
    with pytest.raises(InputError, match="no group is selected; pass names of groups, a pattern"):
        Selection()
    for more in ({"groups": ("a*",)}, {"error": "a*"}, {"is_all": True}):
        with pytest.raises(InputError, match="pass either names or these"):
            Selection(("a",), **more)  # type: ignore[arg-type]


def test_patterns_accepts_one_pattern_or_several() -> None:
    assert [patterns(value) for value in (None, "a*", ["a*", "b"])] == [(), ("a*",), ("a*", "b")]
    assert [last_line(text) for text in (None, "", ERROR)] == ["", "", "ValueError: amount -1 is below zero"]


def test_a_decision_report_is_updated_with_verdicts() -> None:
    report = DecisionReport(DecisionAction.SKIP, [], {"x": "no gap"}, {"a": "1", "b": "2", "c": "3"})
    report = report.updated({"2": "", "9": ""})
    assert report == DecisionReport(DecisionAction.SKIP, ["b"], {"x": "no gap"}, {"a": "1", "c": "3"})
    report = report.updated({"1": "the group has changed", "3": ""})
    assert report.to_dict() == {
        "action": "skip",
        "done": ["b", "c"],
        "void": {"x": "no gap", "a": "the group has changed"},
        "pending": {},
    }
