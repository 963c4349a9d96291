"""Every store against the memory store: any commands in any order, with a clock that moves, have the same answers."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from store_harness import STORES, OnCallersConnection, Shared, StoreHarness, with_table

from inturn.core import limits
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.lapsed import LapsedRule
from inturn.core.queue.messages import Content, Delivery, Draft, Numbering, ReceiveRequest
from inturn.core.queue.sessions import SessionAnswer, SessionVerb
from inturn.core.queue.writers import WriterVerb
from inturn.store.sqlite import SqliteStore

GROUPS = st.sampled_from(["a", "b", "c", None])
QUEUES = st.sampled_from(["q", "dead"])
SHARED = "sqlite, of three processes"
CALLERS = "sqlite, of two processes and a caller's own connection"
CHANGES = {"ack", "nack", "extend", "defer", "settle", "move", "cancel", "ask", "hold", "lock", "prioritize"}
KINDS: dict[str, Any] = {
    **STORES,
    SHARED: lambda path, url: Shared(
        SqliteStore(str(path / "q.db"), durable=False),
        with_table(SqliteStore(str(path / "q.db"), durable=False), 8),
        SqliteStore(str(path / "q.db"), durable=False),
    ),
    CALLERS: lambda path, url: Shared(
        SqliteStore(str(path / "q.db"), durable=False),
        with_table(SqliteStore(str(path / "q.db"), durable=False), 8),
        OnCallersConnection(SqliteStore(str(path / "q.db"), durable=False), str(path / "q.db")),
    ),
}


class Stores(RuleBasedStateMachine):
    """Runs each command at both harnesses."""

    kind = "sqlite"
    url: Any = None
    dead_letter = "dead"
    deliveries: Bundle[tuple[str, Delivery]] = Bundle("deliveries")
    locks: Bundle[SessionAnswer] = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name)
        self.harnesses = [StoreHarness(KINDS[kind](path, self.url)) for kind in ("memory", self.kind)]
        self.epochs: dict[str, int] = {}
        self.both("make", "dead")
        self.both("make", "q", dead_letter=self.dead_letter, max_receives=2, visibility_timeout_s=3, dedup_window_s=7)

    def teardown(self) -> None:
        try:
            self.all_comes_out()
        finally:
            for harness in self.harnesses:
                harness.close()
            self._directory.cleanup()

    def all_comes_out(self) -> None:
        """Whatever was done before, nothing is forgotten."""
        self.look_at_groups(queue="q", group="a")
        for group in ("a", "b", "d"):
            self.both("ask", group, SessionVerb.RESUME)
        self.both("wait", 20)
        for queue in ("q", "dead"):
            self.both("drain", queue=queue)

    def both(self, verb: str, *args: Any, **more: Any) -> Any:
        if self.kind == "postgres" and verb in CHANGES:  # it finds out at the next receive what became ready in between
            for queue in ("q", "dead"):
                self.both("receive", queue=queue, group="nobody")
        expected, actual = (getattr(harness, verb)(*args, **more) for harness in self.harnesses)
        assert actual == expected
        return actual

    @rule(
        group=GROUPS,
        texts=st.lists(st.sampled_from("xyz"), min_size=1, max_size=4),
        queue=QUEUES,
        dedup_id=st.sampled_from([None, None, "1", "2"]),
        delay_ms=st.sampled_from([None, None, 0, 2_000]),
    )
    def send(self, group: str | None, texts: list[str], queue: str, dedup_id: str | None, delay_ms: int | None) -> None:
        self.both("offer", *texts, group=group, queue=queue, dedup_id=dedup_id, delay_ms=delay_ms)

    @initialize(lead=st.sampled_from([None, 1, 4, 100]), priority=st.integers(-1, 2))
    def begin_with_priorities(self, lead: int | None, priority: int) -> None:
        self.configure(None, 0, None, single_writer=False, priority_lead=lead, keep_for=None, keep_bytes=None)
        self.both("prioritize", "b", priority)

    @rule(
        numbering=st.sampled_from([None, Numbering(), Numbering(), Numbering(0), Numbering(2)]),
        group=st.sampled_from(["a", "b", "c"]),
        revision=st.sampled_from([None, None, 1, 3]),
        count=st.integers(1, 3),
        dedup_id=st.sampled_from([None, None, "1", "2"]),
        queue=QUEUES,
    )
    def number(
        self,
        numbering: Numbering | None,
        group: str,
        revision: int | None,
        count: int,
        dedup_id: str | None,
        queue: str,
    ) -> None:
        revision = None if numbering else revision
        self.both(
            "offer",
            *"xyz"[:count],
            group=group,
            revision=revision,
            numbering=numbering,
            dedup_id=dedup_id,
            epoch=self.epochs.get(group),
            queue=queue,
        )

    @rule(
        items=st.lists(
            st.tuples(
                st.sampled_from(["a", "b"]),
                st.sampled_from([None, Numbering(), Numbering(), Numbering(1)]),
                st.sampled_from([None, None, 4]),
                st.sampled_from([None, None, None, "1", "3"]),
            ),
            min_size=2,
            max_size=5,
        )
    )
    def number_each(self, items: list[tuple[str, Numbering | None, int | None, str | None]]) -> None:
        drafts = [
            Draft(
                "m",
                Content.TEXT,
                group,
                None if numbering else revision,
                dedup_id,
                numbering=numbering,
                epoch=self.epochs.get(group),
            )
            for group, numbering, revision, dedup_id in items
        ]
        self.both("offer_each", *drafts)

    @rule(group=st.sampled_from(["a", "b"]), revision=st.sampled_from([1, 3]))
    def begin_numbering(self, group: str, revision: int) -> None:
        self.both("begin_numbering", group, revision)

    @rule(
        group=st.sampled_from(["a", "b"]),
        verb=st.sampled_from(WriterVerb),
        name=st.sampled_from(["one", "two"]),
        by_force=st.sampled_from([False, False, True]),
        ms=st.sampled_from([1_000, 5_000]),
    )
    def writer(self, group: str, verb: WriterVerb, name: str, by_force: bool, ms: int) -> None:
        epoch = self.epochs.get(group, 0)
        answer = self.both("writer", group, verb, name, epoch=epoch, ms=ms, by_force=by_force)
        if verb is WriterVerb.TAKE and answer.done and name == "one":  # the epochs of "two" are never used to send
            self.epochs[group] = answer.lease.epoch

    @rule(group=st.sampled_from(["a", "b", "c"]), priority=st.sampled_from([-1, 0, 1, 2]))
    def prioritize(self, group: str, priority: int) -> None:
        self.both("prioritize", group, priority)

    @rule(
        target=deliveries,
        limit=st.integers(1, 5),
        queue=QUEUES,
        group=st.sampled_from([None, None, None, "a"]),
        lapsed=st.sampled_from(LapsedRule),
    )
    def receive(self, limit: int, queue: str, group: str | None, lapsed: LapsedRule) -> Any:
        received = self.both("receive", limit, queue=queue, group=group, lapsed=lapsed)
        return multiple(*((queue, delivery) for delivery in received))

    @rule(
        target=deliveries,
        requests=st.lists(
            st.builds(
                ReceiveRequest,
                st.integers(1, 3),
                st.none(),
                st.sampled_from([None, None, "a", "b"]),
                lapsed=st.sampled_from(LapsedRule),
            ),
            min_size=1,
        ),
        queue=QUEUES,
    )
    def receive_each(self, requests: list[ReceiveRequest], queue: str) -> Any:
        received = self.both("receive_each", *requests, queue=queue)
        return multiple(*((queue, delivery) for part in received for delivery in part))

    @rule(received=deliveries)
    def ack(self, received: tuple[str, Delivery]) -> None:
        self.both("ack", received[1], queue=received[0])

    @rule(queue=QUEUES)
    def drain(self, queue: str) -> None:
        self.both("drain", queue=queue)

    @rule(received=deliveries, s=st.sampled_from([0, 0, 2]))
    def nack(self, received: tuple[str, Delivery], s: float) -> None:
        self.both("nack", received[1], queue=received[0], s=s)

    @rule(received=deliveries)
    def nack_as_the_queue_says(self, received: tuple[str, Delivery]) -> None:
        self.both(
            "settle",
            Settlement(received[1].message.sequence_number, received[1].token, SettleAction.NACK, None),
            queue=received[0],
        )

    @rule(received=deliveries, ms=st.sampled_from([0, 2_000]), attempts=st.integers(0, 2))
    def nack_with_attempts(self, received: tuple[str, Delivery], ms: int, attempts: int) -> None:
        number, token = received[1].message.sequence_number, received[1].token
        self.both("settle", Settlement(number, token, SettleAction.NACK, ms, attempts=attempts), queue=received[0])

    @rule(received=deliveries, s=st.integers(0, 5))
    def extend(self, received: tuple[str, Delivery], s: float) -> None:
        self.both("extend", received[1], queue=received[0], s=s)

    @rule(received=deliveries, act=st.sampled_from([SettleAction.EXTEND, SettleAction.NACK]))
    def change_whoever_has_it(self, received: tuple[str, Delivery], act: SettleAction) -> None:
        queue, delivery = received
        self.both(
            "settle", Settlement(delivery.message.sequence_number, None, act, 2_000, any_holder=True), queue=queue
        )

    @rule(received=st.lists(deliveries, min_size=2, max_size=4))
    def ack_together(self, received: list[tuple[str, Delivery]]) -> None:
        self.both("ack", *(delivery for queue, delivery in received if queue == "q"))

    @rule(
        received=st.lists(
            st.tuples(
                deliveries,
                st.sampled_from([SettleAction.ACK, SettleAction.EXTEND, SettleAction.NACK, SettleAction.DEFER]),
            ),
            min_size=2,
            max_size=5,
        )
    )
    def settle(self, received: list[tuple[tuple[str, Delivery], SettleAction]]) -> None:
        changes = [
            Settlement(delivery.message.sequence_number, delivery.token, act, 2_000)
            for (queue, delivery), act in received
            if queue == "q"
        ]
        self.both("settle", *changes)

    @rule(received=deliveries)
    def defer(self, received: tuple[str, Delivery]) -> None:
        self.both("defer", received[1], queue=received[0])

    @rule(target=deliveries, received=deliveries)
    def fetch_again(self, received: tuple[str, Delivery]) -> Any:
        queue, delivery = received
        return multiple(
            *((queue, fetched) for fetched in self.both("fetch", delivery.message.sequence_number, queue=queue))
        )

    @rule(target=deliveries, index=st.integers(0, 3))
    def fetch(self, index: int) -> Any:
        entries = self.both("read", deferred=True)[index:]
        return multiple(
            *(("q", delivery) for entry in entries[:1] for delivery in self.both("fetch", entry.sequence_number))
        )

    @rule(index=st.integers(0, 5))
    def cancel(self, index: int) -> None:
        self.both("cancel", *(entry.sequence_number for entry in self.both("read")[index : index + 2]))

    @rule(target=locks, group=st.sampled_from(["a", "b", "d", None, None]), s=st.sampled_from([1, 3, 10]))
    def lock(self, group: str | None, s: float) -> Any:
        answer = self.both("lock", group, s=s)
        return multiple(answer) if answer.verdict is SettleResult.DONE else multiple()

    @rule(target=deliveries, lock=locks, limit=st.integers(1, 3))
    def within(self, lock: SessionAnswer, limit: int) -> Any:
        return multiple(*(("q", delivery) for delivery in self.both("within", lock, limit)))

    @rule(target=deliveries, lock=locks, index=st.integers(0, 3))
    def fetch_within(self, lock: SessionAnswer, index: int) -> Any:
        entries = self.both("read", deferred=True)[index : index + 1]
        received = [delivery for entry in entries for delivery in self.both("fetch", entry.sequence_number, lock=lock)]
        return multiple(*(("q", delivery) for delivery in received))

    @rule(
        lock=locks, verb=st.sampled_from([SessionVerb.LOOK, SessionVerb.GET_STATE, SessionVerb.CLOSE, SessionVerb.PARK])
    )
    def hold(self, lock: SessionAnswer, verb: SessionVerb) -> None:
        self.both("hold", lock, verb, note="why")

    @rule(lock=locks, s=st.sampled_from([1, 5]))
    def renew(self, lock: SessionAnswer, s: float) -> None:
        self.both("hold", lock, SessionVerb.RENEW, s=s)

    @rule(lock=locks, state=st.sampled_from([b"", b"x", None]))
    def set_state(self, lock: SessionAnswer, state: bytes | None) -> None:
        self.both("hold", lock, SessionVerb.SET_STATE, state=state)

    @rule(
        group=st.sampled_from(["a", "b"]),
        verb=st.sampled_from([SessionVerb.PARK, SessionVerb.RESUME, SessionVerb.RESUME]),
    )
    def decide(self, group: str, verb: SessionVerb) -> None:
        self.both("ask", group, verb, note="so")

    @rule(index=st.integers(0, 3), to_dead=st.booleans())
    def move(self, index: int, to_dead: bool) -> None:
        source, target = ("q", "dead") if to_dead else ("dead", "q")
        self.both("move", target, *self.both("read", queue=source, pending=True)[index : index + 2], queue=source)

    @rule(seconds=st.sampled_from([1, 2, 3, 8, -5]))
    def wait(self, seconds: float) -> None:
        if (
            self.kind not in (SHARED, CALLERS) or seconds > 0
        ):  # that the clock went back, each process finds out when it looks
            self.both("wait", seconds)

    @rule(reader=st.sampled_from(["r", "s"]), index=st.sampled_from([None, 0, 1, 3]))
    def reader(self, reader: str, index: int | None) -> None:
        entries = self.both("read")
        position = None if index is None or not entries else entries[min(index, len(entries) - 1)].sequence_number
        self.both("readers", **{reader: position})

    @rule(
        retention_s=st.sampled_from([None, 10]),
        retry_delay_s=st.sampled_from([0, 0, 1]),
        max_depth=st.sampled_from([None, None, 4, 8]),
        single_writer=st.sampled_from([False, False, True]),
        priority_lead=st.sampled_from([None, 1, 4, 100]),
        keep_for=st.sampled_from([None, 3, 10]),
        keep_bytes=st.sampled_from([None, None, 3]),
    )
    def configure(
        self,
        retention_s: float | None,
        retry_delay_s: float,
        max_depth: int | None,
        single_writer: bool,
        priority_lead: int | None,
        keep_for: float | None,
        keep_bytes: int | None,
    ) -> None:
        self.both(
            "make",
            "q",
            dead_letter=self.dead_letter,
            max_receives=2,
            visibility_timeout_s=3,
            dedup_window_s=7,
            retention_s=retention_s,
            retry_delay_s=retry_delay_s,
            max_depth=max_depth,
            single_writer=single_writer,
            priority_lead=priority_lead,
            keep_for=keep_for,
            keep_bytes=keep_bytes,
        )

    @rule(index=st.integers(0, 3), queue=QUEUES)
    def erase(self, index: int, queue: str) -> None:
        """Whoever has it."""
        numbers = [entry.sequence_number for entry in self.both("read", queue=queue)[index : index + 2]]
        changes = [Settlement(number, None, SettleAction.ERASE, any_holder=True) for number in numbers]
        self.both("settle", *changes, queue=queue)

    @rule(queue=QUEUES)
    def keep_all(self, queue: str) -> None:
        self.both("make", queue, keep_for=1_000)

    @rule(queue=QUEUES, group=st.sampled_from(["a", "b", None]), index=st.integers(0, 5), to=st.integers(0, 5))
    def look_into_the_log(self, queue: str, group: str | None, index: int, to: int) -> None:
        numbers = [entry.sequence_number for entry in self.both("read", queue=queue)] or [0]
        after, up_to = numbers[min(index, len(numbers) - 1)], numbers[min(to, len(numbers) - 1)]
        self.both("log", queue=queue, group=group)
        self.both("log", queue=queue, group=group, after=after)
        self.both("log", queue=queue, group=group, after=after, up_to=up_to)

    @rule(queue=QUEUES, ago_s=st.sampled_from([0, 1, 3, 8]))
    def seek(self, queue: str, ago_s: int) -> None:
        at_ms = self.harnesses[0].now - ago_s * 1_000
        number = self.both("log_time", at_ms, queue=queue)
        self.both("readers", queue, sought=number)

    @rule(queue=QUEUES, group=st.sampled_from(["a", "b"]))
    def look_at_groups(self, queue: str, group: str) -> None:
        """Not after every step: SQLite then has all of them in its table, whatever comes next."""
        self.both("read", queue=queue, group=group)
        self.both("read", queue=queue, group=group, deferred=True)
        self.both("groups", queue=queue)

    @invariant()
    def the_same_is_seen(self) -> None:
        for queue in ("q", "dead"):
            self.both("read", queue=queue)
            self.both("read", queue=queue, pending=True)
            self.both("read", queue=queue, deferred=True)
            self.both("log", queue=queue)
            self.both("parked", queue=queue)
            self.both("depth", queue=queue)
            self.both("room", queue=queue)
            if self.kind == "postgres":
                self.look_at_groups(queue=queue, group="a")
            if self.kind not in (SHARED, CALLERS):  # when something is due is what a process has seen itself
                self.both("info", queue)


@pytest.mark.soak
@pytest.mark.parametrize("dead_letter", [pytest.param("dead", marks=pytest.mark.slow), "q"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if "," in kind else ()) for kind in KINDS if kind != "memory"]
)
def test_every_store_answers_random_commands_like_the_memory_store(
    kind: str, dead_letter: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_LOOK_MS", 0)  # a store looks at every receive for what it may remove
    monkeypatch.setattr(limits, "LOG_BLOCK", 4)
    url = request.getfixturevalue("postgres_schemas").next if kind == "postgres" else None
    own = {"kind": kind, "url": staticmethod(url) if url else None, "dead_letter": dead_letter}
    machine = type("Stores", (Stores,), own)
    from hypothesis.stateful import run_state_machine_as_test

    examples = settings().max_examples // (1 if dead_letter == "dead" else 2)
    if kind == "postgres":  # every command is a journey to a server
        examples = examples * 2 // 5
    if kind == CALLERS:  # every command is done twice, and reads the queues again
        examples = max(examples // 12, 1)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=40))
