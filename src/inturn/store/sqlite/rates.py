"""Rate limits in the file: one row for each key whose rate is in force."""

from collections.abc import Mapping, Sequence

from inturn.core import limits
from inturn.core.queue.messages import QueueInfo
from inturn.store.sqlite.statements import SqliteStatements, as_list


class SqliteRates(SqliteStatements):
    """The rate limits of one file."""

    def read(self, queue: QueueInfo, keys: Sequence[str]) -> dict[str, int]:
        """Return the stored points of the keys that have one."""
        return dict(self._all("rates", queue.number, as_list(keys)))

    def save(self, queue: QueueInfo, points: Mapping[str, int], now_us: int) -> None:
        """Write points; forget a few that have passed, which are as good as none."""
        self._do_each("save_rate", [(queue.number, key, next_us) for key, next_us in points.items()])
        self._execute("remove_expired_rates", queue.number, now_us - limits.CLOCK_SLACK_MS * 1000, limits.RATES_AT_ONCE)
