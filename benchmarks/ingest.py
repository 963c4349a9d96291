"""Records of Kafka into queues: ``Ingest`` beside a consumer that writes plain rows, over SQLite and PostgreSQL.

    python benchmarks/ingest.py [--records 100000] [--rounds 3] [--profile] [--json]

Kafka is the one of the tests (java and mvn are needed), PostgreSQL is PyPI's, all on this machine, with fsync. A topic
of four partitions has the records; both contenders read them in batches of 1,000 and commit each with the next offsets.

- the limit: confluent-kafka's ``consume`` and one ``executemany`` or ``COPY`` of the batch: body, key, partition,
  offset. It checks nothing, and its rows can only be read.
- inturn: ``Ingest(KafkaSource(…))``, group by the key, revision from the JSON body: checked, leased, fenced, and ready
  to be received in the order of their groups.
- faststream: a batch subscriber over confluent-kafka with the durability of the limit: a commit for each batch, and the
  offsets acknowledged after it. Its rows have the partition and offset as key, or a crash between the two would double
  them.
- inturn, to states: ``Ingest`` and then ``inturn.work`` with a ``Gapless`` pipeline of typed messages: each record has
  changed the state of its group, once and in order.

CPU is of the process alone, with librdkafka's threads; that of Kafka is in a column of its own.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import logging
import pstats
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from faststream import AckPolicy
from faststream.confluent import KafkaBroker, KafkaMessage
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import inturn
from inturn import Gapless, Pipeline
from inturn.ingest import Ingest, KafkaSource, MessageMapping
from kafka_started import Kafka, missing, topic
from postgres_started import start, stop

PARTITIONS, GROUPS, BATCH = 4, 1_000, 1_000
PER_SECOND = {
    ("SQLite", "inturn"): 40_000,
    ("PostgreSQL", "inturn"): 20_000,
    ("SQLite", "inturn, to states"): 15_000,
    ("PostgreSQL", "inturn, to states"): 15_000,
}
TIMES_LIMIT = 3.0
progress = Console(stderr=True, style="dim")
Json = dict[str, Any]


def fill(servers: str, records: int) -> str:
    name = topic(servers, f"t{uuid.uuid4().hex}", PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        group = number % GROUPS
        body = json.dumps({"account": f"acct-{group}", "n": number // GROUPS + 1, "amount": 5, "type": "deposit"})
        producer.produce(name, body, key=f"acct-{group}", partition=group % PARTITIONS)
    assert producer.flush(120) == 0
    return name


def batches(servers: str, name: str, records: int) -> Any:
    """Yield the messages of a topic, by batches."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "limit", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    while records:
        polled = consumer.consume(BATCH, 0)
        if not polled:
            first = consumer.poll(1)
            polled = [] if first is None else [first, *consumer.consume(BATCH - 1, 0)]
        records -= len(polled)
        if polled:
            yield polled
    consumer.close()


