"""One turn of one group: its decisions and messages go through the timeline and the handler, outside any transaction.

Only the held messages and marks that the turn can use are loaded. The result is plain values, which the store keeps all
together or not at all.
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
    """The result of a turn.

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
        now_us: the time of the turn.
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
        is_given_up: whether it was stopped before it was done.
        took_s: how long it took.
        retries: how often the handler was called again.
        trace: the W3C traceparent of the turn, if it is traced.
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
    is_given_up: bool = False
    took_s: float = 0.0
    retries: int = 0
    trace: str | None = None

    def add(self, delivery: Delivery) -> None:
        """Add a message, before the turn begins."""
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
    """Runs turns of one pipeline, from any number of threads.

    Args:
        pipeline: the pipeline.
        look: reads data stored in addition to a group's record.
        sleep: waits before a handler is retried.
        check: raises if outputs, as JSON, cannot be sent; their message then parks its group.
        retried: called for each retry with the turn, the error, and the pause in seconds.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        look: StoreReader,
        sleep: Callable[[float], None],
        check: Callable[[Sequence[str]], None] | None = None,
        retried: Callable[[GroupTask, BaseException | None, float], None] = lambda _turn, _cause, _pause_s: None,
    ) -> None:
        self.reader = MessageDecoder(pipeline)
        self._pipeline = pipeline
        self._states = codec.WorkerStateCodec(pipeline)
        self._read_store = look
        self._sleep = sleep
        self._check = check
        self._retried = retried

    def run(self, turn: GroupTask) -> GroupResult:
        """Run a turn.

        Raises:
            HandlerError: if the handler is not pure, so that a state cannot be rebuilt.
            InvalidMessage: if a message is invalid, and the pipeline has ``on_invalid="fail"``.
            GapError: if the wait for a gap has expired under ``then="fail"``.
            StateError: if a state cannot be stored.
        """
        journal, rejected, verdicts = Journal(), list[RejectedMessage](), dict[str, str]()
        entries = self._entries(turn, journal, rejected)
        if turn.group is None or (turn.record is None and not entries):
            for each in turn.decisions:
                verdicts[each.name] = f"no group {turn.group!r}"
            return GroupResult(None, journal, rejected, verdicts)
        line = codec.timeline_of(self._pipeline, turn.record)
        is_whole = self._restore(turn, line, entries)
        stored = {key: (entry, entry.since_us) for key, entry in line.held.items()}
        before = turn.record

        def pause(seconds: float) -> None:
            self._retried(turn, fold.cause, seconds)
            turn.is_asleep = True
            self._sleep(seconds)
            turn.is_asleep = False

        fold = Fold(
            self._pipeline,
            self._pipeline.first_state if before is None else partial(self._states.read, before),
            pause,
            self._texts,
        )
        if turn.is_alone:
            fold.refused = fold.refused or turn.why_spent(self._pipeline.retry.times)
        group = Group(turn.group, line, fold, journal, turn.now_us)
        for each in turn.decisions:
            decision = msgspec.json.decode(each.decision, type=Decision)
            verdicts[each.name] = decide(group, decision, self.reader.remade, self.reader.held_content) or ""
        for entry in entries:
            group.process(entry)
        group.finish(final=turn.is_final, is_quiet=turn.is_quiet)
        for name, entry, reason, detail in journal.rejected:
            rejected.append(RejectedMessage(name, reason, detail, self.reader.text(entry)))
        now = {key: (entry, entry.since_us) for key, entry in line.held.items()}
        held = [_held(self.reader, each[0]) for key, each in now.items() if stored.get(key) != each]
        gone = [stored[key][0].key for key in stored.keys() - now.keys()]
        marks = [AppliedMark._make(each) for each in line.take_external()]
        oldest_us = self._oldest_us(turn, line, gone, is_whole=is_whole)
        made = self._outputs(turn.group, journal)
        if turn.trace is not None:
            made = [each._replace(trace=turn.trace) for each in made]
        state = fold.state.value if isinstance(fold.state, OldState) else fold.state
        newest_us = line.since_us() if is_whole else max((each.since_us for each in held), default=None)
        due_us = self._due_us(turn, line, oldest_us, newest_us)
        kept = GroupUpdate(self._record(turn, group, oldest_us, due_us), held, gone, made, marks, state)
        return GroupResult(kept, journal, rejected, verdicts, fold.cause if fold.error else None)

    def _entries(self, turn: GroupTask, journal: Journal, rejected: list[RejectedMessage]) -> list[TimelineEntry]:
        """Return the valid messages, in the order of the queue."""
        entries = []
        journal.counts.received = len(turn.deliveries)
        for delivery in sorted(turn.deliveries, key=lambda each: each.entry.sequence_number):
            reading = self.reader.read(delivery.entry)
            if reading.entry is not None and reading.group == turn.group:
                entries.append(reading.entry)
                continue
            journal.counts.reject("invalid")
            body = delivery.entry.body
            text = body if isinstance(body, str) else body.decode(errors="replace")
            why = reading.why or f"its group is {reading.group!r}, not {turn.group!r}"
            rejected.append(RejectedMessage(reading.group, "invalid", why, text))
        return entries

    def _restore(self, turn: GroupTask, line: Timeline, entries: Sequence[TimelineEntry]) -> bool:
        """Load the held messages and marks that this turn can use; return whether those are all held messages."""
        stored = turn.record
        if stored is None:
            return True
        group = stored.group
        if unknown := line.external_marks(entries):
            line.add_external(self._read_store(lambda kept, number: kept.marks(number, group, unknown)))
        if not stored.held:
            return True
        moves = line.may_release(entries)
        is_due = stored.due_us is not None and stored.due_us <= turn.now_us
        is_whole = bool(turn.decisions) or is_due or turn.is_final
        is_whole |= moves and (stored.held <= limits.HELD_AT_ONCE or not line.releases_first(entries))
        # Of the messages that stay held, only copies of the new messages are looked up.
        turns = [entry.turn for entry in entries] if line.order.has_revisions and not is_whole else None
        ids = [entry.id or "" for entry in entries] if turns is None and not is_whole else None
        found = self._read_store(lambda kept, number: kept.held(number, group, turns, ids))
        if moves and not is_whole:
            known = {each.spot for each in found}
            first = partial(self._held_from, group, len(entries))
            found += [each for each in line.releasable(entries, first) if each.spot not in known]
        for each in found:
            line.restore(self.reader.again(each))
        return is_whole

    def _held_from(self, group: str, expected: int, spot: HeldKey) -> Iterator[HeldRecord]:
        """Yield the held messages from a spot on, read in growing parts; ``expected`` sets the first size."""
        last, most = None, expected + 1
        while True:
            most = min(most, limits.HELD_AT_ONCE)
            part = self._read_store(partial(_held_part, group, spot, most))
            yield from (each for each in part if each.spot != last)
            if len(part) < most:
                return
            last = spot = part[-1].spot
            most *= 4

    def _oldest_us(self, turn: GroupTask, line: Timeline, gone: Sequence[HeldKey], *, is_whole: bool) -> int | None:
        """Return the start of the wait of the group's longest-waiting message, loaded or not."""
        since = [entry.since_us for entry in line.held.values() if entry.since_us is not None]
        if not is_whole and turn.record is not None:
            if not gone:
                since += [turn.record.oldest_us] if turn.record.oldest_us is not None else []
            else:
                left = set(gone)
                name = turn.record.group
                longest = self._read_store(lambda kept, number: kept.held_longest(number, name, len(left) + 1))
                since += [since_us for since_us, spot in longest if spot not in left]
        return min(since, default=None)

    def _due_us(self, turn: GroupTask, line: Timeline, oldest_us: int | None, newest_us: int | None) -> int | None:
        """Return when the group's wait expires; None: never."""
        wait_us = self._pipeline.wait_us
        if wait_us is None or oldest_us is None or line.parked is not None:
            return None
        if line.order.has_gaps:
            return oldest_us + wait_us
        # If not all held messages are loaded and none has arrived, the stored time is that of the newest one.
        # Otherwise a time before the right one is enough: all are loaded then.
        stored_us = turn.record.due_us if turn.record is not None else None
        due_us = stored_us or oldest_us + wait_us if newest_us is None else newest_us + wait_us
        # It is due, but messages of the group are in the queue that this worker does not have.
        again_us = turn.now_us + round(limits.IDLE_AGAIN_S * 1e6)
        return due_us if due_us > turn.now_us or turn.deliveries else again_us

    def _record(self, turn: GroupTask, group: Group, oldest_us: int | None, due_us: int | None) -> GroupRecord:
        """Return the group's new record."""
        line, before = group.timeline, turn.record
        added = len(line.held) - len(group.held_before)
        held = (before.held if before else 0) + added
        state = group.fold.state
        version = state.version if isinstance(state, OldState) else self._pipeline.version
        return GroupRecord(
            group.name,
            before.version if before else 0,
            line.parked or (Status.WAITING if held else Status.OPEN),
            codec.place_of(line, version),
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


def _held_part(group: str, spot: HeldKey, most: int, kept: PipelineStore, number: int) -> list[HeldRecord]:
    return kept.held_from(number, group, spot, most)
