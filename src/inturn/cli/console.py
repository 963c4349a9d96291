"""``inturn console``: web pages that show waiting groups and queues of stores, and accept decisions."""

from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from inturn.cli.errors import needed
from inturn.cli.options import Host, TlsCert, TlsKey
from inturn.cli.output import one_line, print_text
from inturn.cli.services import TelemetryOptions, monitored, with_telemetry_options
from inturn.cli.targets import nearby_databases, split_target
from inturn.core.address import shown
from inturn.core.errors import InputError, NoSuchDatabase
from inturn.serving.listening import check_tls_pair, tls_context
from inturn.serving.logs import configure
from inturn.serving.signals import end_process, stop_on_signals


def console(
    stores: Annotated[
        list[str], typer.Argument(help="Stores: databases, DATABASE#PIPELINE, or directories of stores on Spark.")
    ],
    pipeline: Annotated[
        list[str] | None, "Pipeline, such as ledger.py:ledger, whose handler is used for dry runs (repeatable)."
    ] = None,
    take: Annotated[bool, "Apply decisions at once with the handlers of --pipeline."] = False,
    config: Annotated[Path | None, "Configuration file (TOML): users, roles, masks, action log."] = None,
    host: Host = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 9325,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    *,
    telemetry: TelemetryOptions,
) -> None:
    """Serve web pages that show waiting groups and queues, and accept decisions, until Ctrl-C."""
    check_tls_pair(tls_cert, tls_key)
    with needed("inturn console needs", "console"):
        from inturn.console import ConsoleConfig, read_config
        from inturn.console.server import console_server
        from inturn.console.store_addresses import database_of
    for store in stores:
        _check_exists(store)
    if take and not pipeline:
        raise InputError("--take needs the handlers of --pipeline; pass --pipeline, or omit --take")
    settings = with_telemetry_options(ConsoleConfig() if config is None else read_config(config), telemetry)
    configure(settings.log_level, json_lines=settings.log_json)
    server = console_server(
        stores,
        settings,
        host=host or "127.0.0.1",
        port=port,
        tls=tls_context(tls_cert, tls_key),
        pipelines=pipeline or (),
        apply_decisions=take,
    )
    paths, names = [database_of(store) for store in stores], [shown(store) for store in stores]
    stopped = Event()
    with (
        monitored(settings, filter(None, paths), lambda: {"ready": True, "stores": names}),
        server,
        stop_on_signals(stopped.set, force=end_process),
    ):
        print_text(f"Serving the console of {one_line(', '.join(names))} at {server.url}")
        server.wait(stopped)


def _check_exists(store: str) -> None:
    """Check that a store in a local file or directory exists; an address may become available later.

    Raises:
        NoSuchDatabase: if it does not.
    """
    path, _ = split_target(store)
    if "://" not in path and path != ":memory:" and not (Path(path).exists() or Path(store).exists()):
        raise NoSuchDatabase(f"no database or store {path!r}; {nearby_databases(path)}")
