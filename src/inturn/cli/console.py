"""``inturn console``: web pages that show waiting groups and queues of stores, and accept decisions."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from inturn.cli.errors import needed
from inturn.cli.places import near, parts
from inturn.cli.texts import line, say
from inturn.core.address import shown
from inturn.core.errors import InputError, NoSuchDatabase


def console(
    stores: Annotated[
        list[str], typer.Argument(help="Stores: databases, DATABASE#PIPELINE, or directories of stores on Spark.")
    ],
    pipeline: Annotated[
        list[str] | None, "Pipeline, such as ledger.py:ledger, whose handler is used for dry runs (repeatable)."
    ] = None,
    take: Annotated[bool, "Apply decisions at once with the handlers of --pipeline."] = False,
    config: Annotated[Path | None, "Configuration file (TOML): users, roles, masks, action log."] = None,
    host: Annotated[str, "Address to listen on; one that is not loopback requires log-in."] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 9325,
    tls_cert: Annotated[Path | None, "Certificate for HTTPS (PEM)."] = None,
    tls_key: Annotated[Path | None, "Private key of the certificate (PEM)."] = None,
) -> None:
    """Serve web pages that show waiting groups and queues, and accept decisions, until Ctrl-C."""
    with needed("inturn console needs", "console"):
        from inturn.console import ConsoleConfig, read_config
        from inturn.console import console as application
        from inturn.console.serving import ConsoleServer, check_exposure, user_name
    for each in stores:
        _check_exists(each)
    settings = ConsoleConfig() if config is None else read_config(config)
    check_exposure(host, has_log_in=settings.has_log_in)
    if (tls_cert is None) != (tls_key is None):
        raise InputError("HTTPS needs both --tls-cert and --tls-key; only one is set")
    if take and not pipeline:
        raise InputError("--take needs the handlers of --pipeline; pass --pipeline, or omit --take")
    app = application(
        *stores,
        by=user_name(),
        pipelines=pipeline or (),
        config=settings,
        folder=config.parent if config else Path(),
        takes=take,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops in order and then raises the signal again
        signal.signal(number, _stop)
    server = ConsoleServer(app, host, port, tls_cert, tls_key)
    say(f"Serving the console of {line(', '.join(map(shown, stores)))} at {server.url}")
    server.run()


def _check_exists(store: str) -> None:
    """Check that a store in a local file or directory exists; an address may become available later.

    Raises:
        NoSuchDatabase: if it does not.
    """
    path, _ = parts(store)
    if "://" not in path and path != ":memory:" and not (Path(path).exists() or Path(store).exists()):
        raise NoSuchDatabase(f"no database or store {path!r}; {near(path)}")


def _stop(*_: object) -> None:
    raise SystemExit(0)
