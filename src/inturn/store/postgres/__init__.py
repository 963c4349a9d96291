"""The PostgreSQL store, for any number of processes on any number of machines."""

from inturn.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
