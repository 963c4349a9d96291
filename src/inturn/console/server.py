"""The console as a server: its address, and who may reach it."""

import getpass
import ssl
from collections.abc import Sequence
from contextlib import suppress

from inturn.console.app import console
from inturn.console.config import ConsoleConfig
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.serving.asgi import AsgiServer
from inturn.serving.listening import is_loopback

PORT = 9325


def console_server(
    stores: Sequence[str | Database],
    config: ConsoleConfig,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    tls: ssl.SSLContext | None = None,
    pipelines: Sequence[str] = (),
    apply_decisions: bool = False,
) -> AsgiServer:
    """Return a server of the console of some stores; clients can connect at once.

    Args:
        stores: as for :func:`inturn.console.console`.
        config: the configuration.
        host: the host to listen on.
        port: the port; 0: any free one.
        tls: the context for HTTPS; None: plain HTTP.
        pipelines: as for :func:`inturn.console.console`.
        apply_decisions: as for :func:`inturn.console.console`.

    Raises:
        InputError: if a value is not valid, or the address cannot be listened on.
    """
    if not is_loopback(host) and not config.has_log_in:
        raise InputError(
            f"host is {host!r}, but a console that has no log-in may listen only on 127.0.0.1, ::1 or localhost; for "
            "other addresses, configure people or a proxy in a file for --config, or use an SSH tunnel"
        )
    app = console(
        *stores,
        by=_user_name(),
        pipelines=pipelines,
        config=config,
        apply_decisions=apply_decisions,
    )
    end_streams = app.state.end_streams
    return AsgiServer(app, host, port, tls=tls, name="inturn-console", end_streams=end_streams)


def _user_name() -> str:
    """Return the name of the user who runs this process; empty if unknown."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
