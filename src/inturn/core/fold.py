"""Apply messages to one group's state through the user's handler, and keep the books of a step.

``Fold`` runs the handler and undoes what a failing one did to the state; ``Group`` lets the timeline decide and
the fold apply. The pure replay and the Spark kernel are both made of these, so they cannot disagree.
"""

import contextlib
import copy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, cast

from inturn.core import limits
from inturn.core.decision import Decision, Remake, decide
from inturn.core.errors import GapError, HandlerError, Retryable
from inturn.core.grades import GaplessTimeline, TimestampTimeline
from inturn.core.handler import described, wrong_result
from inturn.core.message import Entry
from inturn.core.texts import kept_name, storable
from inturn.core.timeline import Status, Timeline, Verdict
from inturn.core.values import check_outputs
from inturn.core.versions import OldState

if TYPE_CHECKING:
    from inturn.core.pipeline import Pipeline

Emitted = tuple[int, Sequence[Any]]

_DETAILS = {
    Verdict.CONFLICT: "another message with this place or id, and other content, came first",
    Verdict.SKIPPED: "it came after its revision had been skipped",
    Verdict.LATE: "its time is below the group's watermark",
    Verdict.GIVEN_UP: "its group had been given up",
}


@dataclass(slots=True)
class Counts:
    """Where every message of a step went: ``received + released`` equals the sum of all the others.

    Attributes:
        received: messages that came in.
        released: messages held before this step that left, applied or rejected.
        applied: messages that changed a state.
        duplicate: copies of a message that was applied or is held, with the same content.
        stale: copies too old to tell a duplicate from a conflict.
        held: messages newly waiting or parked at the end of the step.
        rejected: messages that will not be applied, by reason.
    """

    received: int = 0
    released: int = 0
    applied: int = 0
    duplicate: int = 0
    stale: int = 0
    held: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        """Whether every message is counted in exactly one place."""
        went = self.applied + self.duplicate + self.stale + self.held + sum(self.rejected.values())
        return self.received + self.released == went

    def reject(self, reason: str) -> None:
        """Count one rejected message."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def add(self, other: "Counts") -> None:
        """Add another's counts to these."""
        self.received += other.received
        self.released += other.released
        self.applied += other.applied
        self.duplicate += other.duplicate
        self.stale += other.stale
        self.held += other.held
        for reason, count in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count


@dataclass(slots=True)
class Journal:
    """What a step decided, in the order it was decided.

    Attributes:
        counts: the sums.
        outputs: group, message and its outputs, for each message that had some.
        rejected: group, message, reason and detail.
    """

    counts: Counts = field(default_factory=Counts)
    outputs: list[tuple[str, Entry, Sequence[Any]]] = field(default_factory=list)
    rejected: list[tuple[str, Entry, str, str]] = field(default_factory=list)

    def reject(self, group: str, entry: Entry, reason: str, detail: str) -> None:
        """Record and count a rejected message; what is said of it, and its group's name, are made storable."""
        self.counts.reject(reason)
        self.rejected.append((group and kept_name(group), entry, reason, storable(detail)))

    def turn_away(self, group: str, entry: Entry, verdict: Verdict) -> None:
        """Count a message that is not taken in, or record it as rejected, as the verdict says."""
        match verdict:
            case Verdict.DUPLICATE:
                self.counts.duplicate += 1
            case Verdict.STALE:
                self.counts.stale += 1
            case _:
                self.reject(group, entry, verdict.value, _DETAILS[verdict])


