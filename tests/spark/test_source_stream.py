"""The log of a queue as Spark reads it, from the queue to the states of a pipeline, through restarts and crashes."""

import json
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs.answers import assert_tables
from programs.connecting import run
from programs.ledger import history, ledger
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from typer.testing import CliRunner

import inturn
from inturn import Gapless, Pipeline
from inturn.cli import app
from inturn.queue import Queue, draft
from inturn.spark import batch, messages, read, stream

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=3)
LIMIT_S = 60


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        yield db.queue("payments")


def log(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("inturn").options(reader="ledger", **options).load(f"{folder}/shop.db#payments")


def send(queue: Queue, transfers: Sequence[dict[str, Any]]) -> None:
    """As producers do: some say who and where in the body, some on the envelope, some on both."""
    drafts = []
    for number, transfer in enumerate(transfers):
        body, envelope = dict(transfer), {"group": transfer["account"], "revision": transfer["revision"]}
        for name, field in (("group", "account"), ("revision", "revision")):
            if number % 3 == 1:
                del envelope[name]
            elif number % 3 == 2:
                del body[field]
        drafts.append(draft(body, **envelope))
    queue.send_many(drafts)


def acknowledge_all(queue: Queue) -> None:
    while received := queue.receive(10):
        queue.ack(received)


def test_a_spark_batch_of_a_queue_contains_the_sent_messages(spark: SparkSession, queue: Queue, tmp_path: Path) -> None:
    queue.send_many(
        [
            draft({"é": number}, group=f"g{number % 9}", revision=number, dedup_id=f"tx-{number}")
            for number in range(500)
        ]
    )
    queue.send("text", attributes={"k": [1]})
    df = spark.read.format("inturn").option("partitions", 3).load(f"{tmp_path}/shop.db#payments")
    rows = df.collect()
    assert [row.sequence_number for row in rows] == [message.sequence_number for message in queue.peek(1000)]
    assert rows[7].asDict() | {"sequence_number": 0, "sent_at": 0} == Row(
        sequence_number=0, group="g7", revision=7, dedup_id="tx-7", body='{"é":7}', content="json",
        attributes=None, sent_at=0,
    ).asDict()  # fmt: skip
    assert (rows[-1].group, rows[-1].body, rows[-1].attributes) == (None, "text", '{"k":[1]}')
    by_group = (
        spark.read.format("inturn").options(partitionBy="group", partitions=4).load(f"{tmp_path}/shop.db#payments")
    )
    where = by_group.selectExpr("group", "spark_partition_id() AS at").distinct().where("group IS NOT NULL").collect()
    assert len(where) == 9, "a group is in one partition"
    assert by_group.selectExpr("body", "sequence_number").count() == 501


def test_a_restarted_stream_from_a_queue_gives_the_states_of_the_replay(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    chance = random.Random(1)
    columns = messages(ledger, log(spark, tmp_path, maxRowsPerBatch=chance.randint(60, 200)))
    start = 0
    while start < len(MESSAGES):
        more = chance.randint(1, len(MESSAGES))
        send(queue, MESSAGES[start : start + more])
        start += more
        query = stream(
            ledger, columns, store=tmp_path / "store", checkpoint=tmp_path / "cp", trigger="available now", buckets=2
        )
        assert query.awaitTermination(LIMIT_S)
        acknowledge_all(queue)
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))
    steps = read(spark, tmp_path / "store", "steps").collect()
    assert sum(row.received for row in steps) == len(MESSAGES)
    depth = queue.depth()
    assert queue.reader("ledger").position() == depth.last, "of the last micro-batch too"
    assert depth.messages == 0


