"""The plan of a step for its tasks, and the result of a task: what passes between the driver and the executors."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from inturn.core.errors import InturnError
from inturn.core.pipeline.decision import Decision, DecisionAction, shortened
from inturn.core.pipeline.journal import Counts
from inturn.spark.columns.names import GROUP
from inturn.spark.columns.state_codec import PreviousFormat
from inturn.spark.tables.manifest import DataFile, StoreLevel


class Plan(msgspec.Struct, frozen=True):
    """The plan of a step for its tasks; it fixes time and names, so that a second attempt makes equal decisions.

    Attributes:
        now_us: the time of the step, in microseconds since 1970.
        final: whether to release messages that wait only for a later time.
        is_quiet: whether idle groups are released; not soon after the start of a stream, which may have a backlog.
        buckets: the number of slices of the hash space.
        attempt: the id of this attempt at the step, a part of its file names.
        merge: how many of the newest levels to merge into one.
        decisions: the decisions about groups, by name.
        group: the column with the group's text.
        has_places: whether the rows have their places in the log that they are from.
        previous_format: the form of the states in the levels, if an older version wrote them; then all levels are
            merged.
    """

    location: str
    step: int
    now_us: int
    final: bool
    buckets: int
    attempt: str
    columns: list[str]
    levels: list[StoreLevel]
    merge: int = 0
    decisions: dict[str, Decision] = {}
    group: str = GROUP
    previous_format: PreviousFormat | None = None
    is_quiet: bool = True
    has_places: bool = False


class SliceResult(msgspec.Struct):
    """The result of one task.

    Attributes:
        files: the files written, by table; those of ``merged_groups`` and so on replace the levels that were merged.
        verdicts: for each decision about its groups, the reason why it is void; None if it was carried out.
        parked: the change in the number of parked groups.
        oldest_us: the time since which the oldest held message waits, in microseconds since 1970.
        waiting_us: the same for groups that are not parked.
        error: the class name and text of an inturn error; the step then fails with it.
        wrong: what was wrong with a result of the handler that is not (state, outputs).
    """

    counts: Counts
    files: dict[str, list[DataFile]]
    verdicts: dict[str, str | None] = {}
    parked: int = 0
    oldest_us: int | None = None
    waiting_us: int | None = None
    error: tuple[str, str] | None = None
    wrong: str = ""


def brief(decision: Decision) -> Decision:
    """Return a decision for the plan, which is sent to every task: only a replacement needs the old content in full."""
    if decision.action is DecisionAction.REPLACE or decision.old is None:
        return decision
    return replace(decision, old=shortened(decision.old))


def files_of(results: Sequence[SliceResult], table: str) -> list[DataFile]:
    """Return the files of a table that the tasks of a step wrote."""
    return [file for result in results for file in result.files.get(table, [])]


def total_counts(results: Sequence[SliceResult]) -> Counts:
    """Return the sum of the counts of a step's tasks; an error if they do not balance."""
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    if not counts.balanced:
        raise InturnError(f"the counts do not balance, so nothing was committed; please report this: {counts}")
    return counts
