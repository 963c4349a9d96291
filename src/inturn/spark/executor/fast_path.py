"""The fast path: groups whose rows are placed by columns, without a fold or held messages as objects.

It takes, under ``Gapless`` without epochs, the groups that hold nothing, and those that go on holding because no due
message came. These are most groups of most chunks. A timeline is made only to judge rows of old revisions. If a
handler does anything but return (state, outputs), the results for its group are dropped, and the kernel's slow path
processes the group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Journal
from inturn.core.pipeline.timeline import MARK_BYTES, Status, TimelineVerdict
from inturn.core.values.plain import check_outputs
from inturn.spark.executor.chunk import Chunk, Flags, Ints
from inturn.spark.executor.consecutive import ConsecutiveRuns
from inturn.spark.tables.levels import EarlierGroups, ranges_of
from inturn.spark.tables.writer import StepWriter

if TYPE_CHECKING:
    from inturn.core.pipeline.order import Gapless


_UNUSUAL = object()
"""A marker in place of a state: the slow path has to process the group."""


@dataclass(slots=True)
class Applied:
    """The handler's results for the runs of some groups.

    Attributes:
        groups: the groups that were applied, by their places in the chunk.
        states: their new states.
        left: the groups for the slow path.
        outputs: (group, message, outputs) for each message with outputs.
    """

    groups: list[int] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    outputs: list[tuple[str, TimelineEntry, Sequence[Any]]] = field(default_factory=list)


class VectorizedGroups:
    """The groups of one chunk that take the fast path.

    Args:
        chunk: the rows.
        runs: the groups' runs of consecutive revisions.
        due: for each group, the next revision to apply.
        found: the groups as earlier steps left them.
        rows: for each group, its row in ``found``; -1 if it is new.
        step: the step's number.
        now_us: the step's time, in microseconds since 1970.
    """

    def __init__(
        self,
        chunk: Chunk,
        runs: ConsecutiveRuns,
        due: Ints,
        found: EarlierGroups,
        rows: Ints,
        *,
        step: int,
        now_us: int,
    ) -> None:
        self._chunk, self._runs, self._due, self._found, self._rows = chunk, runs, due, found, rows
        self._step, self._now_us = step, now_us

    def take(self, groups: Ints, pipeline: Pipeline, writer: StepWriter, journal: Journal) -> list[int]:
        """Process these groups, given by their places in the chunk.

        Returns:
            The groups for the slow path.
        """
        done = self._apply(groups, pipeline, writer.encode)
        taken = np.array(done.groups, dtype=np.int64)
        sizes = self._runs.sizes[taken]
        early = self._place_others(taken, pipeline, journal)
        new = np.bincount(self._runs.group[early], minlength=len(self._rows))[taken]
        journal.counts.applied += int(sizes.sum())
        journal.counts.held += len(early)
        journal.outputs += done.outputs
        changed = np.flatnonzero(sizes + new)
        self._keep(taken[changed], new[changed], [done.states[at] for at in changed.tolist()], pipeline, writer)
        self._hold(early, writer)
        return done.left

    def _apply(self, groups: Ints, pipeline: Pipeline, encode: Callable[[Sequence[Any]], Sequence[Any]]) -> Applied:
        """Apply the runs of these groups; this is the inner loop for most chunks."""
        handler, chunk, runs = pipeline.handler, self._chunk, self._runs
        messages, rows, starts = chunk.messages, runs.rows, runs.run_starts
        state_type = pipeline.state if isinstance(pipeline.state, type) else object
        normal, is_normal = pipeline.normal, pipeline.normal.is_normal
        done = Applied()
        for at, before in zip(groups.tolist(), self._found.states(self._rows[groups]), strict=True):
            state, known = before, len(done.outputs)
            try:
                for row in rows[starts[at] : starts[at + 1]]:
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
                        done.outputs.append((chunk.names[at], chunk.applied(row), encode(outputs)))
            except Exception:  # noqa: BLE001 - whatever it is, the long way tells it
                state = _UNUSUAL
            if state is _UNUSUAL:
                done.left.append(at)
                del done.outputs[known:]
            else:
                done.groups.append(at)
                done.states.append(state)
        return done

    def _place_others(self, taken: Ints, pipeline: Pipeline, journal: Journal) -> Ints:
        """Place the rows of these groups that are in no run; return the new ones that have to wait."""
        chunk, runs, places = self._chunk, self._runs, self._found.places
        ours = np.zeros(len(self._rows), dtype=np.bool_)
        ours[taken] = True
        others = runs.beside[ours[runs.group[runs.beside]]]
        is_old: Flags = chunk.turns[others] < self._due[runs.group[others]]
        self._place_old(others[is_old], pipeline, journal)
        early = []
        for row in others[~is_old].tolist():
            winner, name = runs.winner[row], chunk.names[runs.group[row]]
            known = chunk.digest_of(winner) if winner != row else None
            held = places.get((name, chunk.turns.item(row))) if places else None
            if held is not None:
                digests, number = held
                known = digests[number].as_py()
            if known is None:
                early.append(row)
            else:
                copy = known == chunk.digest_of(row)
                journal.turn_away(
                    name, chunk.entry(row), TimelineVerdict.DUPLICATE if copy else TimelineVerdict.CONFLICT
                )
        return np.array(early, dtype=np.int64)

    def _place_old(self, old: Ints, pipeline: Pipeline, journal: Journal) -> None:
        """Record rows before the due revision by the verdict of the group's timeline."""
        if not len(old):
            return
        groups = self._runs.group[old]
        stored = self._rows[groups]
        memory, skipped = (
            column.to_pylist() for column in (self._found.memory(stored), self._found.column("skipped", stored))
        )
        for row, at, packed, ranges in zip(old.tolist(), groups.tolist(), memory, skipped, strict=True):
            reached, entry = self._due.item(at) - 1, self._chunk.entry(row)
            line = pipeline.order.timeline(epoch=0, reached=reached, memory=packed, skipped=ranges_of(ranges))
            journal.turn_away(self._chunk.names[at], entry, line.judge(entry))

    def _keep(self, groups: Ints, new: Ints, states: Sequence[Any], pipeline: Pipeline, writer: StepWriter) -> None:
        """Write these groups; each has advanced, or holds ``new`` more messages."""
        if not len(groups):
            return
        chunk, found, rows = self._chunk, self._found, self._rows[groups]
        marks = self._runs.marks.take(pa.array(groups))
        memory = pc.binary_join_element_wise(found.memory(rows), marks, b"")
        keep = limits.REMEMBERED_REVISIONS * MARK_BYTES
        if pc.max(pc.binary_length(memory)).as_py() > keep:
            memory = pc.binary_slice(memory, -keep)
        reached = self._due[groups] - 1 + self._runs.sizes[groups]
        held = found.numbers("held", rows, 0)
        opens, first = held + new == 0, cast("Gapless", pipeline.order).start
        since = pa.array(found.numbers("oldest_us", rows, self._now_us), mask=opens)
        columns = {
            "hash": pa.array(chunk.hashes[chunk.starts[groups]]),
            "group": chunk.groups.take(pa.array(groups)),
            "epoch": pa.repeat(0, len(groups)),
            "reached": pa.array(reached, mask=reached < first),
            "status": pc.if_else(pa.array(opens), Status.OPEN, Status.WAITING),
            "memory": memory,
            "skipped": found.column("skipped", rows),
            "held": pa.array(held + new),
            "held_step": pa.array(found.numbers("held_step", rows, self._step), mask=opens),
            "waiting_us": since,
            "oldest_us": since,
        }
        writer.groups(columns, states)

    def _hold(self, rows: Ints, writer: StepWriter) -> None:
        """Write held messages."""
        if not len(rows):
            return
        chunk = self._chunk
        columns = {
            "hash": pa.array(chunk.hashes[rows]),
            "group": chunk.groups.take(pa.array(self._runs.group[rows])),
            "epoch": pa.repeat(0, len(rows)),
            "turn": pa.array(chunk.turns[rows]),
            "digest": pa.array([chunk.digest_of(row) for row in rows.tolist()], pa.binary()),
            "since_us": pa.repeat(self._now_us, len(rows)),
        }
        if chunk.ids is not None:
            columns["id"] = pa.array([chunk.ids[row] for row in rows.tolist()], pa.string())
        writer.hold_rows(columns, chunk.content.take(pa.array(rows)))
