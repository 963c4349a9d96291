"""``inturn serve``: the queues of a database over HTTP, with the protocol of SQS."""

from pathlib import Path
from typing import Annotated, Any

import typer

from inturn.cli.errors import needed


def serve(
    db: Annotated[str, typer.Option(help="The database, such as shop.db, or postgresql://…; made if it is not there.")],
    host: Annotated[str | None, typer.Option(help="The address to listen on; default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one; default: 9324.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file: keys, queues, limits, and the rest.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, PEM: speak HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the console too, on port 9325; [console] of the file says where.")
    ] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log lines of JSON.")] = False,
) -> None:
    """Serve the queues of a database as SQS does, until Ctrl-C: for boto3, the AWS CLI and every SQS client."""
    import inturn

    with needed("inturn serve needs", "server"):
        from msgspec.structs import replace

        from inturn.server.config import Config, check_exposure, load, with_options
        from inturn.server.console_config import ConsoleTable
        from inturn.server.logs import configure
        from inturn.server.run import run
    options: dict[str, Any] = {"host": host, "port": port, "json_logs": json_logs or None}
    options |= {"tls_cert": tls_cert and str(tls_cert), "tls_key": tls_key and str(tls_key)}
    chosen = with_options(Config() if config is None else load(config), options)
    if console and chosen.console is None:
        chosen = replace(chosen, console=ConsoleTable())
    if "://" not in db:  # a server database may hold the keys
        check_exposure(chosen)
    configure(json_lines=chosen.server.json_logs)
    with inturn.open(db) as opened:
        run(opened, chosen)
