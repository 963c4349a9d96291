"""PostgreSQL: any number of processes at once, here as many connections and threads. Histories are checked."""

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest

import inturn
from clocks import SkewedClocks
from inturn.core.errors import LeaseExpired
from inturn.database import Database
from inturn.queue import QueueSettings, draft
from inturn.store.postgres import statements
from inturn.store.postgres.connection import connect
from threads import together
from waiting import DEADLINE_S


@pytest.fixture
def databases(postgres_url: str) -> Iterator[list[Database]]:
    """Three, each with a connection of its own, as three processes have them."""
    with ExitStack() as stack:
        yield [stack.enter_context(inturn.open(postgres_url)) for _ in range(3)]


# --- one order for all ---


def orders_seen(url: str) -> tuple[list[list[int]], list[int]]:
    """What readers have seen of a queue, each in its order, while many send in slow transactions; and what there is."""
    senders, readers, per_sender = 6, 3, 12
    with inturn.open(url) as db:
        queue = db.queue("q")
        queue.send("the first")  # what is prepared and looked at once is over
    is_over = threading.Event()
    seen: list[list[int]] = [[] for _ in range(readers)]
    with ExitStack() as stack:
        opened = [stack.enter_context(inturn.open(url)) for _ in range(senders + readers)]

        def send(index: int) -> None:
            chance, own_queue = random.Random(index), opened[index].queue("q")
            for number in range(per_sender):
                with opened[index].transaction() as tx:
                    own_queue.send(number, tx=tx)
                    time.sleep(chance.choice([0, 0.001, 0.004]))

        def read(index: int) -> None:
            reader, last, had = opened[senders + index].queue("q").reader(f"r{index}"), 0, 1
            while had or not is_over.is_set():
                is_last = is_over.is_set()
                entries = reader.read(1000, after=last)
                had = len(entries) + (not is_last)
                seen[index] += [entry.sequence_number for entry in entries]
                last = seen[index][-1] if seen[index] else 0

        def send_all() -> None:
            together(*(lambda index=index: send(index) for index in range(senders)))  # type: ignore[misc]
            is_over.set()

        together(send_all, *(lambda index=index: read(index) for index in range(readers)))  # type: ignore[misc]
        order = [entry.sequence_number for entry in queue_of(opened[0]).peek(1000)]
    return seen, order


def queue_of(db: Database) -> Any:
    return db.queue("q", create=False)


def test_concurrent_readers_see_one_gapless_order(postgres_url: str) -> None:
    seen, order = orders_seen(postgres_url)
    assert seen == [order] * 3
    assert order == list(range(order[0], order[0] + len(order))), "there are gaps"
    assert len(order) == 6 * 12 + 1


