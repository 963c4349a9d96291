"""The timeline's rules over Arrow columns: one pass over the sorted rows of one slice of the groups.

On the fast path, numpy finds and places the streaks of consecutive revisions of all groups at once. On the slow path,
the fold of each group applies such a streak in one call, and everything else (held messages, parked groups, old copies,
epochs, order by time or arrival) is offered row by row to the timeline that the replay also uses. For speed,
fast_path.py restates the rules of the common case (early messages, duplicates, status, the size of the memory);
tests/spark/executor/test_kernel.py compares it with the timeline.

The rows of a slice come in chunks, sorted by hash, group and place. The paths of a group through a step::

    fast   all its rows are in one chunk, and it is new, open, or keeps waiting: VectorizedGroups writes it
    slow   any other group with rows, and one that the fast path gave back: opened, offered its rows, finished
    idle   no rows, but its wait has expired or a decision is about it: opened and finished

``_open`` is the slow group whose rows may continue in the next chunk; therefore the first and the last hash of a chunk
never take the fast path. The last rows with equal keys wait in ``_pending`` for the same reason. What never happens:

- A group is finished twice, or written by both paths: the levels return an idle group only after all rows of its hash.
- A row is counted twice: the fast path counts a group's rows after its handler has applied them, and a group that it
  gives back has no counts and no outputs yet.
- A held row of an earlier step counts again: a group that released some is written with all that it still holds, and
  ``held_step`` makes the older rows void.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.decision import decide
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.timeline import MARK_BYTES, Status, Timeline, TimelineVerdict
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.names import HASH
from inturn.spark.executor.chunk import Chunk, Flags, start_of_last_tie
from inturn.spark.executor.consecutive import ConsecutiveRevisions
from inturn.spark.executor.decisions import Decisions, held_content, with_content
from inturn.spark.executor.fast_path import VectorizedGroups
from inturn.spark.executor.invalid import ValidRows
from inturn.spark.executor.placement import sort_keys
from inturn.spark.executor.plan import Plan
from inturn.spark.tables.earlier_groups import EarlierGroup, EarlierGroups
from inturn.spark.tables.levels import ALL_US, LevelReader
from inturn.spark.tables.writer import StepWriter

if TYPE_CHECKING:
    from inturn.core.pipeline.grades import MonotoneTimeline
    from inturn.core.pipeline.order import Gapless

_PARKED = (Status.GAP, Status.FAILED)
_CHANGES = (TimelineVerdict.APPLY, TimelineVerdict.EARLY, TimelineVerdict.BEHIND, TimelineVerdict.CONFLICT)


class OpenGroup(Group):
    """The group whose rows are being read, with its record from earlier steps."""

    __slots__ = ("_last_rows", "changed", "decided", "hash", "held_step", "parked_before")

    def __init__(
        self,
        hash_: int,
        record: EarlierGroup | None,
        name: str,
        timeline: Timeline,
        fold: Fold,
        journal: Journal,
        now_us: int,
    ) -> None:
        super().__init__(name, timeline, fold, journal, now_us)
        self.hash = hash_
        self.held_step = record.held_step if record else None
        self.changed = record is None
        self.decided = False
        self.parked_before = timeline.parked in _PARKED
        self._last_rows: tuple[Chunk, Sequence[int]] | None = None

    def process(self, entry: TimelineEntry) -> TimelineVerdict:
        """Offer one message to the timeline, and note whether the group changed."""
        epoch = self.timeline.epoch
        verdict = super().process(entry)
        if verdict in _CHANGES or self.timeline.epoch != epoch:
            self.changed = True
        return verdict

    def note(self, chunk: Chunk, rows: Sequence[int]) -> None:
        """Note the rows that were applied last, for :meth:`recent`; their chunk is kept until the group is done."""
        self._last_rows = chunk, rows[-limits.REMEMBERED_REVISIONS :]

    @override
    def recent(self) -> Iterator[TimelineEntry]:
        yield from super().recent()
        if self._last_rows is not None:
            chunk, rows = self._last_rows
            yield from map(chunk.entry, reversed(rows))


class Kernel:
    """The processor of one slice's sorted rows, chunk by chunk."""

    def __init__(
        self,
        pipeline: Pipeline,
        codec: MessageCodec,
        levels: LevelReader,
        writer: StepWriter,
        decisions: Decisions,
        plan: Plan,
    ) -> None:
        self._pipeline, self._codec, self._levels, self._writer = pipeline, codec, levels, writer
        self._decisions, self._plan = decisions, plan
        self.parked = 0
        self.journal = Journal()
        self.counts = self.journal.counts
        self._open: OpenGroup | None = None
        self._pending: list[pa.Table] = []
        self._keys = [HASH, plan.group, *sort_keys(pipeline, has_places=plan.has_places)]
        self._valid = ValidRows(pipeline, codec, self.journal, plan.group)

    def feed(self, table: pa.Table) -> None:
        """Process the next sorted rows. The last rows with equal keys wait: the next chunk may begin with more."""
        self.counts.received += len(table)
        table = pa.concat_tables([*self._pending, table]).combine_chunks() if self._pending else table.combine_chunks()
        cut = start_of_last_tie(table, self._keys)
        self._pending = [table.slice(cut)]
        if cut:
            self._process(table.slice(0, cut))

    def finish(self) -> None:
        """Process the remaining rows, and the groups without messages whose wait has expired."""
        if self._pending:
            self._process(self._pending[0])
        self._close()
        self._process_idle_groups(self._levels.load_held(self._levels.find(np.empty(0, np.int64))), None)
        self._flush()

    def _process(self, table: pa.Table) -> None:
        valid, columns, messages = self._valid.split(table)
        if not len(valid):
            return
        chunk = Chunk.of(self._pipeline, self._codec, valid, columns, messages, self._plan.group)
        firsts = chunk.hashes[chunk.starts[:-1]]
        hashes = firsts[np.concatenate([[True], firsts[1:] != firsts[:-1]])]  # sorted already: unique is cheap
        earlier = self._levels.find(hashes, int(hashes[-1]))
        if self._pipeline.order.has_runs:
            records = self._process_gapless(chunk, earlier)
        else:
            records = self._levels.load_held(earlier)
            begun = zip(chunk.names, firsts.tolist(), strict=True)
            opened = [
                self._open_group(name, hash_, records, first=index == 0) for index, (name, hash_) in enumerate(begun)
            ]
            self._row_by_row(chunk, opened)
        # Groups with the last hash may have more messages in the next chunk.
        self._process_idle_groups(records, int(hashes[-1]))
        self._flush()

    def _open_group(self, name: str, hash_: int, records: dict[str, EarlierGroup], *, first: bool) -> OpenGroup:
        if first and self._open is not None:
            if self._open.name == name:
                return self._open
            self._close()
        return self._load_group(name, hash_, records.pop(name, None))

    def _load_group(self, name: str, hash_: int, record: EarlierGroup | None) -> OpenGroup:
        timeline = self._pipeline.order.timeline() if record is None else record.timeline
        restore = self._pipeline.first_state if record is None else record.restore
        fold = Fold(self._pipeline, restore, time.sleep, self._writer.encode)
        opened = OpenGroup(hash_, record, name, timeline, fold, self.journal, self._plan.now_us)
        for named, decision in self._decisions.pop(name) if record is not None else ():
            opened.decided = opened.changed = True
            self._decisions.verdicts[named] = decide(
                opened, decision, partial(with_content, self._pipeline), held_content
            )
        return opened

    def _process_idle_groups(self, records: dict[str, EarlierGroup], below: int | None) -> None:
        """Process groups that have no message in this step but whose wait may have expired."""
        for name in sorted(name for name, record in records.items() if below is None or record.hash < below):
            record = records.pop(name)
            self._finish_group(self._load_group(name, record.hash, record))

    def _close(self) -> None:
        if self._open is not None:
            self._finish_group(self._open)
            self._open = None

    def _finish_group(self, opened: OpenGroup) -> None:
        timeline = opened.timeline
        skipped, parked = len(timeline.skipped), timeline.parked
        opened.finish(final=self._plan.final, is_quiet=self._plan.is_quiet)
        self.parked += (timeline.parked in _PARKED) - opened.parked_before
        if timeline.held.keys() != opened.held_before or opened.decided:
            opened.changed = True
            if opened.decided or not opened.held_before <= timeline.held.keys() or opened.held_step is None:
                opened.held_step = self._plan.step  # the held rows of earlier steps are void
                self._writer.hold(opened.hash, opened, timeline.held)
            else:
                self._writer.hold(opened.hash, opened, timeline.held.keys() - opened.held_before)
        if opened.changed or len(timeline.skipped) != skipped or timeline.parked is not parked:
            self._writer.group(opened.hash, opened, opened.held_step)

    def _flush(self) -> None:
        self._writer.outputs(self.journal.outputs)
        self._writer.rejected(self.journal.rejected)
        self._writer.flush()
        self.journal.outputs, self.journal.rejected = [], []

    def _switch(self, group: OpenGroup) -> None:
        if self._open is not group:
            self._close()
            self._open = group

    def _row_by_row(self, chunk: Chunk, opened: list[OpenGroup]) -> None:
        rising = self._rising(chunk) if self._pipeline.order.only_rises else None
        chunk.compute_digests(range(len(chunk.messages)) if rising is None else _rows_to_compare(chunk, rising))
        for index, group in enumerate(opened):
            first, end = int(chunk.starts[index]), int(chunk.starts[index + 1])
            self._switch(group)
            timeline = group.timeline
            if (
                rising is not None
                and rising[index]
                and not timeline.held
                and timeline.parked is None
                and (timeline.reached is None or chunk.positions[first] > timeline.reached)
            ):
                self._apply_rising(chunk, group, cast("MonotoneTimeline", timeline), range(first, end))
                continue
            if rising is not None:
                chunk.compute_digests(range(first, end))
            for row in range(first, end):
                group.process(chunk.entry(row))

    def _rising(self, chunk: Chunk) -> Flags | None:
        """Return, for each group, whether its rows rise strictly; None if epochs have to be compared first."""
        if chunk.epochs is not None:
            return None
        falls = np.concatenate([[False], chunk.positions[1:] <= chunk.positions[:-1]])
        falls[chunk.starts[:-1]] = False
        return cast("Flags", np.add.reduceat(falls, chunk.starts[:-1]) == 0)

    def _apply_rising(self, chunk: Chunk, group: OpenGroup, timeline: "MonotoneTimeline", rows: range) -> None:
        timeline.epoch = timeline.epoch or 0

        def advance(done: Sequence[int]) -> None:
            remembered = done[-limits.REMEMBERED_REVISIONS :]
            timeline.advance((int(chunk.positions[row]), chunk.digest_of(row)) for row in remembered)

        self._apply(chunk, group, rows, advance)

    def _apply(
        self, chunk: Chunk, group: OpenGroup, rows: Sequence[int], advance: Callable[[Sequence[int]], None]
    ) -> int:
        """Apply rows, and return how many were applied; park the group at the first that fails.

        The timeline has to ``advance`` over those that were applied. Of a range of rows, those behind a failure are
        offered to it.
        """
        if isinstance(rows, range):
            messages = chunk.messages[rows.start : rows.stop]
        else:
            messages = [chunk.messages[row] for row in rows]
        emitted, applied = group.fold.run(messages)
        for index, outputs in emitted:
            self.journal.outputs.append((group.name, chunk.applied_entry(rows[index]), outputs))
        self.counts.applied += applied
        group.changed = True
        if applied:
            advance(rows[:applied])
            group.note(chunk, rows[:applied])
        if applied < len(rows):
            failed = chunk.entry(rows[applied])
            group.timeline.record_seen(failed)
            group.park(failed)
            if isinstance(rows, range):
                for row in rows[applied + 1 :]:
                    group.process(chunk.entry(row))
        return applied

    def _process_gapless(self, chunk: Chunk, earlier: EarlierGroups) -> dict[str, EarlierGroup]:
        """Process a chunk under ``Gapless`` without epochs, and return the stored groups that have no row in it."""
        before = cast("Gapless", self._pipeline.order).least - 1
        hashes = chunk.hashes[chunk.starts[:-1]]
        rows = earlier.rows_of(hashes, chunk.groups)
        # A new group has the row -1, which selects the value appended to each column here.
        # An older store may have reached the last 64-bit revision, after which none is due.
        reached = np.minimum(earlier.numbers("reached", None, before), limits.REVISION - 1)
        due = np.append(reached, before)[rows] + 1
        is_open = np.append(earlier.has_status(Status.OPEN), True)[rows]
        holds_on = np.append(earlier.has_status(Status.WAITING), False)[rows]
        holds_on &= np.append(earlier.numbers("waiting_us", None, ALL_US), ALL_US)[rows] > self._levels.since_us
        holds_on &= ~np.logical_or.reduceat(chunk.positions == np.repeat(due, np.diff(chunk.starts)), chunk.starts[:-1])
        # The first group may begin in the previous chunk, and the last may continue in the next.
        fast = (is_open | holds_on) & (hashes != hashes[0]) & (hashes != hashes[-1])
        fast &= ~self._decisions.has_decision(chunk.names)

        is_slow = np.ones(len(earlier), dtype=np.bool_)
        is_slow[rows[fast & (rows >= 0)]] = False
        holding = np.sort(rows[fast & holds_on])
        records = self._levels.load_held(earlier, np.flatnonzero(is_slow), holding=holding, positions=chunk.positions)
        plain = fast.copy()
        opened: dict[int, OpenGroup] = {}
        for index in np.flatnonzero(~fast).tolist():
            group = opened[index] = self._open_group(chunk.names[index], hashes.item(index), records, first=index == 0)
            timeline = group.timeline
            plain[index] = not (timeline.held or timeline.parked)
            due[index] = (before if timeline.reached is None else min(timeline.reached, limits.REVISION - 1)) + 1

        streaks = ConsecutiveRevisions(chunk, due, plain)
        chunk.compute_digests(streaks.digests_needed())
        groups = VectorizedGroups(
            chunk, streaks, due, earlier, rows, self._pipeline, self._plan, self._writer, self.journal
        )
        unfinished = np.array(groups.process(np.flatnonzero(fast)), np.int64)
        unfinished = unfinished[np.argsort(rows[unfinished])]
        reloaded = iter(earlier.records(rows[unfinished][rows[unfinished] >= 0]))
        for index in unfinished.tolist():
            opened[index] = self._load_group(
                chunk.names[index], hashes.item(index), next(reloaded) if rows[index] >= 0 else None
            )
        for index in sorted(opened):
            self._slow_path(chunk, streaks, index, opened[index])
        return records

    def _slow_path(self, chunk: Chunk, streaks: ConsecutiveRevisions, index: int, group: OpenGroup) -> None:
        """Process one group through its timeline and fold: rows of old revisions, its streak, and then all others."""
        first, last = chunk.starts.item(index), chunk.starts.item(index + 1)
        self._switch(group)
        group.timeline.epoch = 0
        if streaks.is_complete[index]:
            self._apply_streak(chunk, group, range(first, last), streaks.marks[index].as_py())
            return
        plain = not group.timeline.held and group.timeline.parked is None
        middle = first + streaks.old[index]
        for row in range(first, middle):
            group.process(chunk.entry(row))
        rows, done = streaks.rows[streaks.streak_starts[index] : streaks.streak_starts[index + 1]], set[int]()
        if rows:
            applied = self._apply_streak(chunk, group, rows, streaks.marks[index].as_py())
            done = set(rows[: applied + 1])
        for row in range(middle, last):
            if row in done:
                continue
            first_row = streaks.first_row[row]
            if first_row == row and plain:
                # Behind a gap or a failure, and the first of its revision: nothing to decide.
                group.timeline.hold(chunk.entry(row), self._plan.now_us)
            elif first_row == row or first_row not in done:
                group.process(chunk.entry(row))
            else:
                repeated = chunk.judge_repeated(
                    row, chunk.digest_of(first_row), first_row, group.timeline.report_conflict
                )
                group.changed |= repeated[1] is TimelineVerdict.CONFLICT
                self.journal.record_verdict(group.name, *repeated)

    def _apply_streak(self, chunk: Chunk, group: OpenGroup, rows: Sequence[int], marks: bytes) -> int:
        """Apply a streak of revisions with these marks, and return how many were applied."""
        timeline: Any = group.timeline  # a GaplessTimeline; cast() would cost a call for every group

        def advance(done: Sequence[int]) -> None:
            if len(done) == len(rows):
                timeline.advance(len(done), marks)
                return
            remembered = done[-limits.REMEMBERED_REVISIONS :]
            chunk.compute_digests(remembered)
            timeline.advance(len(done), b"".join(chunk.digest_of(row)[:MARK_BYTES] for row in remembered))

        return self._apply(chunk, group, rows, advance)


def _rows_to_compare(chunk: Chunk, rising: Flags) -> list[int]:
    """Return the rows whose digests a timeline compares or remembers: all, or the last ones of a group that rises."""
    starts, ends = chunk.starts[:-1], chunk.starts[1:]
    starts = np.where(rising, np.maximum(starts, ends - limits.REMEMBERED_REVISIONS), starts)
    return [row for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for row in range(start, end)]
