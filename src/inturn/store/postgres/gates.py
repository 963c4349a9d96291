"""The gates of groups over PostgreSQL: a row only for a group that is locked or parked.

A gate is opened and closed only by who has the desk; it is renewed by its session without.
"""

from collections.abc import Sequence

from inturn.core import limits, session
from inturn.core.session import OPEN, Gate
from inturn.store.postgres.statements import Statements


class Gates(Statements):
    """Reads and writes gates."""

    def of(self, queue: int, group: str, how: str = "gate") -> Gate:
        """The gate of a group.

        Args:
            queue: the queue's number.
            group: its name.
            how: the statement: to look only, or to renew, or to keep it as it is until the transaction ends.
        """
        row = self._one(how, queue, group)
        return Gate._make(row) if row else OPEN

    def to_take(self, queue: int, group: str) -> Gate | None:
        """The gate, to be closed or opened; None if its session is changing something under it just now."""
        there = self.wire.do("gate", queue, group)
        row = self._one("gate_to_take", queue, group)
        if row is None and there.rows:
            return None
        return Gate._make(row) if row else OPEN

    def save(self, queue: int, group: str, gate: Gate) -> None:
        """It is another."""
        if session.is_closed(gate):
            self._do("set_gate", queue, group, *gate)
        else:
            self._do("open_gate", queue, group)

    def renew(self, queue: int, group: str, gate: Gate) -> None:
        """Its lock ends at another time, and with it what was received under it."""
        self.save(queue, group, gate)
        for statement in ("keep_holds", "keep_fetched"):
            self._do(statement, queue, group, gate.token, gate.until_ms, gate.since_ms)

    def end_locks(self, queue: int, due_ms: int, now_ms: int) -> Sequence[tuple[int, str]]:
        """Take away locks that are over, none of which was before ``due_ms``; return their deadlines and groups."""
        rows = self._all("locks_over", queue, now_ms, limits.EXPIRE_AT_ONCE, due_ms)
        for group, *gate in rows:
            self.save(queue, group, session.unlocked(Gate._make(gate)))
        return [(until_ms, group) for group, _, until_ms, *_ in rows]

    def state(self, queue: int, group: str) -> bytes | None:
        """What a session keeps with the group."""
        row = self._one("state", queue, group)
        return row[0] if row else None

    def set_state(self, queue: int, group: str, state: bytes | None) -> None:
        """It is another."""
        if state is None:
            self._do("remove_state", queue, group)
        else:
            self._do("set_state", queue, group, state)
