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
    acked = acknowledged(sends)
    owners: dict[int, SendCall] = {}
    for send in sends:
        if send.outcome != OK:
            continue
        first = acked.get(send.dedup_id)
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
        for message in receive.deliveries:
            number, before = delivered.setdefault(message.dedup_id, (message.number, receive))
            sent = acked.get(message.dedup_id)
            if sent is not None and sent.number != message.number:
                text = f"{message.dedup_id} was sent as {sent.number} but delivered as {message.number}"
                yield Anomaly(AnomalyKind.DEDUP, text, (sent, receive))
            elif number != message.number:
                text = f"{message.dedup_id} was delivered as {number} and as {message.number}"
                yield Anomaly(AnomalyKind.DEDUP, text, (before, receive))


def numbers_in_the_order_of_sends(sends: Sequence[SendCall], *, is_total: bool) -> Iterator[Anomaly]:
    """Search for a send that was acknowledged before another began and has the greater number.

    Args:
        sends: the sends.
        is_total: whether that holds for all messages of the queue, not only within a group.
    """
    acked = acknowledged(sends)
    begun: dict[str, SendCall] = {}
    ended: dict[str, SendCall] = {}
    for send in sends:
        begun.setdefault(send.dedup_id, send)
        if send.outcome == OK:
            ended.setdefault(send.dedup_id, send)
    last: dict[tuple[str, str], SendCall] = {}
    groups: defaultdict[str, list[SendCall]] = defaultdict(list)
    for dedup_id, send in begun.items():
        if dedup_id not in acked:
            continue
        within = "" if is_total else send.group
        before = last.get((send.client, within))
        if before is not None and _number(acked[before.dedup_id]) > _number(acked[dedup_id]):
            text = f"{dedup_id} was sent after {before.dedup_id}, by the same client, but has a smaller number"
            proof = _distinct(before, acked[before.dedup_id], send, acked[dedup_id])
            yield Anomaly(AnomalyKind.TOTAL_ORDER, text, proof)
        last[send.client, within] = send
        groups[within].append(send)
    for group in groups.values():
        group.sort(key=lambda send: _number(acked[send.dedup_id]), reverse=True)
        later: SendCall | None = None
        for send in group:
            if later is not None and later.answered < send.asked:
                text = f"{send.dedup_id} was sent after {later.dedup_id} was acknowledged, but has a smaller number"
                yield Anomaly(AnomalyKind.TOTAL_ORDER, text, _distinct(later, send, acked[send.dedup_id]))
            end = ended[send.dedup_id]
            if later is None or end.answered < later.answered:
                later = end


def _number(send: SendCall) -> int:
    return send.number or 0


def _distinct(*sends: SendCall) -> tuple[SendCall, ...]:
    return tuple({id(send): send for send in sends}.values())


def delivered_as_sent(sends: Sequence[SendCall], receives: Sequence[ReceiveCall]) -> Iterator[Anomaly]:
    """Search for deliveries that were not sent or that differ from their send, and for repeated receipt handles."""
    sent = {send.dedup_id: send for send in sends}
    handles: dict[str, ReceiveCall] = {}
    for receive in receives:
        for message in receive.deliveries:
            send = sent.get(message.dedup_id)
            if send is None:
                text = f"{message.dedup_id} was delivered but never sent"
                yield Anomaly(AnomalyKind.CHANGED, text, (receive,))
            elif (send.group, send.body) != (message.group, message.body):
                text = f"{message.dedup_id} was delivered with another group or body than it was sent with"
                yield Anomaly(AnomalyKind.CHANGED, text, (send, receive))
            if message.handle in handles:
                text = f"{message.dedup_id} was delivered with a receipt handle that was already used"
                yield Anomaly(AnomalyKind.TWO_HOLDERS, text, (handles[message.handle], receive))
            handles[message.handle] = receive


