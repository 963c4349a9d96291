"""Queues of SQS become messages: once for ever, each group in order; over inturn's own endpoint and over moto."""

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from typer.testing import CliRunner

import inturn.testing
from ingest.source_history import check_came_once, numbered
from inturn.cli import app
from inturn.core.errors import InputError, SourceError
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.faults import OF_A_TRANSACTION
from inturn.ingest import Ingest, MessageMapping, SourceControl, SqsSource
from inturn.ingest import limits as source_limits
from inturn.sqs.config import Config, ServerConfig
from lives import killed_at_every_point
from sqs.served import Served
from waiting import until

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).parent / "programs" / "sqs_host.py"
POINTS = (*OF_A_TRANSACTION, "polled", "ingested")
LIVES = 6
BY_GROUP = MessageMapping(revision="body.n")
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


class Sqs(NamedTuple):
    """A server with a client of it."""

    client: Any

    def queue(self, name: str, **attributes: str) -> str:
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        return str(self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def send(self, url: str, group: str, n: int, id_: str | None = None, **more: Any) -> None:
        body = json.dumps({"n": n, **more})
        self.client.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=id_ or f"{group}-{n}"
        )

    def left(self, url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(value) for value in attributes.values())


@pytest.fixture(params=["inturn", "moto"])
def sqs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sqs]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    if request.param == "moto":
        monkeypatch.setattr(source_limits, "SQS_CALLS", 1)  # of deletes that come together it forgets some
        yield Sqs(boto3.client("sqs", "us-east-1", endpoint_url=request.getfixturevalue("endpoint")))
        return
    with Served(tmp_path / "served.db", Config(server=ServerConfig(port=0))) as served:
        yield Sqs(boto3.client("sqs", "us-east-1", endpoint_url=f"http://127.0.0.1:{served.port}"))


@pytest.fixture
def fifo(sqs: Sqs, request: pytest.FixtureRequest) -> str:
    return sqs.queue(f"q{abs(hash(request.node.name)) % 10**12}.fifo")


def source(url: str, **more: Any) -> SqsSource:
    return SqsSource(url, region="us-east-1", **more)


def ingest(db: Database, url: str, mapping: MessageMapping = BY_GROUP, **more: Any) -> Ingest:
    visibility_s = more.pop("visibility_s", 30)
    return Ingest(source(url, visibility_s=visibility_s), db.queue("payments"), mapping, name="sqs", **more)


def sent(db: Database) -> dict[str, list[int]]:
    revisions: defaultdict[str, list[int]] = defaultdict(list)
    for message in db.queue("payments").peek(10_000):
        revisions[str(message.group)].append(message.revision or 0)
    return dict(revisions)


def test_q1_q2_q4_interleaved_groups_keep_their_order(db: Database, sqs: Sqs, fifo: str) -> None:
    for n in range(1, 16):
        for group in "abc":
            sqs.send(fifo, group, n)
    assert ingest(db, fifo).run(until="caught up").received == 45
    assert sent(db) == {group: list(range(1, 16)) for group in "abc"}
    assert sqs.left(fifo) == 0


def test_q3_a_rejected_message_does_not_block_its_group(db: Database, sqs: Sqs, fifo: str) -> None:
    sqs.send(fifo, "a", 1)
    sqs.client.send_message(QueueUrl=fifo, MessageBody="{", MessageGroupId="a", MessageDeduplicationId="poison")
    sqs.send(fifo, "a", 2)
    assert ingest(db, fifo).run(until="caught up") == (2, 1, 0, 0)
    assert [record.body for record in SourceControl(db, "sqs").rejected()] == [b"{"]
    assert (sent(db), sqs.left(fifo)) == ({"a": [1, 2]}, 0)


def test_q5_ids_are_remembered_for_ever_and_a_reused_id_is_rejected(db: Database, sqs: Sqs) -> None:
    """SQS forgets an id after five minutes: here the three are in queues of their own, with one name for the source."""
    db.queue("payments", QueueSettings(dedup_window_s=0))
    for place, amount in enumerate((10, 10, 12)):
        url = sqs.queue(f"q5-{place}-{id(db)}.fifo")
        sqs.send(url, "a", 1, "pay-77", amount=amount)
        counts = ingest(db, url, lease_s=0.2).run(until="caught up")
        assert counts == [(1, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0)][place]
    (rejected,) = SourceControl(db, "sqs").rejected()
    assert rejected.reason == "the id 'pay-77' was already used for another message"


def test_an_sqs_poll_is_limited_in_bytes_and_keeps_the_order(sqs: Sqs, fifo: str) -> None:
    for n in range(1, 16):
        sqs.send(fifo, "ab"[n % 2], n, text="x" * 5_000)
    reader = source(fifo)
    reader.batch_bytes = 30_000
    (partition,) = reader.partitions()
    reader.open(partition, None)
    numbers, positions = defaultdict[str, list[int]](list), []

    def poll() -> bool:
        records = reader.poll(100, 0.2)
        assert sum(record.size for record in records) <= 30_000
        for record in records:
            positions.append(record.position)
            numbers[(record.key or b"").decode()].append(json.loads(record.body or b"")["n"])
        if records:
            reader.confirm(partition, records[-1].position)
        return len(positions) >= 15

    until(poll, "15 messages")
    reader.shutdown()
    assert numbers == {"a": list(range(2, 16, 2)), "b": list(range(1, 16, 2))}
    assert positions == list(range(1, 16))
    assert sqs.left(fifo) == 0


