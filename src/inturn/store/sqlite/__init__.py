"""Queues in one SQLite file."""

from inturn.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
