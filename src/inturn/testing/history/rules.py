"""The rules of an ordered queue, each as a search for anomalies in a history.

Only a certain violation is an anomaly: a call that was not answered may have been carried out or not. Each rule yields
the events that prove the anomaly.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from inturn.testing.history.anomaly import Anomaly, AnomalyKind
from inturn.testing.history.events import NEVER, OK, AppliedEffect, ReceiveCall, SendCall, SettleCall, acknowledged


def one_message_for_each_id(sends: Sequence[SendCall], receives: Sequence[ReceiveCall]) -> Iterator[Anomaly]:
    """Search for deduplication ids that became two messages, and for numbers of two messages."""
    told = acknowledged(sends)
    owners: dict[int, SendCall] = {}
    for send in sends:
        if send.outcome != OK:
            continue
        first = told.get(send.dedup_id)
        if send.number is None or first is None:
            text = f"{send.dedup_id} was acknowledged without a sequence number"
            yield Anomaly(AnomalyKind.TOTAL_ORDER, text, (send,))
        elif first.number != send.number:
            text = f"{send.dedup_id} was accepted twice: as {first.number} and as {send.number}"
            yield Anomaly(AnomalyKind.DEDUP, text, (first, send))
        elif (owner := owners.setdefault(send.number, send)).dedup_id != send.dedup_id:
            text = f"{send.number} is the number of both {owner.dedup_id} and {send.dedup_id}"
            yield Anomaly(AnomalyKind.TOTAL_ORDER, text, (owner, send))
    delivered: dict[str, tuple[int, ReceiveCall]] = {}
    for receive in receives:
        for each in receive.deliveries:
            number, before = delivered.setdefault(each.dedup_id, (each.number, receive))
            sent = told.get(each.dedup_id)
            if sent is not None and sent.number != each.number:
                text = f"{each.dedup_id} was sent as {sent.number} but delivered as {each.number}"
                yield Anomaly(AnomalyKind.DEDUP, text, (sent, receive))
            elif number != each.number:
                text = f"{each.dedup_id} was delivered as {number} and as {each.number}"
                yield Anomaly(AnomalyKind.DEDUP, text, (before, receive))


def numbers_in_the_order_of_sends(sends: Sequence[SendCall], *, is_total: bool) -> Iterator[Anomaly]:
    """Search for a send that was acknowledged before another began and has the greater number.

    Args:
        sends: the sends.
        is_total: whether that holds for all messages of the queue, not only within a group.
    """
    told = acknowledged(sends)
    begun: dict[str, SendCall] = {}
    ended: dict[str, SendCall] = {}
    for send in sends:
        begun.setdefault(send.dedup_id, send)
        if send.outcome == OK:
            ended.setdefault(send.dedup_id, send)
    last: dict[tuple[str, str], SendCall] = {}
    groups: defaultdict[str, list[SendCall]] = defaultdict(list)
    for dedup_id, send in begun.items():
        if dedup_id not in told:
            continue
        within = "" if is_total else send.group
        before = last.get((send.client, within))
        if before is not None and _number(told[before.dedup_id]) > _number(told[dedup_id]):
            text = f"{dedup_id} was sent after {before.dedup_id}, by the same client, but has a smaller number"
            proof = _distinct(before, told[before.dedup_id], send, told[dedup_id])
            yield Anomaly(AnomalyKind.TOTAL_ORDER, text, proof)
        last[send.client, within] = send
        groups[within].append(send)
    for group in groups.values():
        group.sort(key=lambda send: _number(told[send.dedup_id]), reverse=True)
        behind: SendCall | None = None
        for send in group:
            if behind is not None and behind.answered < send.asked:
                text = f"{send.dedup_id} was sent after {behind.dedup_id} was acknowledged, but has a smaller number"
                yield Anomaly(AnomalyKind.TOTAL_ORDER, text, _distinct(behind, send, told[send.dedup_id]))
            end = ended[send.dedup_id]
            if behind is None or end.answered < behind.answered:
                behind = end


def _number(send: SendCall) -> int:
    return send.number or 0


def _distinct(*sends: SendCall) -> tuple[SendCall, ...]:
    return tuple({id(each): each for each in sends}.values())


def delivered_as_sent(sends: Sequence[SendCall], receives: Sequence[ReceiveCall]) -> Iterator[Anomaly]:
    """Search for deliveries that were not sent or that differ from their send, and for repeated receipt handles."""
    sent = {send.dedup_id: send for send in sends}
    handles: dict[str, ReceiveCall] = {}
    for receive in receives:
        for each in receive.deliveries:
            send = sent.get(each.dedup_id)
            if send is None:
                text = f"{each.dedup_id} was delivered but never sent"
                yield Anomaly(AnomalyKind.CHANGED, text, (receive,))
            elif (send.group, send.body) != (each.group, each.body):
                text = f"{each.dedup_id} was delivered with another group or body than it was sent with"
                yield Anomaly(AnomalyKind.CHANGED, text, (send, receive))
            if each.handle in handles:
                text = f"{each.dedup_id} was delivered with a receipt handle that was already used"
                yield Anomaly(AnomalyKind.TWO_HOLDERS, text, (handles[each.handle], receive))
            handles[each.handle] = receive


def nothing_is_lost(
    sends: Sequence[SendCall], receives: Sequence[ReceiveCall], effects: Sequence[AppliedEffect]
) -> Iterator[Anomaly]:
    """Search for acknowledged messages that were never delivered or, in a history with effects, never applied."""
    delivered = {each.dedup_id for receive in receives for each in receive.deliveries}
    applied = {each.dedup_id for each in effects}
    for dedup_id, send in acknowledged(sends).items():
        if dedup_id not in (applied if effects else delivered):
            yield Anomaly(AnomalyKind.LOST, f"{dedup_id}, acknowledged as {send.number}, is lost", (send,))


def groups_in_order(receives: Sequence[ReceiveCall], settles: Sequence[SettleCall]) -> Iterator[Anomaly]:
    """Search for deliveries before a predecessor in the group whose delete had not begun."""
    deleted = _first_deletes(settles)
    came: defaultdict[str, dict[int, ReceiveCall]] = defaultdict(dict)
    for receive in receives:
        for message in receive.deliveries:
            came[message.group].setdefault(message.number, receive)
    numbers = {group: sorted(each) for group, each in came.items()}
    latest = {  # for each message: the latest first delete of it and of earlier messages, and the deleted message
        group: [*accumulate(((deleted[number], number) for number in each), max)] for group, each in numbers.items()
    }
    for receive in receives:
        given: dict[str, int] = {}
        for message in receive.deliveries:
            group, before = numbers[message.group], given.get(message.group)
            given[message.group] = message.number
            place = bisect_right(group, message.number) - 1
            if before is not None and before >= message.number:
                text = f"{message.dedup_id} was delivered after a later message of {message.group} in the same answer"
                yield Anomaly(AnomalyKind.OVERTAKEN, text, (receive,))
                continue
            if before is None:
                ends = latest[message.group][place - 1 : place] if place else []
            else:
                ends = [(deleted[number], number) for number in group[bisect_right(group, before) : place]]
            for end, missing in ends:
                if end > receive.answered:
                    text = f"{message.dedup_id} was delivered before an earlier message of {message.group} was deleted"
                    first = came[message.group][missing]
                    yield Anomaly(AnomalyKind.OVERTAKEN, text, (receive,) if first is receive else (receive, first))
                    break


def _first_deletes(settles: Sequence[SettleCall]) -> defaultdict[int, int]:
    """Return when the first delete of each message began."""
    began = defaultdict[int, int](lambda: NEVER)
    for settle in settles:
        if settle.deletes:
            began[settle.number] = min(settle.asked, began[settle.number])
    return began


def deleted_stays_deleted(receives: Sequence[ReceiveCall], settles: Sequence[SettleCall]) -> Iterator[Anomaly]:
    """Search for deliveries after the acknowledged delete of the message."""
    gone: dict[int, SettleCall] = {}
    for settle in settles:
        first = gone.get(settle.number)
        if settle.deletes and settle.outcome == OK and (first is None or settle.answered < first.answered):
            gone[settle.number] = settle
    for receive in receives:
        for one in receive.deliveries:
            delete = gone.get(one.number)
            if delete is not None and delete.answered < receive.asked:
                text = f"{one.dedup_id} was delivered after its delete was acknowledged"
                yield Anomaly(AnomalyKind.TWICE, text, (delete, receive))


def one_holder_of_a_group(
    receives: Sequence[ReceiveCall], settles: Sequence[SettleCall], lease_ns: int
) -> Iterator[Anomaly]:
    """Search for receivers that got messages of a group while another receiver certainly had messages of it."""
    settled: dict[str, int] = {}
    for settle in settles:
        settled[settle.handle] = min(settle.asked, settled.get(settle.handle, settle.asked))
    held: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)  # since, until, and the receive
    for at, receive in enumerate(receives):
        for one in receive.deliveries:
            until = min(receive.asked + lease_ns, settled.get(one.handle, receive.asked + lease_ns))
            held[one.group].append((receive.answered, until, at))
    for spans in held.values():
        spans.sort()
    begins = {group: [since for since, _, _ in each] for group, each in held.items()}
    latest = {group: [*accumulate(((until, at) for _, until, at in each), max)] for group, each in held.items()}
    for receive in receives:
        for group in {one.group for one in receive.deliveries}:
            place = bisect_right(begins[group], receive.asked) - 1
            if place >= 0 and latest[group][place][0] > receive.answered:
                text = f"{receive.client} received messages of {group} while another receive had messages of it"
                yield Anomaly(AnomalyKind.TWO_HOLDERS, text, (receives[latest[group][place][1]], receive))


def effects_in_order_and_once(effects: Iterable[AppliedEffect]) -> Iterator[Anomaly]:
    """Search for messages that were applied twice, or before their predecessor in the group."""
    first: dict[tuple[str, str], AppliedEffect] = {}
    last: dict[str, AppliedEffect] = {}
    for each in sorted(effects, key=lambda each: each.place):
        known = first.setdefault((each.group, each.dedup_id), each)
        if known is not each:
            text = f"{each.dedup_id} was applied at the places {known.place} and {each.place}"
            yield Anomaly(AnomalyKind.TWICE, text, (known, each))
            continue
        before = last.get(each.group)
        if before is not None and before.number > each.number:
            text = f"{each.dedup_id} was applied after {before.dedup_id}, which is later in {each.group}"
            yield Anomaly(AnomalyKind.OVERTAKEN, text, (before, each))
        last[each.group] = each if before is None or each.number > before.number else before
