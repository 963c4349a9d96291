"""The figures of a run, from its log."""

from collections.abc import Sequence

from inturn.lab.design import Design, Disposition, SimulationLog, validation_status
from inturn.lab.draws import AttemptResult
from inturn.lab.judge import Judge
from inturn.lab.knobs import SECOND_US
from inturn.lab.picture import life_of, window_of
from inturn.lab.reasons import order_fault, reasons_for
from inturn.lab.results import DesignResult, LatencyFigures, WrongState
from inturn.lab.workload import Workload

EXAMPLES = 5
_REJECTED = int(AttemptResult.REJECTED)
EFFECTS = (int(AttemptResult.APPLIED), int(AttemptResult.APPLIED_UNACKED))


class RunFigures:
    """The figures of each message and each group in a log.

    Attributes:
        applied: for each group: the applied messages in order, including copies and repetitions.
        out_of_turn: 1 for each attempt that applied a message which was not the next of its group.
        done_us: time of a message's first application, or of its recognition as a copy; -1 if there was none.
        began_us: begin of a message's first handling; -1 if there was none.
        applied_twice: applications of messages that had already been applied.
        overlaps: handlings that began before an earlier one of their group had ended, at another consumer.
        wasted_us: time of handlings without a new effect.
        busy_us: time of all handlings.
        redeliveries: handlings beyond the first of each message.
        troubled: groups in which a message failed, was late, was a copy, or was not settled.
    """

    __slots__ = (
        "applied",
        "applied_twice",
        "began_us",
        "busy_us",
        "done_us",
        "out_of_turn",
        "overlaps",
        "redeliveries",
        "troubled",
        "wasted_us",
    )

    def __init__(self, load: Workload, log: SimulationLog) -> None:
        self.applied: list[list[int]] = [[] for _ in load.names]
        self.out_of_turn = bytearray(len(log.attempts))
        self.done_us = [-1] * len(load)
        self.began_us = [-1] * len(load)
        self.applied_twice = self.overlaps = self.wasted_us = self.busy_us = self.redeliveries = 0
        self._read(load, log)
        for message, at_us in log.done_us.items():
            self.done_us[message] = at_us
        self.redeliveries += log.unlogged
        self.wasted_us += log.unlogged_us
        self.busy_us += log.unlogged_us
        self.troubled = self._find_affected(load, log)

    def _read(self, load: Workload, log: SimulationLog) -> None:  # noqa: C901 - a hot loop, made of single steps
        group_of, rank, first, commutes = load.group, load.rank, load.first, load.commutes
        done_us, began_us, applied, out_of_turn = self.done_us, self.began_us, self.applied, self.out_of_turn
        highest, ended = [-1] * len(load.names), [-1] * len(load.names)
        worker = [-1] * len(load.names)
        had = bytearray(len(load))
        applied_twice = overlaps = wasted_us = busy_us = redeliveries = 0
        for index, (begin_us, end_us, consumer, message, result) in enumerate(log.attempts):
            group = group_of[message]
            busy_us += end_us - begin_us
            if began_us[message] < 0:
                began_us[message] = begin_us
            else:
                redeliveries += 1
            if result < _REJECTED:  # merely reading the revision does no harm
                if begin_us < ended[group] and worker[group] != consumer:
                    overlaps += 1
                ended[group], worker[group] = end_us, consumer
            if result in EFFECTS:
                applied[group].append(message)
                place = rank[message]
                if place != highest[group] + 1 and not commutes[message]:
                    out_of_turn[index] = 1
                if place > highest[group]:  # noqa: PLR1730 - max() costs a call for each message
                    highest[group] = place
                if had[first[message]]:
                    applied_twice += 1
                    wasted_us += end_us - begin_us
                had[first[message]] = 1
                if done_us[message] < 0:
                    done_us[message] = end_us
            else:
                wasted_us += end_us - begin_us
                if result == AttemptResult.DUPLICATE and done_us[message] < 0:
                    done_us[message] = end_us
        self.applied_twice, self.overlaps, self.wasted_us = applied_twice, overlaps, wasted_us
        self.busy_us, self.redeliveries = busy_us, redeliveries

    def _find_affected(self, load: Workload, log: SimulationLog) -> bytearray:
        troubled = bytearray(len(load.names))
        for _, _, _, message, result in log.attempts:
            if result:
                troubled[load.group[message]] = 1
        highest = [-1] * len(load.names)
        for message, place in enumerate(load.rank):
            group = load.group[message]
            if place != highest[group] + 1:
                troubled[group] = 1
            highest[group] = max(highest[group], place)
        return troubled

    def stranger_wait_us(self, load: Workload, until_us: int) -> int:
        """Return the longest time for which a message was ready but not begun, among groups without trouble."""
        longest, before_us = 0, [0] * len(load.names)
        for message, arrival_us in enumerate(load.arrival_us):
            group = load.group[message]
            if self.troubled[group]:
                continue
            could_us = max(arrival_us, before_us[group])
            began_us = self.began_us[message]
            longest = max(longest, (until_us if began_us < 0 else began_us) - could_us)
            before_us[group] = until_us if self.done_us[message] < 0 else self.done_us[message]
        return longest