class Fold:
    """One group's state, going forward message by message.

    Args:
        pipeline: whose handler and retry policy apply.
        restore: gives the state from before the first message, as often as it is asked: a handler may have
            changed the state in place before it raised, and then the state is made again from there. Of an
            :class:`~inturn.core.versions.OldState` every message fails.
        sleep: waits that many seconds before another attempt; None (in a replay) does not wait.
        keep: what is kept of a message's outputs; they may share parts with a state that changes later, so it must
            be a copy, or their encoding.
    """

    __slots__ = (
        "_done",
        "_handler",
        "_keep",
        "_normal",
        "_restore",
        "_sleep",
        "_state_type",
        "_wrong",
        "error",
        "pipeline",
        "state",
    )

    def __init__(
        self,
        pipeline: "Pipeline",
        restore: Callable[[], Any],
        sleep: Callable[[float], None] | None = None,
        keep: Callable[[Sequence[Any]], Sequence[Any]] = copy.deepcopy,
    ) -> None:
        self.pipeline = pipeline
        self.state = restore()
        self.error = ""
        self._restore = restore
        self._done: list[Any] = []
        self._wrong: HandlerError | None = None
        self._handler = pipeline.handler
        self._sleep = sleep
        self._keep = keep
        self._normal = pipeline.normal
        self._state_type = pipeline.state if isinstance(pipeline.state, type) else object

    def run(self, messages: Sequence[Any]) -> tuple[list[Emitted], int]:
        """Apply messages in order until the end or the first that fails.

        Returns:
            (index, outputs) for each message that had outputs, and how many messages were applied. If that is
            fewer than were given, the next one failed, ``error`` says why, and the state is as it was before it.

        Raises:
            HandlerError: if the handler returned something that is not (state, outputs).
        """
        emitted: list[Emitted] = []
        start = 0
        if isinstance(self.state, OldState):
            self.error = self.state.why
            return emitted, 0
        while start < len(messages):
            failed, error = self._burst(messages, start, emitted)
            if error is None:
                start = failed
                continue
            if not self._again(messages[failed], error, failed, emitted):
                return emitted, failed
            start = failed + 1
        return emitted, len(messages)

    def _burst(self, messages: Sequence[Any], start: int, emitted: list[Emitted]) -> tuple[int, Exception | None]:
        """Apply from ``start`` until the first raise, the end, or as many as a snapshot allows; the tight loop of all.

        Returns:
            Where it stopped, and what was raised there, if anything was.
        """
        handler, state, is_normal = self._handler, self.state, self._normal.is_normal
        # After a failure only some at a time: to copy all the others at each failure would cost the square of them.
        rest = messages[start : start + limits.SNAPSHOT_EVERY] if start else messages
        for index, message in enumerate(rest, start):
            try:
                state, outputs = handler(state, message)
                if not is_normal(state):
                    state = self._settled(state, outputs, message)
                if outputs or outputs.__class__ is not list:
                    emitted.append((index, self._kept(outputs, message)))
            except Exception as error:  # noqa: BLE001 - whatever a handler raises parks its group
                self._own(error, message)
                self._done.extend(rest[: index - start])  # no snapshot: this state may be spoilt already
                self._rewind()
                return index, error
        self.state = state
        self._remember(rest, state)
        return start + len(rest), None

    def _again(self, message: Any, error: Exception, index: int, emitted: list[Emitted]) -> bool:
        """Try a message again as the retry policy allows; whether it was applied after all."""
        for pause_s in self.pipeline.retry.pauses_s() if isinstance(error, Retryable) else ():
            if self._sleep is not None:
                self._sleep(pause_s)
            try:
                state, outputs = self._handler(self.state, message)
                state = self._settled(state, outputs, message)
                kept = [(index, self._kept(outputs, message))] if outputs or outputs.__class__ is not list else []
            except Exception as again:  # noqa: BLE001 - as above
                error = self._own(again, message)
                self._rewind()
                if not isinstance(again, Retryable):
                    break
                continue
            self.state = state
            self._remember([message], state)
            emitted += kept
            return True
        self.error = "".join(traceback.format_exception(error))
        return False

    def _kept(self, outputs: Any, message: Any) -> Sequence[Any]:
        if not isinstance(outputs, list | tuple):
            self._refuse(message, TypeError(f"the outputs are {described(outputs)}"))
        check_outputs(outputs)
        return self._keep(cast("Sequence[Any]", outputs))

    def _settled(self, state: Any, outputs: Any, message: Any) -> Any:
        """The normal form of a state that the handler returned with these outputs."""
        if not isinstance(outputs, list | tuple):
            self._refuse(message, TypeError(f"the outputs are {described(outputs)}"))
        if not isinstance(state, self._state_type):
            msg = f"the handler of pipeline {self.pipeline.name!r} returned the state {described(state)}; "
            self._wrong = HandlerError(msg + f"expected a {self._state_type.__name__}, like the first state")
            raise self._wrong
        return self._normal(state)

    def _own(self, error: Exception, message: Any) -> Exception:
        """The error, if it came from within the handler; else the handler was called or taken apart in vain."""
        if error is self._wrong:  # a mistake in the program, whatever the message was
            raise error
        if error.__traceback__ is None or error.__traceback__.tb_next is None:
            self._refuse(message, error)
        return error

    def _refuse(self, message: Any, error: Exception) -> NoReturn:
        """Say what the handler did wrong; it is called once more, since the hot loop keeps nothing that it returns."""
        why = str(error)
        with contextlib.suppress(Exception):  # written in C with other arguments, say: then the first error tells
            why = wrong_result(self._handler(self._restore(), message), self.pipeline.state) or why
        msg = f"the handler of pipeline {self.pipeline.name!r} must take (state, message) and return "
        self._wrong = HandlerError(f"{msg}(state, [output, …]): {why}")
        raise self._wrong from error

    def _remember(self, messages: Sequence[Any], state: Any) -> None:
        self._done.extend(messages)
        if len(self._done) >= limits.SNAPSHOT_EVERY:
            snapshot = copy.deepcopy(state)
            self._restore = lambda: copy.deepcopy(snapshot)
            self._done = []

    def _rewind(self) -> None:
        """Make the state again as it was before the message that failed."""
        pauses_s = iter(self.pipeline.retry.pauses_s())
        while True:
            state = self._restore()
            try:
                for message in self._done:
                    state, _ = self._handler(state, message)
                    state = self._normal(state)
            except Exception as error:
                pause_s = next(pauses_s, None) if isinstance(error, Retryable) else None
                if pause_s is None:
                    msg = f"the handler of pipeline {self.pipeline.name!r} raised on a message that it had applied, "
                    why = "when its state was made again: it is not pure, or it changed the message"
                    raise HandlerError(f"{msg}{why}: {error!r}") from error
                if self._sleep is not None:
                    self._sleep(pause_s)
            else:
                self.state = state
                return


