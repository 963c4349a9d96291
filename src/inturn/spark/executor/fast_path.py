"""The fast path: groups whose rows are placed by columns, without a fold or held messages as objects.

Under ``Gapless`` without epochs, it processes the groups that hold nothing, and those that continue to hold messages
because no due message arrived. These are most groups of most chunks. A timeline is created only to judge rows of old
revisions. If a handler does anything but return (state, outputs), the results for its group are dropped, and the kernel
processes the group on the slow path, through its timeline and fold.

For speed it restates rules of the timeline over columns; tests/spark/executor/test_kernel.py compares them with it::

    here                                                          the rule in core/pipeline
    the rows of a streak are applied                              grades.py, relation(): NEXT
    another row of a known revision: a duplicate or a conflict    grades.py, relation(): COPY, OTHER
    the first row of a revision after a gap is held               grades.py, relation(): AHEAD
    a group that holds nothing is open, any other waits           timeline.py, status
    the memory is cut to the remembered revisions                 grades.py, trim()
    a wait begins with the step's time                            timeline.py, hold()
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.timeline import MARK_BYTES, Status, Timeline, TimelineVerdict
from inturn.core.values.plain import check_outputs
from inturn.spark.executor.chunk import Chunk, Flags, Ints
from inturn.spark.executor.consecutive import ConsecutiveRevisions
from inturn.spark.executor.plan import Plan
from inturn.spark.tables.earlier_groups import EarlierGroups, ranges_of
from inturn.spark.tables.writer import StepWriter

if TYPE_CHECKING:
    from inturn.core.pipeline.order import Gapless


_UNUSUAL = object()
"""A marker in place of a state: the slow path has to process the group."""


@dataclass(slots=True)
class AppliedGroups:
    """New states and outputs of groups, by their places in the chunk; groups in ``slow_path`` take the slow path."""

    groups: list[int] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    slow_path: list[int] = field(default_factory=list)
    outputs: list[tuple[str, TimelineEntry, Sequence[Any]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VectorizedGroups:
    """The groups of one chunk that take the fast path.

    Attributes:
        due: for each group, the next revision to apply.
        rows: for each group, its row in ``found``; -1 if it is new.
        reports: timelines of the groups with a new conflict.
    """

    chunk: Chunk
    streaks: ConsecutiveRevisions
    due: Ints
    found: EarlierGroups
    rows: Ints
    pipeline: Pipeline
    plan: Plan
    writer: StepWriter
    journal: Journal
    reports: dict[int, Timeline] = field(default_factory=dict)

    def process(self, groups: Ints) -> list[int]:
        """Process these groups, given by their places in the chunk, and return those for the slow path."""
        done = self._apply(groups)
        processed = np.array(done.groups, dtype=np.int64)
        sizes = self.streaks.sizes[processed]
        early = self._place_others(processed)
        new = np.bincount(self.streaks.group[early], minlength=len(self.rows))[processed]
        reported = np.isin(processed, list(self.reports)) if self.reports else False
        self.journal.counts.applied += int(sizes.sum())
        self.journal.counts.held += len(early)
        self.journal.outputs += done.outputs
        changed = np.flatnonzero((sizes + new > 0) | reported)
        self._write_groups(processed[changed], new[changed], [done.states[index] for index in changed.tolist()])
        self._write_held(early)
        return done.slow_path

    def _apply(self, groups: Ints) -> AppliedGroups:
        """Apply the streaks of these groups; this is the inner loop for most chunks."""
        pipeline, chunk, streaks, encode = self.pipeline, self.chunk, self.streaks, self.writer.encode
        handler = pipeline.handler
        messages, rows, starts = chunk.messages, streaks.rows, streaks.streak_starts
        state_type = pipeline.state if isinstance(pipeline.state, type) else object
        normal, is_normal = pipeline.normalize, pipeline.normalize.is_normal
        done = AppliedGroups()
        for index, before in zip(groups.tolist(), self.found.states(self.rows[groups]), strict=True):
            state, known = before, len(done.outputs)
            try:
                for row in rows[starts[index] : starts[index + 1]]:
                    state, outputs = handler(state, messages[row])
                    if not is_normal(state):
                        if not isinstance(state, state_type):
                            state = _UNUSUAL
                            break
                        state = normal(state)
                    if outputs.__class__ is not list:
                        state = _UNUSUAL
                        break
                    if outputs:
                        check_outputs(outputs)
                        done.outputs.append((chunk.names[index], chunk.applied_entry(row), encode(outputs)))
            except Exception:  # noqa: BLE001 - whatever it is, the slow path reports it
                state = _UNUSUAL
            if state is _UNUSUAL:
                done.slow_path.append(index)
                del done.outputs[known:]
            else:
                done.groups.append(index)
                done.states.append(state)
        return done

    def _place_others(self, processed: Ints) -> Ints:
        """Place the rows of these groups that are not in a streak; return the new ones that have to wait."""
        chunk, streaks, places = self.chunk, self.streaks, self.found.held_digests
        is_processed = np.zeros(len(self.rows), dtype=np.bool_)
        is_processed[processed] = True
        other_rows = streaks.others[is_processed[streaks.group[streaks.others]]]
        is_old: Flags = chunk.positions[other_rows] < self.due[streaks.group[other_rows]]
        self._place_old(other_rows[is_old])
        early = []
        for row in other_rows[~is_old].tolist():
            winner, name = streaks.first_row[row], chunk.names[streaks.group[row]]
            known, first = (chunk.digest_of(winner), winner) if winner != row else (None, None)
            held = places.get((name, chunk.positions.item(row))) if places else None
            if held is not None:
                digests, number = held
                known, first = digests[number].as_py(), None
            if known is None:
                early.append(row)
            else:
                group = streaks.group.item(row)
                self.journal.record_verdict(
                    name, *chunk.judge_repeated(row, known, first, partial(self._report_conflict, group))
                )
        return np.array(early, dtype=np.int64)

    def _place_old(self, old: Ints) -> None:
        """Record rows before the due revision by the verdict of the group's timeline."""
        if not len(old):
            return
        groups = self.streaks.group[old]
        stored = self.rows[groups]
        memory, skipped = (
            column.to_pylist() for column in (self.found.memory(stored), self.found.column("skipped", stored))
        )
        for row, group, packed, ranges in zip(old.tolist(), groups.tolist(), memory, skipped, strict=True):
            entry = self.chunk.entry(row)
            timeline = self.reports.get(group) or self._timeline(group, memory=packed, skipped=ranges_of(ranges))
            verdict = timeline.verdict(entry)
            if verdict is TimelineVerdict.CONFLICT:
                timeline.report_conflict(entry)
                self.reports[group] = timeline
            self.journal.record_verdict(self.chunk.names[group], entry, verdict)

    def _timeline(self, group: int, **stored: Any) -> Timeline:
        """Return the timeline of a group as it was before its streak, with the conflicts that it remembers."""
        conflicts = self.found.conflicts.get(self.rows.item(group), b"")
        return self.pipeline.order.timeline(epoch=0, reached=self.due.item(group) - 1, conflicts=conflicts, **stored)

    def _report_conflict(self, group: int, entry: TimelineEntry) -> bool:
        """Remember a conflict of a group; return whether it is new."""
        timeline = self.reports.get(group) or self._timeline(group)
        is_new = timeline.report_conflict(entry)
        if is_new:
            self.reports[group] = timeline
        return is_new

    def _conflicts(self, groups: Ints, memory: pa.Array, reached: Ints) -> pa.Array:
        """Return the conflicts that these groups remember after the step."""
        if not self.reports and not self.found.conflicts:
            return pa.nulls(len(groups), pa.binary())
        conflicts: list[bytes | None] = []
        rows = self.rows[groups].tolist()
        for number, group in enumerate(groups.tolist()):
            if group not in self.reports and rows[number] not in self.found.conflicts:
                conflicts.append(None)
                continue
            timeline = self.reports.get(group) or self._timeline(group)
            timeline.reached, timeline.memory = reached.item(number), memory[number].as_py()
            timeline.trim()
            conflicts.append(timeline.conflicts or None)
        return pa.array(conflicts, pa.binary())

    def _write_groups(self, groups: Ints, new: Ints, states: Sequence[Any]) -> None:
        """Write these groups; each has advanced, or holds ``new`` more messages."""
        if not len(groups):
            return
        chunk, earlier, rows = self.chunk, self.found, self.rows[groups]
        marks = self.streaks.marks.take(pa.array(groups))
        memory = pc.binary_join_element_wise(earlier.memory(rows), marks, b"")
        keep = limits.REMEMBERED_REVISIONS * MARK_BYTES
        if pc.max(pc.binary_length(memory)).as_py() > keep:
            memory = pc.binary_slice(memory, -keep)
        reached = self.due[groups] - 1 + self.streaks.sizes[groups]
        held = earlier.numbers("held", rows, 0)
        opens, first = held + new == 0, cast("Gapless", self.pipeline.order).least
        since = pa.array(earlier.numbers("oldest_us", rows, self.plan.now_us), mask=opens)
        columns = {
            "hash": pa.array(chunk.hashes[chunk.starts[groups]]),
            "group": chunk.groups.take(pa.array(groups)),
            "epoch": pa.repeat(0, len(groups)),
            "reached": pa.array(reached, mask=reached < first),
            "status": pc.if_else(pa.array(opens), Status.OPEN, Status.WAITING),
            "memory": memory,
            "skipped": earlier.column("skipped", rows),
            "conflicts": self._conflicts(groups, memory, reached),
            "held": pa.array(held + new),
            "held_step": pa.array(earlier.numbers("held_step", rows, self.plan.step), mask=opens),
            "waiting_us": since,
            "oldest_us": since,
        }
        self.writer.groups(columns, states)

    def _write_held(self, rows: Ints) -> None:
        """Write held messages."""
        if not len(rows):
            return
        chunk = self.chunk
        columns = {
            "hash": pa.array(chunk.hashes[rows]),
            "group": chunk.groups.take(pa.array(self.streaks.group[rows])),
            "epoch": pa.repeat(0, len(rows)),
            "position": pa.array(chunk.positions[rows]),
            "digest": pa.array([chunk.digest_of(row) for row in rows.tolist()], pa.binary()),
            "since_us": pa.repeat(self.plan.now_us, len(rows)),
        }
        if chunk.ids is not None:
            columns["id"] = pa.array([chunk.ids[row] for row in rows.tolist()], pa.string())
        self.writer.hold_rows(columns, chunk.content.take(pa.array(rows)))
