"""Points at which an observer follows messages from their send to their effects; without one each is a comparison."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Observation(Protocol):
    """A call or a turn that is being observed."""

    def answered(self, answer: Any) -> None:
        """Take note of the answer of a call, before the call ends."""
        ...


class ObservedTurn(Protocol):
    """A turn that is being observed.

    Attributes:
        trace: W3C traceparent of the turn; None if it is not recorded.
    """

    trace: str | None

    def failed(self, error: BaseException | None) -> None:
        """Take note of the error that parked the group; None: there was none."""
        ...


class Observer(Protocol):
    """Follows messages; it never raises."""

    def verb(self, verb: Callable[..., Any]) -> AbstractContextManager[Observation] | None:
        """Observe one call of an operation, given as its bound method; None: there is nothing to observe."""
        ...

    def carried(self, attributes: str | None, room: int) -> str | None:
        """Return a draft's attributes, as JSON, with the current trace context, if it fits into ``room`` bytes."""
        ...

    def received(self, queue: str, attributes: Sequence[str | None], began_ns: int) -> None:
        """Take note of messages that a worker or a consumer has received, by their attributes as JSON."""
        ...

    def passed_on(self, queue: str, number: int) -> None:
        """Take note of messages that a chain has sent to a queue, once that is committed."""
        ...

    def turn(
        self, pipeline: str | None, queue: str, group: str | None, attributes: Sequence[str | None]
    ) -> AbstractContextManager[ObservedTurn] | None:
        """Observe a turn of a group, if there is something to observe.

        Args:
            pipeline: name of the pipeline; None: a consumer of its own processes the messages.
            queue: name of the queue.
            group: text form of the group.
            attributes: the attributes of each message.
        """
        ...

    def delivery(self, pipeline: str, effect_id: str, trace: str | None) -> AbstractContextManager[object] | None:
        """Observe the delivery of an output that was made in a trace; None: there is nothing to observe."""
        ...

    def step(self, pipeline: str) -> AbstractContextManager[Observation]:
        """Observe a step on Spark, whose answer is its report."""
        ...

    def close(self) -> None:
        """Observe nothing more."""
        ...


active: Observer | None = None
"""The observer, if there is one; see :func:`inturn.telemetry.instrument`."""
