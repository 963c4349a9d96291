"""The console beside the endpoint: off by default, on a port of its own, with the roles of its configuration."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("uvicorn", reason="the console is served with uvicorn, from the extra [console]")

import inturn
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs.config import Config, ServerConfig, load
from inturn.sqs.console_config import ConsoleTable
from inturn.sqs.run import Endpoint

TOKEN = "the token of a viewer"  # noqa: S105 - of this test
PEOPLE = f'actions_log = "actions.jsonl"\n[[people]]\nname = "vera"\nrole = "viewer"\ntoken = "{TOKEN}"\n'


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with inturn.open(tmp_path / "shop.db") as db:
        db.queue("payments").send({"amount": 5}, group="a")
        yield db


def with_console(table: ConsoleTable | None) -> Config:
    return Config(server=ServerConfig(port=0), console=table)


def console_answers(db: Database, config: Config, *paths: str, **headers: str) -> list[Any]:
    """Return the console's answers while the endpoint runs, and that of the endpoint to a client of its own."""

    async def ask() -> list[Any]:
        async with Endpoint(db, config) as endpoint:
            assert endpoint.console_url is not None
            answers = [
                await asyncio.to_thread(httpx2.get, endpoint.console_url.rstrip("/") + path, headers=headers)
                for path in paths
            ]
            list_queues = {"Action": "ListQueues", "Version": "2012-11-05"}
            answers.append(await asyncio.to_thread(httpx2.post, endpoint.url, data=list_queues))
            return answers

    return asyncio.run(ask())


def test_the_console_is_off_by_default(db: Database) -> None:
    async def url() -> str | None:
        async with Endpoint(db, with_console(None)) as endpoint:
            answer = await asyncio.to_thread(httpx2.get, f"{endpoint.url}/queues", headers={"accept": "text/html"})
            assert "Blocked groups" not in answer.text
            return endpoint.console_url

    assert asyncio.run(url()) is None


def test_the_console_shows_the_database_of_the_endpoint(db: Database) -> None:
    page, document, queues = console_answers(db, with_console(ConsoleTable(port=0)), "/queues", "/api/queues")
    assert "payments" in page.text
    assert [queue["queue"] for queue in document.json()["databases"][0]["queues"]] == ["payments"]
    assert queues.status_code == 200
    assert "payments" in queues.text


def test_the_console_applies_the_roles_of_its_config_file(db: Database, tmp_path: Path) -> None:
    (tmp_path / "console.toml").write_text(PEOPLE)
    (tmp_path / "inturn.toml").write_text('[server]\nport = 0\n[console]\nport = 0\nconfig = "console.toml"\n')
    config = load(tmp_path / "inturn.toml")
    (nobody, _) = console_answers(db, config, "/api/queues")
    assert nobody.status_code == 401
    viewed, actions, _ = console_answers(db, config, "/api/queues", "/api/actions", authorization=f"Bearer {TOKEN}")
    assert (viewed.status_code, actions.status_code) == (200, 403)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (ConsoleTable(host="0.0.0.0", port=0), "console that has no log-in"),  # noqa: S104 - refused
        (ConsoleTable(config="nowhere.toml"), "nowhere.toml"),
    ],
)
def test_an_invalid_console_setting_stops_the_start(db: Database, table: ConsoleTable, error: str) -> None:
    with pytest.raises(InputError, match=error):
        console_answers(db, with_console(table))


def test_a_console_port_in_use_stops_the_start(db: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} on 127.0.0.1 is in use"):
            console_answers(db, with_console(ConsoleTable(port=port)))


def test_an_unknown_console_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inturn.toml").write_text("[console]\nprot = 1\n")
    with pytest.raises(InputError, match="prot"):
        load(tmp_path / "inturn.toml")


@pytest.mark.thorough
def test_the_serve_command_runs_endpoint_and_console_until_a_signal(tmp_path: Path) -> None:
    (tmp_path / "inturn.toml").write_text("[console]\nport = 0\n")
    command = [sys.executable, "-m", "inturn", "serve", "--db", "shop.db", "--port", "0", "--config", "inturn.toml"]
    with subprocess.Popen(
        [*command, "--console"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            output = ""
            while "the console is at" not in output:
                line = process.stdout.readline()
                assert line, output
                output += line
            (url,) = re.findall(r"the console is at (http://127\.0\.0\.1:\d+/)", output)
            assert "This database has no queues yet" in httpx2.get(f"{url}queues").text
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
