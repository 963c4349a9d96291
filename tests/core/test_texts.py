"""The rule for texts: what is a name, what can be stored, what a terminal is shown."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import pipeline

from hostile import HOSTILE, NO_NAMES, TEXTS, is_name, is_utf8
from inturn.core import limits, texts
from inturn.core.errors import InputError, PipelineError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.results import RejectedMessage, RejectionSummary


@given(text=TEXTS)
def test_a_valid_name_is_one_every_store_can_keep(text: str) -> None:
    assert (texts.name_fault("group", text) == "") is is_name(text)
    assert (texts.text_fault("body", text) == "") is is_utf8(text)
    if is_name(text):
        assert texts.checked("group", text) is text
    else:
        with pytest.raises(InputError) as raised:
            texts.checked("group", text)
        assert str(raised.value).isprintable() or str(raised.value).isascii()
        assert len(str(raised.value)) < 10 * limits.SHOWN_LENGTH


def test_the_hostile_texts_contain_exactly_the_listed_invalid_names() -> None:
    assert {name for name, text in HOSTILE.items() if not is_name(text)} == NO_NAMES


@given(text=TEXTS)
def test_storable_makes_any_text_storable_and_leaves_valid_text_unchanged(text: str) -> None:
    stored = texts.storable(text)
    stored.encode()
    assert "\0" not in stored
    assert texts.storable(stored) is stored, "once is enough"
    if is_utf8(text) and "\0" not in text:
        assert stored is text, "what can be stored is left as it is"
    assert len(texts.kept_name(text)) <= limits.ID_LENGTH
    assert len(texts.kept_error(text * 3)) <= limits.ERROR_LENGTH
    assert len(texts.note("note", text)) <= limits.ERROR_LENGTH


@given(text=TEXTS, most=st.none() | st.integers(1, 12))
def test_visible_returns_printable_text_within_the_limit(text: str, most: int | None) -> None:
    shown = texts.visible(text, most)
    assert shown.isprintable()
    shown.encode()
    assert most is None or len(shown) <= most
    assert text.isprintable() <= (most is not None or shown == text)


VALUES = st.recursive(
    TEXTS | st.none() | st.integers(), lambda part: st.lists(part) | st.dictionaries(TEXTS, part), max_leaves=5
)


@given(value=VALUES)
def test_unholdable_finds_an_invalid_text_inside_a_value(value: object) -> None:
    path = texts.unstorable_path(value)
    assert (path is None) is is_utf8(str(value) if isinstance(value, str) else _flat(value))


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return "".join(map(_flat, (*value, *value.values())))
    return "".join(map(_flat, value)) if isinstance(value, list) else str(value)


@given(text=TEXTS)
def test_a_decision_accepts_any_author_text_and_refuses_surrogates_in_group_or_content(text: str) -> None:
    decision = Decision(id="1", action=DecisionAction.RESUME, group="a", by=text, why=text, at_us=0)
    (decision.by + decision.why).encode()
    if is_utf8(text):
        assert (
            Decision(id="1", action=DecisionAction.REPLACE, group=text, by="ann", at_us=0, new={"a": text}).group
            == text
        )
        return
    for wrong in ({"group": text}, {"group": "a", "new": {"a": [text]}}):
        with pytest.raises(InputError, match="surrogate"):
            Decision(id="1", action=DecisionAction.REPLACE, by="ann", at_us=0, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["name", "group", "id", "arrival"])
@pytest.mark.parametrize("text", ["\ud800", "a\0"])
def test_a_pipeline_refuses_names_with_surrogates_or_nul(field: str, text: str) -> None:
    with pytest.raises(PipelineError, match=r"surrogate|NUL"):
        pipeline(**{field: text})


def test_storable_escapes_undecodable_file_names() -> None:
    assert texts.storable(os.fsdecode(b"caf\xe9.txt")) == "caf\\udce9.txt"


def test_rejected_status_counts_rejections_of_a_group_by_reason() -> None:
    rows = [
        RejectedMessage("a", "late", "x", ""),
        RejectedMessage("b", "late", "x", ""),
        RejectedMessage("a", "invalid", "\x1b", ""),
        RejectedMessage(None, "late", "", ""),
    ]
    assert str(RejectionSummary.of("a", rows)) == (
        "Group a has no state: all of its 2 messages were rejected, 1 as invalid, 1 as late. The last rejection: \\x1b."
    )
    assert RejectionSummary.of("c", rows) is None
