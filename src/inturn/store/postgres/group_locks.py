"""The locks of groups in PostgreSQL: one row for each group that is locked or parked.

A group is locked and unlocked only by the transaction that holds the receiver lock. Its session renews the lock without
that one.
"""

from collections.abc import Sequence

from inturn.core import limits
from inturn.core.queue import sessions
from inturn.core.queue.sessions import OPEN, GroupLock
from inturn.store.postgres.statements import PostgresStatements


class PostgresGroupLocks(PostgresStatements):
    """The locks of a database's groups."""

    def of(self, queue: int, group: str, how: str = "group_lock") -> GroupLock:
        """Return the lock of a group.

        Args:
            queue: number of the queue.
            group: name of the group.
            how: name of the statement: to read it, or also to lock it for renewal, or to lock it shared until the
                transaction ends.
        """
        row = self._one(how, queue, group)
        return GroupLock._make(row) if row else OPEN

    def to_take(self, queue: int, group: str) -> GroupLock | None:
        """Lock a group lock's row, to lock or unlock the group; None if a transaction of its session has locked it."""
        pending = self.wire.queue("group_lock", queue, group)
        row = self._one("group_lock_to_take", queue, group)
        if row is None and pending.rows:
            return None
        return GroupLock._make(row) if row else OPEN

    def save(self, queue: int, group: str, lock: GroupLock) -> None:
        """Write the lock of a group."""
        if sessions.excludes_receivers(lock):
            self._do("set_group_lock", queue, group, *lock)
        else:
            self._do("remove_group_lock", queue, group)

    def renew(self, queue: int, group: str, lock: GroupLock) -> None:
        """Write a lock with a new end, and set the leases under it to the same end."""
        self.save(queue, group, lock)
        self._do("extend_session_holds", queue, group, lock.token, lock.until_ms, lock.since_ms)

    def end_locks(self, queue: int, due_ms: int, now_ms: int) -> Sequence[tuple[int, str]]:
        """Remove expired locks, none of which ended before ``due_ms``; return their deadlines and groups."""
        rows = self._all("expired_group_locks", queue, now_ms, limits.EXPIRE_AT_ONCE, due_ms)
        for group, *lock in rows:
            self.save(queue, group, sessions.unlocked(GroupLock._make(lock)))
        return [(until_ms, group) for group, _, until_ms, *_ in rows]

    def state(self, queue: int, group: str) -> bytes | None:
        """Return the session state of the group."""
        row = self._one("session_state", queue, group)
        return row[0] if row else None

    def set_state(self, queue: int, group: str, state: bytes | None) -> None:
        """Write the session state of the group."""
        if state is None:
            self._do("remove_session_state", queue, group)
        else:
            self._do("set_session_state", queue, group, state)
