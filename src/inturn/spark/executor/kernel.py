"""The timeline's rules over Arrow columns: one pass over the sorted rows of one slice of the groups.

For a group with consecutive revisions, numpy finds the whole run and the fold applies it in one call. Everything else
(held messages, parked groups, old copies, epochs, order by time or arrival) is offered row by row to the timeline that
the replay uses too. So the rules are written once, and the common case is fast.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from inturn.core import limits
from inturn.core.errors import InvalidMessage
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Fold, Group, Journal
from inturn.core.pipeline.grades import MonotoneTimeline, timeline
from inturn.core.pipeline.order import Gapless, Monotone
from inturn.core.pipeline.timeline import MARK_BYTES, Status, Timeline, TimelineVerdict
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.names import CORRUPT, OWN
from inturn.spark.columns.readable import as_texts, unreadable, without
from inturn.spark.executor.chunk import GROUP, HASH, Chunk, Flags, by_revision, last_run, sort_keys
from inturn.spark.executor.consecutive import ConsecutiveRuns
from inturn.spark.executor.decisions import Decisions, remade
from inturn.spark.executor.fast_path import VectorizedGroups
from inturn.spark.executor.invalid import unplaced, unread_lines
from inturn.spark.tables.levels import ALL_US, EarlierGroup, EarlierGroups, Levels
from inturn.spark.tables.writer import StepWriter

_PARKED = (Status.GAP, Status.FAILED)
_CHANGES = (TimelineVerdict.APPLY, TimelineVerdict.EARLY, TimelineVerdict.BEHIND)


class OpenGroup(Group):
    """The group whose rows are being read, with its record from earlier steps."""

    __slots__ = ("changed", "decided", "hash", "held_step", "parked_before")

    def __init__(
        self, hash_: int, record: EarlierGroup | None, name: str, line: Timeline, fold: Fold, kernel: "Kernel"
    ) -> None:
        super().__init__(name, line, fold, kernel.journal, kernel.now_us)
        self.hash = hash_
        self.held_step = record.held_step if record else None
        self.changed = record is None
        self.decided = False
        self.parked_before = line.parked in _PARKED

    def offer(self, entry: TimelineEntry) -> TimelineVerdict:
        """Offer one message to the timeline, and note whether the group changed."""
        epoch = self.timeline.epoch
        verdict = super().offer(entry)
        if verdict in _CHANGES or self.timeline.epoch != epoch:
            self.changed = True
        return verdict


class Kernel:
    """The processor of one slice's sorted rows, chunk by chunk.

    Args:
        pipeline: the definition.
        codec: the builder of the messages.
        levels: the groups as earlier steps left them.
        writer: the destination of the results.
        decisions: the decisions about the slice's groups.
        step: the step's number.
        now_us: the step's time, in microseconds since 1970.
        final: whether to release messages that wait only for a later time.
        group: the column with the group's text.
    """

    def __init__(  # noqa: PLR0913 - the parts of a task, put together in one place
        self,
        pipeline: Pipeline,
        codec: MessageCodec,
        levels: Levels,
        writer: StepWriter,
        decisions: Decisions,
        *,
        step: int,
        now_us: int,
        final: bool,
        group: str = GROUP,
    ) -> None:
        self._pipeline, self._codec, self._levels, self._writer = pipeline, codec, levels, writer
        self._decisions = decisions
        self._step, self.now_us, self._final = step, now_us, final
        self.parked = 0
        self.journal = Journal()
        self.counts = self.journal.counts
        self._open: OpenGroup | None = None
        self._pending: list[pa.Table] = []
        self._keys, self._group = sort_keys(pipeline), group

    def feed(self, table: pa.Table) -> None:
        """Process the next sorted rows. The last rows with equal keys wait: the next chunk may begin with more."""
        self.counts.received += len(table)
        table = pa.concat_tables([*self._pending, table]).combine_chunks() if self._pending else table.combine_chunks()
        cut = last_run(table, [HASH, self._group, *self._keys])
        self._pending = [table.slice(cut)]
        if cut:
            self._take(table.slice(0, cut))

    def finish(self) -> None:
        """Process the remaining rows, and the groups without messages whose wait is over."""
        if self._pending:
            self._take(self._pending[0])
        self._close()
        self._visit(self._levels.take(self._levels.find(np.empty(0, np.int64))), None)
        self._flush()

    def _take(self, table: pa.Table) -> None:
        valid, columns, messages = self._split(table)
        if not len(valid):
            return
        chunk = Chunk.of(self._pipeline, self._codec, valid, columns, messages, self._group)
        firsts = chunk.hashes[chunk.starts[:-1]]
        hashes = firsts[np.concatenate([[True], firsts[1:] != firsts[:-1]])]  # sorted already: unique is cheap
        found = self._levels.find(hashes, int(hashes[-1]))
        if by_revision(self._pipeline):
            records = self._forward(chunk, found)
        else:
            records = self._levels.take(found)
            begun = zip(chunk.names, firsts.tolist(), strict=True)
            opened = [self._begin(name, hash_, records, first=at == 0) for at, (name, hash_) in enumerate(begun)]
            self._row_by_row(chunk, opened)
        # Groups with the last hash may have more messages in the next chunk.
        self._visit(records, int(hashes[-1]))
        self._flush()

    # -- invalid rows ----------------------------------------------------------------------------------------

    def _split(self, table: pa.Table) -> tuple[pa.Table, dict[str, list[object]], list[Any]]:
        """Reject invalid rows; return the other rows, their columns as Python values, and their messages."""
        table = self._readable(table)
        columns, misfits = self._codec.read(table)
        bad = unplaced(self._pipeline, table, self._group, misfits)
        good = [row for row in range(len(table)) if row not in bad]
        kept = _rows_of(columns, good) if bad else columns
        messages, refused = self._codec.build(kept)
        if refused:
            bad |= {good[at]: why for at, why in refused.items()}
            stay = [at for at in range(len(good)) if at not in refused]
            kept, messages = _rows_of(kept, stay), [messages[at] for at in stay]
        if not bad:
            return table, columns, messages
        content = self._content(table)
        for row, why in sorted(bad.items()):
            self._reject(table[self._group][row].as_py(), content, row, why)
        return without(table, bad), kept, messages

    def _readable(self, table: pa.Table) -> pa.Table:
        """Reject rows with values that Python cannot hold; return the others."""
        content = self._content(table)
        faults = unreadable(content)
        if not faults:
            return table
        faults |= {row: why for row, why in unread_lines(table).items() if row in faults}
        rows = pa.array(sorted(faults))
        told, groups = as_texts(content.take(rows)), as_texts(table.select([self._group]).take(rows))
        for at, row in enumerate(sorted(faults)):
            self._reject(groups[self._group][at].as_py(), told, at, faults[row])
        return without(table, faults)

    def _reject(self, group: str | None, content: pa.Table, row: int, why: str) -> None:
        if self._pipeline.on_invalid == "fail":
            raise InvalidMessage(f"{why}: {content.slice(row, 1).to_pylist()[0]!r}")
        # An invalid row has no turn and no epoch; the entry only refers to its content.
        entry = TimelineEntry(cast("int", None), b"", None, cast("int", None), ref=(content, row))
        self.journal.reject(cast("str", group), entry, "invalid", why)

    def _content(self, table: pa.Table) -> pa.Table:
        own = (name for name in table.column_names if name.startswith(OWN) and name != CORRUPT)
        return table.drop_columns(list(own))

    # -- groups ----------------------------------------------------------------------------------------------

    def _begin(self, name: str, hash_: int, records: dict[str, EarlierGroup], *, first: bool) -> OpenGroup:
        if first and self._open is not None:
            if self._open.name == name:
                return self._open
            self._close()
        return self._reopen(name, hash_, records.pop(name, None))

    def _reopen(self, name: str, hash_: int, record: EarlierGroup | None) -> OpenGroup:
        line = timeline(self._pipeline.order) if record is None else record.line
        restore = self._pipeline.first_state if record is None else record.restore
        fold = Fold(self._pipeline, restore, time.sleep, self._writer.encode)
        opened = OpenGroup(hash_, record, name, line, fold, self)
        for named, decision in self._decisions.about(name) if record is not None else ():
            opened.decided = opened.changed = True
            self._decisions.verdicts[named] = opened.decide(decision, partial(remade, self._pipeline))
        return opened

    def _visit(self, records: dict[str, EarlierGroup], below: int | None) -> None:
        """Process groups that have no message in this step but whose wait may be over."""
        for name in sorted(name for name, record in records.items() if below is None or record.hash < below):
            record = records.pop(name)
            self._settle(self._reopen(name, record.hash, record))

    def _close(self) -> None:
        if self._open is not None:
            self._settle(self._open)
            self._open = None

    def _settle(self, opened: OpenGroup) -> None:
        line = opened.timeline
        skipped, parked = len(line.skipped), line.parked
        opened.finish(final=self._final)
        self.parked += (line.parked in _PARKED) - opened.parked_before
        if line.held.keys() != opened.held_before or opened.decided:
            opened.changed = True
            if opened.decided or not opened.held_before <= line.held.keys() or opened.held_step is None:
                opened.held_step = self._step  # the held rows of earlier steps are void
                self._writer.hold(opened.hash, opened, line.held)
            else:
                self._writer.hold(opened.hash, opened, line.held.keys() - opened.held_before)
        if opened.changed or len(line.skipped) != skipped or line.parked is not parked:
            self._writer.group(opened.hash, opened, opened.held_step)

    def _flush(self) -> None:
        self._writer.outputs(self.journal.outputs)
        self._writer.rejected(self.journal.rejected)
        self._writer.flush()
        self.journal.outputs, self.journal.rejected = [], []

    # -- row by row ------------------------------------------------------------------------------------------

    def _row_by_row(self, chunk: Chunk, opened: list[OpenGroup]) -> None:
        rising = self._rising(chunk) if isinstance(self._pipeline.order, Monotone) else None
        if rising is None:
            chunk.need(range(len(chunk.messages)))
        for at, each in enumerate(opened):
            first, end = int(chunk.starts[at]), int(chunk.starts[at + 1])
            self._switch(each)
            line = each.timeline
            if (
                rising is not None
                and rising[at]
                and isinstance(line, MonotoneTimeline)
                and not line.held
                and line.parked is None
                and (line.reached is None or chunk.turns[first] > line.reached)
            ):
                self._run_rising(chunk, each, line, first, end)
                continue
            if rising is not None:
                chunk.need(range(first, end))
            for row in range(first, end):
                each.offer(chunk.entry(row))

    def _rising(self, chunk: Chunk) -> Flags | None:
        """Return, for each group, whether its rows rise strictly; None if epochs have to be compared first."""
        if chunk.epochs is not None:
            return None
        falls = np.concatenate([[False], chunk.turns[1:] <= chunk.turns[:-1]])
        falls[chunk.starts[:-1]] = False
        return cast("Flags", np.add.reduceat(falls, chunk.starts[:-1]) == 0)

    def _run_rising(self, chunk: Chunk, each: OpenGroup, line: MonotoneTimeline, first: int, end: int) -> None:
        emitted, count = each.fold.run(chunk.messages[first:end])
        for index, outputs in emitted:
            self.journal.outputs.append((each.name, chunk.applied(first + index), outputs))
        self.counts.applied += count
        each.changed = True
        line.epoch = line.epoch or 0
        remembered = range(max(first, first + count - limits.REMEMBERED_REVISIONS), first + count)
        chunk.need(remembered)
        line.advance((int(chunk.turns[row]), chunk.digest_of(row)) for row in remembered)
        if first + count < end:
            self._park(chunk, each, first + count)
            for row in range(first + count + 1, end):
                each.offer(chunk.entry(row))

    def _park(self, chunk: Chunk, each: OpenGroup, row: int) -> None:
        entry = chunk.entry(row)
        each.timeline.see(entry)
        each.timeline.park(entry, each.fold.error, self.now_us)

    # -- whole runs of revisions -----------------------------------------------------------------------------

    def _forward(self, chunk: Chunk, found: EarlierGroups) -> dict[str, EarlierGroup]:
        """Process a chunk under ``Gapless`` without epochs: numpy finds each group's run of consecutive revisions.

        Returns:
            The stored groups that have no row in the chunk.
        """
        before = cast("Gapless", self._pipeline.order).start - 1
        hashes = chunk.hashes[chunk.starts[:-1]]
        rows = found.rows_of(hashes, chunk.groups)
        # A new group has the row -1, which selects the value appended to each column here.
        # An older store may have reached the last 64-bit revision, after which none is due.
        reached = np.minimum(found.numbers("reached", None, before), limits.REVISION - 1)
        due = np.append(reached, before)[rows] + 1
        is_open = np.append(found.status(Status.OPEN), True)[rows]
        holds_on = np.append(found.status(Status.WAITING), False)[rows]
        holds_on &= np.append(found.numbers("waiting_us", None, ALL_US), ALL_US)[rows] > self._levels.since_us
        holds_on &= ~np.logical_or.reduceat(chunk.turns == np.repeat(due, np.diff(chunk.starts)), chunk.starts[:-1])
        # The first group may begin in the previous chunk, and the last may go on in the next.
        straight = (is_open | holds_on) & (hashes != hashes[0]) & (hashes != hashes[-1])
        straight &= ~self._decisions.concerning(chunk.names)

        others = np.ones(len(found), dtype=np.bool_)
        others[rows[straight & (rows >= 0)]] = False
        holding = np.sort(rows[straight & holds_on])
        records = self._levels.take(found, np.flatnonzero(others), holding=holding, turns=chunk.turns)
        plain = straight.copy()
        opened: dict[int, OpenGroup] = {}
        for at in np.flatnonzero(~straight).tolist():
            each = opened[at] = self._begin(chunk.names[at], hashes.item(at), records, first=at == 0)
            line = each.timeline
            plain[at] = not (line.held or line.parked)
            due[at] = (before if line.reached is None else min(line.reached, limits.REVISION - 1)) + 1

        runs = ConsecutiveRuns(chunk, due, plain)
        chunk.need(runs.digests_needed())
        columns = VectorizedGroups(chunk, runs, due, found, rows, step=self._step, now_us=self.now_us)
        left = np.array(columns.take(np.flatnonzero(straight), self._pipeline, self._writer, self.journal), np.int64)
        left = left[np.argsort(rows[left])]
        again = iter(found.records(rows[left][rows[left] >= 0]))
        for at in left.tolist():
            opened[at] = self._reopen(chunk.names[at], hashes.item(at), next(again) if rows[at] >= 0 else None)
        for at in sorted(opened):
            self._long_way(chunk, runs, at, opened[at])
        return records

    def _long_way(self, chunk: Chunk, runs: ConsecutiveRuns, at: int, each: OpenGroup) -> None:
        """Process one group through its timeline and fold."""
        first, last = chunk.starts.item(at), chunk.starts.item(at + 1)
        self._switch(each)
        each.timeline.epoch = 0
        if runs.whole[at]:
            self._apply(chunk, each, range(first, last), runs.marks[at].as_py())
        else:
            rows = runs.rows[runs.run_starts[at] : runs.run_starts[at + 1]]
            self._apply_and_rest(chunk, runs, each, first, first + runs.old[at], last, rows, runs.marks[at].as_py())

    def _switch(self, each: OpenGroup) -> None:
        if self._open is not each:
            self._close()
            self._open = each

    def _apply(self, chunk: Chunk, each: OpenGroup, rows: Sequence[int], marks: bytes) -> int:
        """Apply a run of rows and return how many were applied; park the group at the first that fails."""
        if isinstance(rows, range):
            messages = chunk.messages[rows.start : rows.stop]
        else:
            messages = [chunk.messages[row] for row in rows]
        emitted, applied = each.fold.run(messages)
        for index, outputs in emitted:
            self.journal.outputs.append((each.name, chunk.applied(rows[index]), outputs))
        self.counts.applied += applied
        each.changed = True
        line: Any = each.timeline  # a GaplessTimeline; cast() would cost a call for every group
        if applied < len(rows):
            kept = rows[max(0, applied - limits.REMEMBERED_REVISIONS) : applied]
            chunk.need(kept)
            marks = b"".join(chunk.digest_of(row)[:MARK_BYTES] for row in kept)
        if applied:
            line.advance(applied, marks)
        if applied < len(rows):
            self._park(chunk, each, rows[applied])
            if isinstance(rows, range):
                for row in rows[applied + 1 :]:
                    each.offer(chunk.entry(row))
        return applied

    def _apply_and_rest(
        self,
        chunk: Chunk,
        runs: ConsecutiveRuns,
        each: OpenGroup,
        first: int,
        middle: int,
        last: int,
        rows: list[int],
        marks: bytes,
    ) -> None:
        """Process a group that is not one run: old revisions, then the run, then its copies and early revisions."""
        plain = not each.timeline.held and each.timeline.parked is None
        for row in range(first, middle):
            each.offer(chunk.entry(row))
        done: set[int] = set()
        if rows:
            applied = self._apply(chunk, each, rows, marks)
            done = set(rows[: applied + 1])
        for row in range(middle, last):
            if row in done:
                continue
            winner = runs.winner[row]
            if winner == row and plain:
                # Behind a gap or a failure, and the first of its revision: nothing to decide.
                each.timeline.hold(chunk.entry(row), self.now_us)
            elif winner == row or winner not in done:
                each.offer(chunk.entry(row))
            else:
                copy = chunk.digest_of(row) == chunk.digest_of(winner)
                verdict = TimelineVerdict.DUPLICATE if copy else TimelineVerdict.CONFLICT
                self.journal.turn_away(each.name, chunk.entry(row), verdict)


def _rows_of(columns: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
    return {name: [column[row] for row in rows] for name, column in columns.items()}
