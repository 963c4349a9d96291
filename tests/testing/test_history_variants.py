"""The check finds nothing in what a correct queue gives, and the fault of each queue that is broken in one way."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core.queue.messages import QueueSettings
from inturn.testing.history import (
    UNKNOWN,
    AnomalyKind,
    AppliedEffect,
    Event,
    ReceiveCall,
    ReceivedMessage,
    Recorder,
    SendCall,
    SettleCall,
    check,
    check_or_raise,
    read,
)

MS = 1_000_000
VISIBILITY_MS = 500


@dataclass
class Stored:
    number: int
    dedup_id: str
    group: str
    is_deleted: bool = False
    leased_until: int = 0
    attempts: int = 0


@dataclass
class ModelQueue:
    """An ordered queue in memory under virtual time, which can be broken in one way.

    Attributes:
        dedup_ms: how long an id is remembered.
        lease_ms: how long a receiver really has a message.
        is_durable: whether a crash keeps what was acknowledged in the last moments.
        overtakes: whether a receive passes over messages of a group that somebody has.
        forgets_deletes: whether a crash brings back what was deleted in the last moments.
    """

    dedup_ms: int = 10**9
    lease_ms: int = VISIBILITY_MS
    is_durable: bool = True
    overtakes: bool = False
    forgets_deletes: bool = False
    log: list[Stored] = field(default_factory=list)
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    numbers: int = 0
    recent: list[Callable[[], None]] = field(default_factory=list)

    def send(self, now: int, dedup_id: str, group: str) -> int:
        sent_ms, number = self.known.get(dedup_id, (-(10**12), 0))
        if now - sent_ms < self.dedup_ms:
            return number
        self.numbers += 1
        self.log.append(message := Stored(self.numbers, dedup_id, group))
        self.known[dedup_id] = (now, message.number)
        if not self.is_durable:
            self.recent.append(lambda: self.log.remove(message))
        return message.number

    def receive(self, now: int, limit: int) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        busy = {message.group for message in self.log if message.leased_until > now and not message.is_deleted}
        for message in self.log:
            if len(received) == limit:
                break
            if message.is_deleted or message.leased_until > now or (message.group in busy and not self.overtakes):
                continue
            message.leased_until, message.attempts = now + self.lease_ms, message.attempts + 1
            handle = f"{message.number}/{message.attempts}"
            received.append(ReceivedMessage(message.number, message.dedup_id, message.group, message.dedup_id, handle))
        return received

    def settle(self, now: int, received: ReceivedMessage, *, deletes: bool) -> bool:
        message = next((message for message in self.log if message.number == received.number), None)
        if message is None or message.leased_until <= now or f"{message.number}/{message.attempts}" != received.handle:
            return message is None or message.is_deleted
        message.is_deleted, message.leased_until = deletes, 0
        if deletes and self.forgets_deletes:
            self.recent.append(lambda: setattr(message, "is_deleted", False))
        return True

    def crash(self) -> None:
        for undo in self.recent:
            undo()
        self.recent.clear()


class Clients:
    """Clients who send, receive, delete and give back, and write down what they see."""

    def __init__(self, queue: ModelQueue, seed: int) -> None:
        self.queue, self.chance = queue, random.Random(seed)
        self.now = self.sent = 0
        self.events: list[Event] = []
        self.have: list[list[ReceivedMessage]] = [[] for _ in range(4)]

    def times(self, client: str) -> dict[str, Any]:
        return {"client": client, "asked": self.now * MS, "answered": (self.now + 1) * MS}

    def send(self) -> None:
        self.sent += self.chance.random() < 0.8  # else the last one once more
        dedup_id, group = f"m{self.sent}", f"g{self.sent % 5}"
        number = self.queue.send(self.now, dedup_id, group)
        call = SendCall(**self.times("s"), dedup_id=dedup_id, group=group, body=dedup_id, number=number)
        if self.chance.random() < 0.1:
            call.outcome, call.number = UNKNOWN, None
        self.events.append(call)

    def receive(self, taker: int, limit: int) -> None:
        deliveries = self.queue.receive(self.now, limit)
        self.have[taker] += deliveries
        self.events.append(ReceiveCall(**self.times(f"t{taker}"), deliveries=deliveries))

    def settle(self, taker: int, *, deletes: bool) -> None:
        received = self.have[taker].pop(0)
        outcome = "ok" if self.queue.settle(self.now, received, deletes=deletes) else "LeaseExpired"
        known = self.times(f"t{taker}") | {"outcome": outcome, "deletes": deletes}
        self.events.append(SettleCall(**known, number=received.number, handle=received.handle))

    def act(self) -> None:
        self.now += self.chance.randint(2, 30)
        taker = self.chance.randrange(len(self.have))
        act = self.chance.choice(["send"] * 3 + ["receive"] * 4 + ["settle"] * 5 + ["die"])
        if act == "send":
            self.send()
        elif act == "receive":
            self.receive(taker, self.chance.randint(1, 4))
        elif act == "settle" and self.have[taker]:
            self.settle(taker, deletes=self.chance.random() < 0.8)
        elif act == "die":
            self.have[taker].clear()  # its leases end by themselves
            if self.chance.random() < 0.2:
                self.queue.crash()

    def empty(self) -> None:
        for _ in range(1000):
            self.now += 100
            self.receive(0, 10)
            while self.have[0]:
                self.settle(0, deletes=True)


def kinds(queue: ModelQueue, seed: int) -> set[AnomalyKind]:
    clients = Clients(queue, seed)
    for _ in range(600):
        clients.act()
    clients.empty()
    return {anomaly.kind for anomaly in check(clients.events, visibility_s=VISIBILITY_MS / 1000, is_total=True)}


@pytest.mark.parametrize("seed", range(12))
def test_a_correct_model_queue_has_no_anomaly(seed: int) -> None:
    assert kinds(ModelQueue(), seed) == set()


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ({"dedup_ms": 20}, AnomalyKind.DEDUP),
        ({"lease_ms": VISIBILITY_MS // 4}, AnomalyKind.TWO_HOLDERS),
        ({"is_durable": False}, AnomalyKind.LOST),
        ({"forgets_deletes": True}, AnomalyKind.TWICE),
        ({"overtakes": True}, AnomalyKind.OVERTAKEN),
        ({"overtakes": True}, AnomalyKind.TWO_HOLDERS),
    ],
)
def test_the_anomaly_of_each_broken_model_queue_is_detected(broken: dict[str, int], kind: AnomalyKind) -> None:
    results = [kinds(ModelQueue(**broken), seed) for seed in range(6)]
    assert sum(kind in result for result in results) >= 5, results


def test_total_order_violations_across_groups_are_detected_only_if_required() -> None:
    def send(asked: int, dedup_id: str, group: str, number: int) -> SendCall:
        return SendCall(
            client=dedup_id, asked=asked, answered=asked + 1, dedup_id=dedup_id, group=group, body="", number=number
        )

    events: list[Event] = [send(0, "a", "g", 2), send(5, "b", "h", 1)]
    assert check(events, is_drained=False) == [], "of two groups, which SQS does not order"
    (anomaly,) = check(events, is_drained=False, is_total=True)
    assert anomaly.kind is AnomalyKind.TOTAL_ORDER
    assert list(anomaly.events) == events


def effect(dedup_id: str, number: int, place: int, group: str = "g") -> AppliedEffect:
    return AppliedEffect(client="table", asked=0, dedup_id=dedup_id, group=group, number=number, place=place)


def test_applied_effects_are_checked_for_loss_repetition_and_order() -> None:
    sent = SendCall(client="s", asked=0, answered=1, dedup_id="a", group="g", body="", number=1)
    assert check([sent, effect("a", 1, 1), effect("b", 2, 2), effect("c", 1, 1, "h")]) == []
    assert [anomaly.kind for anomaly in check([sent, effect("b", 2, 1)])] == [AnomalyKind.LOST]
    assert [anomaly.kind for anomaly in check([effect("a", 1, 1), effect("a", 1, 2)])] == [AnomalyKind.TWICE]
    (anomaly,) = check([effect("a", 1, 1), effect("c", 3, 2), effect("b", 2, 3), effect("d", 4, 4)])
    assert anomaly.kind is AnomalyKind.OVERTAKEN
    assert [event.dedup_id for event in anomaly.events if isinstance(event, AppliedEffect)] == ["c", "b"]


def test_recorded_calls_of_a_real_queue_pass_the_history_check(tmp_path: Path) -> None:
    with inturn.open(":memory:") as db, Recorder(tmp_path / "client.jsonl", client="c") as log:
        orders = db.queue("orders", QueueSettings(visibility_timeout_s=30))
        for number in range(20):
            with log.send(f"m{number}", group=f"g{number % 3}", body=str(number)) as sent:
                answer = orders.send(str(number), group=f"g{number % 3}", dedup_id=f"m{number}")
                sent.number = answer.sequence_number
        while True:
            with log.receive() as received:
                messages = orders.receive(4)
                received.deliveries = [ReceivedMessage.of(message) for message in messages]
            if not messages:
                break
            for message, delivery in zip(messages, received.deliveries, strict=True):
                with log.settle(delivery.number, delivery.handle):
                    message.ack()
    events = read(tmp_path)
    assert len(events) == 20 + 20 + len([event for event in events if isinstance(event, ReceiveCall)])
    check_or_raise(events, visibility_s=30, is_total=True)
    lost = [event for event in events if not (isinstance(event, ReceiveCall) and event.deliveries)]
    with pytest.raises(AssertionError, match=r"(?s)lost: m0, acknowledged as \d+, is lost\n.* more$"):
        check_or_raise(lost)


def test_a_call_interrupted_by_the_death_of_its_client_has_an_unknown_outcome(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    with Recorder(path, client="c") as log:
        with log.send("a", group="g", body="1"):
            begun = path.read_bytes()
        with pytest.raises(TimeoutError), log.send("b", group="g", body="2"):
            raise TimeoutError
    (tmp_path / "died.jsonl").write_bytes(begun + b'{"type":"send","cli')
    a, b, died = read(path, tmp_path / "died.jsonl")
    assert (a.outcome, b.outcome, died.outcome) == ("ok", "TimeoutError", UNKNOWN)
    assert isinstance(died, SendCall)
    assert died.dedup_id == "a"
    received = ReceiveCall(client="t", asked=9, answered=10, deliveries=[ReceivedMessage(1, "a", "g", "1", "h")])
    assert check([died, received]) == [], "it may have been sent"