def nothing_is_lost(
    sends: Sequence[SendCall], receives: Sequence[ReceiveCall], effects: Sequence[AppliedEffect]
) -> Iterator[Anomaly]:
    """Search for acknowledged messages that were never delivered or, in a history with effects, never applied."""
    delivered = {message.dedup_id for receive in receives for message in receive.deliveries}
    applied = {effect.dedup_id for effect in effects}
    for dedup_id, send in acknowledged(sends).items():
        if dedup_id not in (applied if effects else delivered):
            yield Anomaly(AnomalyKind.LOST, f"{dedup_id}, acknowledged as {send.number}, is lost", (send,))


def groups_in_order(receives: Sequence[ReceiveCall], settles: Sequence[SettleCall]) -> Iterator[Anomaly]:
    """Search for deliveries before a predecessor in the group whose delete had not begun."""
    deleted = _first_deletes(settles)
    received: defaultdict[str, dict[int, ReceiveCall]] = defaultdict(dict)
    for receive in receives:
        for message in receive.deliveries:
            received[message.group].setdefault(message.number, receive)
    numbers = {group: sorted(by_number) for group, by_number in received.items()}
    latest = {  # for each message: the latest first delete of it and of earlier messages, and the deleted message
        group: [*accumulate(((deleted[number], number) for number in ordered), max)]
        for group, ordered in numbers.items()
    }
    for receive in receives:
        last_numbers: dict[str, int] = {}
        for message in receive.deliveries:
            group, before = numbers[message.group], last_numbers.get(message.group)
            last_numbers[message.group] = message.number
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
                    first = received[message.group][missing]
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
    deletes: dict[int, SettleCall] = {}
    for settle in settles:
        first = deletes.get(settle.number)
        if settle.deletes and settle.outcome == OK and (first is None or settle.answered < first.answered):
            deletes[settle.number] = settle
    for receive in receives:
        for message in receive.deliveries:
            delete = deletes.get(message.number)
            if delete is not None and delete.answered < receive.asked:
                text = f"{message.dedup_id} was delivered after its delete was acknowledged"
                yield Anomaly(AnomalyKind.TWICE, text, (delete, receive))


def one_holder_of_a_group(
    receives: Sequence[ReceiveCall], settles: Sequence[SettleCall], lease_ns: int
) -> Iterator[Anomaly]:
    """Search for receivers that got messages of a group while another receiver certainly had messages of it."""
    settled: dict[str, int] = {}
    for settle in settles:
        settled[settle.handle] = min(settle.asked, settled.get(settle.handle, settle.asked))
    held: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)  # since, until, and the receive
    for index, receive in enumerate(receives):
        for message in receive.deliveries:
            until = min(receive.asked + lease_ns, settled.get(message.handle, receive.asked + lease_ns))
            held[message.group].append((receive.answered, until, index))
    for spans in held.values():
        spans.sort()
    begins = {group: [since for since, _, _ in spans] for group, spans in held.items()}
    latest = {group: [*accumulate(((until, index) for _, until, index in spans), max)] for group, spans in held.items()}
    for receive in receives:
        for group in {message.group for message in receive.deliveries}:
            place = bisect_right(begins[group], receive.asked) - 1
            if place >= 0 and latest[group][place][0] > receive.answered:
                text = f"{receive.client} received messages of {group} while another receive had messages of it"
                yield Anomaly(AnomalyKind.TWO_HOLDERS, text, (receives[latest[group][place][1]], receive))


def effects_in_order_and_once(effects: Iterable[AppliedEffect]) -> Iterator[Anomaly]:
    """Search for messages that were applied twice, or before their predecessor in the group."""
    first: dict[tuple[str, str], AppliedEffect] = {}
    last: dict[str, AppliedEffect] = {}
    for effect in sorted(effects, key=lambda effect: effect.place):
        known = first.setdefault((effect.group, effect.dedup_id), effect)
        if known is not effect:
            text = f"{effect.dedup_id} was applied at the places {known.place} and {effect.place}"
            yield Anomaly(AnomalyKind.TWICE, text, (known, effect))
            continue
        before = last.get(effect.group)
        if before is not None and before.number > effect.number:
            text = f"{effect.dedup_id} was applied after {before.dedup_id}, which is later in {effect.group}"
            yield Anomaly(AnomalyKind.OVERTAKEN, text, (before, effect))
        last[effect.group] = effect if before is None or effect.number > before.number else before
