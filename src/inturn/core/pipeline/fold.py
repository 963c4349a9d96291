"""Application of messages to one group's state through the user's handler.

``Fold`` runs the handler and undoes changes of a failed call to the state. ``Group`` lets the timeline decide and the
fold apply. The pure replay and the Spark kernel are both built on these, so they cannot disagree.

Two failures of a handler park the group: an exception of any kind except Ctrl-C, and a result that is not (state,
outputs). The journal also records the fault of such a result: if the handler has never applied a message, it is wrong
for all of them, and the engine raises that error instead of parking group after group.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from inturn.core import limits
from inturn.core.errors import GapError, HandlerError, Retryable
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.content import differing_fields
from inturn.core.pipeline.handler import described, wrong_result
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.timeline import Status, Timeline, TimelineVerdict
from inturn.core.pipeline.versions import OldState
from inturn.core.texts import text_of, traceback_of
from inturn.core.values.plain import check_outputs

if TYPE_CHECKING:
    from inturn.core.pipeline.definition import Pipeline

Emitted = tuple[int, Sequence[Any]]


class Fold:
    """The state of one group, advanced message by message.

    Args:
        pipeline: pipeline with the handler and the retry policy.
        restore: returns the state before the first message; called repeatedly. A handler may have changed the state in
            place before it raised; the state is then rebuilt from there. With an
            :class:`~inturn.core.pipeline.versions.OldState` every message fails.
        sleep: waits for a number of seconds before another attempt; None (in a replay) does not wait.
        keep: returns the stored form of a message's outputs: a copy or an encoding, since outputs may share parts with
            a state that changes later.

    Attributes:
        state: the state after the last message that was applied.
        refused: why no message is applied; empty: messages are applied.
        error: why the last message that failed was not applied, with the traceback.
        cause: its exception.
        wrong: its exception, if the handler did not raise it: its result is not (state, outputs).
    """

    __slots__ = (
        "_done",
        "_handler",
        "_keep",
        "_normal",
        "_restore",
        "_sleep",
        "_state_type",
        "cause",
        "error",
        "pipeline",
        "refused",
        "state",
        "wrong",
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
        self.refused = self.state.why if isinstance(self.state, OldState) else ""
        self.error = ""
        self.cause: BaseException | None = None
        self.wrong: HandlerError | None = None
        self._restore = restore
        self._done: list[Any] = []
        self._handler = pipeline.handler
        self._sleep = sleep
        self._keep = keep
        self._normal = pipeline.normalize
        self._state_type = pipeline.state if isinstance(pipeline.state, type) else object

    def run(self, messages: Sequence[Any]) -> tuple[list[Emitted], int]:
        """Apply messages in order until the end or the first that fails.

        Returns:
            (index, outputs) for each message that had outputs, and the number of applied messages. If that is fewer
                than were passed, the next one failed, ``error`` contains the reason, and the state is as before it.

        Raises:
            HandlerError: if the handler is not pure, so that the state before the failure cannot be rebuilt.
        """
        emitted: list[Emitted] = []
        start = 0
        if self.refused:
            self.error = self.refused
            return emitted, 0
        while start < len(messages):
            failed, error = self._apply_all(messages, start, emitted)
            if error is None:
                start = failed
                continue
            if not self._retry(messages[failed], error, failed, emitted):
                return emitted, failed
            start = failed + 1
        return emitted, len(messages)

    def _apply_all(
        self, messages: Sequence[Any], start: int, emitted: list[Emitted]
    ) -> tuple[int, BaseException | None]:
        """Apply messages from ``start`` until the first error, the end, or the snapshot limit; the hottest loop of all.

        Returns:
            The index at which it stopped, and the error raised there, if any.
        """
        handler, state, is_normal = self._handler, self.state, self._normal.is_normal
        # After a failure only some at a time: copying all the others at each failure would cost quadratic time.
        rest = messages[start : start + limits.SNAPSHOT_EVERY] if start else messages
        for index, message in enumerate(rest, start):
            try:
                state, outputs = handler(state, message)
                if not is_normal(state):
                    state = self._checked_state(state, outputs, message)
                if outputs or outputs.__class__ is not list:
                    emitted.append((index, self._checked_outputs(outputs, message)))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises parks its group
                cause = self._cause_of(error, message)
                self._done.extend(rest[: index - start])  # no snapshot: the failed call may have changed this state
                self._rewind()
                return index, cause
        self.state = state
        self._remember(rest, state)
        return start + len(rest), None

    def _retry(self, message: Any, error: BaseException, index: int, emitted: list[Emitted]) -> bool:
        """Retry a message under the retry policy; return whether it was applied in the end."""
        for pause_s in self.pipeline.retry.pauses_s() if isinstance(error, Retryable) else ():
            self.cause = error
            if self._sleep is not None:
                self._sleep(pause_s)
            try:
                state, outputs = self._handler(self.state, message)
                state = self._checked_state(state, outputs, message)
                checked = (
                    [(index, self._checked_outputs(outputs, message))]
                    if outputs or outputs.__class__ is not list
                    else []
                )
            except KeyboardInterrupt:
                raise
            except BaseException as failure:  # noqa: BLE001 - as above
                error = self._cause_of(failure, message)
                self._rewind()
                if not isinstance(failure, Retryable):
                    break
                continue
            self.state = state
            self._remember([message], state)
            emitted += checked
            return True
        self.cause, self.error = error, traceback_of(error)
        return False

    def _checked_outputs(self, outputs: Any, message: Any) -> Sequence[Any]:
        if not isinstance(outputs, list | tuple):
            raise self._handler_fault(message, TypeError(f"the outputs are {described(outputs)}"))
        check_outputs(outputs)
        return self._keep(cast("Sequence[Any]", outputs))

    def _checked_state(self, state: Any, outputs: Any, message: Any) -> Any:
        """Return the normal form of a state that the handler returned with these outputs."""
        if not isinstance(outputs, list | tuple):
            raise self._handler_fault(message, TypeError(f"the outputs are {described(outputs)}"))
        if not isinstance(state, self._state_type):
            msg = f"the handler of pipeline {self.pipeline.name!r} returned the state {described(state)}; "
            self.wrong = HandlerError(msg + f"expected {self._state_type.__name__}, the type of the first state")
            raise self.wrong
        return self._normal(state)

    def _cause_of(self, error: BaseException, message: Any) -> BaseException:
        """Return why a message failed: the handler's exception, or the fault of its call or its result."""
        if error is self.wrong:
            return error.with_traceback(None)  # it would show only frames of inturn
        self.wrong = None
        if error.__traceback__ is None or error.__traceback__.tb_next is None:  # no frame of the handler
            return self._handler_fault(message, error)
        return error

    def _handler_fault(self, message: Any, error: BaseException) -> HandlerError:
        """Return the handler's fault; call it again to see its result, which the hot loop does not keep."""
        reason = text_of(error)
        try:
            reason = wrong_result(self._handler(self._restore(), message), self.pipeline.state) or reason
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 - if this call raises too, the first error is reported
            pass
        msg = f"the handler of pipeline {self.pipeline.name!r} must take (state, message) and return "
        self.wrong = HandlerError(f"{msg}(state, [output, …]): {reason}")
        return self.wrong

    def _remember(self, messages: Sequence[Any], state: Any) -> None:
        self._done.extend(messages)
        if len(self._done) >= limits.SNAPSHOT_EVERY:
            snapshot = copy.deepcopy(state)
            self._restore = lambda: copy.deepcopy(snapshot)
            self._done = []

    def _rewind(self) -> None:
        """Rebuild the state before the message that failed."""
        pauses_s = iter(self.pipeline.retry.pauses_s())
        while True:
            state = self._restore()
            try:
                for message in self._done:
                    state, _ = self._handler(state, message)
                    state = self._normal(state)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                pause_s = next(pauses_s, None) if isinstance(error, Retryable) else None
                if pause_s is None:
                    msg = f"the handler of pipeline {self.pipeline.name!r} raised on a message that it had applied "
                    reason = "before, when its state was rebuilt: it is not pure, or it changed the message"
                    raise HandlerError(f"{msg}{reason}: {type(error).__name__}: {text_of(error)}") from error
                if self._sleep is not None:
                    self._sleep(pause_s)
            else:
                self.state = state
                return


