"""Locks of groups in SQLite; a group has a row only if it is locked, parked or has a state."""

from inturn.core import limits
from inturn.core.queue import sessions
from inturn.core.queue.sessions import OPEN, GroupLock
from inturn.store.sqlite.statements import SqliteStatements


class SqliteGroupLocks(SqliteStatements):
    """Reads and writes of group locks."""

    def of(self, queue: int, group: str) -> GroupLock:
        """Return the lock of a group."""
        row = self._one("group_lock", queue, group)
        return GroupLock._make(row) if row else OPEN

    def save(self, queue: int, group: str, group_lock: GroupLock) -> None:
        """Write the lock of a group."""
        self._execute("set_group_lock", queue, group, *group_lock)
        if not sessions.excludes_receivers(group_lock):
            self._execute("remove_unused_group_lock", queue, group)

    def renew(self, queue: int, group: str, group_lock: GroupLock) -> None:
        """Write a lock that ends at another time, and move the leases received under it likewise."""
        self.save(queue, group, group_lock)
        for statement in ("extend_session_holds", "extend_fetched_holds"):
            self._execute(statement, queue, group, group_lock.token, group_lock.until_ms, group_lock.since_ms)

    def end_locks(self, queue: int, now_ms: int) -> list[tuple[int, str]]:
        """Remove expired locks; return their deadlines and groups."""
        rows = self._all("expired_group_locks", queue, now_ms, limits.EXPIRE_AT_ONCE)
        for group, *group_lock in rows:
            self.save(queue, group, sessions.unlocked(GroupLock._make(group_lock)))
        return [(until_ms, group) for group, _, until_ms, *_ in rows]

    def state(self, queue: int, group: str) -> bytes | None:
        """Return the session state of a group."""
        row = self._one("session_state", queue, group)
        return row[0] if row else None

    def set_state(self, queue: int, group: str, state: bytes | None) -> None:
        """Write the session state of a group."""
        self._execute("set_session_state", state, queue, group)
