"""Partitions that were removed from their source, such as files of a folder.

A partition removed before its end is a loss: its note reports it, until the partition comes back or an operator seeks.
A partition that was read to its end is remembered for a time, in case it comes back, and then forgotten; its counts are
added to a sum.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from inturn.core.source_shares import DECIDED, FORGOTTEN, MISSING, SourcePartition
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.store.sources import SourceStore

_LOSS = (
    "it was removed before it was read to its end, or renamed to a name that is not read; reading continues if it "
    "comes back, and `inturn ingest seek` with --partition clears this notice"
)


class RemovedPartitions:
    """The partitions of a source that were removed.

    Args:
        source: the name of the source.
        is_removed: whether a partition that is not listed was removed, rather than unavailable.
    """

    def __init__(self, source: str, is_removed: Callable[[str], bool]) -> None:
        self._source, self._is_removed = source, is_removed

    def note_losses(self, sources: SourceStore, rows: Iterable[SourcePartition]) -> None:
        """Set a note on partitions that were removed before they were read to their end.

        Args:
            sources: the store.
            rows: unlisted partitions that no other instance reads and that were not read to their end.
        """
        for row in rows:
            if row.is_paused or row.note is not None or not self._is_removed(row.name):
                continue
            if row.incarnation.startswith(DECIDED):  # an operator has set the position
                changed = row._replace(is_finished=True, lag=0)  # remembered from now on, for the seek
            else:
                text = "source %(source)s: partition %(partition)s: %(reason)s"
                EVENTS.warning("refused", self._source, text, source=self._source, partition=row.name, reason=_LOSS)
                changed = row._replace(note=MISSING + _LOSS)
            sources.save(self._source, changed._replace(owner=None, epoch=row.epoch + 1))

    def mark_removed(self, sources: SourceStore, finished: Iterable[str], listed: Collection[str], now_ms: int) -> None:
        """Store the time at which partitions that were read to their end were found removed."""
        removed = (name for name in finished if name not in listed and name != FORGOTTEN and self._is_removed(name))
        for name in islice(removed, source_limits.PARTITIONS_FORGOTTEN):
            row = sources.partition(self._source, name)
            if row is not None and row.is_finished:
                sources.save(self._source, row._replace(gone_ms=now_ms))

    def forget(
        self, sources: SourceStore, rows: Iterable[SourcePartition], listed: Collection[str], now_ms: int
    ) -> None:
        """Forget partitions that were removed long ago, and add their counts to a sum."""
        before_ms = now_ms - source_limits.PARTITION_REMEMBERED_S * 1000
        old = (row for row in rows if row.gone_ms is not None and row.gone_ms <= before_ms and row.name not in listed)
        forgotten = list(islice(old, source_limits.PARTITIONS_FORGOTTEN))
        if not forgotten:
            return
        sources.add(self._source, [FORGOTTEN])
        total = sources.partition(self._source, FORGOTTEN) or SourcePartition(FORGOTTEN)
        for row in forgotten:
            sources.remove(self._source, row.name)
        sources.save(
            self._source,
            total._replace(
                received=total.received + sum(row.received for row in forgotten),
                rejected=total.rejected + sum(row.rejected for row in forgotten),
                dropped=total.dropped + sum(row.dropped for row in forgotten),
                moved_ms=max(total.moved_ms, *(row.moved_ms for row in forgotten)),
                is_finished=True,
                lag=0,
            ),
        )
