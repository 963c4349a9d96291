"""``inturn console``: pages that show what waits in stores and why, and take decisions."""

import getpass
import signal
from contextlib import suppress
from typing import Annotated

import typer

from inturn.cli.errors import needed
from inturn.cli.texts import line, say
from inturn.core.address import shown
from inturn.core.errors import InputError

_LOCAL = {"127.0.0.1", "localhost", "::1"}


def console(
    stores: Annotated[list[str], typer.Argument(help="Databases, DATABASE#PIPELINE, or stores on Spark.")],
    host: Annotated[str, typer.Option(help="The loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 9325,
) -> None:
    """Show what waits in stores and why, and take decisions, on pages for this machine alone; until Ctrl-C."""
    with needed("inturn console needs", "console"):
        import uvicorn

        from inturn.console import console as application
    if host not in _LOCAL:
        raise InputError(
            f"--host {host}: the console has no log-in, so it listens on 127.0.0.1, ::1 or localhost; to reach it from "
            "elsewhere, mount inturn.console.console(…) behind your own log-in, or use an SSH tunnel"
        )
    by = ""
    with suppress(OSError, KeyError):
        by = getpass.getuser()
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops in order and then raises the signal again
        signal.signal(number, _stop)
    config = uvicorn.Config(application(*stores, by=by), host=host, port=port, log_level="warning", access_log=False)
    with config.bind_socket() as socket:
        socket.listen()  # who reads the address may ask at once
        name = f"[{host}]" if ":" in host else host
        say(f"The console of {line(', '.join(map(shown, stores)))} is at http://{name}:{socket.getsockname()[1]}/")
        uvicorn.Server(config).run([socket])


def _stop(*_: object) -> None:
    raise SystemExit(0)
