"""What must come of a history, told from the whole of it: no timeline, no state machine, nothing held to be released.

The core decides message by message and keeps little. This file is written the other way round, and it may be slow,
so that a mistake would have to be made twice, in two different ways, to stay unseen.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Pipeline, Timestamp
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay

Message = dict[str, Any]
BAD = "bad"


def keep(state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
    """The handler of most tests: it changes the state in place, and only then looks whether it can."""
    state.append(message["v"])
    if message["v"] == BAD:
        msg = "a bad message"
        raise ValueError(msg)
    return state, [message["v"]]


def pipeline(order: Order | None = None, **more: Any) -> Pipeline:
    """A pipeline over plain dicts: group ``g``, revision ``r``, id ``i``, arrival ``o``, content ``v``."""
    kind = order or Gapless("r")
    ids = {"id": "i"} if isinstance(kind, Timestamp | Arrival) else {}
    options = {"name": "p", "group": "g", "order": kind, "handler": keep, "state": list, "arrival": "o", **ids, **more}
    return Pipeline(**options)


def arrive(messages: Iterable[Message]) -> list[Message]:
    """The messages with their arrival, in the order given."""
    return [{"g": "a", **message, "o": index} for index, message in enumerate(messages)]


def revisions(*numbers: int, **more: Any) -> list[Message]:
    """Messages of one group that arrive in this order; the content follows from the revision."""
    return arrive([{"r": number, "v": f"v{number}", **more} for number in numbers])


@dataclass
class Expected:
    """What must come of one group's history in one step."""

    applied: list[Any] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def expected(order: Order, history: Sequence[Message], *, final: bool = False) -> Expected:
    """What must come of one group's messages, given in the order of arrival."""
    match order:
        case Gapless():
            result = gapless(order, history)
        case Monotone():
            result = monotone(order.column, history)
        case MonotoneFields():
            assert len(order.fields) == 1
            result = monotone(order.fields[0], history)
        case Timestamp():
            result = timestamp(order, history, final=final)
        case Arrival():
            ordered, counts = first_of_each("i", history)
            result = _until_bad(ordered, [], counts)
    return result


def gapless(order: Gapless, history: Sequence[Message]) -> Expected:
    """Of each revision the first to arrive; of these, the ones before the first that is missing."""
    start = order.start
    if start == "first":
        start = history[0][order.column] if history else 1
        stale = [message for message in history if message[order.column] < start]
        result = gapless(replace(order, start=start), [message for message in history if message not in stale])
        result.counts["stale"] += len(stale)
        return result
    firsts, counts = first_of_each(order.column, history)
    by_revision = {message[order.column]: message for message in firsts}
    end = start
    while end in by_revision:
        end += 1
    ordered = [by_revision[revision] for revision in range(start, end)]
    early = [by_revision[revision] for revision in sorted(by_revision) if revision > end]
    return _until_bad(ordered, early, counts)


def monotone(column: str, history: Sequence[Message]) -> Expected:
    """Whatever is greater than all before it; among the others the copies of such ones are known."""
    records: list[Message] = []
    reported: list[Message] = []
    counts: Counter[str] = Counter()
    for message in history:
        if any(record[column] == message[column] for record in records):
            counts[repeated(column, records, reported, message)] += 1
        elif any(record[column] > message[column] for record in records):
            counts["stale"] += 1
        else:
            records.append(message)
    return _until_bad(records, [], counts)


def timestamp(order: Timestamp, history: Sequence[Message], *, final: bool = False) -> Expected:
    """Each message waits for the first arrival whose time, less the lateness, is not before its own."""
    counts: Counter[str] = Counter()
    lateness = timedelta(microseconds=order.lateness_us)
    accepted: list[tuple[int, Message]] = []
    reported: list[Message] = []
    for index, message in enumerate(history):
        same = [other for _, other in accepted if other["i"] == message["i"]]
        if same:
            counts[repeated("i", same, reported, message)] += 1
        elif any(other["t"] - message["t"] > lateness for _, other in accepted):
            counts["late"] += 1
        else:
            accepted.append((index, message))
    due, waiting = [], []
    for index, message in accepted:
        moments = [later for later, other in accepted if other["t"] - message["t"] >= lateness]
        if moments or final:
            due.append((max(index, moments[0]) if moments else len(history), message["t"], index, message))
        else:
            waiting.append(message)
    ordered = [message for *_, message in sorted(due, key=lambda row: row[:3])]
    result = _until_bad(ordered, waiting, counts)
    result.held.sort(key=lambda message: message["t"])  # in the order of arrival where that is equal
    return result


