"""What all tests share: how hard hypothesis tries, that the quick tests speak first, an object store, PostgreSQL."""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow.fs as pafs
import pytest
from hypothesis import settings

from postgres_started import start

# "ci" gives the same examples on every run, so that a red run is a change of ours; "search" looks for new ones:
# pytest --hypothesis-profile=search
settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs Spark after the others, each kind in its own order."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of the S3 protocol on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


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


_schemas = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A server of PostgreSQL, one for all processes of a test run; it ends with the last of them.

    It does not wait for the disk: it is for tests in which no machine loses its power.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    server = start(Path(tempfile.gettempdir()) / f"inturn-postgres-{run[:12]}")
    url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off"):
            connection.execute(f"alter system set {setting}".encode())
        connection.execute("select pg_reload_conf()")
    yield url
    server._cleanup()  # now, and not when Python ends


@pytest.fixture(scope="session")
def postgres_schemas(postgres_server: str) -> Iterator["Schemas"]:
    """Where to get an empty schema, any number of times in a test."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield Schemas(postgres_server, connection)


class Schemas:
    """Empty schemas of one database."""

    def __init__(self, url: str, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        self._url = url
        self._connection = connection

    def new(self) -> str:
        """The address of a new one."""
        name = f"test_{os.getpid()}_{next(_schemas)}"
        self._connection.execute(f"create schema {name}".encode())
        joint = "&" if "?" in self._url else "?"
        return f"{self._url}{joint}options={quote(f'-csearch_path={name}')}"


@pytest.fixture
def postgres_url(postgres_schemas: Schemas) -> str:
    """The address of a database in which nothing is, as far as its search_path goes: a schema of its own."""
    return postgres_schemas.new()
