"""The protocol of the server tables: figures of queues, and values shared by all servers of one database."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from inturn.core.queue.messages import QueueInfo
from inturn.store.records import PipelineInfo
from inturn.telemetry.figures import PipelineFigures, QueueFigures


class ReceivedLease(NamedTuple):
    """One message of a receive that can be retried by its attempt id.

    Attributes:
        sequence_number: sequence number of the message.
        token: fencing token of the lease.
        attempts: number of receives.
        first_ms: time of the first receive.
        received_ms: time of this receive.
        until_ms: end of the lease.
    """

    sequence_number: int
    token: int
    attempts: int
    first_ms: int | None
    received_ms: int
    until_ms: int


class ServerStore(Protocol):
    """The server tables of a database; all methods are called in a transaction."""

    @property
    def is_shared(self) -> bool:
        """True if keys, settings and signatures are kept for the servers of several machines.

        Each server of a file has its own of these: nothing is kept, and each signature is new.
        """
        ...

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues, by their names.

        The cost grows with the number of hidden messages, not with the number of all messages.
        """
        ...

    def pipeline_figures(self, info: PipelineInfo, now_ms: int) -> PipelineFigures:
        """Return the figures of a pipeline; the cost grows with its groups that are not open, and its outbox."""
        ...

    def probe_write(self, now_ms: int) -> int:
        """Write the time, which shows that the database can be written; return the number of messages."""
        ...

    def version(self) -> int:
        """Return a number that changes whenever :meth:`keep` changes something."""
        ...

    def values(self, *, to_change: bool = False) -> dict[str, str]:
        """Return all stored texts by name; ``to_change``: no other transaction changes them until this one ends."""
        ...

    def save_value(self, name: str, value: str | None) -> None:
        """Store a text under a name, replacing the old one; None: remove it."""
        ...

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """Return the leases of the receive with this id if all of them are unchanged, otherwise an empty list."""
        ...

    def remember(
        self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease], until_ms: int, now_ms: int
    ) -> None:
        """Store the leases of the receive with this id, which can be retried until ``until_ms``."""
        ...

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """Store the extended leases of the receive with this id; the time for retries is not changed."""
        ...

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:
        """Return whether a signature is seen for the first time; it is stored until it expires."""
        ...
