"""The reasons why a design failed, in words."""

from collections.abc import Sequence

from inturn.lab.design import Disposition, SimulationLog
from inturn.lab.draws import AttemptResult
from inturn.lab.workload import Workload

MOST_NAMED = 3
"""Maximum number of revisions that a sentence names; further revisions are counted."""


def order_fault(load: Workload, log: SimulationLog, applied: Sequence[int]) -> str:
    """Return the first fault in the order in which the messages of a group were applied."""
    highest, had = -1, set()
    for index, message in enumerate(applied):
        rank, first = load.rank[message], load.first[message]
        if first in had:
            return f"revision {load.revision[message]} was applied twice: {_cause(load, log, first)}"
        if rank > highest + 1:
            return _early(load, log, applied, index, highest)
        if rank <= highest:
            return f"revision {load.revision[message]} was applied after later ones"
        highest = rank
        had.add(first)
    return "messages are missing"


def _early(load: Workload, log: SimulationLog, applied: Sequence[int], index: int, highest: int) -> str:
    """Return the reason why a message was applied before a message that it had to follow."""
    message = applied[index]
    group = load.group[message]
    missing = next(
        candidate
        for candidate, first in enumerate(load.first)
        if candidate == first and load.group[candidate] == group and load.rank[candidate] == highest + 1
    )
    later = next(
        (position for position in range(index, len(applied)) if load.first[applied[position]] == missing), len(applied)
    )
    before = [str(load.revision[early]) for early in applied[index:later]]
    few = before if len(before) <= MOST_NAMED else [*before[: MOST_NAMED - 1], f"{len(before) - MOST_NAMED + 1} more"]
    between = " and ".join([", ".join(few[:-1]), few[-1]] if len(few) > 1 else few)
    revision = load.revision[missing]
    if later == len(applied):
        return f"revision {revision} was never applied, but {between} was: {_cause(load, log, missing)}"
    cause = _cause(load, log, missing)
    if cause.startswith("requeued"):
        return f"revision {revision} was requeued after {between}: {cause.removeprefix('requeued ')}"
    return f"revision {revision} was applied after {between}: {cause}"


def _cause(load: Workload, log: SimulationLog, first: int) -> str:
    """Return the event that delayed a message, as far as it is in the log."""
    notes = [text for _, message, text in log.notes if load.first[message] == first]
    if notes:
        return notes[0]
    unacked = (attempt for attempt in log.attempts if attempt[4] == AttemptResult.APPLIED_UNACKED)
    if any(load.first[message] == first for _, _, _, message, _ in unacked):
        return "its consumer died before the acknowledgement"
    copies = [message for message, original in enumerate(load.first) if original == first]
    if len(copies) > 1:
        return "the message was sent twice"
    own = [m for m in range(first) if load.group[m] == load.group[first] and load.rank[m] > load.rank[first]]
    if own:
        return f"it arrived after revision {load.revision[own[-1]]}"
    return "another consumer handled the later message faster"


def reasons_for(
    load: Workload, log: SimulationLog, applied: Sequence[Sequence[int]], wrong: Sequence[int], applications: int
) -> list[str]:
    """Return the reasons why the design failed, at most one sentence of each kind."""
    reasons = []
    if wrong:
        group = wrong[0]
        fault = order_fault(load, log, applied[group])
        reasons.append(f"{len(wrong)} of {len(load.names)} groups end with a wrong state; {load.names[group]}: {fault}")
    held = log.disposition.count(Disposition.HELD)
    if held:
        reasons.append(f"{held} messages were never applied: {_first_note(log, Disposition.HELD)}")
    dead = log.disposition.count(Disposition.DEAD_LETTER)
    if dead:
        reasons.append(f"{dead} messages were given up: {_first_note(log, Disposition.DEAD_LETTER)}")
    if refused := log.disposition.count(Disposition.REFUSED):
        reasons.append(f"{refused} messages arrived after their turn had been skipped")
    if not applications:
        reasons.append("no message was applied")
    return reasons


def _first_note(log: SimulationLog, kind: Disposition) -> str:
    notes = (text for _, message, text in log.notes if log.disposition[message] == kind)
    return next(notes, "waiting for earlier messages")
