"""Which receives can be asked for again: those with a ReceiveRequestAttemptId, for five minutes.

It is in memory, so a restart forgets it: the client then receives the messages again when their visibility times out,
as it would without an attempt id. What the messages hold stays in the store; here are only the leases.

It is changed in the event loop only; looked up also by the writer's thread.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from inturn.core import limits
from inturn.core.envelope import Delivery


class Lease(NamedTuple):
    """One message of a receive.

    Attributes:
        sequence_number: which.
        token: under which lease.
        attempts: how often it has been received.
        first_ms: when for the first time.
        received_ms: when this time.
    """

    sequence_number: int
    token: int
    attempts: int
    first_ms: int | None
    received_ms: int


class Attempt(NamedTuple):
    """A receive that can be asked for again.

    Attributes:
        until_ms: how long.
        leases: what it has given.
    """

    until_ms: int
    leases: tuple[Lease, ...]


class Attempts:
    """The receives of the last five minutes that can be asked for again, by queue number and attempt id."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[int, str], Attempt] = OrderedDict()
        self._of: dict[int, tuple[int, str]] = {}  # which attempt a message was given to last

    def get(self, queue: int, attempt_id: str, now_ms: int) -> Attempt | None:
        """What a receive with this id has given, if it can be given again."""
        attempt = self._made.get((queue, attempt_id))
        return attempt if attempt is not None and attempt.until_ms > now_ms else None

    def remember(self, queue: int, attempt_id: str, deliveries: Sequence[Delivery], now_ms: int) -> None:
        """A receive has given messages; the oldest are forgotten if there are too many."""
        key = queue, attempt_id
        self._forget(key)
        leases = tuple(
            Lease(each.entry.sequence_number, each.token, each.attempts, each.first_ms, now_ms) for each in deliveries
        )
        self._made[key] = Attempt(now_ms + limits.RECEIVE_ATTEMPT_S * 1000, leases)
        for lease in leases:
            self._of[lease.sequence_number] = key
        while len(self._made) > limits.RECEIVE_ATTEMPTS or next(iter(self._made.values())).until_ms <= now_ms:
            self._forget(next(iter(self._made)))

    def void(self, sequence_number: int) -> None:
        """A message was deleted or its visibility was changed: what gave it cannot be asked for again."""
        if self._of and (key := self._of.get(sequence_number)) is not None:
            self._forget(key)

    def _forget(self, key: tuple[int, str]) -> None:
        attempt = self._made.pop(key, None)
        for lease in attempt.leases if attempt else ():
            if self._of.get(lease.sequence_number) == key:
                del self._of[lease.sequence_number]
