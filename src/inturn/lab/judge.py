"""The judge of final states: the user's own handler, run in the order in which a design applied the messages."""

from collections.abc import Sequence
from typing import Any

from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.reading import message_of
from inturn.core.values.construct import InvalidMarker
from inturn.lab.workload import Workload


class Judge:
    """Compares the final states of groups with the states after the right order.

    Without a pipeline, the state of a group is the list of its revisions as they were applied, without messages that
    commute.

    Args:
        load: messages.
        pipeline: pipeline with the handler; None to judge only by the order.

    Raises:
        InputError: if a message has no content for the handler, or the pipeline cannot read it.
    """

    def __init__(self, load: Workload, pipeline: Pipeline | None) -> None:
        self._load, self._pipeline = load, pipeline
        self._messages = [] if pipeline is None else [_decoded(pipeline, body) for body in load.body]
        self._right: dict[int, list[int]] = {}
        for message, first in enumerate(load.first):
            if message == first:
                self._right.setdefault(load.group[message], []).append(message)
        for own in self._right.values():
            own.sort(key=load.revision.__getitem__)
        self._states: dict[int, Any] = {}
        self._verdicts: dict[tuple[int, ...], bool] = {}
        """Verdicts by the order of a group's messages, since many designs apply them in the same order."""

    @property
    def judged_by(self) -> str:
        """The criterion: ``handler`` or ``order``."""
        return "order" if self._pipeline is None else "handler"

    def right_state(self, group: int) -> Any:
        """Return the state of a group after each of its messages once, in the right order."""
        if group not in self._states:
            self._states[group] = self.state_of(self._right[group])
        return self._states[group]

    def state_of(self, messages: Sequence[int]) -> Any:
        """Return the state after messages in this order; a message for which the handler raises changes nothing."""
        if self._pipeline is None:
            return [self._load.revision[message] for message in messages if not self._load.commutes[message]]
        return self._fold(self._pipeline, messages)

    def is_wrong(self, group: int, applied: Sequence[int]) -> bool:
        """Return whether these messages of a group, in this order, lead to another state than the right order.

        A group that received only its first messages, in order, is not wrong but incomplete.
        """
        right, first = self._right[group], self._load.first
        if len(applied) <= len(right) and [first[message] for message in applied] == right[: len(applied)]:
            return False
        order = tuple(applied)
        if order not in self._verdicts:
            self._verdicts[order] = bool(self.state_of(applied) != self.right_state(group))
        return self._verdicts[order]

    def _fold(self, pipeline: Pipeline, messages: Sequence[int]) -> Any:
        state = pipeline.make_first()
        done: list[int] = []
        for message in messages:
            try:
                state, _ = pipeline.handler(state, self._messages[message])
            except Exception:  # noqa: BLE001 - an exception of a handler changes nothing
                state = self._fold(pipeline, done)  # the handler may have changed the state in place
            else:
                done.append(message)
        return state


def _decoded(pipeline: Pipeline, body: Any) -> Any:
    if body is None:
        raise InputError("a message has no body for the handler; give each message a body, or omit the pipeline")
    message, _ = message_of(pipeline, body)
    if isinstance(message, InvalidMarker):
        raise InputError(f"pipeline {pipeline.name!r} cannot read {body!r:.200}: {message.why}")
    return message
