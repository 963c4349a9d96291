"""Records of Kafka into queues: ``Ingest`` beside a consumer that writes plain rows, over SQLite and PostgreSQL.

    python benchmarks/ingest.py [--records 100000] [--rounds 3] [--profile] [--json]

Kafka is the one of the tests (java and mvn are needed), PostgreSQL is PyPI's, all on this machine, with fsync. A topic
of four partitions has the records; both contenders read them in batches of 1,000 and commit each with the next offsets.

- the limit: confluent-kafka's ``consume`` and one ``executemany`` or ``COPY`` of the batch: body, key, partition,
  offset. It checks nothing, and its rows can only be read.
- inturn: ``Ingest(KafkaSource(…))``, group by the key, revision from the JSON body: checked, leased, fenced, and ready
  to be received in the order of their groups.

CPU is of the process alone, with librdkafka's threads; the databases' own is the same work for both.
"""

import argparse
import cProfile
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
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import inturn
from inturn.ingest import Ingest, KafkaSource, MessageMapping
from kafka_started import Kafka, missing, topic
from postgres_started import start, stop

PARTITIONS, GROUPS, BATCH = 4, 1_000, 1_000
PER_SECOND = {"SQLite": 40_000, "PostgreSQL": 20_000}
TIMES_LIMIT = 3.0
progress = Console(stderr=True, style="dim")
Json = dict[str, Any]


def fill(servers: str, records: int) -> str:
    name = topic(servers, f"t{uuid.uuid4().hex}", PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        group = number % GROUPS
        body = json.dumps({"account": f"acct-{group}", "n": number // GROUPS, "amount": 5, "type": "deposit"})
        producer.produce(name, body, key=f"acct-{group}", partition=group % PARTITIONS)
    assert producer.flush(120) == 0
    return name


def batches(servers: str, name: str, records: int) -> Any:
    """Yield the messages of a topic, by batches."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "limit", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    while records:
        found = consumer.consume(BATCH, 0)
        if not found:
            first = consumer.poll(1)
            found = [] if first is None else [first, *consumer.consume(BATCH - 1, 0)]
        records -= len(found)
        if found:
            yield found
    consumer.close()


def limit_sqlite(servers: str, name: str, records: int, address: str) -> None:
    db = sqlite3.connect(address, isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    db.execute("create table rows (id integer primary key, body, key, part, off)")
    db.execute("create table offs (part primary key, off)")
    for batch in batches(servers, name, records):
        rows = [(each.value(), each.key(), each.partition(), each.offset()) for each in batch]
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
                for each in batch:
                    part = each.partition()
                    ends[part] = each.offset()
                    rows.write_row((each.value().decode(), each.key().decode(), part, ends[part]))
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


def measured(run: Callable[..., None], *given: Any) -> tuple[float, float]:
    """Return CPU and wall seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(*given)
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", default=list(PER_SECOND))
    options.add_argument("--profile", action="store_true")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR)
    if why := missing():
        progress.print(why)
        return
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        postgres, kafka = start(Path(folder) / "postgres"), Kafka(Path(folder))
        try:
            name = fill(kafka.servers, given.records)
            for number in range(given.rounds):
                progress.print(f"round {number + 1}")
                for database, limit in (("SQLite", limit_sqlite), ("PostgreSQL", limit_postgres)):
                    if database not in given.only:
                        continue
                    for contender, run in (("limit", limit), ("inturn", by_inturn)):
                        address = postgres.get_uri()
                        if database == "SQLite":
                            address = str(Path(folder) / f"{contender}{number}.db")
                        profile = cProfile.Profile() if given.profile and contender == "inturn" else None
                        if profile:
                            profile.enable()
                        measure = measured(run, kafka.servers, name, given.records, address)
                        if profile:
                            profile.disable()
                            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
                        found.setdefault((database, contender), []).append(measure)
        finally:
            kafka.kill()
            stop(postgres)
    show(given.records, found, as_json=given.json)


def show(records: int, found: dict[tuple[str, str], list[tuple[float, float]]], *, as_json: bool) -> None:
    rows: list[Json] = []
    for (database, contender), measures in found.items():
        cpu, wall = (statistics.median(each[at] for each in measures) for at in (0, 1))
        rows.append(
            {"database": database, "contender": contender, "cpu_us": cpu / records * 1e6, "per_s": records / wall}
        )
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("database", "contender", "CPU µs/record", "records/s", "goal")
    for limit, ours in zip(rows[::2], rows[1::2], strict=True):
        times = ours["cpu_us"] / limit["cpu_us"]
        goal = f"{times:.2f} times the limit's CPU (≤ {TIMES_LIMIT}), ≥ {PER_SECOND[ours['database']]:,}/s"
        for row, text in ((limit, ""), (ours, goal)):
            table.add_row(row["database"], row["contender"], f"{row['cpu_us']:.1f}", f"{row['per_s']:,.0f}", text)
    Console().print(table)


if __name__ == "__main__":
    main()
