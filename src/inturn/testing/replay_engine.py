"""The pure timeline as an engine: the reference for all others, and the test for impure handlers.

The handler runs twice for every message, on copies of the same state and message.
"""

import contextlib
import copy
import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import HandlerError, InputError, InturnError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.handler import wrong_result
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.replay import Replay
from inturn.testing.engine_input import TIME_STEP, EngineInput, group_of, value_of
from inturn.testing.outcome import EngineResult, NotDeterministic, plain, plain_output, record

DAWN: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ARRIVAL: Final = "_inturn_arrival"  # not a name of Spark's tasks, which begin with two underscores
"""A field that messages do not have, so that they are applied in the order of the list."""


def run_replay(history: EngineInput) -> EngineResult:
    """Return the result of the pure timeline.

    Raises:
        NotDeterministic: if the handler is not deterministic; the text names the message.
    """
    repeated = _RepeatedHandler(history.pipeline)
    pipeline = in_list_order(replace(history.pipeline, handler=repeated))
    result, total, now = Replay(), Counts(), DAWN
    for part in history.parts:
        with repeated.reporting():
            result = pipeline.replay(part, now=now, after=result)
        total.add(result.counts)
        now += TIME_STEP
        if history.time_passes:
            with repeated.reporting():
                result = pipeline.replay([], now=now, after=result)
            total.add(result.counts)
    return _result(history, result, total)


def in_list_order(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with messages applied in the order of a list."""
    return pipeline if pipeline.arrival is not None else replace(pipeline, arrival=ARRIVAL)


def _result(history: EngineInput, result: Replay, total: Counts) -> EngineResult:
    engine_result = EngineResult(counts=total)
    for group, state in result.states.items():
        timeline = result.timelines[group]
        progress = (timeline.status.value, timeline.epoch, timeline.reached, timeline.skipped)
        record(engine_result, group, state, *progress, parked=bool(timeline.parked), error=timeline.error)
        held = [
            (message.epoch, message.position, message.id or "", message.digest.hex())
            for _, message in sorted(timeline.held.items())
        ]
        if held:
            engine_result.held[group] = held
    for output in result.outputs:
        engine_result.outputs.setdefault(output.group, {})[output.effect_id] = plain_output(output.output)
    for rejected in result.rejected:
        engine_result.reject(rejected.group, rejected.reason)
    if history.pipeline.order.has_gaps and history.pipeline.position is not None:
        _note_forgotten(history, history.pipeline.position, result, engine_result)
    return engine_result


def _note_forgotten(history: EngineInput, column: str, result: Replay, engine_result: EngineResult) -> None:
    """Count the conflicts that are older than a group remembers from step to step."""
    pipeline, greatest = history.pipeline, dict[Any, int]()

    def place(message: Any) -> tuple[Any, int]:
        epoch = value_of(message, pipeline.epoch) if pipeline.epoch else 0
        return (group_of(pipeline, message), epoch), value_of(message, column)

    conflicts = [rejected for rejected in result.rejected if rejected.reason == "conflict"]
    for message in history.messages if conflicts else ():
        key, revision = place(message)
        if revision is not None:
            greatest[key] = max(revision, greatest.get(key, revision))
    for conflict in conflicts:
        key, revision = place(conflict.message)
        if revision <= greatest[key] - limits.REMEMBERED_REVISIONS and conflict.group is not None:
            engine_result.forgotten[conflict.group] = engine_result.forgotten.get(conflict.group, 0) + 1


class _RepeatedHandler:
    """A handler that runs twice, and records the first message with unequal results.

    It does not raise: an exception of a handler parks its group.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._handler = pipeline, pipeline.handler
        self.fault: Exception | None = None

    def __call__(self, state: Any, message: Any) -> Any:
        if self.fault is not None:
            return self._handler(state, message)
        original, copies = plain(message), copy.deepcopy((state, message))
        before = self._result(*copies)
        try:
            result = self._handler(state, message)
        except Exception as error:
            self._compare(original, before, type(error).__name__)
            raise
        self._compare(original, before, self._plain(result))
        if self.fault is None and plain(copies[1]) != original:
            self._report(original, f"it has changed the message to {plain(copies[1])!r}", "is not pure")
        return result

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Raise the recorded fault at the end; it may be the cause of another exception."""
        try:
            yield
        except InturnError as error:
            if self.fault is not None:
                raise self.fault from error
            raise
        if self.fault is not None:
            raise self.fault

    def _result(self, state: Any, message: Any) -> Any:
        """Return the result for a message: state and outputs, or the name of an error."""
        try:
            result = self._handler(state, message)
        except Exception as error:  # noqa: BLE001 - any exception is a result
            if error.__traceback__ is None or error.__traceback__.tb_next is None:  # the call itself failed
                self._refuse(str(error))
            return type(error).__name__
        return self._plain(result)

    def _plain(self, result: Any) -> Any:
        try:
            state, outputs = result
        except (TypeError, ValueError):
            outputs = None
        if not isinstance(outputs, list | tuple):
            self._refuse(wrong_result(result, self._pipeline.state))
            return None
        try:
            return plain(state), [plain_output(output) for output in outputs]
        except (InputError, TypeError) as error:
            self.fault = InputError(f"the handler of pipeline {self._pipeline.name!r}: {error}")
            return None

    def _refuse(self, reason: str) -> None:
        msg = f"the handler of pipeline {self._pipeline.name!r} must take (state, message) and return "
        self.fault = HandlerError(f"{msg}(state, [output, …]): {reason}")

    def _compare(self, message: Any, first: Any, second: Any) -> None:
        if self.fault is None and first != second:
            self._report(message, f"one run returned {_words(first)}, and another {_words(second)}")

    def _report(self, message: Any, detail: str, fault: str = "is not deterministic") -> None:
        group = group_of(self._pipeline, message)
        self.fault = NotDeterministic(
            f"the handler of pipeline {self._pipeline.name!r} {fault}: after the message {message!r} of "
            f"group {group!r} {detail}"
        )


def _words(result: Any) -> str:
    if isinstance(result, str):
        return f"the error {result}"
    state, outputs = result
    return f"the state {state!r} and the outputs {outputs!r}"