class Group:
    """One group in one step: the timeline decides, the fold applies, the journal records.

    Args:
        name: text form of the group.
        timeline: position of the group in its order.
        fold: state of the group.
        journal: record of the verdicts.
        now_us: the step's time, in microseconds since 1970.

    Attributes:
        held_before: keys of the messages held when the step began.
    """

    __slots__ = ("_recent", "fold", "held_before", "journal", "name", "now_us", "pipeline", "timeline")

    def __init__(self, name: str, timeline: Timeline, fold: Fold, journal: Journal, now_us: int) -> None:
        self.name, self.timeline, self.fold, self.journal, self.now_us = name, timeline, fold, journal, now_us
        self.pipeline = fold.pipeline
        self.held_before = frozenset(timeline.held) if timeline.held else frozenset()
        self._recent: list[TimelineEntry] = []

    def process(self, entry: TimelineEntry) -> TimelineVerdict:
        """Process one received message, and then all messages that are ready because of it."""
        timeline = self.timeline
        if timeline.epoch is None:
            timeline.epoch = entry.epoch
            timeline.begin(entry)
        elif timeline.begins_epoch(entry):
            self._begin_epoch(entry.epoch)
            timeline.begin(entry)
        verdict = timeline.verdict(entry)
        match verdict:
            case TimelineVerdict.APPLY:
                timeline.record_seen(entry)
                self._apply(entry)
                self._drain()
            case TimelineVerdict.EARLY | TimelineVerdict.BEHIND:
                timeline.record_seen(entry)
                timeline.hold(entry, self.now_us)
                self._drain()
            case TimelineVerdict.CONFLICT:
                timeline.report_conflict(entry)
                self.journal.record_verdict(self.name, entry, verdict, self._differing(entry))
            case _:
                self.journal.record_verdict(self.name, entry, verdict)
        return verdict

    def _differing(self, entry: TimelineEntry) -> list[str]:
        """Return the fields in which a message differs from that before it, if that is held or was applied just now."""
        timeline, identity = self.timeline, self.timeline.identity(entry)
        applied = (applied_entry for applied_entry in self.recent() if timeline.identity(applied_entry) == identity)
        first = timeline.waiting(entry) or next(applied, None)
        return [] if first is None else differing_fields(self.pipeline, first, entry)

    def recent(self) -> Iterator[TimelineEntry]:
        """Yield the messages that were applied last in this step, the last one first."""
        return reversed(self._recent[-limits.REMEMBERED_REVISIONS :])

    def continue_group(self) -> None:
        """Un-park the group and apply all ready messages, also those of the epochs that it held back."""
        self.timeline.parked = self.timeline.error = None
        self._drain()
        for epoch in self.timeline.later_epochs():
            if self.timeline.parked:
                return
            self._begin_epoch(epoch)
            self._drain()

    def finish(self, *, final: bool = False, is_quiet: bool = True) -> None:
        """End the step for this group: let waits expire, count held and released messages, forget the oldest.

        Args:
            final: the input is complete, so that nothing waits for a later message.
            is_quiet: no message of the group is known to be in transit; if the group counted as idle, it would be late.

        Raises:
            GapError: if the wait for a gap has expired under ``then="fail"``.
        """
        timeline = self.timeline
        if final or (is_quiet and timeline.is_idle(self.now_us)):
            timeline.close()
            self._drain()
        if self.pipeline.wait_us is not None and timeline.held:
            self._expire_waits(timeline, self.pipeline.wait_us)
        if timeline.held or self.held_before:
            still = self.held_before & timeline.held.keys()
            self.journal.counts.released += len(self.held_before) - len(still)
            self.journal.counts.held += len(timeline.held) - len(still)
        timeline.trim()

    def _apply(self, entry: TimelineEntry) -> None:
        emitted, count = self.fold.run([entry.message])
        if count:
            self.timeline.record_applied(entry)
            self._recent.append(entry)
            if len(self._recent) > 2 * limits.REMEMBERED_REVISIONS:
                del self._recent[: -limits.REMEMBERED_REVISIONS]
            self.journal.counts.applied += 1
            self.journal.outputs += [(self.name, entry, outputs) for _, outputs in emitted]
        else:
            self.park(entry)

    def park(self, entry: TimelineEntry) -> None:
        """Park the group at a message that the fold did not apply."""
        self.timeline.park(entry, self.fold.error, self.now_us)
        self.journal.wrong = self.journal.wrong or self.fold.wrong

    def _drain(self) -> None:
        while (entry := self.timeline.ready()) is not None:
            self._apply(entry)

    def _begin_epoch(self, epoch: int) -> None:
        for lost in self.timeline.begin_epoch(epoch):
            self.journal.reject(self.name, lost, "late", f"epoch {epoch} began before it could be applied")

    def _expire_waits(self, timeline: Timeline, timeout_us: int) -> None:
        for first, last, since_us in timeline.gaps():
            if timeline.parked or self.now_us - since_us < timeout_us:
                return
            match self.pipeline.gap_policy.then:
                case "fail":
                    missing = f"revision {first} is" if first == last else f"revisions {first} to {last} are"
                    msg = f"group {self.name!r}: {missing} missing and the wait has expired; then='fail' ends the run"
                    raise GapError(msg)
                case "park":
                    # Only the first: it is missing as long as the group is parked here, those after it may come.
                    timeline.parked = Status.GAP
                    timeline.error = f"revision {first} is missing and the wait has expired"
                    return
                case "skip":
                    timeline.skip(first, last)
                    self._drain()