def test_a_failed_micro_batch_is_read_again_even_if_acknowledged(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    seen: list[tuple[int, list[int]]] = []
    fails = {1}

    def take(df: DataFrame, batch_id: int) -> None:
        position = queue.reader("ledger").position()
        numbers = [row.sequence_number for row in df.collect()]
        assert not numbers or position < numbers[0], "what is not committed is held"
        acknowledge_all(queue)
        if batch_id in fails:
            raise ValueError
        seen.append((batch_id, numbers))

    queue.send_many([draft(number, group=f"g{number % 5}") for number in range(90)])
    every = [message.sequence_number for message in queue.peek(100)]
    writer = log(spark, tmp_path, maxRowsPerBatch=40).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", f"{tmp_path}/cp").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException):
        writer.start().awaitTermination(LIMIT_S)
    assert queue.reader("ledger").position() == every[39]
    fails.clear()
    assert writer.start().awaitTermination(LIMIT_S)
    assert seen == [(0, every[:40]), (1, every[40:80]), (2, every[80:])]


# Only the driver dies, not the process beside it that asks the queue, whose transactions have such points too.
DYING = "import sys; from inturn.faults import kill_at; kill_at(sys.argv.pop(1)); from inturn.cli import app; app()"


@pytest.mark.slow
def test_a_queue_stream_with_a_killed_driver_receives_each_message_once(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    half = len(MESSAGES) // 2
    send(queue, MESSAGES[:half])
    arguments = [
        "--from",
        f"{tmp_path}/shop.db#payments",
        "--store",
        f"{tmp_path}/store",
        "--checkpoint",
        f"{tmp_path}/cp",
    ]
    more = ["--stream", "--trigger", "available now", "--rows", half - 20, "--buckets", 2, "--master", "local[2]"]
    for committed, point in enumerate(["before commit", "after commit"]):
        died = run("-c", DYING, point, "run", f"{LEDGER}:ledger", *arguments, *more)
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert len([*tmp_path.glob("store/steps/*.json")]) == committed
        acknowledge_all(queue)
    send(queue, MESSAGES[half:])
    columns = messages(ledger, log(spark, tmp_path, maxRowsPerBatch=half))
    query = stream(ledger, columns, store=tmp_path / "store", checkpoint=tmp_path / "cp", trigger="available now")
    assert query.awaitTermination(LIMIT_S)
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))
    steps = read(spark, tmp_path / "store", "steps").collect()
    assert sum(row.received for row in steps) == len(MESSAGES), "each came once"


def test_an_invalid_queue_message_is_rejected_with_its_text(spark: SparkSession, queue: Queue, tmp_path: Path) -> None:
    valid = {"account": "a", "revision": 1, "amount": 5}
    queue.send(valid, group="a", revision=1)
    queue.send(json.dumps(valid | {"revision": 2}), group="a")
    bad = ['{"account": "a"', "[1]", '{"account": "a", "revision": "x", "amount": 1}', ""]
    for text in bad:
        queue.send(text, group="a")
    queue.send(b"\xff", group="a")
    queue.send(valid | {"revision": 3}, group="b")
    queue.send(valid | {"revision": 3}, group="a", revision=4)
    queue.send({"amount": 1}, group="a")
    df = spark.read.format("inturn").load(f"{tmp_path}/shop.db#payments")
    report = batch(ledger, messages(ledger, df), store=tmp_path / "store", buckets=2)
    assert (report.counts.applied, report.counts.rejected) == (2, {"invalid": 8})
    rejected = [json.loads(row.message) for row in read(spark, tmp_path / "store", "rejected").collect()]
    texts = [text for text in (message.get("__inturn_corrupt_record") for message in rejected) if text is not None]
    assert {text for text in texts if "envelope" not in text} == {*bad, "/w=="}
    differ = [json.loads(text.partition("envelope: ")[2]) for text in texts if "envelope" in text]
    assert sorted((message["group"], message.get("revision")) for message in differ) == [("a", 4), ("b", None)]