def test_without_the_numbering_lock_readers_would_miss_messages(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above is one that can fail: without the lock on the queue's numbering readers miss messages."""
    connection, _ = connect(postgres_url)
    with connection:
        connection.execute("create sequence numbers start 17592186044416")
    guarded = statements._SQL["send"]
    (numbering,) = re.findall(r"update inturn_numbering .* as before", guarded, re.DOTALL)
    unguarded = "select nextval('numbers') as before where $2::int = 1"
    monkeypatch.setitem(statements._SQL, "send", guarded.replace(numbering, unguarded))
    with inturn.open(postgres_url) as one, inturn.open(postgres_url) as other:
        late, early, reader = one.queue("q"), other.queue("q"), other.queue("q").reader("r")
        for queue in (late, early):
            queue.send("the first")  # of a connection: it locks the numbering anyway, to record the incarnation
        with one.transaction() as tx:
            late.send("late", tx=tx)
            early.send("early")  # with the lock it waits for the other's transaction
            seen = reader.read(10)
        assert reader.read(10, after=seen[-1].sequence_number) == []
        bodies = [message.body for message in early.peek()]
        assert bodies == ["the first"] * 2 + ["late", "early"], "the late one is before what was read"


# --- nothing is lost, nothing comes twice, each group in its order ---


class Workshop:
    """Those who send and those who work off, and what they did."""

    senders, each, groups = 3, 40, 3

    def __init__(self, databases: list[Database], url: str, seed: int) -> None:
        self.databases, self.url, self.seed = databases, url, seed
        self.sent: list[list[tuple[str, int]]] = [[] for _ in range(self.senders)]
        self.done: dict[object, tuple[str, int, int]] = {}  # by attempt, of which two may be at one message
        self.until = time.monotonic() + 60

    def send(self, index: int) -> None:
        """Messages of one sender, some in slow transactions."""
        chance, queue = random.Random(f"{self.seed} send {index}"), self.databases[index].queue("q")
        with psycopg.connect(self.url) as connection:
            for number in range(self.each):
                group = f"g{chance.randrange(self.groups)}"
                if chance.random() < 0.5:
                    queue.send([index, number], group=group)
                else:
                    queue.send([index, number], group=group, tx=connection)
                    time.sleep(chance.choice([0, 0.002]))
                    connection.commit()
                self.sent[index].append((group, number))
                time.sleep(chance.choice([0, 0, 0.005]))

    def work(self, index: int) -> None:
        """Work off, give some back, forget some."""
        chance, queue = random.Random(f"{self.seed} work {index}"), self.databases[index % 3].queue("q")
        with psycopg.connect(self.url) as connection:
            while len(self.done) < self.senders * self.each and time.monotonic() < self.until:
                messages = queue.receive(chance.randint(1, 4), wait_s=0.05)
                while messages:
                    draw = chance.random()
                    try:
                        if draw < 0.1:
                            queue.nack(messages)
                            break
                        if draw < 0.12:
                            break  # their leases end
                        self.acknowledge(messages.pop(0), connection if draw < 0.5 else None, chance)
                    except LeaseExpired:
                        break

    def acknowledge(self, message: Any, connection: Any, chance: random.Random) -> None:
        attempt = object()
        # Before it is acknowledged, since the next one of its group comes then.
        self.done[attempt] = (message.group, *message.body)
        try:
            message.ack(tx=connection)
        except LeaseExpired:
            del self.done[attempt]
            raise
        finally:
            if connection is not None:
                time.sleep(chance.choice([0, 0.001, 0.003]))
                connection.commit()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_concurrent_processes_deliver_each_group_in_order(
    databases: list[Database], postgres_url: str, seed: int, soak_seed: int
) -> None:
    """Some acknowledge in slow transactions of their own, some give back, some let leases end, all the while sending.

    A wake-up that is lost would leave a group that nobody is given any more, and its messages unacknowledged.
    """
    queue = databases[0].queue("q", QueueSettings(visibility_timeout_s=0.25))
    shop = Workshop(databases, postgres_url, 3 * (soak_seed - 1) + seed)
    together(
        *(lambda index=index: shop.send(index) for index in range(shop.senders)),  # type: ignore[misc]
        *(lambda index=index: shop.work(index) for index in range(5)),  # type: ignore[misc]
    )
    assert queue.depth().messages == 0
    done = list(shop.done.values())
    assert len(done) == len(set(done)) == shop.senders * shop.each
    for index in range(shop.senders):  # what one sends into a group comes in its order
        for group in {name for name, _ in shop.sent[index]}:
            expected = [number for name, number in shop.sent[index] if name == group]
            assert [number for name, sender, number in done if (name, sender) == (group, index)] == expected


def test_a_send_racing_the_last_acknowledgement_does_not_stall_the_group(
    databases: list[Database], postgres_url: str
) -> None:
    """Whichever is committed first, and whoever looks for messages meanwhile."""
    chance = random.Random(7)
    one, other, third = (db.queue("q") for db in databases)
    rounds = 150
    barrier = threading.Barrier(3, timeout=DEADLINE_S)
    leases: list[Any] = []
    bodies: list[Any] = []
    one.send(0, group="a")
    leases += one.receive(visibility_timeout_s=60)
    pauses = [[chance.choice([0, 0, 0.0005, 0.002]) for _ in range(4)] for _ in range(rounds)]

    def acknowledge() -> None:
        with psycopg.connect(postgres_url) as connection:
            for pause in pauses:
                barrier.wait()
                time.sleep(pause[0])
                leases.pop().ack(tx=connection)
                time.sleep(pause[1])
                connection.commit()
                barrier.wait()
                barrier.wait()

    def send() -> None:
        with psycopg.connect(postgres_url) as connection:
            for number, pause in enumerate(pauses, 1):
                barrier.wait()
                time.sleep(pause[2])
                other.send(number, group="a", tx=connection)
                time.sleep(pause[3])
                connection.commit()
                barrier.wait()
                barrier.wait()

    def receive() -> None:
        for _ in pauses:
            barrier.wait()
            messages = [*third.receive(visibility_timeout_s=60), *third.receive(visibility_timeout_s=60)]
            barrier.wait()
            messages += third.receive(visibility_timeout_s=60)  # both are done
            bodies.extend(message.body for message in messages)
            leases.extend(messages)
            assert len(messages) == 1, f"after {bodies[-3:]} the group stands still"
            barrier.wait()

    def or_break(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException:
            barrier.abort()
            raise

    with suppress(threading.BrokenBarrierError):
        together(*(lambda act=act: or_break(act) for act in (receive, acknowledge, send)))  # type: ignore[misc]
    assert bodies == list(range(1, rounds + 1))


# --- leases ---


def test_a_paused_receiver_with_an_expired_lease_cannot_acknowledge(databases: list[Database]) -> None:
    first_queue, second_queue = databases[0].queue("q"), databases[1].queue("q")
    first_queue.send("a", group="a")
    (paused,) = first_queue.receive(visibility_timeout_s=0.1)
    (message,) = second_queue.receive(wait_s=30)
    assert message.fencing_token > paused.fencing_token
    for act in (paused.ack, lambda: paused.extend(60), paused.nack, paused.defer):
        with pytest.raises(LeaseExpired):
            act()
    message.ack()
    assert second_queue.depth().messages == 0


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_lease_expiring_during_an_uncommitted_ack_keeps_its_group_blocked(
    clocks: SkewedClocks, postgres_url: str, is_kept: bool
) -> None:
    first_queue, second_queue = clocks.queue(), clocks.queue()
    first_queue.send_many([draft(body, group=body[0]) for body in ("a1", "a2", "b1")])
    with psycopg.connect(postgres_url) as connection:
        (message,) = first_queue.receive(visibility_timeout_s=30)
        message.ack(tx=connection)
        clocks.now += 31
        (second_message,) = second_queue.receive(visibility_timeout_s=60)
        assert second_message.body == "b1"
        assert second_queue.receive(wait_s=0.5) == []  # whatever the time: it may be acknowledged
        if is_kept:
            connection.commit()
        else:
            connection.rollback()
        (following,) = second_queue.receive(wait_s=30)
        assert (following.body, following.attempts) == (("a2", 1) if is_kept else ("a1", 2))
    assert second_queue.depth().messages == (2 if is_kept else 3)
