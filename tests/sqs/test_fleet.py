"""Several servers over one PostgreSQL: each part is killed, cut off or paused, and what clients were told holds."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from fleet import Commits, Postgres, Proxy, Server, faults, load

from inturn.testing.history import OK, UNASKED, UNKNOWN, Event, figures
from threads import Running
from waiting import until

pytestmark = pytest.mark.slow

Start = Callable[..., Server]
NONE: Mapping[str, float] = {}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    cluster = Postgres()
    yield cluster
    cluster.close()


@pytest.fixture
def options(postgres: Postgres) -> str:
    """What makes an address that of this test's own schema."""
    return postgres.schema()


@pytest.fixture
def start(postgres: Postgres, options: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a server, by its name, directly at PostgreSQL or behind a proxy."""
    with ExitStack() as stack:

        def started(
            name: str, *more: str, proxy: Proxy | None = None, bounds: Mapping[str, float] = NONE, **environment: str
        ) -> Server:
            db = proxy.url(options) if proxy else f"{postgres.url}&{options}"
            server = Server(db, tmp_path, name, *more, bounds=bounds, **environment)
            stack.callback(server.close)
            return server.start().up()

        yield started


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    running = Proxy(postgres.socket)
    yield running
    running.close()


def sound(events: list[Event], most: set[str]) -> None:
    """Nothing lost, nothing twice, the order kept, much done, and refused no more than was to be."""
    assert faults(events) == []
    counts = figures(events)
    assert counts["messages"] > 50, "too little was done to say anything"
    outcomes = {name.rpartition(" ")[2].rpartition(".")[2] for name in counts} - {"messages", "delivered", "again"}
    assert outcomes <= {OK, *most, "InvalidParameterValue", "MessageNotInflight"}, counts


def sent(client: Any, queue: str, body: str, group: str = "g") -> str:
    """A message's sequence number; its body is its deduplication id."""
    params = {"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body}
    return str(client.send_message(QueueUrl=queue, **params)["SequenceNumber"])


def received(client: Any, queue: str, **more: Any) -> list[dict[str, Any]]:
    return list(client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, **more).get("Messages", []))


def test_servers_that_start_at_once_create_tables_queues_and_keys_once(
    postgres: Postgres, options: str, tmp_path: Path
) -> None:
    """The tables, the queues and the keys are made once, whoever comes first."""
    config = tmp_path / "inturn.toml"
    config.write_text(
        '[server]\nregion = "eu-west-1"\n[[keys]]\nid = "shop"\nsecret = "s1"\n'
        '[[queues]]\nname = "orders.fifo"\nattributes = { FifoQueue = true }\n[[queues]]\nname = "mails"\n'
    )
    with ExitStack() as stack:
        servers = [
            Server(f"{postgres.url}&{options}", tmp_path, name, "--config", str(config), bounds={}) for name in "abc"
        ]
        for server in servers:
            stack.callback(server.close)
            server.start()
        for server in servers:
            key = {"aws_access_key_id": "shop", "aws_secret_access_key": "s1"}
            client = server.up().client(region_name="eu-west-1", **key)
            assert [url.rpartition("/")[2] for url in client.list_queues()["QueueUrls"]] == ["mails", "orders.fifo"]
        assert [server.stop() for server in servers] == [0, 0, 0]
        for server in servers:
            assert '"warning"' not in server.log.read_text()


def test_two_servers_share_queues_order_leases_and_deduplication(start: Start, tmp_path: Path) -> None:
    """What one does the other knows at once: queues, order, leases, and that a message is the same as before."""
    one, two = start("one"), start("two")
    queue = one.make()
    first, second = one.client(), two.client()
    numbers = [sent(client, queue, f"m{place}") for place, client in enumerate((first, second, first))]
    assert sorted(numbers) == numbers
    assert sent(second, queue, "m0") == numbers[0], "sent again elsewhere it is the same message"
    messages = received(second, queue)
    assert [message["Body"] for message in messages] == ["m0", "m1", "m2"]
    assert received(first, queue) == [], "the group is taken"
    for message in messages:
        first.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    assert received(second, queue) == []
    with load([one, two], queue, tmp_path) as events:
        time.sleep(2)
    sound(events, set())


def test_a_long_poll_is_woken_by_another_server(start: Start) -> None:
    """Without polling: the server that waits would look again after a minute, and its client waits for 20 s."""
    one, two = start("one"), start("two", bounds={"POLL_S": 60, "LISTEN_POLL_S": 60})
    queue = one.make()
    for body in ("first", "second"):
        waiting = Running(lambda: received(two.client(), queue, WaitTimeSeconds=20))
        time.sleep(1)  # so that it is parked
        sent(one.client(), queue, body, group=body)
        assert [message["Body"] for message in waiting.end()] == [body]


def test_clients_lose_nothing_when_a_server_is_killed(start: Start, tmp_path: Path) -> None:
    """The other goes on; the one that comes back goes on too."""
    one, two = start("one"), start("two")
    queue = one.make()
    with load([one, two], queue, tmp_path) as events:
        time.sleep(0.3)
        one.kill()
        one.start(INTURN_KILL_AT="before commit@40")
        one.process.wait(30)
        one.start().up()
        time.sleep(0.5)
    sound(events, {UNKNOWN, UNASKED})
    unknown = sum(times for name, times in figures(events).items() if name.endswith(UNKNOWN))
    assert unknown, "it was killed at a commit while nobody asked anything"


def test_clients_lose_nothing_when_postgresql_is_killed(postgres: Postgres, start: Start, tmp_path: Path) -> None:
    one, two = start("one"), start("two")
    queue = one.make()
    with load([one, two], queue, tmp_path) as events:
        for pause_s in (0.1, 1.0):
            time.sleep(0.5)
            postgres.kill()
            time.sleep(pause_s)
            postgres.start()
        time.sleep(0.5)
    sound(events, {UNKNOWN, "ServiceUnavailable"})


@pytest.mark.parametrize("before", [True, False], ids=["not done", "done"])
def test_a_connection_cut_at_commit_sends_the_message_exactly_once(start: Start, proxy: Proxy, before: bool) -> None:
    """The server asks PostgreSQL whether it was done, and does it if not; the client is answered rightly either way."""
    cut = proxy.cut = Commits(b"meant", before=before)
    server = start("one", proxy=proxy)
    queue = server.make()
    client = server.client()
    first = sent(client, queue, "before")
    cut.armed = True
    meant = sent(client, queue, "meant")
    assert cut.cuts == 1
    after = sent(client, queue, "after")
    assert sent(client, queue, "meant") == meant
    assert sorted((first, meant, after)) == [first, meant, after]
    assert [message["Body"] for message in received(client, queue)] == ["before", "meant", "after"]


def test_clients_lose_nothing_when_a_server_loses_its_database_connection(
    start: Start, proxy: Proxy, tmp_path: Path
) -> None:
    """First nothing comes through, and nobody is told; then its lines break. The others go on."""
    one, two = start("one", proxy=proxy), start("two")
    queue = two.make()
    with load([one, two], queue, tmp_path) as events:
        time.sleep(0.5)
        proxy.is_slow = True
        time.sleep(2)
        proxy.is_down = True
        proxy.is_slow = False
        time.sleep(1)
        before = len(two.log.read_text())
        proxy.is_down = False
        time.sleep(0.5)
        assert before == len(two.log.read_text()), "the other has something to complain about"
    sound(events, {UNKNOWN, "ServiceUnavailable"})


def test_a_paused_server_cannot_delete_a_message_received_elsewhere_since(start: Start) -> None:
    one, two = start("one"), start("two")
    queue = one.make()
    first, second = one.client(), two.client()
    sent(first, queue, "m")
    (late,) = received(first, queue, VisibilityTimeout=1)
    one.pause()
    deleting = Running(lambda: first.delete_message(QueueUrl=queue, ReceiptHandle=late["ReceiptHandle"]))
    (now,) = received(second, queue, WaitTimeSeconds=20, VisibilityTimeout=30)
    assert now["Body"] == "m"
    one.go_on()
    with pytest.raises(ClientError) as refused:
        deleting.end()
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    second.delete_message(QueueUrl=queue, ReceiptHandle=now["ReceiptHandle"])
    assert received(second, queue) == []


def test_messages_locked_by_a_paused_server_are_received_elsewhere(start: Start) -> None:
    """What it has locked is free again when PostgreSQL has ended its transaction; what it was to do is not done."""
    two = start("two")
    queue = two.make()
    client = two.client()
    bodies = {f"m{number}" for number in range(20)}
    for body in bodies:
        sent(client, queue, body, group=body)
    one = start("one", bounds={"TRANSACTION_S": 1, "SHARED_S": 600}, INTURN_STOP_AT="before commit@12")
    delivered: list[str] = []
    ended: list[BaseException] = []

    def receive() -> None:
        taker = one.client()
        try:
            while True:
                (message,) = taker.receive_message(QueueUrl=queue, VisibilityTimeout=60)["Messages"]
                delivered.append(message["Body"])
        except (BotoCoreError, ClientError, KeyError) as error:
            ended.append(error)

    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    until(one.is_paused, "it does not come to the point")
    remaining: set[str] = set()
    while remaining | {*delivered} != bodies:  # with what it was about to give when it stopped
        remaining |= {message["Body"] for message in received(client, queue, WaitTimeSeconds=20, VisibilityTimeout=30)}
    assert remaining == bodies - {*delivered}
    one.go_on()
    receiving.join(30)
    assert ended, "it does not answer"
