"""What a server asks of a database beyond its queues: figures, and what all servers of one database have in common."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from inturn.core.envelope import QueueInfo


class QueueFigures(NamedTuple):
    """How a queue stands.

    Attributes:
        queue: its name.
        messages: not acknowledged, all of them.
        in_flight: those of them that a receiver has.
        delayed: those of them that are hidden for a time and nobody has.
        oldest_ms: when the oldest of them was sent; None if there is none.
        blocked: how many groups have messages hidden of which none can be received now.
    """

    queue: str
    messages: int
    in_flight: int
    delayed: int
    oldest_ms: int | None
    blocked: int


class ReceivedLease(NamedTuple):
    """One message of a receive that can be asked for again.

    Attributes:
        sequence_number: which.
        token: under which lease.
        attempts: how often it has been received.
        first_ms: when for the first time.
        received_ms: when this time.
        until_ms: when the lease ends.
    """

    sequence_number: int
    token: int
    attempts: int
    first_ms: int | None
    received_ms: int
    until_ms: int


class SharedStore(Protocol):
    """What servers have in common that serve one database side by side; all of it is called in a transaction."""

    def version(self) -> int:
        """Another number whenever :meth:`keep` has changed something."""
        ...

    def facts(self) -> dict[str, str]:
        """All that is kept, by name."""
        ...

    def keep(self, name: str, value: str | None) -> None:
        """Keep a text under a name, in the place of what is there; None: nothing."""
        ...

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """What a receive of this id has given, if all of it is still leased as it was given; else nothing."""
        ...

    def remember(
        self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease], until_ms: int, now_ms: int
    ) -> None:
        """A receive of this id has given messages; it can be asked for again until then."""
        ...

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """What a receive of this id has given is leased for longer; it can be asked for again as long as before."""
        ...

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:
        """Whether a signature comes for the first time; it is remembered until it is not valid any more."""
        ...


class ServerStore(Protocol):
    """What a server asks of a database; all of it is called in a transaction."""

    @property
    def shared(self) -> SharedStore | None:
        """What all servers have in common; None: nothing, since those of a file are on its machine."""
        ...

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """How all queues stand, by their names; what it costs grows with what is hidden, not with what there is."""
        ...

    def written(self, now_ms: int) -> int:
        """Write the time, so that it is known that something can be written; how many messages there are."""
        ...
