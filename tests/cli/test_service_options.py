"""Health, log and telemetry of the commands that run until they are stopped: the same options, and the same errors."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.console import ConsoleConfig
from inturn.serving.settings import LEVELS, TelemetrySettings
from inturn.sqs.config import ServerConfig

SERVICES = {
    "serve": ("--db", "shop.db"),
    "work": ("app.py:ledger", "--queue", "shop.db#payments"),
    "consume": ("app.py:handle", "--queue", "shop.db#payments"),
    "ingest run": ("ingest.toml",),
    "console": ("shop.db",),
}
HANDLERS = """
from inturn import Gapless, Pipeline
handle = print
ledger = Pipeline(name="ledger", group="g", order=Gapless("n"), state=int, handler=lambda state, message: (state, []))
"""
INGEST = """
[[sources]]
name = "bank"
queue = "shop.db#payments"
kind = "folder"
path = "drop"

[sources.mapping]
group = "body.account"
"""
each_service = pytest.mark.parametrize("name", SERVICES)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("app.py").write_text(HANDLERS)
    Path("ingest.toml").write_text(INGEST)
    with inturn.open("shop.db") as db:
        db.queue("payments")


def helps(name: str) -> dict[str, str]:
    """The texts of a command's options."""
    command: Any = typer.main.get_command(app)
    for part in name.split():
        command = command.commands[part]
    return {parameter.opts[0]: parameter.help for parameter in command.params}


@each_service
def test_every_service_command_has_the_same_health_and_log_options(name: str) -> None:
    options = ["--health", "--log-level", "--log-json", "--telemetry"]
    assert [helps(name)[option] for option in options] == [helps("work")[option] for option in options]


@each_service
@pytest.mark.parametrize("level", ["loud", "INFO", ""])
def test_an_unknown_log_level_is_refused(name: str, level: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), *SERVICES[name], "--log-level", level])
    assert done.exit_code == 1
    expected = f"InputError: --log-level is {level!r}; expected one of {', '.join(LEVELS)}"
    assert " ".join(done.stderr.split()) == expected


def test_shared_options_have_the_same_help_text() -> None:
    for option in ("--host", "--tls-cert", "--tls-key"):
        assert helps("serve")[option] == helps("console")[option]


@pytest.mark.parametrize("kind", [ServerConfig, ConsoleConfig])
def test_config_files_have_the_same_telemetry_settings(kind: type[TelemetrySettings]) -> None:
    for name in TelemetrySettings.__struct_fields__:
        assert getattr(kind(), name) == getattr(TelemetrySettings(), name)


def test_an_unknown_log_level_in_a_config_file_is_refused() -> None:
    Path("serve.toml").write_text('[server]\nlog_level = "loud"')
    done = CliRunner().invoke(app, ["serve", "--db", "shop.db", "--config", "serve.toml"])
    assert f"log_level is 'loud'; expected one of {', '.join(LEVELS)}" in " ".join(done.stderr.split())
