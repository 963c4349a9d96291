"""What clients of a FIFO queue have seen, and whether a queue that keeps its promises can have shown them that.

Each client writes what it asked and what it was answered, one line of JSON for each, with a clock that all processes of
the machine share. What was asked and not answered may have been done or not: only what follows for sure is a fault.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import msgspec

OK = "ok"
UNKNOWN = "unknown"
"""No answer came: it may have been done."""
UNASKED = "unasked"
"""Nobody was there to ask."""


class Asked(msgspec.Struct, kw_only=True):
    """One request.

    Attributes:
        client: who asked; a client asks one thing after the other.
        asked: just before it was sent, in nanoseconds.
        answered: just after the answer came, or that none would.
        outcome: OK, UNKNOWN, UNASKED, or the code of an error.
    """

    client: str
    asked: int
    answered: int
    outcome: str = OK


class Send(Asked, tag="send", kw_only=True):
    """A message sent; each message of a batch is one, in the batch's order."""

    dedup_id: str
    group: str
    body: str
    number: int | None = None


class Delivery(msgspec.Struct):
    """A message received."""

    number: int
    dedup_id: str
    group: str
    body: str
    handle: str


class Receive(Asked, tag="receive", kw_only=True):
    """Messages asked for, and what came."""

    deliveries: list[Delivery] = []


class Settle(Asked, tag="settle", kw_only=True):
    """A message deleted or given back; each message of a batch is one."""

    number: int
    handle: str
    deletes: bool = True


Event: TypeAlias = Send | Receive | Settle
_decode = msgspec.json.Decoder(Event).decode