def latency_figures(values_us: Sequence[int]) -> LatencyFigures:
    """Return the percentiles of latencies (nearest rank)."""
    sorted_us = sorted(values_us) or [0]
    last = len(sorted_us) - 1

    def at(share: float) -> int:
        return sorted_us[min(last, max(0, -int(-share * len(sorted_us) // 1) - 1))]

    return LatencyFigures(p50_us=at(0.5), p95_us=at(0.95), p99_us=at(0.99), p999_us=at(0.999), max_us=sorted_us[-1])


def peak_backlog(load: Workload, log: SimulationLog, done_us: Sequence[int]) -> int:
    """Return the maximum number of messages that had arrived and were not settled."""
    dropped = (Disposition.DUPLICATE, Disposition.REFUSED)
    ended = zip(load.arrival_us, done_us, log.disposition, strict=True)
    done = sorted(end if end >= 0 else begin for begin, end, kind in ended if end >= 0 or kind in dropped)
    peak = settled = 0
    for arrived, at_us in enumerate(load.arrival_us, start=1):
        while settled < len(done) and done[settled] <= at_us:
            settled += 1
        peak = max(peak, arrived - settled)
    return peak


def measure(
    design: Design, load: Workload, log: SimulationLog, judge: Judge, followed: int | None = None
) -> DesignResult:
    """Return the figures of a run; with a followed message also its life and the time lines around it."""
    figures = RunFigures(load, log)
    until_us = max((end_us for _, end_us, _, _, _ in log.attempts), default=0)
    applications = sum(map(len, figures.applied))
    last_us = max(figures.done_us, default=0)
    wrong = [group for group, applied in enumerate(figures.applied) if judge.is_wrong(group, applied)]
    if followed is not None:
        wrong.sort(key=lambda group: group != load.group[followed])  # show this group first
    affected = {load.group[log.attempts[index][3]] for index, flag in enumerate(figures.out_of_turn) if flag}
    distinct = sum(1 for disposition in log.disposition if disposition == Disposition.APPLIED)
    settled_us = figures.done_us
    ended = zip(load.arrival_us, settled_us, log.disposition, strict=True)
    waits = [end - begin for begin, end, kind in ended if end >= 0 and kind == Disposition.APPLIED]
    counted = {kind.name.lower(): log.disposition.count(kind) for kind in Disposition}
    examples = [
        WrongState(
            group=load.names[group],
            expected=f"{judge.right_state(group)!r:.300}",
            got=f"{judge.state_of(figures.applied[group])!r:.300}",
            reason=order_fault(load, log, figures.applied[group]),
        )
        for group in wrong[:EXAMPLES]
    ]
    return DesignResult(
        design=design.name,
        title=design.title,
        source=design.source,
        standing=validation_status(design),
        keeps_order=design.keeps_order,
        consumers=log.consumers,
        dispositions=counted,
        wrong_groups=len(wrong),
        wrong=examples,
        out_of_turn=sum(figures.out_of_turn),
        out_of_turn_groups=len(affected),
        applied_twice=figures.applied_twice,
        overlaps=figures.overlaps,
        redeliveries=figures.redeliveries,
        wasted_us=figures.wasted_us,
        latency=latency_figures(waits),
        throughput_per_s=distinct * SECOND_US / last_us if last_us > 0 else 0.0,
        utilisation=figures.busy_us / (log.consumers * until_us) if until_us else 0.0,
        stranger_wait_us=figures.stranger_wait_us(load, until_us),
        held_strangers=sum(
            1
            for message, kind in enumerate(log.disposition)
            if kind == Disposition.HELD and not figures.troubled[load.group[message]]
        ),
        peak_backlog=peak_backlog(load, log, settled_us),
        makespan_us=until_us,
        reasons=reasons_for(load, log, figures.applied, wrong, applications),
        window=None if followed is None else window_of(load, log, figures.out_of_turn, followed),
        life=None if followed is None else life_of(load, log, figures.out_of_turn, followed),
    )
