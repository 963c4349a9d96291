"""What all tests share: how hard hypothesis tries, that the quick tests speak first, servers that many tests use."""

import gc
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow.fs as pafs
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from psycopg import sql

import inturn
from clocks import Clock, RunningClock, SkewedClocks
from inturn.database import Database
from inturn.demo.free_ports import free_port
from kafka_started import Kafka, missing
from postgres_schemas import Schemas
from postgres_started import start, stop
from waiting import until

# "ci" gives the same examples on every run, so that a red run is a change of ours, and "quick" fewer of them; "search"
# looks for new ones: pytest --hypothesis-profile=search. "soak" takes its seed from --hypothesis-seed.
settings.register_profile("ci", derandomize=True, max_examples=30, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.register_profile("quick", derandomize=True, max_examples=15, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=200, deadline=None, print_blob=True, database=None)
settings.load_profile("ci")


def _constants_of_code(original: Callable[[], providers.Constants]) -> Callable[[], providers.Constants]:
    """Hypothesis tries the numbers and texts of all modules that were imported before: others in each company.

    Where it is to give the same examples on every run, it does without them.
    """
    return lambda: providers.Constants() if settings().derandomize else original()


providers._get_local_constants = _constants_of_code(providers._get_local_constants)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make soak`` give the tests marked `soak` another seed in each round."""
    parser.addoption("--soak-seed", type=int, default=1, help="what tests marked soak draw from (default: 1)")
    parser.addoption("--soak-times", type=int, default=1, help="how many times the kills of a kill test (default: 1)")


@pytest.fixture(scope="session")
def soak_seed(request: pytest.FixtureRequest) -> int:
    """What a test marked `soak` draws from."""
    return int(request.config.getoption("--soak-seed"))


@pytest.fixture(scope="session")
def soak_times(request: pytest.FixtureRequest) -> int:
    """How many times as many kills as in CI a test makes that kills."""
    return int(request.config.getoption("--soak-times"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs Spark after the others, each kind in its own order."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of the S3 protocol on this machine."""
    port = free_port()

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            until(listens, "moto", process=server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket on it, and the environment in which clients find it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    files, _ = pafs.FileSystem.from_uri("s3://inturn?allow_bucket_creation=true")
    files.create_dir("inturn")
    return "s3://inturn"


@pytest.fixture(autouse=True, scope="module")
def _garbage() -> Iterator[None]:
    """Collect garbage after each module, so that what it did not close fails no test of another module.

    What is left then is frozen: it stays until the end, and the next collections need not look at it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A server of PostgreSQL, one for all processes of a test run; it ends with the last of them.

    It does not wait for the disk: it is for tests in which no machine loses its power. Nor does it tidy up on its own:
    a test's ``analyze`` would meet it at a table, and a plan would depend on what it has seen.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    server = start(Path(tempfile.gettempdir()) / f"inturn-postgres-{run[:12]}")
    url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "autovacuum = off"):
            connection.execute(f"alter system set {setting}".encode())
        connection.execute("select pg_reload_conf()")
    yield url
    stop(server)


@pytest.fixture(scope="session")
def postgres_schemas(postgres_server: str) -> Iterator[Schemas]:
    """Where to get a schema, any number of times in a test."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield Schemas(postgres_server, connection)


@pytest.fixture
def empty_postgres_url(postgres_schemas: Schemas) -> str:
    """The address of a database in which nothing is, as far as its search_path goes: a schema of its own."""
    return postgres_schemas.new()


@pytest.fixture
def postgres_url(postgres_schemas: Schemas) -> Iterator[str]:
    """The address of a database with inturn's tables and nothing in them: a schema of its own, used again later."""
    address = postgres_schemas.take()
    yield address
    postgres_schemas.give_back(address)


@pytest.fixture
def own_postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty database that no other test uses, and whose dead rows nobody's snapshot keeps."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(postgres_server)._replace(path=f"/{name}"))
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def clock() -> Clock:
    """A clock that stands until it is moved."""
    return Clock()


@pytest.fixture
def db_clock(db: Database) -> RunningClock:
    """The clock of a test's fixture `db`, which can be moved ahead; on PostgreSQL it is in place of the server's."""
    db.writer.clock = RunningClock()
    return db.writer.clock


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without queues, of each kind."""
    return str(tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    with inturn.open(address, durable=False) as db:
        yield db


@pytest.fixture
def clocks(address: str) -> Iterator[SkewedClocks]:
    """One database that processes with other clocks use."""
    with ExitStack() as stack:
        yield SkewedClocks(address, stack)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Kafka itself; whoever kills it starts it again."""
    if reason := missing():
        pytest.skip(reason)
    kafka = Kafka(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.kill()
