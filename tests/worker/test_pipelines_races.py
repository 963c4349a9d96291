"""Workers on several machines at the pipelines of one PostgreSQL database: no output is forgotten, few wait."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import permutations

import psycopg
import pytest

from inturn.core.pipeline.results import RejectedMessage
from inturn.store.failures import RunAgain
from inturn.store.postgres import PostgresStore
from inturn.store.records import GroupRecord, GroupUpdate, HeldRecord, OutboxClaim, OutputRecord, PipelineInfo
from threads import Running, together
from waiting import until

NOW = 1_000_000


class Machines:
    """Several stores over one database; what one has begun, the others see when it is committed."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.stores = [PostgresStore(url, durable=False) for _ in range(3)]
        self._beside = stack.enter_context(psycopg.connect(url, autocommit=True))
        for store in self.stores:
            stack.callback(store.close)
            store.wire.pg.exec_(b"set lock_timeout = '5s'")
        with self.stores[0].transaction():
            self.stores[0].pipelines.save(PipelineInfo(0, "p"))

    def is_waiting(self, machine: int) -> bool:
        """Whether a machine waits for the transaction of another."""
        pid = self.stores[machine].wire.pg.backend_pid
        return self._beside.execute("select pg_blocking_pids(%s) <> '{}'", [pid]).fetchone() == (True,)

    def info(self, machine: int = 0) -> PipelineInfo:
        info = self.stores[machine].pipelines.info("p")
        assert info is not None
        return info

    def keep(self, *updates: GroupUpdate, machine: int = 0, rejected: tuple[RejectedMessage, ...] = ()) -> list[str]:
        """What turns leave behind, with all statements done."""
        info = self.info(machine)
        overtaken = self.stores[machine].pipelines.save_updates(info, updates, rejected, NOW)
        self.stores[machine].wire.flush()
        return overtaken

    def claim(self, machine: int = 0, now_ms: int = NOW) -> list[OutboxClaim]:
        return self.stores[machine].pipelines.claim(self.info(machine), 10, 10, now_ms + 30_000, now_ms)

    def take(self, machine: int = 0) -> list[str]:
        """Claim what there is, and deliver it."""
        claims = self.claim(machine)
        for claim in claims:
            assert self.delivered(claim, machine)
        return [output.output for claim in claims for output in claim.outputs]

    def delivered(self, claim: OutboxClaim, machine: int = 0, count: int | None = None) -> bool:
        count = len(claim.outputs) if count is None else count
        done = self.stores[machine].pipelines.delivered(self.info(machine).number, claim, count, NOW, None)
        self.stores[machine].wire.flush()
        return done


@pytest.fixture
def machines(postgres_url: str) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(postgres_url, stack)


def kept(group: str, version: int, *outputs: str, held: tuple[HeldRecord, ...] = ()) -> GroupUpdate:
    record = GroupRecord(group, version, "open", b"t", b"s", len(held), None, None)
    output_records = [
        OutputRecord(0, group, None, version, None, index, f"{version}-{index}", o) for index, o in enumerate(outputs)
    ]
    return GroupUpdate(record, held, (), output_records)


STEPS = [("keep", 0), ("kept", 0), ("deliver", 1), ("delivered", 1), ("claim", 2), ("claimed", 2)]
ORDERS = [
    order
    for order in permutations(STEPS)
    if all(order.index(STEPS[first]) < order.index(STEPS[first + 1]) for first in (0, 2, 4))
]


def test_no_output_is_lost_in_any_interleaving_of_make_deliver_and_claim(postgres_url: str) -> None:
    """One makes an output, one delivers the last one that there was, one claims: in all 90 orders of their steps.

    Who delivers may have to wait until who claims is done; nobody else waits.
    """
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        machines = Machines(postgres_url, stack)
        for number, order in enumerate(ORDERS):
            group = f"g{number}"
            with machines.stores[0].transaction():
                machines.keep(kept(group, 0, "first"))
            with machines.stores[1].transaction():
                (claim,) = machines.claim(1)
            seen: list[str] = []
            delivering: Future[bool] | None = None
            steps = list(order)
            while steps:
                step, machine = steps.pop(0)
                if step in ("keep", "deliver", "claim"):
                    machines.stores[machine].transaction().__enter__()
                if step == "keep":
                    assert machines.keep(kept(group, 1, "second")) == []
                elif step == "deliver":
                    delivering = threads.submit(machines.delivered, claim, 1)
                    wait([delivering], 0.05)
                elif step == "claim":
                    seen += machines.take(2)
                elif step == "delivered" and ("claimed", 2) in steps and delivering and not delivering.done():
                    steps.remove(("claimed", 2))
                    steps[:0] = [("claimed", 2), (step, machine)]
                else:
                    assert step != "delivered" or (delivering is not None and delivering.result())
                    machines.stores[machine].transaction().__exit__(None, None, None)
            with machines.stores[0].transaction():
                seen += machines.take()
                assert machines.stores[0].pipelines.outputs(1, 0, 10) == []
                assert machines.stores[0].pipelines.pending_deliveries(1, [group], 10) == []
            assert seen == ["second"], order
        store = machines.stores[0]
        with store.transaction():
            machines.claim()
        with store.transaction():
            remaining = store.execute(
                "select (select count(*) from inturn_outbox), (select count(*) from inturn_outbox_note)"
            )
            assert remaining.fetchall() == [(0, 0)]


