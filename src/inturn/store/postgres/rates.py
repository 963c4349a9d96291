"""Rate limits in PostgreSQL: one row for each key whose rate is in force, changed under the queue's receiver lock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.postgres.receiver_lock import ReceiverLocks
from inturn.store.postgres.statements import PostgresStatements


@dataclass(eq=False)
class PostgresRates(PostgresStatements):
    """The rate limits of one database."""

    _locks: ReceiverLocks

    def read(self, queue: QueueInfo, keys: Sequence[str]) -> dict[str, int]:
        """Return the stored points of the keys that have one."""
        self._locks.acquire(queue)
        return dict(self._all("rates", queue.number, list(keys)))

    def save(self, queue: QueueInfo, points: Mapping[str, int], now_us: int) -> None:
        """Write points; forget a few that have passed, which are as good as none."""
        self._do("save_rates", queue.number, list(points), list(points.values()))
        self._do("remove_expired_rates", queue.number, now_us - limits.CLOCK_SLACK_MS * 1000, limits.RATES_AT_ONCE)
