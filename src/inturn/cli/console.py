"""``inturn console``: web pages that show waiting groups and queues of stores, and accept decisions."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from inturn.cli.errors import needed
from inturn.cli.texts import line, say
from inturn.core.address import shown
from inturn.core.errors import InputError

Definitions = Annotated[
    list[str] | None,
    typer.Option(
        "--pipeline", help="Pipeline, such as ledger.py:ledger, whose handler is used for dry runs (repeatable)."
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="Configuration file (TOML): users, roles, masks, action log.")]


def console(
    stores: Annotated[
        list[str], typer.Argument(help="Stores: databases, DATABASE#PIPELINE, or directories of stores on Spark.")
    ],
    pipeline: Definitions = None,
    take: Annotated[
        bool, typer.Option("--take", help="Apply decisions at once with the handlers of --pipeline.")
    ] = False,
    config: ConfigFile = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that is not loopback requires log-in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 9325,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate for HTTPS (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
) -> None:
    """Serve web pages that show waiting groups and queues, and accept decisions, until Ctrl-C."""
    with needed("inturn console needs", "console"):
        from inturn.console import ConsoleConfig, read_config
        from inturn.console import console as application
        from inturn.console.serving import ConsoleServer, check_exposure, user_name
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


def _stop(*_: object) -> None:
    raise SystemExit(0)