def epochs(order: Order, history: Sequence[Message]) -> Expected:
    """Each epoch is a history of its own, until a higher one arrives; what comes of an older one is stale."""
    assert isinstance(order, Gapless | Monotone | MonotoneFields)
    assert order.epoch is not None
    result = Expected()
    highest = [max(message[order.epoch] for message in history[: index + 1]) for index in range(len(history))]
    result.counts["stale"] += sum(message[order.epoch] < top for message, top in zip(history, highest, strict=True))
    phases = sorted(set(highest))
    for phase in phases:
        part = expected(
            order, [message for message, top in zip(history, highest, strict=True) if message["e"] == top == phase]
        )
        result.applied += part.applied
        result.counts += part.counts
        if phase == phases[-1]:
            result.held = part.held
        else:
            result.counts["late"] += len(part.held)
    return result


def first_of_each(key: str, history: Sequence[Message]) -> tuple[list[Message], Counter[str]]:
    """The first message to arrive under each key; the others are duplicates or conflicts of it."""
    firsts: list[Message] = []
    reported: list[Message] = []
    counts: Counter[str] = Counter()
    for message in history:
        if any(first[key] == message[key] for first in firsts):
            counts[repeated(key, firsts, reported, message)] += 1
        else:
            firsts.append(message)
    return firsts, counts


def repeated(key: str, firsts: Sequence[Message], reported: list[Message], message: Message) -> str:
    """The verdict on a message whose key is known: a conflict is reported once, its copies are duplicates."""
    if any(content(earlier) == content(message) for earlier in (*firsts, *reported) if earlier[key] == message[key]):
        return "duplicate"
    reported.append(message)
    return "conflict"


def content(message: Message) -> Message:
    """What makes two messages the same."""
    return {name: value for name, value in message.items() if name != "o"}


def _until_bad(ordered: list[Message], held: list[Message], counts: Counter[str]) -> Expected:
    values = [message["v"] for message in ordered]
    end = values.index(BAD) if BAD in values else len(values)
    return Expected(values[:end], [*ordered[end:], *held], counts)


def went(counts: Counts) -> Counter[str]:
    """The counts of what was not applied and is not held, as the reference names them."""
    named_counts = {"duplicate": counts.duplicate, "stale": counts.stale, **counts.rejected}
    return Counter({name: count for name, count in named_counts.items() if count})


def steps(pipe: Pipeline, parts: Iterable[Sequence[Message]], **more: Any) -> list[Replay]:
    """Each part as a step of its own; every step's books are checked against the step before."""
    results: list[Replay] = []
    for part in parts:
        results.append(pipe.replay(part, after=results[-1] if results else None, **more))
    check_books(results)
    return results


def check_books(results: Sequence[Replay]) -> None:
    """Every message is in one place, in every step and in their sum."""
    total = Counts()
    for before, after in pairwise([Replay(), *results]):
        assert after.counts.balanced, after.counts
        assert len(before.held) + after.counts.held - after.counts.released == len(after.held)
        assert len(before.rejected) + sum(after.counts.rejected.values()) == len(after.rejected)
        total.add(after.counts)
    settled = total.applied + total.duplicate + total.stale + sum(total.rejected.values())
    assert total.received == settled + (len(results[-1].held) if results else 0)


def summed(results: Iterable[Replay]) -> Counts:
    """The counts of all steps together."""
    total = Counts()
    for result in results:
        total.add(result.counts)
    return total


def cut(messages: Sequence[Message], positions: Iterable[int]) -> list[list[Message]]:
    """The messages in parts, cut before these positions."""
    ends = [0, *sorted(positions), len(messages)]
    return [list(messages[first:last]) for first, last in pairwise(ends)]


def story(results: Sequence[Replay]) -> dict[str, Any]:
    """Everything about a run that must not depend on how it was cut into steps."""
    last, total = results[-1], summed(results)
    return {
        "states": last.states,
        "outputs": last.outputs,
        "rejected": [(rejection.group, rejection.reason, rejection.message) for rejection in last.rejected],
        "held": last.held,
        "errors": {group: error.splitlines()[-1] for group, error in last.errors.items()},
        "counts": (total.received, total.applied, total.duplicate + total.stale, total.rejected),
    }
