"""The bounds of the stores, each with its reason."""

from typing import Final

CACHE_BYTES: Final = 64 * 1024 * 1024
"""The largest page cache of an SQLite file. With SQLite's default of 2 MB a receive costs 50 % more where a million
messages lie in a thousand groups."""

WAL_BYTES: Final = 16 * 1024 * 1024
"""The size to which the write-ahead log of an SQLite file is truncated after a long read made it grow."""

WAL_PAGES: Final = 1_000
"""Number of pages in the write-ahead log of an SQLite file that triggers a checkpoint: SQLite's own default."""

RESERVE_BYTES: Final = 1024 * 1024
"""The smallest step in which the reserve of an SQLite file grows; the reserve is released when the disk is full."""

RESERVE_CLOSED_BYTES: Final = 256 * 1024
"""Size of the reserve while the file is not open."""

RESERVE_MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest size of the reserve; any further room must be free on the disk for a message to be sent."""

RESERVE_LOOK_S: Final = 1.0
"""The longest time between two checks of the reserve while messages are sent."""

STATEMENTS: Final = 256
"""Number of prepared statements that SQLite caches: all statements of the store, including those for many rows at
once."""

READERS: Final = 4
"""Number of concurrent reads of an SQLite file, each on its own connection; further reads wait for one to end."""

MAKE_WAY_S: Final = 0.25
"""Time for which a read of an SQLite file waits while its log is longer than ``WAL_BYTES``, so that writers can begin
the log anew; then again when it has grown by as much."""

LIST_AT_ONCE: Final = 128
"""The least number of new messages examined together for their receivers, over PostgreSQL."""

LISTEN_POLL_S: Final = 0.5
"""Interval at which a waiting receive polls PostgreSQL without a notification: a lease of another process may have
ended, and a notification may have been lost with a connection."""

LISTEN_PAUSE_S: Final = 0.001
"""Time for which a listener collects notifications."""

RECONNECT_S: Final = 10
"""Time for which a lost connection to PostgreSQL is retried before a transaction is given up."""

LOCK_S: Final = 0.1
"""Time for which a command waits over PostgreSQL for the lock of a long transaction before other commands have their
turn; it is retried until ``BUSY_S`` have passed."""

OWN_TRANSACTION_S: Final = 1.0
"""Time for which a command waits for SQLite's write lock before the store checks whether its own thread holds it."""

RUN_AGAIN: Final = 20
"""Number of times that a transaction is run again over PostgreSQL, after a conflict with another one or after its
connection was lost."""

DEAD_LINE_S: Final = 30
"""Time without any data, not even an acknowledgement, after which a connection to PostgreSQL is given up."""

MIGRATION_TRIES: Final = 10
"""Number of tries to migrate the tables of a database in use while transactions block the migration."""
