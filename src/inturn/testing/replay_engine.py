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
    twice = _RepeatedHandler(history.pipeline)
    pipeline = in_list_order(replace(history.pipeline, handler=twice))
    result, total, now = Replay(), Counts(), DAWN
    for part in history.parts:
        with twice.reporting():
            result = pipeline.replay(part, now=now, after=result)
        total.add(result.counts)
        now += TIME_STEP
        if history.time_passes:
            with twice.reporting():
                result = pipeline.replay([], now=now, after=result)
            total.add(result.counts)
    return _result(history, result, total)


def in_list_order(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with messages applied in the order of a list."""
    return pipeline if pipeline.arrival is not None else replace(pipeline, arrival=ARRIVAL)


def _result(history: EngineInput, result: Replay, total: Counts) -> EngineResult:
    story = EngineResult(counts=total)
    for group, state in result.states.items():
        line = result.timelines[group]
        stands = (line.status.value, line.epoch, line.reached, line.skipped)
        record(story, group, state, *stands, parked=bool(line.parked), error=line.error)
        held = [(each.epoch, each.turn, each.id or "", each.digest.hex()) for _, each in sorted(line.held.items())]
        if held:
            story.held[group] = held
    for output in result.outputs:
        story.outputs.setdefault(output.group, {})[output.effect_id] = plain_output(output.output)
    for rejected in result.rejected:
        story.reject(rejected.group, rejected.reason)
    if history.pipeline.order.has_gaps and history.pipeline.turn is not None:
        _note_forgotten(history, history.pipeline.turn, result, story)
    return story


def _note_forgotten(history: EngineInput, column: str, result: Replay, story: EngineResult) -> None:
    """Count the conflicts that are older than a group remembers from step to step."""
    pipeline, greatest = history.pipeline, dict[Any, int]()

    def place(message: Any) -> tuple[Any, int]:
        epoch = value_of(message, pipeline.epoch) if pipeline.epoch else 0
        return (group_of(pipeline, message), epoch), value_of(message, column)

    conflicts = [each for each in result.rejected if each.reason == "conflict"]
    for message in history.messages if conflicts else ():
        line, turn = place(message)
        if turn is not None:
            greatest[line] = max(turn, greatest.get(line, turn))
    for each in conflicts:
        line, turn = place(each.message)
        if turn <= greatest[line] - limits.REMEMBERED_REVISIONS and each.group is not None:
            story.forgotten[each.group] = story.forgotten.get(each.group, 0) + 1


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
        given, copies = plain(message), copy.deepcopy((state, message))
        before = self._result(*copies)
        try:
            made = self._handler(state, message)
        except Exception as error:
            self._compare(given, before, type(error).__name__)
            raise
        self._compare(given, before, self._plain(made))
        if self.fault is None and plain(copies[1]) != given:
            self._report(given, f"it has changed the message to {plain(copies[1])!r}", "is not pure")
        return made

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
            made = self._handler(state, message)
        except Exception as error:  # noqa: BLE001 - any exception is a result
            if error.__traceback__ is None or error.__traceback__.tb_next is None:  # the call itself failed
                self._refuse(str(error))
            return type(error).__name__
        return self._plain(made)

    def _plain(self, made: Any) -> Any:
        try:
            state, outputs = made
        except (TypeError, ValueError):
            outputs = None
        if not isinstance(outputs, list | tuple):
            self._refuse(wrong_result(made, self._pipeline.state))
            return None
        try:
            return plain(state), [plain_output(output) for output in outputs]
        except (InputError, TypeError) as error:
            self.fault = InputError(f"the handler of pipeline {self._pipeline.name!r}: {error}")
            return None

    def _refuse(self, why: str) -> None:
        msg = f"the handler of pipeline {self._pipeline.name!r} must take (state, message) and return "
        self.fault = HandlerError(f"{msg}(state, [output, …]): {why}")

    def _compare(self, message: Any, here: Any, there: Any) -> None:
        if self.fault is None and here != there:
            self._report(message, f"one run returned {_words(here)}, and another {_words(there)}")

    def _report(self, message: Any, what: str, fault: str = "is not deterministic") -> None:
        group = group_of(self._pipeline, message)
        self.fault = NotDeterministic(
            f"the handler of pipeline {self._pipeline.name!r} {fault}: after the message {message!r} of "
            f"group {group!r} {what}"
        )


def _words(result: Any) -> str:
    if isinstance(result, str):
        return f"the error {result}"
    state, outputs = result
    return f"the state {state!r} and the outputs {outputs!r}"
