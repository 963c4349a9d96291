"""Tables that follow a store, over steps on Spark: as `read` has the states, also after a driver that was killed."""

import json
import signal
from operator import itemgetter
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from programs.connecting import run
from programs.ledger import DDL, cut, history, ledger
from pyspark.sql import SparkSession

from inturn.core.errors import InputError
from inturn.spark import batch, publish, read

LEDGER = Path(__file__).with_name("programs") / "ledger.py"
MESSAGES = history(seed=5)


def assert_followed(spark: SparkSession, store: Path, address: str) -> None:
    """Both tables have the states that Spark reads from the store."""
    expected = sorted((row.asDict() for row in read(spark, store, "states").collect()), key=itemgetter("group"))
    published = DeltaTable(store / "states").to_pyarrow_table().select(list(expected[0])).to_pylist()
    assert sorted(published, key=itemgetter("group")) == expected
    with psycopg.connect(address) as db:
        rows = db.execute('select "group", status, revision, held, step, state from balances').fetchall()
    assert sorted(rows, key=itemgetter(0)) == [
        (*(row[name] for name in ("group", "status", "revision", "held", "step")), state)
        for row in expected
        for state in [{"balance": row["balance"], "seen": json.loads(row["seen"])}]
    ]


def test_published_tables_equal_the_store_after_each_step(
    spark: SparkSession, tmp_path: Path, empty_postgres_url: str
) -> None:
    for messages in cut(MESSAGES, 3):
        df = spark.createDataFrame([tuple(message.values()) for message in messages], DDL)
        to = f"{empty_postgres_url}#balances"
        batch(ledger, df, store=tmp_path / "store", buckets=2, states_format="delta", states_to=to)
        assert_followed(spark, tmp_path / "store", empty_postgres_url)


@pytest.mark.slow
def test_a_step_committed_by_a_killed_stream_is_published_by_the_next_run(
    spark: SparkSession, tmp_path: Path, empty_postgres_url: str
) -> None:
    (tmp_path / "in").mkdir()
    for number, messages in enumerate(cut(MESSAGES, 3)):
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(f"{json.dumps(message)}\n" for message in messages))
    store, to = tmp_path / "store", f"{empty_postgres_url}#balances"
    command = ["-m", "inturn.cli", "run", f"{LEDGER}:ledger", "--from", tmp_path / "in", "--store", store]
    command += ["--stream", "--trigger", "available now", "--files", 1, "--buckets", 2, "--master", "local[2]"]
    command += ["--states", "delta", "--states-to", to]
    died = run(*command, INTURN_KILL_AT="after commit@2")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert publish(store, table="states")[1:] == (1, 2)
    assert publish(store, to=to)[1:] == (1, 2)
    assert_followed(spark, store, empty_postgres_url)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert_followed(spark, store, empty_postgres_url)
    completed = run("-m", "inturn.cli", "publish", store, "--states")
    assert "is up to date: step 3" in completed.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"states_format": "parquet"}, "states_format is 'parquet'; expected 'delta' or None"),
        ({"outputs_format": "csv"}, "outputs_format is 'csv'; expected 'parquet' or 'delta'"),
        ({"states_to": "shop.db#t"}, "states_to is 'shop.db#t'; expected postgresql://…#TABLE"),
    ],
)
def test_an_invalid_publishing_option_is_refused(
    spark: SparkSession, tmp_path: Path, option: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        batch(ledger, spark.createDataFrame([], DDL), store=tmp_path / "store", **option)  # type: ignore[arg-type]