def test_messages_left_over_by_a_limited_sqs_poll_are_returned(sqs: Sqs, fifo: str) -> None:
    for n in range(1, 5):
        sqs.send(fifo, "a", n)
    first, second = source(fifo), source(fifo)
    first.batch_bytes = 1
    (partition,) = first.partitions()
    first.open(partition, None)
    assert len(first.poll(100, 1)) == 1
    first.shutdown()
    second.open(partition, None)
    numbers: list[int] = []
    until(
        lambda: numbers.extend(json.loads(e.body or b"")["n"] for e in second.poll(100, 1)) or len(numbers) == 4, "all"
    )
    second.shutdown()
    assert numbers == [1, 2, 3, 4]


def test_q6_the_visibility_timeout_is_extended_while_the_commit_waits(
    db: Database, sqs: Sqs, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.queue("payments", QueueSettings(max_depth=1))
    for n in (1, 2):
        sqs.send(fifo, "a", n)
    extended: list[Any] = []
    in_batches = SqsSource._in_batches

    def counted(self: SqsSource, call: Any, receipts: Any, **more: Any) -> list[str]:
        if receipts and more == {"VisibilityTimeout": 3}:
            extended.append(receipts)
        return in_batches(self, call, receipts, **more)

    monkeypatch.setattr(SqsSource, "_in_batches", counted)
    with ingest(db, fifo, visibility_s=3) as host:
        until(lambda: len(db.queue("payments").peek()) == 1)
        until(lambda: len(extended) >= 4)  # each a second later: longer than they are hidden
        counts = sqs.client.get_queue_attributes(QueueUrl=fifo, AttributeNames=["All"])["Attributes"]
        assert counts["ApproximateNumberOfMessages"] in ("0", "1")
        (message,) = db.queue("payments").receive(1)
        message.ack()
        until(lambda: sent(db) == {"a": [2]})
        until(lambda: sqs.left(fifo) == 0)
    assert host.counts.ignored == 0, "nothing came twice"


def test_q7_a_128_bit_sequence_number_stays_text(db: Database, sqs: Sqs, fifo: str) -> None:
    sqs.send(fifo, "a", 1)
    reader = source(fifo)
    reader.open("q", None)
    (record,) = reader.poll(10, 1)
    reader.close("q")
    reader.shutdown()
    assert isinstance(record.headers["SequenceNumber"], str)
    assert record.headers["dedup-id"] == record.headers["MessageDeduplicationId"] == "a-1"
    assert (record.key, record.time_ms) == (b"a", int(str(record.headers["SentTimestamp"])))
    known = {"SequenceNumber": "18849496460467696128", "MessageGroupId": "auction-A"}
    message = {"MessageId": "0b1f", "Body": "{}", "ReceiptHandle": "r", "Attributes": known}
    restored = reader._record(message)
    assert restored.headers["SequenceNumber"] == "18849496460467696128"
    map_ = MessageMapping(revision="headers.SequenceNumber").compiled()
    with pytest.raises(InputError, match="at most 64 bits"):
        map_(restored)


def test_messages_of_a_standard_queue_are_deduplicated_by_message_id(db: Database, sqs: Sqs) -> None:
    url = sqs.queue(f"standard-{id(db)}", VisibilityTimeout="1")
    for n in range(25):
        sqs.client.send_message(QueueUrl=url, MessageBody=json.dumps({"n": n}))
    counts = ingest(db, url, MessageMapping(group=None)).run(until="caught up")
    assert counts.received == 25
    assert sorted(message.body["n"] for message in db.queue("payments").peek(100)) == list(range(25))
    assert sqs.left(url) == 0


def test_a_message_with_a_failed_delete_is_received_again_and_ignored(
    db: Database, sqs: Sqs, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (1, 2, 3):
        sqs.send(fifo, "a", n)
    confirm, calls = SqsSource.confirm, []

    def lost(self: SqsSource, partition: str, position: Any) -> None:
        calls.append(position)
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")
        confirm(self, partition, position)

    monkeypatch.setattr(SqsSource, "confirm", lost)
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.01)
    counts = ingest(db, fifo).run(until="caught up")
    assert counts.ignored == 3
    assert (sent(db), sqs.left(fifo)) == ({"a": [1, 2, 3]}, 0)


def test_partially_failed_deletes_are_retried() -> None:
    class Client:
        """A queue that refuses one message of each batch at first."""

        def __init__(self) -> None:
            self.deleted: list[str] = []

        def delete_message_batch(self, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
            first = Entries[0] if len(Entries) > 1 else None
            self.deleted += [entry["ReceiptHandle"] for entry in Entries if entry is not first]
            return {"Failed": [{"Id": first["Id"], "SenderFault": False}]} if first else {}

    client = Client()
    reader = SqsSource("http://127.0.0.1/1/q", client=client)
    reader._receipts = {f"r{place}": place for place in range(1, 23)}
    reader.confirm("q", 21)
    assert sorted(client.deleted) == sorted(f"r{place}" for place in range(1, 22))
    assert reader._receipts == {"r22": 22}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_an_sqs_group_passes_the_source_check(sqs: Sqs, fifo: str, seed: int) -> None:
    def make(numbers: Sequence[int]) -> None:
        for n in numbers:
            sqs.send(fifo, "a", n)

    inturn.testing.source(lambda: source(fifo), make, seed=seed, steps=40, redelivers=True)


def test_invalid_sqs_settings_and_queues_are_reported_at_the_start(db: Database, sqs: Sqs, fifo: str) -> None:
    with pytest.raises(InputError, match=r"queue_url is .*https://sqs"):
        SqsSource("payments")
    with pytest.raises(InputError, match="visibility_s is 0"):
        source(fifo, visibility_s=0)
    with pytest.raises(SourceError, match="cannot be read"):
        ingest(db, fifo.replace("/q", "/other-q")).run(until="caught up")


@pytest.mark.parametrize("sqs", ["inturn"], indirect=True)
def test_ingest_check_run_and_status_work_for_an_sqs_source(sqs: Sqs, fifo: str, tmp_path: Path) -> None:
    sqs.send(fifo, "a", 1)
    config, other = tmp_path / "ingest.toml", tmp_path / "other.toml"
    same = '[[sources]]\nname = "bids"\nqueue = "bids.db#bids"\nkind = '
    config.write_text(f'{same}"sqs"\nqueue_url = "{fifo}"\nregion = "us-east-1"\n')
    other.write_text(f'{same}"rabbitmq"\nfrom_queue = "orders"\nurl = "amqp://127.0.0.1:1/"\n')

    def run_command(*arguments: str) -> str:
        return str(CliRunner().invoke(app, ["ingest", *arguments], env={"COLUMNS": "200"}).output)

    for _ in range(3):
        assert "1 message, not read" in run_command("check", str(config))
    (received,) = sqs.client.receive_message(QueueUrl=fifo, AttributeNames=["All"], VisibilityTimeout=0)["Messages"]
    assert received["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "bids: 1 received" in run_command("run", str(config), "--until-caught-up")
    assert "once, by id" in run_command("status", f"{tmp_path / 'bids.db'}")
    pytest.importorskip("aio_pika")
    for command in ("check", "run"):
        assert "set once = false" in run_command(command, str(other)).replace("\n", " ")


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("sqs", ["inturn"], indirect=True)
def test_an_sqs_source_killed_at_every_point_sends_each_message_once(
    db: Database, address: str, sqs: Sqs, fifo: str, soak_seed: int, soak_times: int
) -> None:
    chance = random.Random(soak_seed)
    names = numbered(chance, soak_times * 140, 12)
    for name in names:
        sqs.send(fifo, *name)
    command = [sys.executable, str(PROGRAM), address, fifo]
    killed_at_every_point(command, POINTS, soak_times * LIVES, chance, most=3)
    until(lambda: subprocess.run(command, check=False, timeout=60).returncode == 0 and sqs.left(fifo) == 0)
    check_came_once(db.queue("payments"), names)


def test_malformed_sqs_attributes_and_times_block_nothing(db: Database, sqs: Sqs, fifo: str) -> None:
    """Other servers have this API: what they answer may not be what the documentation of AWS says."""

    def change(parsed: dict[str, Any], **_: Any) -> None:
        for message in parsed.get("Messages", ()):
            message["MessageAttributes"] = {
                "list": {"DataType": "String.Array", "StringListValues": ["a", "b"]},
                "number": {"DataType": "Number", "StringValue": 7},
                "text": {"DataType": "String", "StringValue": "t"},
            }
            message["Attributes"]["SentTimestamp"] = "2026-03-01"

    sqs.client.meta.events.register("after-call.sqs.ReceiveMessage", change)
    sqs.send(fifo, "a", 1)
    names = {name: f"headers.{name}" for name in ("list", "number", "text", "SentTimestamp")}
    mapping = MessageMapping(attributes=names)
    host = Ingest(source(fifo, client=sqs.client), db.queue("payments"), mapping, name="sqs")
    assert host.run(until="caught up") == (1, 0, 0, 0)
    (message,) = db.queue("payments").peek()
    assert message.attributes == {
        "list": '{"DataType":"String.Array","StringListValues":["a","b"]}',
        "number": "7",
        "text": "t",
        "SentTimestamp": "2026-03-01",
    }
    sqs.send(fifo, "a", 2)
    timed = Ingest(
        source(fifo, client=sqs.client), db.queue("payments"), MessageMapping(attributes={"at": "time"}), name="timed"
    )
    assert timed.run(until="caught up") == (0, 1, 0, 0)
    (rejected,) = SourceControl(db, "timed").rejected()
    assert "the header 'timestamp' cannot be read" in rejected.reason
