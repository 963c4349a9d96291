"""The interface of a design, and the log of one simulated run."""

from enum import IntEnum
from typing import ClassVar, Protocol

from inturn.lab.draws import Draws
from inturn.lab.knobs import Knobs
from inturn.lab.workload import Workload


class Disposition(IntEnum):
    """Where a message is at the end of a run; each is in exactly one of these."""

    HELD = 0  # still there: waits, parked, behind a blocked one, or failing for ever
    APPLIED = 1
    DUPLICATE = 2  # known as a copy and not applied again
    DEAD_LETTER = 3  # given up after its last attempt; its group went on
    REFUSED = 4  # came after its turn had been skipped


class SimulationLog:
    """Everything that happened in a run of a design, in virtual time.

    Attributes:
        attempts: begin, end, consumer, message and :class:`~inturn.lab.draws.AttemptResult` of each handling, in the
            order in which they ended.
        disposition: :class:`Disposition` of each message.
        notes: time, message and text of what else happened to a message: requeued, held, released, dead-lettered.
        consumers: number of consumers that could work.
        done_us: for messages that are done later than their handling ends, as where a transaction is committed: when.
        unlogged: handlings without an effect that were counted and not logged, as in a hot loop of rejections.
        unlogged_us: their time.
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
        source: where its rules are written.
        validated_against: engine and version that it was compared with; None if it is by documented rules alone.
        keeps_order: whether it applies a group's messages one after the other, as they arrived, without failures.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    validated_against: ClassVar[str | None]
    keeps_order: ClassVar[bool]

    def simulate(self, load: Workload, draws: Draws, knobs: Knobs) -> SimulationLog:
        """Run the messages through the design in virtual time."""
        ...


def standing(design: Design) -> str:
    """Return how far a design can be trusted, as it is shown beside its name."""
    return f"validated against {design.validated_against}" if design.validated_against else "by documented rules"
