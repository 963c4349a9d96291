"""Which grade is chosen on which evidence, and that the pipeline which is proposed can be defined."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the audit is part of the extra [spark]")

import inturn
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.audit.grade import Evidence, choose_grade, pipeline_code
from inturn.spark.audit.report import (
    DifferingColumns,
    Distribution,
    FaultCount,
    FaultKind,
    GapSummary,
    Lateness,
    LogColumns,
)

COUNTS = Evidence(LogColumns("g", order="n", start=1), False, 1_000, {}, GapSummary(0, 0, 0, 0, None, ""), None)
TIMES = replace(COUNTS, keys=LogColumns("g", order_by="at", id="tx"), is_time=True, gaps=None)


def lost(revisions: int) -> GapSummary:
    return GapSummary(1, revisions, 0, 0, None, "")


def late(seconds: float) -> Lateness:
    spread = Distribution(1, seconds, seconds, [])
    return Lateness(Distribution(1, 2, 3, []), spread, spread)


def found(**kinds: int) -> dict[FaultKind, FaultCount]:
    return {FaultKind(kind.replace("_", "-")): FaultCount(count, 1) for kind, count in kinds.items()}


EVIDENCE = {
    'Gapless("n")': COUNTS,
    'Gapless("n", start=0)': replace(COUNTS, keys=replace(COUNTS.keys, start=0)),
    'Gapless("n", epoch="boot")': replace(COUNTS, keys=replace(COUNTS.keys, epoch="boot")),
    'Gapless("n"), on_gap=Wait("10 minutes", then="park")': replace(COUNTS, gaps=lost(50)),
    'Gapless("n"), on_gap=Wait("1 hour", then="park")': replace(
        COUNTS, gaps=lost(5), late=late(3_000), found=found(late=3)
    ),
    'Gapless("n", start="first")': replace(COUNTS, keys=LogColumns("g", order="n"), lowest=-3),
    'Gapless("n", start="first"), on_gap=Wait("10 minutes", then="park")': replace(
        COUNTS, keys=LogColumns("g", order="n"), gaps=lost(5)
    ),
    'Gapless("n"), on_gap=Wait("1 hour", then="skip")': replace(
        COUNTS, keys=LogColumns("g", order="n"), late=late(3_000), found=found(late=3), lowest=7
    ),
    'Gapless("n", start=0), on_gap=Wait("1 hour", then="skip")': replace(
        COUNTS, keys=LogColumns("g", order="n"), late=late(3_000), found=found(late=3), lowest=0
    ),
    'Monotone("n")': replace(COUNTS, gaps=lost(60)),
    'Monotone("n") ': replace(COUNTS, found=found(conflict=11)),
    'Monotone("lsn", epoch="e")': replace(COUNTS, keys=LogColumns("g", order_by="lsn", epoch="e"), gaps=None),
    'Timestamp("at", lateness="0 seconds"), id="tx"': TIMES,
    'Timestamp("at", lateness="5 minutes"), id="tx"': replace(TIMES, late=late(61), found=found(late=1)),
    'Timestamp("at", lateness="3 weeks"), id="tx"': replace(TIMES, late=late(1_300_000), found=found(late=1)),
    'Arrival(), id="…"': replace(TIMES, keys=LogColumns("g"), is_time=False),
    'Arrival(), id="key"': replace(TIMES, keys=LogColumns("g"), is_time=False, unique="key"),
}


@pytest.mark.parametrize("order", EVIDENCE)
def test_the_strongest_grade_supported_by_the_evidence_is_proposed(order: str) -> None:
    seen = EVIDENCE[order]
    proposed = pipeline_code(seen, choose_grade(seen), "log")
    assert proposed == f'Pipeline(name="log", group="g", order={order.strip()}, handler=apply)'


names = st.text(
    st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=12
)  # what a pipeline accepts
amounts = st.integers(0, 2_000)


@given(
    keys=st.builds(
        LogColumns,
        group=names,
        order=st.none() | names,
        id=st.none() | names,
        epoch=st.none() | names,
        start=st.none() | st.integers(0, 9),
    ),
    by=st.none() | names,
    is_time=st.booleans(),
    kinds=st.dictionaries(st.sampled_from(FaultKind), st.builds(FaultCount, amounts, amounts)),
    gone=amounts,
    seconds=st.none() | st.floats(0, 1e9),
)
def test_the_proposed_pipeline_can_be_defined_and_has_evidence(
    keys: LogColumns,
    by: str | None,
    is_time: bool,
    kinds: dict[FaultKind, FaultCount],
    gone: int,
    seconds: float | None,
) -> None:
    keys = keys if keys.order is not None else replace(keys, order_by=by)
    seen = Evidence(keys, is_time, 5_000, kinds, lost(gone), None if seconds is None else late(seconds))
    choice = choose_grade(seen)
    pipeline = eval(pipeline_code(seen, choice, "log"), {"apply": lambda state, message: (state, [])} | vars(inturn))  # noqa: S307 - our own text
    assert isinstance(pipeline, Pipeline)
    assert (pipeline.group, type(pipeline.order).__name__) == (keys.group, choice.name)
    assert choice.evidence


def test_a_column_that_alone_distinguishes_conflicting_messages_is_named() -> None:
    seen = replace(
        COUNTS, found=found(conflict=3), differ=[DifferingColumns(["offset"], 0.9), DifferingColumns(["amount"], 0.1)]
    )
    assert "90% of the contradicting messages differ only in offset: " in choose_grade(seen).needs[0]
    assert not choose_grade(replace(seen, differ=[DifferingColumns(["amount", "type"], 1)])).needs
