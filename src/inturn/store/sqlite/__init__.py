"""Queues in one SQLite file."""

from inturn.store.sqlite.connection import check_there
from inturn.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "check_there"]
