"""The grade of order of a log, its reasons, and the pipeline that fits. Pure: numbers in, sentences out."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from inturn.core.pipeline.order import Order
from inturn.core.words import counted, duration
from inturn.spark.audit.report import (
    DifferingColumns,
    FaultCount,
    FaultKind,
    GapSummary,
    Lateness,
    LogColumns,
    ProposedGrade,
)

MIN_COVERAGE: Final = 0.95
"""The minimum share of the expected revisions that must be present for a column to count as revisions."""
MAX_CONTRADICTIONS: Final = 0.01
"""The maximum share of messages that may contradict an earlier one while revisions still identify messages."""
_MIN_COLUMN_SHARE: Final = 0.5
"""The minimum share of contradictions in a single column from which the report suggests that it is not content."""
_STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800)
_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class VerdictInputs:
    """A number of messages with equal values in all inputs of a pipeline's decision.

    Attributes:
        below: their revision is below the first.
        first: they were the first of their place.
        same: they have the content of the first of their place.
        overtaken: the first of their place arrived after a greater one.
        again: an earlier message has their place and their content.
        other: an earlier message has their id and other content.
    """

    messages: int
    bad: bool = False
    below: bool = False
    first: bool = False
    same: bool = False
    overtaken: bool = False
    again: bool = False
    other: bool = False
    no_id: bool = False

    def verdict(self, order: str, *, has_ids: bool) -> str:
        """Return the verdict of a pipeline with such an order.

        Args:
            order: the grade.
            has_ids: whether the ids of the messages were checked.
        """
        if self.bad:
            return "invalid"
        grade = Order.grades[order]
        if not grade.has_revisions:
            if has_ids and self.no_id:
                return "invalid"
            return "duplicate" if self.again else "conflict" if has_ids and self.other else "applied"
        if grade.has_gaps and self.below:
            return "invalid"
        if grade.only_rises and self.overtaken:
            return "duplicate"
        return "applied" if self.first else "duplicate" if self.same or self.again else "conflict"


@dataclass(frozen=True)
class Evidence:
    """The facts that decide a grade.

    Attributes:
        unique: a column that could be the id, if none was given.
        unit: unit of the order's times, if they are numbers.
        verdict_inputs: inputs of the verdicts on all messages with a fault or next to one; empty if not known.
        unplaced: number of messages without a place.
        casts: sentences about the columns that a pipeline needs converted.
        lowest: lowest place of all messages.
    """

    keys: LogColumns
    is_time: bool
    messages: int
    found: dict[FaultKind, FaultCount]
    gaps: GapSummary | None
    late: Lateness | None
    differ: list[DifferingColumns] = field(default_factory=list)
    unique: str | None = None
    unit: str = "us"
    verdict_inputs: Sequence[VerdictInputs] = ()
    unplaced: int = 0
    casts: tuple[str, ...] = ()
    lowest: int | None = None

    def count(self, kind: FaultKind) -> int:
        """Return the number of messages of a kind."""
        return self.found[kind].messages if kind in self.found else 0


@dataclass(frozen=True)
class GradeChoice:
    """A grade with its reasons, as a Python expression."""

    name: str
    order: str
    evidence: list[str]
    needs: list[str]
    on_gap: str | None = None

    @property
    def needs_id(self) -> bool:
        """Return whether duplicates are recognised only by an id."""
        return not Order.grades[self.name].has_revisions


def propose_grade(seen: Evidence, name: str, row_field: str | None = None) -> ProposedGrade:
    """Return the grade of a log, with its reasons and the pipeline that fits.

    Args:
        seen: the facts.
        name: name of the pipeline.
        row_field: the field of their row that is the group of change events; a mapping gives it to each.
    """
    choice = choose_grade(seen)
    grade = ProposedGrade(
        choice.name, choice.evidence, pipeline_code(seen, choice, name), choice.needs, _expected_counts(seen, choice)
    )
    if row_field is None:
        return grade
    says = f"These are change events: the group is the row's {row_field} after the change or, for a delete, before it."
    need = (
        f"The mapping writes the group of each event into the field {seen.keys.group}, from which the pipeline reads "
        f'it; for inturn ingest, set preset = "debezium" and group = {_quoted(row_field)}.'
    )
    mapping = f"DebeziumMapping(group={_quoted(row_field)})"
    return replace(grade, evidence=[says, *grade.evidence], needs=[*grade.needs, need], mapping=mapping)


def choose_grade(seen: Evidence) -> GradeChoice:
    """Return the strongest grade that the data support."""
    choice = _choose(seen)
    needs = [*choice.needs, *seen.casts]
    alone = next(
        (differing for differing in seen.differ if len(differing.columns) == 1 and differing.part >= _MIN_COLUMN_SHARE),
        None,
    )
    if alone is not None:
        column = alone.columns[0]
        hint = (
            f"{_percent(alone.part)} of the contradicting messages differ only in {column}: if it describes the "
            f"delivery and not the event, exclude it from the content with --ignore {column} or --arrival {column}."
        )
        needs.insert(0, hint)
    return replace(choice, needs=needs)


def _choose(seen: Evidence) -> GradeChoice:
    if seen.keys.order is not None:
        return _choose_for_count(seen, seen.keys.order)
    if seen.keys.order_by is None:
        says = ["No column gives an order, so only the order of arrival remains."]
        return GradeChoice("Arrival", "Arrival()", says, _id_conditions(seen))
    if seen.is_time:
        return _choose_for_time(seen, seen.keys.order_by)
    return _choose_for_number(seen, seen.keys.order_by, [])


def _expected_counts(seen: Evidence, choice: GradeChoice) -> dict[str, int]:
    """Return the number of messages by verdict if the pipeline reads this log in order of arrival; empty if unknown.

    Messages held because of a missing predecessor count as applied, stale ones as duplicates.
    """
    no_ids = choice.needs_id and seen.keys.id is None and seen.unique is None
    if no_ids or FaultKind.RESET in seen.found or not seen.verdict_inputs:
        return {}
    counts = dict.fromkeys(("applied", "duplicate", "conflict", "invalid"), 0)
    for inputs in seen.verdict_inputs:
        counts[inputs.verdict(choice.name, has_ids=seen.keys.id is not None)] += inputs.messages
    counts["applied"] += seen.messages + seen.unplaced - sum(inputs.messages for inputs in seen.verdict_inputs)
    return counts


def pipeline_code(seen: Evidence, choice: GradeChoice, name: str) -> str:
    """Return the pipeline as a line of Python."""
    keys = seen.keys
    parts = [f"name={_quoted(name)}", f"group={_quoted(keys.group)}", f"order={choice.order}"]
    own_id = keys.id or (seen.unique if choice.needs_id else None)
    if own_id is not None:
        parts.append(f"id={_quoted(own_id)}")
    elif choice.needs_id:
        parts.append('id="…"')
    if keys.arrival is not None:
        parts.append(f"arrival={_quoted(keys.arrival)}")
    if keys.ignore:
        parts.append(f"ignore=[{', '.join(map(_quoted, keys.ignore))}]")
    if choice.on_gap is not None:
        parts.append(f"on_gap={choice.on_gap}")
    return f"Pipeline({', '.join(parts)}, handler=apply)"


def _quoted(name: str) -> str:
    """Return a text in double quotes, as Python and JSON write it."""
    return json.dumps(name, ensure_ascii=False)


def _choose_for_count(seen: Evidence, column: str) -> GradeChoice:
    """Return Gapless if the revisions are present and each identifies one message; else the order that remains."""
    gaps = seen.gaps
    lost = gaps.lost_revisions if gaps else 0
    rivals = seen.count(FaultKind.CONFLICT) + seen.count(FaultKind.TWO_WRITERS)
    present = seen.messages - seen.count(FaultKind.DUPLICATE) - rivals
    cover = present / (present + lost) if present + lost else 0.0
    contradicted = rivals / seen.messages
    says = [f"{present:,} of {present + lost:,} revisions are present ({_percent(cover)})."]
    if rivals:
        does = "message contradicts" if rivals == 1 else "messages contradict"
        says.append(f"{rivals:,} {does} an earlier one of the same revision ({_percent(contradicted)}).")
    if cover < MIN_COVERAGE:
        says.append(
            f"With so many missing numbers {column} is not a count: a missing number does not mean a missing message."
        )
        return _choose_for_number(seen, column, says)
    if contradicted > MAX_CONTRADICTIONS:
        says.append(
            f"So {column} does not identify one message, and the order of messages with the same {column} is undefined."
        )
        return _choose_for_number(seen, column, says)
    if not lost:
        late_ones = " except those that may still arrive" if gaps and gaps.open else ""
        says.append(f"No revision is missing{late_ones}, so gaps can be detected and completeness can be proved.")
    if seen.late is not None:
        late = counted(seen.count(FaultKind.LATE), "message")
        says.append(f"{late} arrived after a later one; Gapless waits and restores the order.")
    on_gap, needs = _gap_policy(seen, says)
    epoch = [f"epoch={_quoted(seen.keys.epoch)}"] if seen.keys.epoch is not None else []
    return GradeChoice(
        "Gapless", f"Gapless({', '.join([_quoted(column), *_start_argument(seen), *epoch])})", says, needs, on_gap
    )


def _start_argument(seen: Evidence) -> list[str]:
    """Return the first revision; if groups begin anywhere, their first message, unless messages may precede it."""
    first = seen.keys.start
    if first is None and seen.late is None:
        return ['start="first"']
    if first is None:
        first = min(1, 1 if seen.lowest is None else seen.lowest)
    return [] if first == 1 else [f"start={first}"]


def _gap_policy(seen: Evidence, says: list[str]) -> tuple[str | None, list[str]]:
    """Return the gap policy and the conditions that it still needs; append the gaps seen to ``says``."""
    wait = _rounded_duration(seen.late.seconds.most if seen.late and seen.late.seconds else 600)
    on_gap, needs = None, []
    if FaultKind.RESET in seen.found:
        times = counted(seen.count(FaultKind.RESET), "time")
        needs.append(
            f"The numbers start again {times} and no column shows this: add a column whose value is higher after each "
            "restart, and name it with epoch=…"
        )
    if seen.gaps is not None and seen.gaps.lost:
        missing = f"{counted(seen.gaps.lost_revisions, 'revision')} in {counted(seen.gaps.lost, 'gap')}"
        says.append(f"{missing} never arrived: a group must not wait for them forever.")
        on_gap = f'Wait("{wait}", then="park")'
    if seen.keys.start is None and seen.late is None:
        says.append("Groups begin at any revision: each begins with its first message.")
    elif seen.keys.start is None:
        says.append(
            "Groups begin at any revision, and messages arrive late, so the first to arrive may not be its first."
        )
        needs.append(
            "Gapless waits for a group's first revision: read the log from its beginning, or skip the revisions before "
            "the first message."
        )
        on_gap = f'Wait("{wait}", then="skip")'
    return on_gap, needs


def _choose_for_number(seen: Evidence, column: str, says: list[str]) -> GradeChoice:
    """Return Monotone, with its cost if messages arrived after a greater number."""
    late = seen.count(FaultKind.LATE)
    ties = seen.count(FaultKind.TIE) + seen.count(FaultKind.CONFLICT) + seen.count(FaultKind.TWO_WRITERS)
    if seen.verdict_inputs:  # messages that share a place with a late one are stale too, not conflicts
        placed = [inputs for inputs in seen.verdict_inputs if not inputs.bad]
        late = sum(inputs.messages for inputs in placed if inputs.overtaken and (inputs.first or not inputs.same))
        ties = sum(inputs.messages for inputs in placed if inputs.verdict("Monotone", has_ids=False) == "conflict")
    if ties:
        share = "message shares its" if ties == 1 else "messages share their"
        says = [*says, f"{ties:,} {share} place with an earlier one: Monotone rejects all but the first as conflicts."]
    order = ", ".join([_quoted(column), *([f"epoch={_quoted(seen.keys.epoch)}"] if seen.keys.epoch else [])])
    if not late:
        says = [*says, f"{_never_falls(seen, column)}: older messages are recognised, but gaps are not."]
        return GradeChoice("Monotone", f"Monotone({order})", says, [])
    price = (
        f"{counted(late, 'message')} arrived after a greater {column}: Monotone treats them as stale and does not "
        "apply them."
    )
    need = (
        f"Late messages must be irrelevant (only the newest counts), or the messages must be sorted by {column} first."
    )
    return GradeChoice("Monotone", f"Monotone({order})", [*says, price], [need])


def _never_falls(seen: Evidence, column: str) -> str:
    copies = ", apart from copies," if FaultKind.DUPLICATE in seen.found else ","
    return f"Within its group{copies} {column} never falls"


def _choose_for_time(seen: Evidence, column: str) -> GradeChoice:
    says, late = [], seen.late
    if late is None:
        says.append(f"{_never_falls(seen, column)}.")
        lateness = "0 seconds"
    else:
        lateness = _rounded_duration(late.behind.most)
        late_messages = counted(seen.count(FaultKind.LATE), "message")
        says.append(
            f"{late_messages} arrived up to {duration(late.behind.most)} behind their group's greatest {column}; "
            f"{_rounded_duration(late.behind.p99)} would cover 99% of them, {lateness} all."
        )
    if seen.count(FaultKind.TIE):
        tied = counted(seen.count(FaultKind.TIE), "message")
        says.append(f"{tied} arrived with the same time as an earlier one of the group: the ids decide the order.")
    says.append("A time is not a count, so missing messages cannot be detected.")
    unit = "" if seen.unit == "us" else f', unit="{seen.unit}"'
    return GradeChoice(
        "Timestamp", f'Timestamp({_quoted(column)}, lateness="{lateness}"{unit})', says, _id_conditions(seen)
    )


def _id_conditions(seen: Evidence) -> list[str]:
    if seen.keys.id is not None or seen.unique is not None:
        return []
    return ["Without revisions, duplicates are recognised by an id: name its column with id=…"]


def _rounded_duration(seconds: float) -> str:
    """Return a duration of at least this many seconds, in the form that a pipeline reads."""
    step = next((candidate for candidate in _STEPS_S if candidate >= seconds), math.ceil(seconds / 604_800) * 604_800)
    unit, size = next((name, size) for name, size in _UNITS if step % size == 0)
    return f"{step // size} {unit}{'s' if step // size > 1 else ''}"


def _percent(part: float) -> str:
    """Return a part as a percentage that is 100% only for all."""
    text = f"{part:.2%}"
    return "over 99.99%" if text == "100.00%" and part < 1 else text.replace(".00%", "%")