def read(directory: Path) -> list[Event]:
    """What all clients have written."""
    return [_decode(line) for path in sorted(directory.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


def check(events: Iterable[Event], visibility_s: float, slack_s: float = 0.05) -> list[str]:
    """The faults of a history; none if everything is as it must be.

    Args:
        events: of each client in its order.
        visibility_s: how long a received message is its receiver's.
        slack_s: by how much the queue's clock may be before the clients'.
    """
    events = list(events)
    sends = [each for each in events if isinstance(each, Send)]
    receives = [each for each in events if isinstance(each, Receive)]
    settles = [each for each in events if isinstance(each, Settle) and each.outcome != UNASKED]
    ends = round((visibility_s - slack_s) * 1e9)
    return [
        *_numbers(sends),
        *_sent_in_order(sends),
        *_deliveries(sends, receives),
        *_given_in_order(receives, settles),
        *_after_deletes(receives, settles),
        *_leases(receives, settles, ends),
    ]


def figures(events: Iterable[Event]) -> Counter[str]:
    """How much of what was done, and how it went; the rest is what was done more than once."""
    counts: Counter[str] = Counter()
    acknowledged: set[str] = set()
    received: set[int] = set()
    for each in events:
        verb = type(each).__name__.lower()
        if isinstance(each, Settle):
            verb = "delete" if each.deletes else "give back"
        counts[f"{verb} {each.outcome}"] += 1
        if isinstance(each, Send) and each.outcome == OK:
            counts["acknowledged again"] += each.dedup_id in acknowledged
            acknowledged.add(each.dedup_id)
        elif isinstance(each, Receive):
            counts["delivered"] += len(each.deliveries)
            counts["delivered again"] += sum(one.number in received for one in each.deliveries)
            received.update(one.number for one in each.deliveries)
    counts["messages"] = len(acknowledged)
    return counts


def _acknowledged(sends: Sequence[Send]) -> dict[str, int]:
    """The sequence number of each message whose send was acknowledged, the first that was told."""
    told: dict[str, int] = {}
    for send in sends:
        if send.outcome == OK and send.number is not None:
            told.setdefault(send.dedup_id, send.number)
    return told


def _numbers(sends: Sequence[Send]) -> Iterable[str]:
    """One deduplication id is one message."""
    told = _acknowledged(sends)
    owners: dict[int, str] = {}
    for send in sends:
        if send.outcome != OK:
            continue
        if send.number is None:
            yield f"{send.dedup_id} was acknowledged without a sequence number"
        elif told[send.dedup_id] != send.number:
            yield f"{send.dedup_id} was taken twice: as {told[send.dedup_id]} and as {send.number}"
        elif owners.setdefault(send.number, send.dedup_id) != send.dedup_id:
            yield f"{send.number} is the number of both {owners[send.number]} and {send.dedup_id}"


def _sent_in_order(sends: Sequence[Send]) -> Iterable[str]:
    """A send that was acknowledged before another began is before it in their group; and so it is within a batch."""
    told = _acknowledged(sends)
    begun: dict[str, Send] = {}
    ended: dict[str, int] = {}
    for send in sends:
        begun.setdefault(send.dedup_id, send)
        if send.outcome == OK:
            ended.setdefault(send.dedup_id, send.answered)
    last: dict[tuple[str, str], Send] = {}
    groups: defaultdict[str, list[Send]] = defaultdict(list)
    for dedup_id, send in begun.items():
        if dedup_id in told:
            before = last.get((send.client, send.group))
            if before is not None and told[before.dedup_id] > told[dedup_id]:
                yield f"{dedup_id} was sent after {before.dedup_id}, by one client, and is before it"
            last[send.client, send.group] = send
            groups[send.group].append(send)
    for group in groups.values():
        group.sort(key=lambda send: told[send.dedup_id], reverse=True)
        behind, earliest = "", None
        for send in group:
            if earliest is not None and earliest < send.asked:
                yield f"{send.dedup_id} was sent after {behind} was acknowledged, and is before it"
            if earliest is None or ended[send.dedup_id] < earliest:
                behind, earliest = send.dedup_id, ended[send.dedup_id]


def _deliveries(sends: Sequence[Send], receives: Sequence[Receive]) -> Iterable[str]:
    """What was acknowledged is delivered, and what is delivered was sent, as it was sent."""
    told = _acknowledged(sends)
    sent = {send.dedup_id: send for send in sends}
    delivered: dict[str, int] = {}
    handles: set[str] = set()
    for receive in receives:
        for each in receive.deliveries:
            send, first = sent.get(each.dedup_id), delivered.setdefault(each.dedup_id, each.number)
            if send is None:
                yield f"{each.dedup_id} was delivered, and nobody sent it"
            elif (send.group, send.body) != (each.group, each.body):
                yield f"{each.dedup_id} was delivered otherwise than it was sent"
            elif told.get(each.dedup_id, each.number) != each.number:
                yield f"{each.dedup_id} is {told[each.dedup_id]} and was delivered as {each.number}"
            elif first != each.number:
                yield f"{each.dedup_id} was delivered as {first} and as {each.number}"
            if each.handle in handles:
                yield f"{each.dedup_id} was delivered twice with one receipt handle"
            handles.add(each.handle)
    for dedup_id, number in told.items():
        if dedup_id not in delivered:
            yield f"{dedup_id}, acknowledged as {number}, is lost"


def _given_in_order(receives: Sequence[Receive], settles: Sequence[Settle]) -> Iterable[str]:
    """Who is given a message is given those before it in its group with it, or somebody had begun to delete them."""
    never = max((each.answered for each in receives), default=0) + 1
    deleted: dict[int, int] = {}  # when the first delete of a message began
    for each in settles:
        if each.deletes:
            deleted[each.number] = min(each.asked, deleted.get(each.number, never))
    known: defaultdict[str, set[int]] = defaultdict(set)
    for receive in receives:
        for one in receive.deliveries:
            known[one.group].add(one.number)
    numbers = {group: sorted(each) for group, each in known.items()}
    latest = {  # for each message: when the last delete of it and of all before it in its group began
        group: [*accumulate((deleted.get(number, never) for number in each), max)] for group, each in numbers.items()
    }
    for receive in receives:
        given: dict[str, Delivery] = {}
        for each in receive.deliveries:
            group, before = numbers[each.group], given.get(each.group)
            place = bisect_right(group, each.number) - 1
            given[each.group] = each
            if before is None:
                missing = place > 0 and latest[each.group][place - 1] > receive.answered
            elif before.number >= each.number:
                yield f"{before.dedup_id} was given before {each.dedup_id}, which is before it in their group"
                continue
            else:
                between = group[bisect_right(group, before.number) : place]
                missing = any(deleted.get(number, never) > receive.answered for number in between)
            if missing:
                yield f"{each.dedup_id} was delivered before one that is before it in {each.group}"


def _after_deletes(receives: Sequence[Receive], settles: Sequence[Settle]) -> Iterable[str]:
    """What is deleted does not come again."""
    gone: dict[int, int] = {}
    for each in settles:
        if each.deletes and each.outcome == OK:
            gone[each.number] = min(each.answered, gone.get(each.number, each.answered))
    for receive in receives:
        for one in receive.deliveries:
            if gone.get(one.number, receive.asked) < receive.asked:
                yield f"{one.dedup_id} was delivered after its delete was acknowledged"


def _leases(receives: Sequence[Receive], settles: Sequence[Settle], ends: int) -> Iterable[str]:
    """While somebody has a message of a group, nobody else is given one of that group."""
    settled: dict[str, int] = {}
    for each in settles:
        settled[each.handle] = min(each.asked, settled.get(each.handle, each.asked))
    held: defaultdict[str, list[tuple[int, int]]] = defaultdict(
        list
    )  # since when and until when a group is held for sure
    for receive in receives:
        for one in receive.deliveries:
            until = min(receive.asked + ends, settled.get(one.handle, receive.asked + ends))
            held[one.group].append((receive.answered, until))
    for each in held.values():
        each.sort()
    begins = {group: [since for since, _ in each] for group, each in held.items()}
    latest = {group: [*accumulate((until for _, until in each), max)] for group, each in held.items()}
    for receive in receives:
        for group in {one.group for one in receive.deliveries}:
            place = bisect_right(begins[group], receive.asked) - 1
            if place >= 0 and latest[group][place] > receive.answered:
                yield f"{receive.client} was given messages of {group} while somebody else had some"
