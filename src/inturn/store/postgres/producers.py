"""The last revisions, writers' leases and priorities of groups in PostgreSQL.

A transaction that assigns revisions, or takes a writer's lease, locks the numbering row of the queue first, as every
send does. So it needs no lock of a group: the revisions of all groups of a queue are assigned in commit order, and
groups cannot be locked in different orders.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inturn.core.queue import numbering, writers
from inturn.core.queue.messages import Draft, QueueInfo
from inturn.core.queue.writers import WriterAnswer, WriterLease, WriterRequest, WriterVerb
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.statements import PostgresStatements, QueuedStatement
from inturn.store.postgres.texts import check_text


@dataclass(eq=False)
class PostgresProducers(PostgresStatements):
    """Reads and writes of the state for producers."""

    _names: LongNames

    # --- revisions ---

    def last_revision(self, queue: QueueInfo, group: str) -> int | None:
        """Return the last revision that the queue gave in a group; None: it does not number the group."""
        rows = self._all("revisions", queue.number, [short(group)])
        return int(rows[0][1]) if rows else None

    def begin_numbering(self, queue: QueueInfo, group: str, revision: int) -> None:
        """Let the queue number a group; its next message gets this revision."""
        check_text("the group", group)
        self._do("lock_numbering", queue.number)
        last = numbering.begun(self.last_revision(queue, group), revision, group)
        self.save_revisions(queue, {self._names.short_name(group): last})

    def look_up_revisions(self, queue: QueueInfo, drafts: Sequence[Draft]) -> QueuedStatement | None:
        """Queue the look-up of the last revisions on which messages depend; None if there are none."""
        groups = numbering.groups_to_look_up(drafts)
        return self._do("revisions", queue.number, groups) if groups else None

    def save_revisions(self, queue: QueueInfo, last: dict[str, int]) -> None:
        """Write the last revisions of groups."""
        if last:
            self._do("save_revisions", queue.number, list(last), list(last.values()))

    # --- writers ---

    def writer(self, queue: QueueInfo, group: str, request: WriterRequest, now_ms: int) -> WriterAnswer:
        """Apply a request about the lease of a group's writer."""
        check_text("the group", group)
        check_text("the writer's name", request.name)
        if request.verb is not WriterVerb.LOOK:
            self._do("lock_numbering", queue.number)
        rows = self._all("writers", queue.number, [short(group)])
        before = WriterLease._make(rows[0][1:]) if rows else None
        answer = writers.decide(before, request, now_ms)
        if answer.lease is not None and answer.lease != before:
            self._do("save_writer", queue.number, self._names.short_name(group), *answer.lease)
        return answer

    def check_writers(self, queue: QueueInfo, drafts: Sequence[Draft]) -> None:
        """Lock the numbering, so that no producer takes a lease; check that each message is from its group's writer."""
        groups = writers.groups_to_check(drafts)
        self._do("lock_numbering", queue.number)
        rows: Iterable[Sequence[int | str]] = self._all("writers", queue.number, groups) if groups else []
        writers.check(queue.name, drafts, {str(group): WriterLease._make(lease) for group, *lease in rows})

    # --- priorities ---

    def priority(self, queue: QueueInfo, group: str) -> int:
        """Return the priority of a group."""
        row = self._one("priority", queue.number, short(group))
        return int(row[0]) if row else 0

    def save_priority(self, queue: QueueInfo, group: str, priority: int) -> str:
        """Write the priority of a group; return the stored form of its name."""
        check_text("the group", group)
        name = self._names.short_name(group)
        self._do("save_priority", queue.number, name, priority)
        return name

    def highest_priority(self, queue: QueueInfo) -> int:
        """Return the highest priority of a group of the queue, at least 0."""
        row = self._one("highest_priority", queue.number)
        return max(int(row[0]), 0) if row else 0
