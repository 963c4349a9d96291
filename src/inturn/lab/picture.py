"""The parts of a run that a picture shows: the consumers' time lines, and the life of one message."""

from inturn.lab.design import SimulationLog
from inturn.lab.draws import AttemptResult
from inturn.lab.results import HandlingSpan, LifeEvent, MessageLife, TimeLineWindow
from inturn.lab.workload import Workload

SPANS = 400
"""The maximum number of spans in a picture."""


def window_of(load: Workload, log: SimulationLog, out_of_turn: bytearray, followed: int) -> TimeLineWindow | None:
    """Return the time lines around all handlings of a message; None if it was never handled."""
    own = [index for index, attempt in enumerate(log.attempts) if load.first[attempt[3]] == followed]
    if not own:
        return None
    middle = own[0]
    low = max(0, min(middle - SPANS // 4, len(log.attempts) - SPANS))
    chosen = range(low, min(len(log.attempts), low + SPANS))
    counts: dict[int, int] = {}
    spans = []
    for index, (begin_us, end_us, consumer, message, result) in enumerate(log.attempts[: chosen.stop]):
        first = load.first[message]
        counts[first] = counts.get(first, 0) + 1
        if index < chosen.start:
            continue
        spans.append(
            HandlingSpan(
                consumer=consumer,
                message=message,
                group=load.names[load.group[message]],
                revision=load.revision[message],
                begin_us=begin_us,
                end_us=end_us,
                attempt=counts[first],
                result=AttemptResult(result).name.lower(),
                out_of_turn=bool(out_of_turn[index]),
            )
        )
    return TimeLineWindow(
        from_us=min(span.begin_us for span in spans),
        to_us=max(span.end_us for span in spans),
        consumers=log.consumers,
        spans=spans,
    )


_TEXTS = {
    AttemptResult.APPLIED: "applied",
    AttemptResult.FAILED: "failed",
    AttemptResult.CRASHED: "its consumer died before the effect",
    AttemptResult.APPLIED_UNACKED: "applied, but not acknowledged",
    AttemptResult.REJECTED: "requeued: not its turn",
    AttemptResult.DUPLICATE: "recognised as a copy: not applied again",
}


def life_of(load: Workload, log: SimulationLog, out_of_turn: bytearray, followed: int) -> MessageLife:
    """Return the life of a message and its copies, in order of time."""
    entries: list[tuple[int, int, LifeEvent]] = []

    def add(at_us: int, kind: str, text: str) -> None:
        entries.append((at_us, len(entries), LifeEvent(at_us=at_us, kind=kind, text=text)))

    copies = [message for message, first in enumerate(load.first) if first == followed]
    for message in copies:
        add(load.arrival_us[message], "arrived", "arrived" if message == followed else "arrived again, as a copy")
    own = set(copies)
    for index, (begin_us, end_us, consumer, message, result) in enumerate(log.attempts):
        if message in own:
            outcome = AttemptResult(result)
            if end_us > begin_us:
                add(begin_us, "began", f"consumer {consumer} began")
            text = _TEXTS[outcome] + (" out of turn" if out_of_turn[index] else "")
            add(end_us, outcome.name.lower(), text)
    for at_us, message, text in log.notes:
        if message in own:
            add(at_us, "note", text)
    events = [event for _, _, event in sorted(entries, key=lambda entry: entry[:2])]
    return MessageLife(group=load.names[load.group[followed]], revision=load.revision[followed], events=events)
