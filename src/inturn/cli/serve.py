"""``inturn serve``: serve the queues of a database over HTTP with the SQS protocol."""

from pathlib import Path
from typing import Annotated, Any

from inturn.cli.errors import needed


def serve(
    db: Annotated[str, "Database: shop.db or postgresql://…; an SQLite file is created if it does not exist."],
    host: Annotated[str | None, "Address to listen on (default: 127.0.0.1)."] = None,
    port: Annotated[int | None, "Port; 0 selects a free one (default: 9324)."] = None,
    config: Annotated[Path | None, "Configuration file (TOML): keys, queues, limits and other settings."] = None,
    tls_cert: Annotated[Path | None, "Certificate for HTTPS (PEM)."] = None,
    tls_key: Annotated[Path | None, "Private key of the certificate (PEM)."] = None,
    console: Annotated[bool, "Also serve the console, on port 9325 or the port that --config sets for it."] = False,
    json_logs: Annotated[bool, "Write log lines as JSON."] = False,
) -> None:
    """Serve the queues of a database over the SQS protocol until Ctrl-C, for boto3, the AWS CLI and other clients."""
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
    if "://" not in db:  # a PostgreSQL database may contain access keys
        check_exposure(chosen)
    configure(json_lines=chosen.server.json_logs)
    with inturn.open(db) as opened:
        run(opened, chosen)
