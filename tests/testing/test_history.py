"""The check of histories finds each kind of anomaly, proves it with the fewest events, and finds none where none is."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TypeVar

import msgspec

from inturn.testing.history import (
    OK,
    UNASKED,
    UNKNOWN,
    Anomaly,
    AnomalyKind,
    ClientCall,
    Event,
    ReceiveCall,
    ReceivedMessage,
    SendCall,
    SettleCall,
    check,
    figures,
    read,
)

VISIBILITY_S = 2
S = 1_000_000_000
A = TypeVar("A", bound=ClientCall)


def send(
    start_s: float,
    dedup_id: str,
    number: int | None,
    *,
    group: str = "g",
    outcome: str = OK,
    by: str = "s",
    lasts: float = 0.1,
) -> SendCall:
    known = {"dedup_id": dedup_id, "group": group, "body": f"body of {dedup_id}", "number": number}
    return at_time(start_s, SendCall, by, outcome, lasts, **known)


def receive(start_s: float, *deliveries: ReceivedMessage, by: str = "t", lasts: float = 0.1) -> ReceiveCall:
    return at_time(start_s, ReceiveCall, by, OK, lasts, deliveries=list(deliveries))


def settle(
    start_s: float, number: int, handle: str, *, outcome: str = OK, deletes: bool = True, by: str = "t"
) -> SettleCall:
    return at_time(start_s, SettleCall, by, outcome, number=number, handle=handle, deletes=deletes)


def at_time(start_s: float, kind: type[A], by: str, outcome: str, lasts: float = 0.1, **fields: object) -> A:
    return kind(client=by, asked=round(start_s * S), answered=round((start_s + lasts) * S), outcome=outcome, **fields)


def given(dedup_id: str, number: int, handle: str, *, group: str = "g") -> ReceivedMessage:
    return ReceivedMessage(number, dedup_id, group, f"body of {dedup_id}", handle)


A_SOUND_HISTORY: list[Event] = [
    send(0.0, "a", None, outcome=UNASKED),
    send(0.1, "a", None, outcome=UNKNOWN),
    send(0.3, "a", 1),
    send(0.5, "b", 2),
    send(0.5, "c", 3, group="h"),
    send(0.2, "d", 4, by="s2", lasts=0.5),  # asked before b and after it in the group, since not answered before
    send(0.7, "b", 2),  # once more
    send(9.0, "e", None, outcome=UNKNOWN, group="h"),
    receive(1.0, given("a", 1, "a1"), given("b", 2, "b1"), given("c", 3, "c1", group="h")),
    settle(1.2, 1, "a1"),
    settle(1.4, 2, "b1", outcome=UNKNOWN),
    settle(1.6, 3, "c1", deletes=False),
    receive(1.7, given("c", 3, "c2", group="h"), by="t2"),
    receive(1.8, by="t3", lasts=10),
    settle(1.9, 3, "c2", by="t2"),
    receive(3.2, given("b", 2, "b2"), given("d", 4, "d1"), by="t2"),
    settle(3.4, 4, "d1", by="t2"),
    settle(3.6, 2, "b2", by="t2"),
    settle(3.8, 2, "b1"),  # it is gone, whoever deletes it
    receive(9.0, given("e", 5, "e1", group="h")),
]


def faults(change: Callable[[list[Event]], object]) -> list[str]:
    """What is found in the sound history with one change."""
    events = deepcopy(A_SOUND_HISTORY)
    change(events)
    anomalies = check(events, visibility_s=VISIBILITY_S)
    for anomaly in anomalies:
        assert is_proof(anomaly.events, anomaly), anomaly
        for event in anomaly.events:
            assert not is_proof([other for other in anomaly.events if other is not event], anomaly), "too many events"
        assert str(anomaly).startswith(f"{anomaly.kind}: {anomaly.text}\n  0.000 to ")
    return [anomaly.text for anomaly in anomalies]


def is_proof(events: Sequence[Event], anomaly: Anomaly) -> bool:
    """Whether the events show the anomaly by themselves."""
    repeated = check(events, visibility_s=VISIBILITY_S, is_drained=anomaly.kind is AnomalyKind.LOST)
    return any((other.kind, other.text) == (anomaly.kind, anomaly.text) for other in repeated)


def found(kind: type[A], events: list[Event], **fields: object) -> A:
    """The first event of its kind with these values."""
    return next(
        event
        for event in events
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
    )


def test_a_correct_history_has_no_anomaly() -> None:
    assert check(A_SOUND_HISTORY, visibility_s=VISIBILITY_S) == []
    assert check([], visibility_s=VISIBILITY_S) == []


def test_a_lost_message_is_detected() -> None:
    def lose(events: list[Event]) -> None:
        events.remove(found(ReceiveCall, events, client="t2"))
        found(ReceiveCall, events, client="t").deliveries.pop()

    assert faults(lose) == ["c, acknowledged as 3, is lost"]


def test_an_unsent_or_altered_message_is_detected() -> None:
    assert faults(lambda events: events.append(receive(20, given("z", 9, "z1", group="z")))) == [
        "z was delivered but never sent"
    ]

    def alter(events: list[Event]) -> None:
        found(ReceiveCall, events, client="t").deliveries[0].body = "another"

    assert faults(alter) == ["a was delivered with another group or body than it was sent with"]


def test_an_accepted_duplicate_is_detected() -> None:
    def take(events: list[Event]) -> None:
        found(SendCall, events, asked=round(0.7 * S)).number = 6

    def take_unseen(events: list[Event]) -> None:
        events.append(receive(20, given("e", 6, "e2", group="h")))

    def take_unseen_of_acknowledged(events: list[Event]) -> None:
        events.append(receive(20, given("b", 6, "b9")))

    assert faults(take) == ["b was accepted twice: as 2 and as 6"]
    assert faults(take_unseen)[0] == "e was delivered as 5 and as 6"
    assert faults(take_unseen_of_acknowledged)[0] == "b was sent as 2 but delivered as 6"


def test_a_sequence_number_shared_by_two_messages_is_detected() -> None:
    def share(events: list[Event]) -> None:
        found(SendCall, events, dedup_id="d").number = 3

    assert "3 is the number of both c and d" in faults(share)


def test_sequence_numbers_against_the_send_order_are_detected() -> None:
    def late(events: list[Event]) -> None:
        found(SendCall, events, dedup_id="d").asked = round(0.65 * S)
        found(SendCall, events, dedup_id="d").number = 0
        found(ReceiveCall, events, client="t2", asked=round(3.2 * S)).deliveries.pop()
        events.insert(0, receive(0.9, given("d", 0, "d1"), lasts=0.01))
        events.insert(1, settle(0.92, 0, "d1"))

    def of_one_client(events: list[Event]) -> None:
        events += [send(10, "x", 8, group="x"), send(10, "y", 7, group="x")]
        events.append(receive(11, given("y", 7, "y1", group="x"), given("x", 8, "x1", group="x")))

    assert faults(late) == ["d was sent after a was acknowledged, but has a smaller number"]
    assert faults(of_one_client) == ["y was sent after x, by the same client, but has a smaller number"]


def test_out_of_order_deliveries_are_detected() -> None:
    def swap(events: list[Event]) -> None:
        deliveries = found(ReceiveCall, events, client="t").deliveries
        deliveries[0], deliveries[1] = deliveries[1], deliveries[0]

    def skip(events: list[Event]) -> None:
        del found(ReceiveCall, events, client="t").deliveries[0]
        events.insert(12, receive(1.15, given("a", 1, "a1"), lasts=0.04))

    def skip_between(events: list[Event]) -> None:
        deliveries = found(ReceiveCall, events, client="t").deliveries
        deliveries.insert(1, given("d", 4, "d0"))
        del deliveries[2]

    assert "a was delivered after a later message of g in the same answer" in faults(swap)
    assert "b was delivered before an earlier message of g was deleted" in faults(skip)
    assert "d was delivered before an earlier message of g was deleted" in faults(skip_between)


def test_a_delivery_after_an_acknowledged_delete_is_detected() -> None:
    def again(events: list[Event]) -> None:
        events.append(receive(30, given("a", 1, "a2")))

    def unanswered(events: list[Event]) -> None:
        again(events)
        found(SettleCall, events, handle="a1").outcome = UNKNOWN

    assert faults(again) == ["a was delivered after its delete was acknowledged"]
    assert faults(unanswered) == []


def test_concurrent_receives_of_one_group_are_detected() -> None:
    def soon(events: list[Event]) -> None:
        second = found(ReceiveCall, events, client="t2", asked=round(3.2 * S))
        second.asked, second.answered = round(2.5 * S), round(2.6 * S)

    def soon_and_nothing_asked_before(events: list[Event]) -> None:
        soon(events)
        events.remove(found(SettleCall, events, handle="b1", outcome=UNKNOWN))

    def not_given_back(events: list[Event]) -> None:
        found(SettleCall, events, handle="c1").outcome = UNASKED

    assert faults(soon) == [], "the delete without an answer may have been done, if too late to be one"
    assert (
        faults(soon_and_nothing_asked_before)[-1]
        == "t2 received messages of g while another receive had messages of it"
    )
    assert faults(not_given_back) == ["t2 received messages of h while another receive had messages of it"]


def test_a_reused_receipt_handle_is_detected() -> None:
    def same(events: list[Event]) -> None:
        found(ReceiveCall, events, client="t2").deliveries[0].handle = "c1"

    assert "c was delivered with a receipt handle that was already used" in faults(same)


def test_a_history_is_read_back_as_written_with_its_counts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(A_SOUND_HISTORY))
    assert read(tmp_path) == A_SOUND_HISTORY
    counts = figures(A_SOUND_HISTORY)
    assert (counts["messages"], counts["acknowledged again"], counts["delivered again"]) == (4, 1, 2)
    assert (counts["delete ok"], counts["delete unknown"], counts["nack ok"]) == (5, 1, 1)
