"""Hooks for an observer of messages from send to effect; without an observer, each costs one comparison."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Observation(Protocol):
    """A call or a task that is being observed."""

    def answered(self, answer: Any) -> None:
        """Record the answer of a call, before the call ends."""
        ...


class ObservedTask(Protocol):
    """A task that is being observed.

    Attributes:
        trace: W3C traceparent of the task; None if it is not recorded.
    """

    trace: str | None

    def failed(self, error: BaseException | None) -> None:
        """Record the error that parked the group; None: no error."""
        ...


class Observer(Protocol):
    """An observer of messages; its methods never raise."""

    def operation(self, method: Callable[..., Any]) -> AbstractContextManager[Observation] | None:
        """Observe one call of an operation, given as its bound method; None: nothing to observe."""
        ...

    def with_trace(self, attributes: str | None, max_bytes: int) -> str | None:
        """Return a draft's attributes, as JSON, with the current trace context, if it fits into ``max_bytes`` bytes."""
        ...

    def received(self, queue: str, attributes: Sequence[str | None], began_ns: int) -> None:
        """Record messages that a worker or a consumer has received, given by their attributes as JSON."""
        ...

    def forwarded(self, queue: str, number: int) -> None:
        """Record messages that a chain has sent to a queue, after the commit."""
        ...

    def task(
        self, pipeline: str | None, queue: str, group: str | None, attributes: Sequence[str | None]
    ) -> AbstractContextManager[ObservedTask] | None:
        """Observe a task of a group; None: nothing to observe.

        Args:
            pipeline: name of the pipeline; None: a consumer without a pipeline processes the messages.
            queue: name of the queue.
            group: text form of the group.
            attributes: the attributes of each message.
        """
        ...

    def delivery(self, pipeline: str, effect_id: str, trace: str | None) -> AbstractContextManager[object] | None:
        """Observe the delivery of an output that was produced in a trace; None: nothing to observe."""
        ...

    def step(self, pipeline: str) -> AbstractContextManager[Observation]:
        """Observe a step on Spark; its answer is the report of the step."""
        ...

    def close(self) -> None:
        """Stop observing."""
        ...


active: Observer | None = None
"""The observer, if there is one; see :func:`inturn.telemetry.instrument`."""
