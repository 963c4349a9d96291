"""Every extra is complete: installed alone from the wheel, its first example runs.

Each test has a clean environment with the wheel and one extra. What a server is needed for (PostgreSQL, S3) runs in the
environment of the tests, as it would elsewhere.
"""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import boto3
import pytest
from clean_environment import Environment

from environments import CONSTRAINTS, ROOT, install
from kafka_started import produce, tansu, topic
from waiting import DEADLINE_S, PROGRAM_S

pytestmark = pytest.mark.slow

Installed = Callable[[str], Environment]

LEDGER = '''
"""A ledger of dicts, for the examples."""

from inturn import Gapless, Pipeline


def apply(state, message):
    return {"balance": state.get("balance", 0) + message["amount"]}, [message["amount"]]


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=apply)
'''
EVENTS = [{"account": "a", "revision": 2, "amount": 7}, {"account": "a", "revision": 1, "amount": 5}]


@pytest.fixture
def installed(installed: Installed) -> Installed:
    """The environments, with a ledger and its events in the folder."""

    def make(extras: str) -> Environment:
        environment = installed(extras)
        (environment.folder / "ledger.py").write_text(LEDGER)
        (environment.folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
        return environment

    return make


def test_the_base_install_runs_the_library_and_the_cli_names_its_extra(installed: Installed) -> None:
    base = installed("")
    assert "queue.md: 12 blocks" in base.paste("docs/queue.md", 12)  # the next is of the command line
    result = subprocess.run(
        [base.path / "bin" / "inturn", "--help"], capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    assert result.returncode == 1
    assert "pip install 'inturn[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_cli(installed: Installed) -> None:
    assert "worker.md: 11 blocks" in installed("cli").paste("docs/worker.md")


@pytest.mark.installs
def test_arrow(installed: Installed) -> None:
    program = """
import inturn
from ledger import ledger
with inturn.open("shop.db") as db:
    db.queue("q").send({"amount": 5}, group="a", revision=1)
    inturn.work(ledger, db.queue("q"), until="empty")
    states = db.pipeline("ledger").states()
    print(states.arrow().num_rows, states.pandas()["state"][0])
"""
    assert '1 {"balance":5}' in installed("arrow").run("python", "-c", program)


@pytest.mark.installs
def test_pydantic(installed: Installed) -> None:
    assert "models.md: 2 blocks" in installed("pydantic").paste("docs/models.md")


@pytest.mark.installs
def test_spark(installed: Installed) -> None:
    spark = installed("spark")
    assert "README.md: 4 blocks" in spark.paste("README.md")
    report = json.loads(
        spark.run("inturn", "run", "ledger.py:ledger", "--from", "events.jsonl", "--store", "out/l", "--json")
    )
    assert report["counts"]["applied"] == 2


@pytest.mark.installs
def test_connect(installed: Installed) -> None:
    connect = installed("connect")
    program = """
import inturn.spark
from ledger import ledger
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
df = spark.read.schema("account string, revision bigint, amount bigint").json("events.jsonl")
print(inturn.spark.batch(ledger, df, store="out/ledger"))
"""
    assert "applied 2" in connect.run("python", "-c", program, activated=True)


@pytest.mark.installs
def test_java(installed: Installed) -> None:
    """There is no other Java to be found: the PATH holds nothing but the environment and a shell's tools."""
    java = installed("spark,java")
    tools = java.folder / "tools"
    tools.mkdir()
    for name in (
        "sh",
        "bash",
        "env",
        "dirname",
        "basename",
        "uname",
        "ps",
        "tr",
        "sed",
        "cat",
        "ls",
        "readlink",
        "nohup",
    ):
        if tool := shutil.which(name):
            (tools / name).symlink_to(tool)
    env = {"JAVA_HOME": "", "PATH": str(tools)}
    output = java.run(
        "inturn", "run", "ledger.py:ledger", "--from", "events.jsonl", "--store", "out/l", "--json", env=env
    )
    assert '"applied": 2' in output
    program = """
import inturn.spark
from ledger import ledger
from pyspark.sql import SparkSession
inturn.spark.ensure_java()
spark = SparkSession.builder.master("local[2]").getOrCreate()
df = spark.read.schema("account string, revision bigint, amount bigint").json("events.jsonl")
print(inturn.spark.batch(ledger, df, store="out/own"))
"""
    own = env | {"PATH": f"{java.path / 'bin'}{os.pathsep}{tools}"}
    assert "applied 2" in java.run("python", "-c", program, env=own)


@pytest.mark.installs
def test_objects(installed: Installed, bucket: str) -> None:
    output = installed("objects").run(
        "inturn", "run", "ledger.py:ledger", "--from", "events.jsonl", "--store", f"{bucket}/ledger", "--json"
    )
    assert '"applied": 2' in output


@pytest.mark.installs
def test_delta(installed: Installed) -> None:
    delta = installed("delta")
    common = ("--store", "out/l", "--outputs", "delta", "--json")
    assert '"applied": 2' in delta.run("inturn", "run", "ledger.py:ledger", "--from", "events.jsonl", *common)
    program = "import deltalake; print(deltalake.DeltaTable('out/l/data/outputs').count())"
    assert delta.run("python", "-c", program).strip() == "2"


@pytest.mark.installs
def test_audit(installed: Installed) -> None:
    audit = installed("audit")
    assert "audit.md" in audit.paste("docs/audit.md")
    audit.run("inturn", "audit", "events.jsonl", "--group", "account", "--out", "report")
    assert (audit.folder / "report").is_dir()


@pytest.mark.installs
def test_lab(installed: Installed) -> None:
    lab = installed("lab")
    assert "lab.md: 3 blocks" in lab.paste("docs/lab.md")
    program = "import pyarrow.json as j, pyarrow.parquet as p; p.write_table(j.read_json('events.jsonl'), 'e.parquet')"
    lab.run("python", "-c", program)
    for log in ("events.jsonl", "e.parquet"):
        columns = ("--group", "account", "--order", "revision", "--pipeline", "ledger.py:ledger")
        assert "page lab.html" in lab.run("inturn", "lab", log, *columns, "--out", "lab.html")


@pytest.mark.installs
def test_demo(installed: Installed) -> None:
    demo = installed("demo")
    assert "good" in demo.run("inturn", "demo", "--json")


@pytest.mark.installs
def test_postgres(installed: Installed, postgres_server: str) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop database if exists shop with (force)")
        connection.execute("create database shop")
    place = conninfo_to_dict(postgres_server)
    postgres = installed("postgres")
    env = {"PGHOST": str(place["host"]), "PGUSER": str(place["user"])} | (
        {"PGPORT": str(place["port"])} if "port" in place else {}
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        assert "postgres.md: 3 blocks" in postgres.paste("docs/postgres.md", 3)


@pytest.mark.installs
def test_kafka(installed: Installed) -> None:
    program = """
import sys, inturn
from inturn.ingest import Ingest, KafkaSource, MessageMapping
with inturn.open("shop.db") as db:
    print(Ingest(KafkaSource(sys.argv[1], "t"), db.queue("q"), MessageMapping(), name="t").run(until="caught up"))
"""
    with tansu() as servers:
        produce(servers, topic(servers, "t"), [b"1"], key=b"a")
        assert "received=1" in installed("kafka").run("python", "-c", program, servers)


@pytest.mark.installs
def test_schema_registry(installed: Installed) -> None:
    """Each decoder is made, which imports all that it needs; the test's name has no hyphen."""
    program = """
from google.protobuf.timestamp_pb2 import Timestamp
from inturn.ingest import SchemaRegistry
for value, message in (("avro", None), ("json", None), ("protobuf", Timestamp)):
    print(SchemaRegistry("http://127.0.0.1:1", "t", value=value, message=message).__class__.__name__)
"""
    assert installed("schema-registry").run("python", "-c", program).count("SchemaRegistry") == 3


@pytest.mark.installs
def test_rabbitmq(installed: Installed) -> None:
    program = "import aio_pika; from inturn.ingest import RabbitSource; print(RabbitSource.__name__)"
    assert "RabbitSource" in installed("rabbitmq").run("python", "-c", program)


@pytest.mark.installs
def test_sqs(installed: Installed) -> None:
    program = "import boto3; from inturn.ingest import SqsSource; print(SqsSource.__name__)"
    assert "SqsSource" in installed("sqs").run("python", "-c", program)


@pytest.mark.installs
def test_console(installed: Installed) -> None:
    environment = installed("console")
    environment.paste("docs/console.md")
    command = [str(environment.path / "bin" / "inturn"), "console", "shop.db", "--port", "0"]
    with subprocess.Popen(command, cwd=environment.folder, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        address = console.stdout.readline().split()[-1]
        try:
            with urlopen(address, timeout=60) as page:  # noqa: S310 - it is the console's own
                assert b"No pipeline has run on these stores yet" in page.read()
            console.terminate()
            assert console.wait(60) == 0
        finally:
            console.kill()


@pytest.mark.installs
def test_redis(installed: Installed) -> None:
    assert "idempotency.md" in installed("redis").paste("docs/idempotency.md")


@pytest.mark.installs
def test_telemetry(installed: Installed) -> None:
    assert "telemetry.md" in installed("telemetry").paste("docs/telemetry.md")


@pytest.mark.installs
def test_the_base_install_runs_the_idempotency_key_middleware(installed: Installed) -> None:
    base = installed("")
    install(base.path / "bin" / "python", "fastapi", "httpx2", constraints=CONSTRAINTS)
    assert "idempotency-key.md" in base.paste("docs/idempotency-key.md")


def test_server(installed: Installed, tmp_path: Path) -> None:
    """A client of the tests' environment speaks with the server of the wheel."""
    server = installed("server")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    running = subprocess.Popen(
        [server.path / "bin" / "inturn", "serve", "--db", "shop.db", "--port", "0"],
        cwd=server.folder,
        env=clean,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        address = next(
            word.strip("'\"") for line in running.stderr for word in line.replace("=", " ").split() if "http://" in word
        )
        any_key = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        client = boto3.client("sqs", endpoint_url=address, region_name="us-east-1", **any_key)
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="hello")
        assert client.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"
    finally:
        running.terminate()
        running.wait(DEADLINE_S)


def test_every_extra_has_a_test() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {
        name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")
    } >= extras.keys()
