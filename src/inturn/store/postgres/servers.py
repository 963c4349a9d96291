"""What servers ask of the database beyond its queues.

Figures; keys and settings that all of them have in common; receives that can be asked for again at another server; and
signatures that are not accepted twice.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.envelope import QueueInfo
from inturn.store.postgres.statements import Statements
from inturn.store.servers import QueueFigures, ReceivedLease

_decode: Final = msgspec.json.Decoder(list[ReceivedLease]).decode


class Servers(Statements):
    """What the servers of one database ask of it."""

    @property
    def shared(self) -> "Servers":
        """All of it is there for all of them."""
        return self

    # --- figures ---

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """How all queues stand, in one statement."""
        return [QueueFigures(*row) for row in self._all("figures", now_ms, limits.SEQUENCE_BITS)]

    def written(self, now_ms: int) -> int:
        """Write the time; how many messages there are."""
        self._do("written", now_ms)
        return int(self._one("pending", limits.SEQUENCE_BITS)[0])

    # --- keys and settings ---

    def version(self) -> int:
        """Another number whenever something was changed."""
        return int(self._one("facts_version")[0])

    def facts(self) -> dict[str, str]:
        """All that is kept, by name."""
        return dict(self._all("facts"))

    def keep(self, name: str, value: str | None) -> None:
        """Keep a text under a name; None: nothing."""
        if value is None:
            self._do("forget_fact", name)
        else:
            self._do("keep_fact", name, value)
        self._do("change_facts")

    # --- receives that can be asked for again ---

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """What a receive of this id has given, if nobody has deleted or changed anything of it since."""
        row = self._one("attempt", queue.number, attempt_id, now_ms)
        if row is None:
            return []
        leases = _decode(row[0])
        numbers, tokens = [each.sequence_number for each in leases], [each.token for each in leases]
        (same,) = self._one("leased_so", numbers, tokens, [each.until_ms for each in leases], now_ms)
        return leases if same == len(leases) else []

    def remember(
        self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease], until_ms: int, now_ms: int
    ) -> None:
        """A receive has given messages; what nobody can ask for any more is forgotten."""
        self._do("forget_attempts", now_ms, limits.FORGET_AT_ONCE)
        self._do("remember_attempt", queue.number, attempt_id, until_ms, msgspec.json.encode(leases).decode())

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """What was given is leased for longer."""
        self._do("remember_leases", queue.number, attempt_id, msgspec.json.encode(leases).decode())

    # --- signatures ---

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:
        """Whether a signature comes for the first time; those that are not valid any more are forgotten."""
        self._do("forget_signatures", now_s, limits.FORGET_AT_ONCE)
        return self._one("remember_signature", signature, until_s) is not None
