"""The interface of a design, and the log of one simulated run."""

from enum import IntEnum
from typing import ClassVar, Protocol

from inturn.lab.draws import Draws
from inturn.lab.knobs import Knobs
from inturn.lab.workload import Workload


class Disposition(IntEnum):
    """The outcome of a message at the end of a run; each message has exactly one."""

    HELD = 0  # not settled: waiting, parked, after a blocked message, or failing in every attempt
    APPLIED = 1
    DUPLICATE = 2  # recognised as a copy and not applied again
    DEAD_LETTER = 3  # given up after its last attempt; its group continued
    REFUSED = 4  # arrived after its turn had been skipped


class SimulationLog:
    """All events of a run of a design, in virtual time.

    Attributes:
        attempts: begin, end, consumer, message and :class:`~inturn.lab.draws.AttemptResult` of each handling, in the
            order in which they ended.
        disposition: :class:`Disposition` of each message.
        notes: time, message and text of other events of a message: requeued, held, released, dead-lettered.
        consumers: number of consumers that could work.
        done_us: time at which a message is done, for messages done after their handling ends, such as at a commit.
        unlogged: number of handlings without an effect that were counted but not logged, as in a hot requeue loop.
        unlogged_us: their total time.
    """

    __slots__ = ("attempts", "consumers", "disposition", "done_us", "notes", "unlogged", "unlogged_us")

    def __init__(self, load: Workload, consumers: int) -> None:
        self.attempts: list[tuple[int, int, int, int, int]] = []
        self.disposition = bytearray(len(load))
        self.notes: list[tuple[int, int, str]] = []
        self.consumers = consumers
        self.done_us: dict[int, int] = {}
        self.unlogged = self.unlogged_us = 0


class Design(Protocol):
    """A way to process messages with several consumers.

    Attributes:
        name: name in options and results, such as ``competing-classic``.
        title: name in words.
        source: the document with its rules.
        validated_against: engine and version with which it was compared; None if it only follows documented rules.
        keeps_order: whether, without failures, it applies a group's messages one after the other, in order of arrival.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    validated_against: ClassVar[str | None]
    keeps_order: ClassVar[bool]

    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        """Run the messages through the design in virtual time."""
        ...


def validation_status(design: Design) -> str:
    """Return the validation status of a design, as it is shown next to its name."""
    return f"validated against {design.validated_against}" if design.validated_against else "by documented rules"
