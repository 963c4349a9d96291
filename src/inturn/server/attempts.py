"""Receives with a ReceiveRequestAttemptId, which can be repeated for five minutes.

They are held in memory, so a restart forgets them. The client then receives the messages again when their visibility
timeout passes, as it would without an attempt id. Only the leases are kept here; the messages stay in the store.

The event loop alone changes them; the writer's thread reads them too.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from inturn.core import limits
from inturn.core.queue.messages import Delivery


class AttemptLease(NamedTuple):
    """The lease of one message of a receive.

    Attributes:
        sequence_number: of the message.
        token: the lease's token.
        attempts: the message's receive count.
        first_ms: the time of its first receive.
        received_ms: the time of this receive.
    """

    sequence_number: int
    token: int
    attempts: int
    first_ms: int | None
    received_ms: int


class Attempt(NamedTuple):
    """A receive that can be repeated.

    Attributes:
        until_ms: the end of its validity.
        leases: the leases that it gave.
    """

    until_ms: int
    leases: tuple[AttemptLease, ...]


class Attempts:
    """The repeatable receives of the last five minutes, by queue number and attempt id."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[int, str], Attempt] = OrderedDict()
        self._of: dict[int, tuple[int, str]] = {}  # the last attempt that received a message

    def get(self, queue: int, attempt_id: str, now_ms: int) -> Attempt | None:
        """Return the receive with this attempt id, if it can still be repeated."""
        attempt = self._made.get((queue, attempt_id))
        return attempt if attempt is not None and attempt.until_ms > now_ms else None

    def remember(self, queue: int, attempt_id: str, deliveries: Sequence[Delivery], now_ms: int) -> None:
        """Remember the leases of a receive; drop the oldest receives beyond the limit."""
        key = queue, attempt_id
        self._forget(key)
        leases = tuple(
            AttemptLease(each.entry.sequence_number, each.token, each.attempts, each.first_ms, now_ms)
            for each in deliveries
        )
        self._made[key] = Attempt(now_ms + limits.RECEIVE_ATTEMPT_S * 1000, leases)
        for lease in leases:
            self._of[lease.sequence_number] = key
        while len(self._made) > limits.RECEIVE_ATTEMPTS or next(iter(self._made.values())).until_ms <= now_ms:
            self._forget(next(iter(self._made)))

    def void(self, sequence_number: int) -> None:
        """Forget the receive that gave a message, because the message was deleted or its visibility was changed."""
        if self._of and (key := self._of.get(sequence_number)) is not None:
            self._forget(key)

    def _forget(self, key: tuple[int, str]) -> None:
        attempt = self._made.pop(key, None)
        for lease in attempt.leases if attempt else ():
            if self._of.get(lease.sequence_number) == key:
                del self._of[lease.sequence_number]
