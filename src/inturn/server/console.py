"""The console of the endpoint's database, served on a separate port.

It shares no path with SQS clients, and no event loop, so a slow page does not delay them.
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
    """Return a server of the database's console that is already listening.

    Raises:
        SetupError: if a package of the console is not installed.
        InputError: if its configuration is not valid, or its address cannot be used.
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