class Group:
    """One group in one step: the timeline decides, the fold applies, the journal records.

    Args:
        name: the group's text form.
        timeline: where it stands.
        fold: its state.
        journal: where the verdicts go.
        now_us: the step's time, in microseconds since 1970.

    Attributes:
        held_before: the keys of what it held when the step began.
    """

    __slots__ = ("fold", "held_before", "journal", "name", "now_us", "pipeline", "timeline")

    def __init__(self, name: str, timeline: Timeline, fold: Fold, journal: Journal, now_us: int) -> None:
        self.name, self.timeline, self.fold, self.journal, self.now_us = name, timeline, fold, journal, now_us
        self.pipeline = fold.pipeline
        self.held_before = frozenset(timeline.held) if timeline.held else frozenset()

    def offer(self, entry: Entry) -> Verdict:
        """Take one received message to where it belongs, and after it all whose turn has come."""
        timeline = self.timeline
        if timeline.epoch is None:
            timeline.epoch = entry.epoch
        elif timeline.renews(entry):
            self._renew(entry.epoch)
        verdict = timeline.judge(entry)
        match verdict:
            case Verdict.APPLY:
                timeline.see(entry)
                self._apply(entry)
                self._drain()
            case Verdict.EARLY | Verdict.BEHIND:
                timeline.see(entry)
                timeline.hold(entry, self.now_us)
                self._drain()
            case _:
                self.journal.turn_away(self.name, entry, verdict)
        return verdict

    def decide(self, decision: Decision, remake: Remake) -> str | None:
        """Take a decision about this group, and all whose turn comes by it; before the messages of the step.

        Args:
            decision: what a person decided.
            remake: gives a held message again with new content; only the ``message`` and ``ref`` of what it returns
                count. Turn, id and digest stay, so that a copy of the old content is a duplicate and no conflict.

        Returns:
            None if it was done, else in words why it is void; nothing has changed then. A head that fails again is
            parked again, and the decision was done all the same.
        """
        return decide(self, decision, remake)

    def go_on(self) -> None:
        """Un-park the group and take all whose turn has come, through the epochs that it kept back."""
        self.timeline.parked = self.timeline.error = None
        self._drain()
        for epoch in self.timeline.later():
            if self.timeline.parked:
                return
            self._renew(epoch)
            self._drain()

    def finish(self, *, final: bool = False) -> None:
        """End the step for this group: let waits expire, count what is held and released, forget the oldest.

        Raises:
            GapError: if a gap outlived its wait under ``then="fail"``.
        """
        timeline = self.timeline
        if final and isinstance(timeline, TimestampTimeline):
            timeline.close()
            self._drain()
        if self.pipeline.gap_timeout_us is not None and isinstance(timeline, GaplessTimeline) and timeline.held:
            self._expire(timeline, self.pipeline.gap_timeout_us)
        if timeline.held or self.held_before:
            still = self.held_before & timeline.held.keys()
            self.journal.counts.released += len(self.held_before) - len(still)
            self.journal.counts.held += len(timeline.held) - len(still)
        timeline.settle()

    def applied(self, entries: Sequence[Entry], emitted: Sequence[Emitted], count: int) -> None:
        """Record that the first ``count`` of ``entries`` were applied, with what they emitted."""
        self.journal.counts.applied += count
        self.journal.outputs.extend((self.name, entries[index], outputs) for index, outputs in emitted)

    def _apply(self, entry: Entry) -> None:
        emitted, count = self.fold.run([entry.message])
        if count:
            self.timeline.applied(entry)
            self.applied([entry], emitted, count)
        else:
            self.timeline.park(entry, self.fold.error, self.now_us)

    def _drain(self) -> None:
        while (entry := self.timeline.ready()) is not None:
            self._apply(entry)

    def _renew(self, epoch: int) -> None:
        for lost in self.timeline.renew(epoch):
            detail = f"epoch {epoch} began before its turn came"
            self.journal.reject(self.name, lost, "late", detail)

    def _expire(self, timeline: GaplessTimeline, timeout_us: int) -> None:
        for first, last, since_us in timeline.gaps():
            if timeline.parked or self.now_us - since_us < timeout_us:
                return
            missing = f"revision {first} is" if first == last else f"revisions {first} to {last} are"
            text = f"{missing} missing"
            match self.pipeline.gap_policy.then:
                case "fail":
                    msg = f"group {self.name!r}: {text} and the wait is over; then='fail' ends the run"
                    raise GapError(msg)
                case "park":
                    timeline.parked, timeline.error = Status.GAP, f"{text} and the wait is over"
                    return
                case "skip":
                    timeline.skip(first, last)
                    self._drain()
