"""What the tests and the documents share: the Spark session, and that documents are run as they are read."""

import functools
import gc
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import typer.testing
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.sybil import SybilCollection
from typer.testing import CliRunner

from inturn.cli import app
from postgres_started import start, stop
from spark_classes import quick_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent
SPARK_FOLDERS = (ROOT / "tests" / "spark", ROOT / "tests" / "spark_versions")
ONLY_CI = (
    ROOT / "tests" / "spark_versions",  # on this Spark, what others are held to
    ROOT / "tests" / "console" / "browser",  # needs Chromium, which `make services` installs
)
WITH_SPARK = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("audit", "delta", "ingest", "pipelines", "source", "spark", "testing")),
)

# CliRunner builds all our commands anew for each one that it runs, which takes longer than most of them.
typer.testing._get_command = functools.cache(typer.testing._get_command)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a stage choose how its tests run Spark."""
    parser.addoption("--interpreted", action="store_true", help="Spark interprets its plans and compiles none")


def pytest_configure(config: pytest.Config) -> None:
    """Say how Java starts in this process and in those that its tests start."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java(interpreted=config.getoption("--interpreted")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, which costs a third of the time and finds none: the tests stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts a Spark session or PostgreSQL, and documents, each of which is one program in many tests."""
    fixtures = getattr(item, "fixturenames", ())
    if item.path in WITH_SPARK or item.path.parent in SPARK_FOLDERS or "spark" in fixtures:
        item.add_marker(pytest.mark.spark)
    if any(item.path.is_relative_to(folder) for folder in ONLY_CI):
        item.add_marker(pytest.mark.slow)
    if "postgres" in item.nodeid or {"postgres_server", "shop"} & set(fixtures):
        item.add_marker(pytest.mark.postgres)
    if item.path.suffix == ".md":
        item.add_marker(pytest.mark.document)


@contextmanager
def logging_as_before() -> Iterator[None]:
    """``inturn serve`` sets up the logs of its whole process, which here is that of all tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with logging_as_before():
        yield


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A local session with 2 cores and, following from them, 4 shuffle partitions."""
    from inturn.spark.local.session import local_session

    session = local_session("inturn-tests", cores=2, memory="1g")
    assert session.conf.get("spark.sql.shuffle.partitions") == "4"
    yield session
    session.stop()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A document's paths are relative: run it in a folder of its own, and forget the modules that it wrote there.

    It may import a module of the same name as a program that a test has loaded, such as ``ledger``.
    """
    folder = tmp_path_factory.mktemp("document")
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if "." not in name and Path(getattr(module, "__file__", None) or "/").parent.name == "programs":
                patch.delitem(sys.modules, name)
        patch.chdir(folder)
        patch.setattr(sys, "path", sys.path[:])
        yield
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").resolve().is_relative_to(folder.resolve()):
            del sys.modules[name]


@pytest.fixture(scope="module")
def shop() -> Iterator[None]:
    """PostgreSQL with a database of that name, which documents find by the variables of the environment."""
    directory = Path(tempfile.mkdtemp(prefix="inturn-shop-"))
    data = directory / "data"
    server = start(data)
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("create database shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGHOST", str(data))
        patch.setenv("PGUSER", "postgres")
        yield
    stop(server)
    shutil.rmtree(directory, ignore_errors=True)


def _commands(example: Example) -> str | None:
    """Run the commands of a console block, and compare what they print; ``…`` stands for anything."""
    blocks = re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]
    for block in blocks:
        command, _, expected = block.partition("\n")
        words = shlex.split(command)
        assert words[0] == "inturn", f"only inturn is run here, not {command!r}"
        with logging_as_before():
            ran = CliRunner().invoke(app, words[1:])
        pattern = re.escape(expected.strip()).replace("…", ".*?")
        printed = "\n".join(line.rstrip() for line in (ran.stdout + ran.stderr).strip().splitlines())
        if not re.fullmatch(pattern, printed, re.DOTALL):
            return f"$ {command}\nExpected:\n{expected.strip()}\nPrinted:\n{printed}"
    return None


_parsers = [PythonCodeBlockParser(), CodeBlockParser("console", _commands)]
_with_spark = [str(path.relative_to(ROOT)) for path in WITH_SPARK]
_with_postgres = ["docs/postgres.md"]
_on_postgres = Sybil(parsers=_parsers, patterns=_with_postgres, fixtures=["elsewhere", "shop"])
_on_spark = Sybil(parsers=_parsers, patterns=_with_spark, fixtures=["spark", "elsewhere"])
_plain = Sybil(
    parsers=_parsers, patterns=["docs/*.md"], excludes=[*_with_spark, *_with_postgres], fixtures=["elsewhere"]
)
pytest_collect_file = SybilCollection((_on_spark, _on_postgres, _plain)).pytest()
