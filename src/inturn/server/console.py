"""The console beside the endpoint: its pages over the endpoint's database, on a port of their own.

SQS clients share no path with it, and a slow page no event loop.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from inturn.core.errors import SetupError
from inturn.database import Database
from inturn.server.config import ServerConfig
from inturn.server.console_config import ConsoleTable

if TYPE_CHECKING:
    from inturn.console.serving import ConsoleServer


def console_server(db: Database, table: ConsoleTable, server: ServerConfig) -> "ConsoleServer":
    """Return a server of the database's console, which listens already.

    Raises:
        SetupError: if a package of the console is not installed.
        InputError: if its configuration is not valid, or its address not usable.
    """
    try:
        from inturn.console import ConsoleConfig, console, read_config
        from inturn.console.serving import ConsoleServer, check_exposure, user_name
    except ModuleNotFoundError as error:
        raise SetupError(f"the console needs {error.name}; install it with: pip install 'inturn[console]'") from error
    config = ConsoleConfig() if table.config is None else read_config(Path(table.config))
    check_exposure(table.host, has_log_in=config.has_log_in)
    folder = Path() if table.config is None else Path(table.config).parent
    app = console(db, by=user_name(), pipelines=table.pipelines, config=config, folder=folder)
    return ConsoleServer(app, table.host, table.port, server.tls_cert, server.tls_key)
