"""The console: pages that show what waits in a store and why, and take decisions; ``inturn console`` serves them."""

from inturn.console.app import console

__all__ = ["console"]
