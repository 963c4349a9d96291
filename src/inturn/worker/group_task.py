"""One task of one group: its decisions and messages go through the timeline and the handler, outside any transaction.

Only the held messages and marks that the task can use are loaded. The result is plain values, which the store keeps all
together or not at all.

The stages of a task::

    read     decode the messages; those that cannot be decoded, or are of another group, are rejected
    restore  build the timeline from the group's record; load the held messages and marks that may matter
    apply    decisions, then messages in the order of the queue, then the end of waits (core/pipeline/fold.py)
    compare  what is held now with what was loaded: new and changed rows, and rows that are gone

A group may hold a million messages. All of them are loaded only if any of them may matter: for a decision, the end of a
wait or of the input, or when the messages release few. Otherwise only copies of the received messages are looked up,
and the released ones are read in order, in growing parts. What never happens:

- A held message that was not loaded is changed or counted as gone: the count of held messages is that of the record,
  plus what was added.
- A wait is forgotten because its message was not loaded: the record has the start of the longest wait, and the stored
  rows are asked for the next one when that message is gone.
- The store is changed, or a transaction held, while a handler runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from inturn.core import limits
from inturn.core.identity import HeldKey, TimelineEntry
from inturn.core.pipeline.decision import Decision, decide
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.results import RejectedMessage
from inturn.core.pipeline.timeline import Status, Timeline
from inturn.core.pipeline.versions import OldState
from inturn.core.queue.lapsed import why_spent
from inturn.core.queue.messages import Delivery
from inturn.store.pipeline_store import PipelineStore
from inturn.store.records import (
    AppliedMark,
    GroupRecord,
    GroupUpdate,
    HeldRecord,
    OutputRecord,
    StoredDecision,
)
from inturn.worker import codec
from inturn.worker.codec import MessageDecoder

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class GroupResult:
    """The result of a task.

    Attributes:
        update: the update of the group; None if the group does not exist and is not created.
        journal: the counts.
        rejected: rejected messages.
        verdicts: for each decision, by name, an empty text if it was applied, otherwise why it is void.
        cause: the error of the handler that parked the group; None: there was none.
    """

    update: GroupUpdate | None
    journal: Journal
    rejected: list[RejectedMessage]
    verdicts: dict[str, str]
    cause: BaseException | None = None


@dataclass(eq=False, slots=True)
class GroupTask:
    """A unit of work for one group and one thread.

    Attributes:
        group: the group; None for messages whose group cannot be determined.
        deliveries: the messages, leased until the result is stored.
        decisions: decisions about the group, applied before the messages.
        record: the stored group; None if it is new.
        now_us: the time of the task.
        until_ms: the end of the first lease to expire.
        is_alone: whether nothing else runs at the same time: it may kill its process, since it may have killed one
            before.
        began_s: when it was passed to the threads, by the monotonic clock; 0: not yet.
        is_quiet: whether the queue has no message of the group, so that an idle group may release its held messages.
        is_final: whether the input is complete, so that nothing waits for a later message.
        is_asleep: whether it waits for another attempt.
        begin_count: how often it has begun; 0: it has messages, which have their own counts, or its group is unknown.
        result: the result, once it is done.
        error: an error that ends the whole worker.
        took_s: how long it took.
        retries: how often the handler was called again.
        trace: the W3C traceparent of the task, if it is traced.
    """

    group: str | None
    deliveries: list[Delivery] = field(default_factory=list)
    decisions: list[StoredDecision] = field(default_factory=list)
    record: GroupRecord | None = None
    now_us: int = 0
    until_ms: int | None = None
    is_alone: bool = False
    began_s: float = 0.0
    is_quiet: bool = False
    is_final: bool = False
    is_asleep: bool = False
    begin_count: int = 0
    result: GroupResult | None = None
    error: BaseException | None = None
    took_s: float = 0.0
    retries: int = 0
    trace: str | None = None

    def add(self, delivery: Delivery) -> None:
        """Add a message, before the task begins."""
        self.deliveries.append(delivery)
        self.until_ms = min(delivery.until_ms, self.until_ms or delivery.until_ms)
        self.is_alone |= delivery.lapsed

    def why_spent(self, retries: int) -> str:
        """Return why it is not tried again, after it may have killed so many processes; empty: it is tried again."""
        if self.begin_count:
            return why_spent(self.begin_count, retries, "begun")
        return why_spent(self.deliveries[0].attempts, retries)


class StoreReader(Protocol):
    """Reads data stored in addition to a group's record: calls a function with the groups and the pipeline's number."""

    def __call__(self, function: Callable[[PipelineStore, int], T]) -> T:
        """Return what the function returns."""
        ...


class GroupRunner:
    """Runs tasks of one pipeline, from any number of threads.

    Args:
        pipeline: the pipeline.
        read_store: reads data stored in addition to a group's record.
        sleep: waits before a handler is retried.
        check: raises if outputs, as JSON, cannot be sent; their message then parks its group.
        retried: called for each retry with the task, the error, and the pause in seconds.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        read_store: StoreReader,
        sleep: Callable[[float], None],
        check: Callable[[Sequence[str]], None] | None = None,
        retried: Callable[[GroupTask, BaseException | None, float], None] = lambda _turn, _cause, _pause_s: None,
    ) -> None:
        self.reader = MessageDecoder(pipeline)
        self._pipeline = pipeline
        self._states = codec.WorkerStateCodec(pipeline)
        self._read_store = read_store
        self._sleep = sleep
        self._check = check
        self._retried = retried

    def run(self, task: GroupTask) -> GroupResult:
        """Run a task.

        Raises:
            HandlerError: if the handler is not pure, so that a state cannot be rebuilt.
            InvalidMessage: if a message is invalid, and the pipeline has ``on_invalid="fail"``.
            GapError: if the wait for a gap has expired under ``then="fail"``.
            StateError: if a state cannot be stored.
        """
        journal, rejected, verdicts = Journal(), list[RejectedMessage](), dict[str, str]()
        entries = self._entries(task, journal, rejected)
        if task.group is None or (task.record is None and not entries):
            for pending in task.decisions:
                verdicts[pending.name] = f"no group {task.group!r}"
            return GroupResult(None, journal, rejected, verdicts)
        timeline = codec.timeline_of(self._pipeline, task.record)
        is_whole = self._restore(task, timeline, entries)
        stored = {key: (entry, entry.since_us) for key, entry in timeline.held.items()}
        before = task.record

        def pause(seconds: float) -> None:
            self._retried(task, fold.cause, seconds)
            task.is_asleep = True
            self._sleep(seconds)
            task.is_asleep = False

        fold = Fold(
            self._pipeline,
            self._pipeline.first_state if before is None else partial(self._states.read, before),
            pause,
            self._texts,
        )
        if task.is_alone:
            fold.refused = fold.refused or task.why_spent(self._pipeline.retry.times)
        group = Group(task.group, timeline, fold, journal, task.now_us)
        for pending in task.decisions:
            decision = msgspec.json.decode(pending.decision, type=Decision)
            verdicts[pending.name] = decide(group, decision, self.reader.remade, self.reader.held_content) or ""
        for entry in entries:
            group.process(entry)
        group.finish(final=task.is_final, is_quiet=task.is_quiet)
        for name, entry, reason, detail in journal.rejected:
            rejected.append(RejectedMessage(name, reason, detail, self.reader.text(entry)))
        now = {key: (entry, entry.since_us) for key, entry in timeline.held.items()}
        held = [_held(self.reader, pair[0]) for key, pair in now.items() if stored.get(key) != pair]
        removed = [stored[key][0].key for key in stored.keys() - now.keys()]
        marks = [AppliedMark._make(mark) for mark in timeline.take_external()]
        oldest_us = self._oldest_us(task, timeline, removed, is_whole=is_whole)
        outputs = self._outputs(task.group, journal)
        if task.trace is not None:
            outputs = [output._replace(trace=task.trace) for output in outputs]
        state = fold.state.value if isinstance(fold.state, OldState) else fold.state
        newest_us = timeline.since_us() if is_whole else max((record.since_us for record in held), default=None)
        due_us = self._due_us(task, timeline, oldest_us, newest_us)
        update = GroupUpdate(self._record(task, group, oldest_us, due_us), held, removed, outputs, marks, state)
        return GroupResult(update, journal, rejected, verdicts, fold.cause if fold.error else None)

    def _entries(self, task: GroupTask, journal: Journal, rejected: list[RejectedMessage]) -> list[TimelineEntry]:
        """Return the valid messages, in the order of the queue."""
        entries = []
        journal.counts.received = len(task.deliveries)
        for delivery in sorted(task.deliveries, key=lambda item: item.message.sequence_number):
            reading = self.reader.read(delivery.message)
            if reading.entry is not None and reading.group == task.group:
                entries.append(reading.entry)
                continue
            journal.counts.reject("invalid")
            body = delivery.message.body
            text = body if isinstance(body, str) else body.decode(errors="replace")
            reason = reading.why or f"its group is {reading.group!r}, not {task.group!r}"
            rejected.append(RejectedMessage(reading.group, "invalid", reason, text))
        return entries

    def _restore(self, task: GroupTask, timeline: Timeline, entries: Sequence[TimelineEntry]) -> bool:
        """Load the held messages and marks that this task can use; return whether those are all held messages."""
        stored = task.record
        if stored is None:
            return True
        group = stored.group
        if unknown := timeline.external_marks(entries):
            timeline.add_external(self._read_store(lambda store, number: store.marks(number, group, unknown)))
        if not stored.held:
            return True
        moves = timeline.may_release(entries)
        is_due = stored.due_us is not None and stored.due_us <= task.now_us
        is_whole = bool(task.decisions) or is_due or task.is_final
        is_whole |= moves and (stored.held <= limits.HELD_AT_ONCE or not timeline.releases_first(entries))
        # Of the messages that stay held, only copies of the new messages are looked up.
        positions = [entry.position for entry in entries] if timeline.order.has_revisions and not is_whole else None
        ids = [entry.id or "" for entry in entries] if positions is None and not is_whole else None
        held = self._read_store(lambda store, number: store.held(number, group, positions, ids))
        if moves and not is_whole:
            known = {record.spot for record in held}
            first = partial(self._held_from, group, len(entries))
            held += [record for record in timeline.releasable(entries, first) if record.spot not in known]
        for record in held:
            timeline.restore(self.reader.again(record))
        return is_whole

    def _held_from(self, group: str, expected: int, spot: HeldKey) -> Iterator[HeldRecord]:
        """Yield the held messages from a spot on, read in growing parts; ``expected`` sets the first size."""
        last, most = None, expected + 1
        while True:
            most = min(most, limits.HELD_AT_ONCE)
            part = self._read_store(partial(_held_part, group, spot, most))
            yield from (record for record in part if record.spot != last)
            if len(part) < most:
                return
            last = spot = part[-1].spot
            most *= 4

    def _oldest_us(
        self, task: GroupTask, timeline: Timeline, removed: Sequence[HeldKey], *, is_whole: bool
    ) -> int | None:
        """Return the start of the wait of the group's longest-waiting message, loaded or not."""
        since = [entry.since_us for entry in timeline.held.values() if entry.since_us is not None]
        if not is_whole and task.record is not None:
            if not removed:
                since += [task.record.oldest_us] if task.record.oldest_us is not None else []
            else:
                removed_keys = set(removed)
                name = task.record.group
                longest = self._read_store(
                    lambda store, number: store.held_longest(number, name, len(removed_keys) + 1)
                )
                since += [since_us for since_us, spot in longest if spot not in removed_keys]
        return min(since, default=None)

    def _due_us(self, task: GroupTask, timeline: Timeline, oldest_us: int | None, newest_us: int | None) -> int | None:
        """Return when the group's wait expires; None: never."""
        wait_us = self._pipeline.wait_us
        if wait_us is None or oldest_us is None or timeline.parked is not None:
            return None
        if timeline.order.has_gaps:
            return oldest_us + wait_us
        # If not all held messages are loaded and none has arrived, the stored time is that of the newest one.
        # Otherwise a time before the right one is enough: all are loaded then.
        stored_us = task.record.due_us if task.record is not None else None
        due_us = stored_us or oldest_us + wait_us if newest_us is None else newest_us + wait_us
        # It is due, but messages of the group are in the queue that this worker does not have.
        again_us = task.now_us + round(limits.IDLE_AGAIN_S * 1e6)
        return due_us if due_us > task.now_us or task.deliveries else again_us

    def _record(self, task: GroupTask, group: Group, oldest_us: int | None, due_us: int | None) -> GroupRecord:
        """Return the group's new record."""
        timeline, before = group.timeline, task.record
        added = len(timeline.held) - len(group.held_before)
        held = (before.held if before else 0) + added
        state = group.fold.state
        version = state.version if isinstance(state, OldState) else self._pipeline.version
        return GroupRecord(
            group.name,
            before.version if before else 0,
            timeline.parked or (Status.WAITING if held else Status.OPEN),
            codec.place_of(timeline, version),
            self._states.encode(state),
            held,
            oldest_us,
            due_us,
        )

    def _texts(self, outputs: Sequence[Any]) -> list[str]:
        texts = codec.texts(self._pipeline.name, outputs)
        if self._check is not None:
            self._check(texts)
        return texts

    def _outputs(self, group: str, journal: Journal) -> list[OutputRecord]:
        """Return the outputs with their effect ids."""
        return [
            OutputRecord(0, *row)
            for _, entry, outputs in journal.outputs
            for row in self._pipeline.output_rows(group, entry, outputs)
        ]


def _held(reader: MessageDecoder, entry: TimelineEntry) -> HeldRecord:
    since_us = entry.since_us or 0
    return HeldRecord(*entry.key, since_us, entry.digest, reader.text(entry))


def _held_part(group: str, spot: HeldKey, most: int, store: PipelineStore, number: int) -> list[HeldRecord]:
    return store.held_from(number, group, spot, most)