def test_a_failed_output_blocks_only_its_own_group(machines: Machines) -> None:
    store = machines.stores[0]
    with store.transaction():
        machines.keep(kept("bad", 0, "1"), kept("good", 0, "1"))
        bad, good = machines.claim()
        store.pipelines.delivered(1, bad, 0, NOW + 5_000, "no\0t now")
        machines.delivered(good)
        machines.keep(kept("bad", 1, "2"), kept("good", 1, "2"))
        assert [(claim.group, claim.attempts) for claim in machines.claim()] == [("good", 0)]
        (failing,) = store.pipelines.pending_deliveries(1, None, 10)
        assert failing == ("bad", NOW + 5_000, 1, "no\0t now", 2)
        (retried,) = machines.claim(now_ms=NOW + 5_000)
        assert (retried.attempts, [output.output for output in retried.outputs]) == (1, ["1", "2"])


def test_the_second_of_two_concurrent_updates_of_a_group_is_reported_as_a_conflict(machines: Machines) -> None:
    """The second waits for the first only, and a group beside it is nobody's business."""
    one, other = machines.stores[:2]
    with one.transaction():
        machines.keep(kept("g", 0), kept("beside", 0))

    def late() -> list[str]:
        with other.transaction():
            return machines.keep(kept("g", 1, "late"), machine=1)

    with one.transaction():
        assert machines.keep(kept("g", 1, "early")) == []
        with other.transaction():
            assert machines.keep(kept("beside", 1), machine=1) == []
        second = Running(late)
        until(lambda: machines.is_waiting(1))
        assert not second.is_over
    assert second.end() == ["g"]
    with one.transaction():
        assert [output.output for output in one.pipelines.outputs(1, 0, 10)] == ["early"]


def test_the_second_of_two_concurrent_creations_of_a_group_is_run_again(machines: Machines) -> None:
    def late() -> None:
        with machines.stores[1].transaction():
            machines.keep(kept("new", 0), machine=1)

    with machines.stores[0].transaction():
        machines.keep(kept("new", 0))
        second = Running(late)
        until(lambda: machines.is_waiting(1))
    with pytest.raises(RunAgain):
        second.end()
    with machines.stores[1].transaction():
        assert machines.keep(kept("new", 0), machine=1) == ["new"]


def test_concurrent_counts_of_several_stores_add_up(machines: Machines) -> None:
    def count(machine: int) -> None:
        for number in range(40):
            with machines.stores[machine].transaction():
                info = machines.info(machine)
                info.counts["applied"] = info.counts.get("applied", 0) + 2
                rejected = info.counts.setdefault("rejected", {})
                rejected["late"] = rejected.get("late", 0) + 1
                update = kept(f"{machine}-{number}", 0, "o")
                machines.stores[machine].pipelines.save_updates(
                    info, [update], [RejectedMessage("g", "late", "", "{}")], NOW
                )

    together(*(partial(count, machine) for machine in range(3)))
    with machines.stores[0].transaction():
        info = machines.info()
        assert (info.counts, info.outputs) == ({"applied": 240, "rejected": {"late": 120}}, 120)
        assert len(machines.stores[0].pipelines.rejections(1, 0, 1000)) == 120


def test_texts_with_nul_and_control_characters_are_stored_unchanged(machines: Machines) -> None:
    texts = ["\0", "\0\1", "\1", "\1\0", "\1\1", "\1\2", "\\x00", "a\0b", "é\0"]
    store = machines.stores[0]
    with store.transaction():
        for text in texts:
            held = HeldRecord(0, 1, "", text, 5, b"\0", "{}")
            rejection = RejectedMessage(text, "invalid", text, text)
            assert machines.keep(kept(text, 0, "o", held=(held,)), rejected=(rejection,)) == []
            assert store.pipelines.held(1, text, None, [text]) == store.pipelines.held(1, text) == [held]
        assert [record.group for record in store.pipelines.list_groups(1, "", 100)] == sorted(texts)
        assert [record.group for record in store.pipelines.list_groups(1, "\1", 2)] == sorted(texts)[3:5]
        assert {output.group for output in store.pipelines.outputs(1, 0, 100)} == set(texts)
        assert sorted(claim.group for claim in machines.claim()) == sorted(texts)
        rejections = store.pipelines.rejections(1, 0, 100)
        assert [(rejection.group, rejection.detail, rejection.message) for _, rejection in rejections] == [
            (text,) * 3 for text in texts
        ]


def test_begin_skips_a_group_locked_by_another_transaction_but_ending_waits_for_it(machines: Machines) -> None:
    one, other = machines.stores[:2]
    with one.transaction():
        machines.keep(kept("a", 0), kept("b", 0))

    def end() -> None:
        with other.transaction():
            other.pipelines.save_begun(1, {"a": 4, "b": 0}, NOW)

    with ThreadPoolExecutor() as threads:
        with one.transaction():
            machines.keep(kept("a", 1))
            with other.transaction():
                assert other.pipelines.save_begun_if_free(1, {"a": 1, "b": 1}, NOW) == ["a"]
                assert other.pipelines.begun_tasks(1, ["a", "b"]) == {"b": (1, NOW)}
            ending = threads.submit(end)
            until(lambda: machines.is_waiting(1))
        ending.result(timeout=30)
    with one.transaction():
        assert one.pipelines.begun_tasks(1, ["a", "b"]) == {"a": (4, NOW)}
