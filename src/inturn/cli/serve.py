"""``inturn serve``: serve the queues of a database over HTTP with the SQS protocol."""

from pathlib import Path
from typing import Annotated, Any

from inturn.cli.errors import needed
from inturn.cli.options import Host, TlsCert, TlsKey
from inturn.cli.services import TelemetryOptions, monitored, with_telemetry_options
from inturn.serving.logs import configure


def serve(
    db: Annotated[str, "Database: shop.db or postgresql://…; an SQLite file is created if it does not exist."],
    host: Host = None,
    port: Annotated[int | None, "Port; 0 selects a free one (default: 9324)."] = None,
    config: Annotated[Path | None, "Configuration file (TOML): keys, queues, limits and other settings."] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    console: Annotated[bool, "Also serve the console, on port 9325 or the port that --config sets for it."] = False,
    *,
    telemetry: TelemetryOptions,
) -> None:
    """Serve the queues of a database over the SQS protocol until Ctrl-C, for boto3, the AWS CLI and other clients."""
    import inturn

    with needed("inturn serve needs", "server"):
        from msgspec.structs import replace

        from inturn.sqs.config import Config, check_exposure, load, with_options
        from inturn.sqs.console_config import ConsoleTable
        from inturn.sqs.run import run
    options: dict[str, Any] = {"host": host, "port": port}
    options |= {"tls_cert": tls_cert and str(tls_cert), "tls_key": tls_key and str(tls_key)}
    chosen = with_options(Config() if config is None else load(config), options)
    chosen = replace(chosen, server=with_telemetry_options(chosen.server, telemetry))
    if console and chosen.console is None:
        chosen = replace(chosen, console=ConsoleTable())
    if "://" not in db:  # a PostgreSQL database may contain access keys
        check_exposure(chosen)
    configure(chosen.server.log_level, json_lines=chosen.server.log_json)
    # The endpoint serves its health itself, with its own metrics.
    with inturn.open(db) as opened, monitored(replace(chosen.server, health=None), [db], dict):
        run(opened, chosen)
