"""The console: pages that show what waits in a store and why, and take decisions; ``inturn console`` serves them."""

from inturn.console.app import console
from inturn.console.config import Account, ConsoleConfig, TrustedProxy, read_config
from inturn.console.roles import Role

__all__ = ["Account", "ConsoleConfig", "Role", "TrustedProxy", "console", "read_config"]
