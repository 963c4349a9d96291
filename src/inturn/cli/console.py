"""``inturn console``: web pages that show waiting groups and queues of stores, and accept decisions."""

from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from inturn.cli.errors import needed
from inturn.cli.places import near, parts
from inturn.cli.texts import line, say
from inturn.core.address import shown
from inturn.core.errors import InputError, NoSuchDatabase
from inturn.serving.listening import check_tls_pair
from inturn.serving.signals import end_process, stopped_by


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
    check_tls_pair(tls_cert, tls_key)
    with needed("inturn console needs", "console"):
        from inturn.console.server import console_server
    for each in stores:
        _check_exists(each)
    if take and not pipeline:
        raise InputError("--take needs the handlers of --pipeline; pass --pipeline, or omit --take")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    server = console_server(stores, config=config, host=host, port=port, tls=tls, pipelines=pipeline or (), takes=take)
    stopped = Event()
    with server, stopped_by(stopped.set, force=end_process):
        say(f"Serving the console of {line(', '.join(map(shown, stores)))} at {server.url}")
        stopped.wait()


def _check_exists(store: str) -> None:
    """Check that a store in a local file or directory exists; an address may become available later.

    Raises:
        NoSuchDatabase: if it does not.
    """
    path, _ = parts(store)
    if "://" not in path and path != ":memory:" and not (Path(path).exists() or Path(store).exists()):
        raise NoSuchDatabase(f"no database or store {path!r}; {near(path)}")
