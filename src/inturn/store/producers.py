"""Protocol of the state that stores keep for producers: last revisions, writers' leases and priorities of groups."""

from typing import Protocol

from inturn.core.queue.messages import QueueInfo
from inturn.core.queue.writers import WriterAnswer, WriterRequest


class ProducerStore(Protocol):
    """A store that numbers messages; the rules are in core/queue: numbering.py, writers.py and ready_groups.py."""

    def last_revision(self, queue: QueueInfo, group: str) -> int | None:
        """Return the last revision that the queue gave in a group; None: it does not number the group."""
        ...

    def begin_numbering(self, queue: QueueInfo, group: str, revision: int) -> None:
        """Let the queue number a group; its next message gets this revision.

        Raises:
            RevisionMismatch: if it numbers the group already, and its next revision is another.
        """
        ...

    def writer(self, queue: QueueInfo, group: str, request: WriterRequest, now_ms: int) -> WriterAnswer:
        """Apply a request about the lease of a group's writer."""
        ...

    def priority(self, queue: QueueInfo, group: str) -> int:
        """Return the priority of a group."""
        ...

    def set_priority(self, queue: QueueInfo, group: str, priority: int, now_ms: int) -> None:
        """Set the priority of a group; a ready group that was not nacked changes its place."""
        ...
