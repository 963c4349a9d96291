"""``inturn console``: pages that show what waits in stores and why, and take decisions."""

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
    typer.Option("--pipeline", help="ledger.py:ledger; run this handler dry, apart, when asked. Can be repeated."),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file: people and roles, masks, the log of actions.")]


def console(
    stores: Annotated[list[str], typer.Argument(help="Databases, DATABASE#PIPELINE, or stores on Spark.")],
    pipeline: Definitions = None,
    take: Annotated[
        bool, typer.Option("--take", help="Take decisions at once with the handlers of --pipeline.")
    ] = False,
    config: ConfigFile = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; a loopback one unless people log in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 9325,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, PEM: speak HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
) -> None:
    """Show what waits in stores and why, and take decisions, on pages; until Ctrl-C."""
    with needed("inturn console needs", "console"):
        from inturn.console import ConsoleConfig, read_config
        from inturn.console import console as application
        from inturn.console.serving import ConsoleServer, check_exposure, user_name
    settings = ConsoleConfig() if config is None else read_config(config)
    check_exposure(host, has_log_in=settings.has_log_in)
    if (tls_cert is None) != (tls_key is None):
        raise InputError("HTTPS needs both --tls-cert and --tls-key")
    if take and not pipeline:
        raise InputError("--take takes decisions with the handlers of --pipeline; name it, or leave --take out")
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
    say(f"The console of {line(', '.join(map(shown, stores)))} is at {server.url}")
    server.run()


def _stop(*_: object) -> None:
    raise SystemExit(0)
