"""The last revisions, writers' leases and priorities of groups in SQLite."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inturn.core import limits
from inturn.core.queue import numbering, writers
from inturn.core.queue.messages import Draft, QueueInfo
from inturn.core.queue.writers import WriterAnswer, WriterLease, WriterRequest
from inturn.store.sqlite.statements import SqliteStatements, as_list


@dataclass(eq=False)
class SqliteProducers(SqliteStatements):
    """Reads and writes of the state for producers."""

    _known: dict[int, dict[str, int | None]] = field(default_factory=dict)  # last revisions, by queue and group

    # --- revisions ---

    def last_revision(self, queue: QueueInfo, group: str) -> int | None:
        """Return the last revision that the queue gave in a group; None: it does not number the group."""
        row = self._one("revision", queue.number, group)
        return row[0] if row else None

    def begin_numbering(self, queue: QueueInfo, group: str, revision: int) -> None:
        """Let the queue number a group; its next message gets this revision."""
        last = numbering.begun(self.last_revision(queue, group), revision, group)
        self.save_revisions(queue, {group: last})

    def last_revisions(self, queue: QueueInfo, drafts: Sequence[Draft]) -> dict[str, int | None]:
        """Return last revisions, at least of the groups that decide about these messages; None: there is none."""
        known = self._known.setdefault(queue.number, {})
        unknown = [
            draft.group
            for draft in drafts
            if draft.group not in known and draft.group is not None and (draft.numbering or draft.revision) is not None
        ]
        if unknown:
            if len(known) > limits.KNOWN_GROUPS:
                known.clear()
                return self.last_revisions(queue, drafts)
            known.update(dict.fromkeys(unknown))
            known.update(self._all("revisions", queue.number, as_list(unknown)))
        return known

    def save_revisions(self, queue: QueueInfo, last: Mapping[str, int]) -> None:
        """Write the last revisions of groups."""
        number = queue.number
        self._known.setdefault(number, {}).update(last)
        self._do_each("save_revision", [(number, group, revision) for group, revision in last.items()])

    def forget(self) -> None:
        """Drop the cache, after a write of another connection or a rollback."""
        self._known.clear()

    # --- writers ---

    def writer(self, queue: QueueInfo, group: str, request: WriterRequest, now_ms: int) -> WriterAnswer:
        """Apply a request about the lease of a group's writer."""
        row = self._one("writer", queue.number, group)
        before = WriterLease._make(row) if row else None
        answer = writers.decide(before, request, now_ms)
        if answer.lease is not None and answer.lease != before:
            self._execute("save_writer", queue.number, group, *answer.lease)
        return answer

    def check_writers(self, queue: QueueInfo, drafts: Sequence[Draft]) -> None:
        """Check that each message is sent by the writer of its group."""
        groups = writers.groups_to_check(drafts)
        rows = self._all("writers", queue.number, as_list(groups)) if groups else []
        writers.check(queue.name, drafts, {group: WriterLease._make(lease) for group, *lease in rows})

    # --- priorities ---

    def priority(self, queue: QueueInfo, group: str) -> int:
        """Return the priority of a group."""
        return self.priorities(queue, [group]).get(group, 0)

    def priorities(self, queue: QueueInfo, groups: Iterable[str | None]) -> dict[str | None, int]:
        """Return the priorities of the groups that have one."""
        return dict(self._all("priorities", queue.number, as_list(group for group in groups if group is not None)))

    def save_priority(self, queue: QueueInfo, group: str, priority: int) -> None:
        """Write the priority of a group."""
        self._execute("save_priority", queue.number, group, priority)