def limit_sqlite(servers: str, name: str, records: int, address: str) -> None:
    db = sqlite3.connect(address, isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    db.execute("create table rows (id integer primary key, body, key, part, off)")
    db.execute("create table offs (part primary key, off)")
    for batch in batches(servers, name, records):
        rows = [(record.value(), record.key(), record.partition(), record.offset()) for record in batch]
        db.execute("begin immediate")
        db.executemany("insert into rows (body, key, part, off) values (?, ?, ?, ?)", rows)
        db.executemany("insert or replace into offs values (?, ?)", {row[2]: row[3] for row in rows}.items())
        db.execute("commit")


def limit_postgres(servers: str, name: str, records: int, address: str) -> None:
    with psycopg.connect(address) as db:
        db.execute("drop table if exists rows, offs")
        db.execute("create table rows (id bigserial primary key, body text, key text, part int, off int8)")
        db.execute("create table offs (part int primary key, off int8)")
        db.commit()
        for batch in batches(servers, name, records):
            ends = {}
            with db.cursor() as cursor, cursor.copy("copy rows (body, key, part, off) from stdin") as rows:
                for record in batch:
                    part = record.partition()
                    ends[part] = record.offset()
                    rows.write_row((record.value().decode(), record.key().decode(), part, ends[part]))
            for end in ends.items():
                db.execute("insert into offs values (%s, %s) on conflict (part) do update set off = excluded.off", end)
            db.commit()


def by_inturn(servers: str, name: str, records: int, address: str) -> None:
    with inturn.open(address) as db:
        mapping = MessageMapping(group="key", revision="body.n")
        run = uuid.uuid4().hex
        with Ingest(KafkaSource(servers, name), db.queue(run), mapping, name=run, batch=BATCH) as ingest:
            while ingest.counts.received < records:
                time.sleep(0.01)


@dataclass
class Deposit:
    """The fields of a record that the handler reads."""

    account: str
    n: int
    amount: int


def deposited(balance: int, deposit: Deposit) -> tuple[int, list[object]]:
    return balance + deposit.amount, []


def to_states(servers: str, name: str, records: int, address: str) -> None:
    run = uuid.uuid4().hex
    ledger = Pipeline(name=run, group="account", order=Gapless("n"), message=Deposit, state=int, handler=deposited)
    with inturn.open(address) as db:
        mapping = MessageMapping(group="key", revision="body.n")
        Ingest(KafkaSource(servers, name), db.queue(run), mapping, name=run, batch=BATCH).run(until="caught up")
        assert inturn.work(ledger, db.queue(run), until="empty").applied == records


def by_faststream(servers: str, name: str, records: int, address: str) -> None:
    db = sqlite3.connect(address, isolation_level=None, check_same_thread=False)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    db.execute("create table rows (part, off, body, key, primary key (part, off)) without rowid")
    broker, done, left = KafkaBroker(servers, logger=None), asyncio.Event(), records
    subscriber = broker.subscriber(
        name,
        group_id=uuid.uuid4().hex,
        batch=True,
        max_records=BATCH,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
        decoder=lambda message: message.raw_message,
    )

    @subscriber
    async def handle(message: KafkaMessage) -> None:
        nonlocal left
        raw_messages = message.raw_message
        rows = [(record.partition(), record.offset(), record.value(), record.key()) for record in raw_messages]
        db.execute("begin immediate")
        db.executemany("insert or ignore into rows values (?, ?, ?, ?)", rows)
        db.execute("commit")
        left -= len(rows)
        if left <= 0:
            done.set()

    async def run() -> None:
        async with broker:
            await broker.start()
            await done.wait()

    asyncio.run(run())


def measured(run: Callable[..., None], kafka: Kafka, *arguments: Any) -> tuple[float, float, float]:
    """Return the CPU seconds of this process, wall seconds, and Kafka's CPU seconds."""
    broker = psutil.Process(kafka.pid)
    wall, cpu, broker_cpu = time.perf_counter(), time.process_time(), sum(broker.cpu_times()[:2])
    run(kafka.servers, *arguments)
    own, elapsed = time.process_time() - cpu, time.perf_counter() - wall
    return own, elapsed, sum(broker.cpu_times()[:2]) - broker_cpu


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", default=["SQLite", "PostgreSQL"])
    options.add_argument("--profile", action="store_true")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    logging.basicConfig(level=logging.ERROR)
    gc.freeze()  # as `inturn ingest run` does; for all alike, or each would pay for the imports of the others
    if reason := missing():
        progress.print(reason)
        return
    results: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        postgres, kafka = start(Path(folder) / "postgres"), Kafka(Path(folder))
        try:
            name = fill(kafka.servers, args.records)
            for number in range(args.rounds):
                progress.print(f"round {number + 1}")
                for database, limit in (("SQLite", limit_sqlite), ("PostgreSQL", limit_postgres)):
                    if database not in args.only:
                        continue
                    contenders = {"limit": limit, "inturn": by_inturn, "inturn, to states": to_states}
                    if database == "SQLite":
                        contenders["faststream"] = by_faststream
                    for contender, run in contenders.items():
                        address = postgres.get_uri()
                        if database == "SQLite":
                            address = str(Path(folder) / f"{contender}{number}.db")
                        profile = cProfile.Profile() if args.profile and contender == "inturn" else None
                        if profile:
                            profile.enable()
                        measure = measured(run, kafka, name, args.records, address)
                        if profile:
                            profile.disable()
                            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
                        results.setdefault((database, contender), []).append(measure)
        finally:
            kafka.kill()
            stop(postgres)
    show(args.records, results, as_json=args.json)


def show(records: int, results: dict[tuple[str, str], list[tuple[float, float, float]]], *, as_json: bool) -> None:
    rows: list[Json] = []
    for (database, contender), measures in results.items():
        cpu, wall, broker = (statistics.median(measure[index] for measure in measures) for index in range(3))
        medians = {"cpu_us": cpu / records * 1e6, "per_s": records / wall, "kafka_cpu_us": broker / records * 1e6}
        rows.append({"database": database, "contender": contender, **medians})
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("database", "contender", "CPU µs", "times", "Kafka µs", "a second", "goal")
    limits = {row["database"]: row["cpu_us"] for row in rows if row["contender"] == "limit"}
    for row in rows:
        goal_per_s = PER_SECOND.get((row["database"], row["contender"]))
        goal = "" if goal_per_s is None else f"≥ {goal_per_s:,}/s"
        goal += f", ≤ {TIMES_LIMIT} times" if row["contender"] == "inturn" else ""
        times, figures = row["cpu_us"] / limits[row["database"]], (row["cpu_us"], row["kafka_cpu_us"])
        cpu, broker = (f"{figure:.1f}" for figure in figures)
        table.add_row(row["database"], row["contender"], cpu, f"{times:.2f}", broker, f"{row['per_s']:,.0f}", goal)
    Console().print(table)


if __name__ == "__main__":
    main()
