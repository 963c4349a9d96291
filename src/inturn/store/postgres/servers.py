"""The server tables in PostgreSQL.

Figures, keys and settings shared by all servers, receives that can be retried at another server, and signatures that
are accepted only once.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.statements import PostgresStatements
from inturn.store.records import PipelineInfo
from inturn.store.servers import ReceivedLease
from inturn.telemetry.figures import PipelineFigures, QueueFigures

_decode: Final = msgspec.json.Decoder(list[ReceivedLease]).decode


class PostgresServers(PostgresStatements):
    """The server tables of a database."""

    is_shared: Final = True

    # --- figures ---

    def figures(self, now_ms: int) -> list[QueueFigures]:
        """Return the figures of all queues, with one statement."""
        rows = self._all("figures", now_ms, limits.SEQUENCE_BITS)
        return [QueueFigures.at(now_ms, row[0], row[1:4], *row[4:]) for row in rows]

    def pipeline_figures(self, info: PipelineInfo, now_ms: int) -> PipelineFigures:
        """Return the figures of a pipeline."""
        standing = self._all("standing", info.number, limits.FIGURES_ROWS)
        outbox = self._one("outbox_figures", info.number, limits.FIGURES_ROWS)
        return PipelineFigures.at(now_ms, info.name, info.counts, standing, outbox)

    def written(self, now_ms: int) -> int:
        """Write the time; return the number of messages."""
        self._do("written", now_ms)
        return int(self._one("pending", limits.SEQUENCE_BITS)[0])

    # --- keys and settings ---

    def version(self) -> int:
        """Return a number that changes whenever a text is changed."""
        return int(self._one("facts_version")[0])

    def facts(self, *, to_change: bool = False) -> dict[str, str]:
        """Return all stored texts by name."""
        return dict(self._all("facts_to_change" if to_change else "facts"))

    def keep(self, name: str, value: str | None) -> None:
        """Store a text under a name; None: remove it."""
        if value is None:
            self._do("forget_fact", name)
        else:
            self._do("keep_fact", name, value)
        self._do("change_facts")

    # --- receives that can be retried ---

    def attempt(self, queue: QueueInfo, attempt_id: str, now_ms: int) -> list[ReceivedLease]:
        """Return the leases of the receive with this id if all of them are unchanged, otherwise an empty list."""
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
        """Store the leases of a receive; remove leases that can no longer be retried."""
        self._do("forget_attempts", now_ms, limits.FORGET_AT_ONCE)
        self._do("remember_attempt", queue.number, attempt_id, until_ms, msgspec.json.encode(leases).decode())

    def remember_leases(self, queue: QueueInfo, attempt_id: str, leases: Sequence[ReceivedLease]) -> None:
        """Store the extended leases of a receive."""
        self._do("remember_leases", queue.number, attempt_id, msgspec.json.encode(leases).decode())

    # --- signatures ---

    def is_new(self, signature: bytes, until_s: int, now_s: int) -> bool:
        """Return whether a signature is seen for the first time; remove expired ones."""
        self._do("forget_signatures", now_s, limits.FORGET_AT_ONCE)
        return self._one("remember_signature", signature, until_s) is not None