def test_a_dict_pipeline_needs_a_schema_for_the_message_bodies(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        name="dicts", group="who", order=Gapless("place"), id="tx", arrival="came",
        handler=lambda state, message: (state, [message]),
    )  # fmt: skip
    queue.send({"amount": 5, "not": "read"}, group="a", revision=1, dedup_id="tx-1")
    df = spark.read.format("inturn").load(f"{tmp_path}/shop.db#payments")
    with pytest.raises(inturn.InturnError, match="takes plain dicts, so the fields"):
        messages(pipeline, df)
    with pytest.raises(inturn.InturnError, match="the DataFrame has no column 'body'"):
        messages(pipeline, df.drop("body"), "amount int")
    batch(pipeline, messages(pipeline, df, "amount int"), store=tmp_path / "store")
    (row,) = read(spark, tmp_path / "store", "outputs").collect()
    (peeked,) = queue.peek()
    expected = {"amount": 5, "who": "a", "place": 1, "tx": "tx-1", "came": peeked.sequence_number}
    assert json.loads(row.output) == expected


def test_missing_databases_and_queues_are_refused_by_reader_and_command(
    spark: SparkSession, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # the command stops its session; here it is ours
    with pytest.raises(AnalysisException, match="no database '"):
        spark.read.format("inturn").load(f"{tmp_path}/none.db#payments")
    with pytest.raises(AnalysisException, match="NoSuchQueue: no queue 'paymets'"):
        log(spark, tmp_path, queue="paymets")
    command = ["run", f"{LEDGER}:ledger", "--store", f"{tmp_path}/store", "--from"]
    for source, says, *more in (
        (f"{tmp_path}/none.db#payments", "no database '"),
        (f"{tmp_path}/shop.db#paymets", "NoSuchQueue: no queue 'paymets'; existing queues: payments", "--stream"),
    ):
        ran = CliRunner().invoke(app, [*command, source, *more])
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert says in " ".join(ran.stderr.split())
    assert not (tmp_path / "store").exists()
    send(queue, MESSAGES)
    ran = CliRunner().invoke(app, [*command, f"{tmp_path}/shop.db#payments", "--json"])
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout)["counts"]["received"] == len(MESSAGES)
    assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))


@pytest.mark.slow
def test_a_postgres_queue_is_read_without_exposing_its_password(
    spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """From the queue to the states, as a batch, as a stream that goes on, and by the command."""
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # as above
    address = postgres_url.replace("postgres:@", "postgres:s3cr3t@") + "#payments"
    assert "s3cr3t" in address
    half, texts = len(MESSAGES) // 2, list[str]()
    with inturn.open(postgres_url, durable=False) as db:
        queue = db.queue("payments")
        send(queue, MESSAGES[:half])
        df = spark.read.format("inturn").options(partitionBy="group", partitions=3).load(address)
        batch(ledger, messages(ledger, df), store=tmp_path / "store", buckets=2)
        texts.append(df._jdf.queryExecution().toString() + df._jdf.queryExecution().stringWithStats())
        columns = messages(ledger, spark.readStream.format("inturn").option("reader", "ledger").load(address))
        for _ in range(2):
            query = stream(
                ledger, columns, store=tmp_path / "store", checkpoint=tmp_path / "cp", trigger="available now"
            )
            assert query.awaitTermination(LIMIT_S)
            texts += [progress.json for progress in query.recentProgress]
            texts.append(query._jsq.toString())
            acknowledge_all(queue)
            send(queue, MESSAGES[half:])
        assert queue.reader("ledger").position() == queue.peek(1)[0].sequence_number - 1, "the rest is held"
        command = ["run", f"{LEDGER}:ledger", "--store", f"{tmp_path}/store", "--from"]
        ran = CliRunner().invoke(app, [*command, address])
        assert ran.exit_code == 0, ran.stderr
        assert_tables(spark, tmp_path / "store", ledger.replay(MESSAGES))
    for wrong, says in ((address + "x", "NoSuchQueue"), (address.partition("#")[0], "#payments")):
        failed = CliRunner().invoke(app, [*command, wrong])
        assert failed.exit_code == 1
        assert says in " ".join(failed.stderr.split())
        texts.append(failed.output)
    with pytest.raises(AnalysisException, match="NoSuchQueue") as error:
        spark.read.format("inturn").load(address + "x")
    texts += [str(error.value), ran.output, *capfd.readouterr()]
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in texts if "s3cr3t" in text]
    assert not [data for data in written if b"s3cr3t" in data]
