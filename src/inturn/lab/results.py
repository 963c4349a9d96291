"""The results of the lab, as values that are encoded as JSON."""

from typing import Any

import msgspec

from inturn.lab.knobs import Knobs


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Times from arrival to the first application, in microseconds; 0 if nothing was applied."""

    p50_us: int
    p95_us: int
    p99_us: int
    p999_us: int
    max_us: int


class HandlingSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One handling of a message on a consumer's time line.

    Attributes:
        consumer: number of the consumer, from 0.
        message: index of the message in the workload.
        group: name of its group.
        revision: revision of the message.
        begin_us: begin.
        end_us: end.
        attempt: number of the attempt, from 1; attempts of copies are included.
        result: ``applied``, ``failed``, ``crashed``, ``applied_unacked``, ``rejected`` or ``duplicate``.
        out_of_turn: whether it was applied although it was not the next of its group.
    """

    consumer: int
    message: int
    group: str
    revision: int
    begin_us: int
    end_us: int
    attempt: int
    result: str
    out_of_turn: bool


class LifeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event in the life of a message: ``arrived``, the result of a handling, or ``note``; with a description."""

    at_us: int
    kind: str
    text: str


class MessageLife(msgspec.Struct, frozen=True, kw_only=True):
    """The life of one message and its copies in one design."""

    group: str
    revision: int
    events: list[LifeEvent]


class TimeLineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers' time lines between two times, for a picture."""

    from_us: int
    to_us: int
    consumers: int
    spans: list[HandlingSpan]


class WrongState(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose final state is wrong.

    Attributes:
        group: name of the group.
        expected: ``repr`` of the state after the right order.
        got: ``repr`` of the state after the order in which the design applied the messages.
        reason: the reason, in words.
    """

    group: str
    expected: str
    got: str
    reason: str


class DesignResult(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one design.

    Attributes:
        design: name of the design.
        title: name in words.
        source: the document with its rules.
        standing: its validation status: ``validated against …`` or ``by documented rules``.
        keeps_order: whether it applies a group's messages one after the other.
        consumers: number of consumers that could work, such as at most one for each partition.
        dispositions: number of messages by outcome: ``applied``, ``duplicate``, ``dead_letter``, ``refused``, ``held``;
            the sum is the number of messages.
        wrong_groups: number of groups whose final state is wrong.
        wrong: examples of such groups, at most 5.
        out_of_turn: applied messages that were not the next of their group.
        out_of_turn_groups: groups with such messages.
        applied_twice: applications of a message that had already been applied, including copies.
        overlaps: handlings that began before an earlier one of their group had ended, at another consumer; rejections
            and copies do not count.
        redeliveries: handlings beyond the first of each message.
        wasted_us: time of handlings without a new effect.
        latency: times from arrival to done.
        throughput_per_s: messages applied for each second from the first arrival to the last application.
        utilisation: share of the consumers' time spent handling messages, from 0 to 1.
        stranger_wait_us: longest time for which a message was ready but not begun, in a group without failures, late
            messages and copies; for a message that never began, until the end of the run.
        held_strangers: messages of such groups that were never applied.
        peak_backlog: maximum number of messages that had arrived and were not settled.
        makespan_us: time from the first arrival to the end of the last handling.
        reasons: why the design failed, in words; empty if it did not fail.
        window: time lines of the consumers around the followed message.
        life: life of the followed message.
    """

    design: str
    title: str
    source: str
    standing: str
    keeps_order: bool
    consumers: int
    dispositions: dict[str, int]
    wrong_groups: int
    wrong: list[WrongState]
    out_of_turn: int
    out_of_turn_groups: int
    applied_twice: int
    overlaps: int
    redeliveries: int
    wasted_us: int
    latency: LatencyFigures
    throughput_per_s: float
    utilisation: float
    stranger_wait_us: int
    held_strangers: int
    peak_backlog: int
    makespan_us: int
    reasons: list[str]
    window: TimeLineWindow | None = None
    life: MessageLife | None = None


class LabInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input in figures.

    Attributes:
        messages: number of messages, including copies.
        copies: messages that repeat another's group and revision.
        groups: number of groups.
        late: messages that arrived after a later one of their group.
        span_us: time from the first arrival to the last.
        work_us: sum of the handler times, without copies.
        hottest_group: group with the most work.
        hottest_share: its share of the work, from 0 to 1.
        bound_per_s: maximum throughput with any number of consumers if a group's messages are handled one after the
            other: all messages in the time that the hottest group needs (Amdahl).
        commuting: number of messages whose order does not matter.
        split: whether these were handled outside of the order of their groups.
        judged_by: ``handler``, or ``order`` if no handler was given: then a group is wrong if its messages were not
            applied in order, once each.
    """

    messages: int
    copies: int
    groups: int
    late: int
    span_us: int
    work_us: int
    hottest_group: str
    hottest_share: float
    bound_per_s: float
    commuting: int
    split: bool
    judged_by: str


class LabResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run of the lab.

    Attributes:
        version: version of inturn.
        scenario: name of the scenario, or of the input.
        input: the input in figures.
        knobs: the knobs.
        followed: group and revision of the message to which ``life`` and ``window`` refer.
        designs: the figures of each design.
    """

    version: str
    scenario: str
    input: LabInput
    knobs: Knobs
    followed: tuple[str, int] | None
    designs: list[DesignResult]

    def to_json(self) -> bytes:
        """Return the result as JSON; the same seed gives the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    def design(self, name: str) -> DesignResult:
        """Return the figures of a design.

        Raises:
            KeyError: if the design was not run.
        """
        return {design.design: design for design in self.designs}[name]


def plain(result: msgspec.Struct) -> Any:
    """Return a result as dicts and lists."""
    return msgspec.to_builtins(result)
