"""The partitions that an instance reads: claimed by leases, opened at their positions, released at its end.

A separate thread renews the leases, since opening, polling or confirming may take longer than a lease. A call that
takes longer than :data:`INGEST_CALL_S` counts as hung: its partitions are left to the other instances.

The states of a partition, as its row has them::

    free      no owner, or its lease has expired
    claimed   an owner with a lease and an epoch, one higher than that of the owner before
    open      claimed, and in `epochs`: this instance reads it
    finished  read to its end; free again if it grows
    waiting   paused, or with a note of why it is refused: only an operator ends that
    missing   not listed by the source; it continues by itself if it returns

A refresh claims, gives up, opens and closes, in the polling thread. What never happens:

- Two instances commit records of a partition: a commit checks the owner and the epoch in its own transaction, and a
  claim raises the epoch.
- The epoch of a name decreases, also when partitions are renamed.
- A position of another history is used: if the incarnation of a partition is a new one, it is compared, and the
  position is dropped or the partition refused.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from inturn.core.errors import InputError, InturnError, PositionGone
from inturn.core.source_shares import DECIDED, SourcePartition, share
from inturn.core.texts import storable
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.ingest.removed_partitions import RemovedPartitions
from inturn.ingest.source import KnownPartition, PartitionComparison, Source
from inturn.store.protocols import SqlStore
from inturn.store.sources import SourceStore

T = TypeVar("T")

_log = logging.getLogger("inturn.ingest")
_REFUSED = "source %(source)s: partition %(partition)s: %(reason)s"
_NAMES_SHOWN = 5
"""Maximum number of partition names in one log line."""


class PartitionLeases:
    """The partitions of a source that one instance reads.

    All methods except the renewal are called by the thread that polls the source.

    Args:
        source: the source.
        name: the name under which positions are stored.
        instance: the instance.
        lease_s: how long the other instances wait for this one if it dies, in seconds.
        transact: runs a function of the store and the time in a transaction.
        problem: returns the current error, which is stored with the lease for other processes; empty: none.

    Attributes:
        epochs: the epoch of each open partition.
        has_all: whether no other instance has a partition.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        instance: str,
        lease_s: float,
        transact: Callable[[Callable[[SqlStore, int], Any]], Any],
        problem: Callable[[], str],
    ) -> None:
        self._source, self._name, self._instance = source, name, instance
        self._lease_s, self._transact = lease_s, transact
        self.epochs: dict[str, int] = {}
        self.has_all = False
        self._problem = problem
        self._removed = RemovedPartitions(name, source.is_removed)
        self._next_refresh_s = 0.0
        self._last_progress_s: float | None = None  # of the polling thread; None: it reads nothing
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start renewing the leases, until :meth:`leave`."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._renew_loop, name=f"inturn-leases-{self._name}", daemon=True)
        self._thread.start()

    def note_progress(self) -> None:
        """Note that the polling thread is not hung."""
        self._last_progress_s = time.monotonic()

    def refresh_if_due(self) -> None:
        """Refresh the partitions if a third of the lease has passed since the last time."""
        self.note_progress()
        if time.monotonic() >= self._next_refresh_s:
            self._refresh()

    def _refresh(self) -> None:
        """Claim free partitions, release those beyond our quota, and open and close them accordingly."""
        names = list(self._source.partitions())
        for name in names:
            if not isinstance(name, str) or storable(name) != name:
                raise InputError(
                    f"source {self._name!r} has a partition with the invalid name {name!r}: expected a text without "
                    "NUL and without unpaired surrogates"
                )
        incarnations = {name: self._source.incarnation(name) for name in names}
        lags, done = self._lags(), self._finished_names()
        assigned = self._transact(lambda store, now_ms: self._claim_share(store, incarnations, lags, done, now_ms))
        self._next_refresh_s = time.monotonic() + self._lease_s / 3
        for name in [
            name for name, epoch in self.epochs.items() if name not in assigned or assigned[name].epoch != epoch
        ]:
            if name not in incarnations:
                text = "source %(source)s: partition %(partition)s does not exist or cannot be read now"
                EVENTS.warning("refused", self._name, text, source=self._name, partition=name)
            self.close(name)
        new_names = [name for name in assigned if name not in self.epochs]
        for name in new_names:
            self._open(assigned[name])
        if opened := [name for name in new_names if name in self.epochs]:
            more = f" and {len(opened) - _NAMES_SHOWN:,} more" if len(opened) > _NAMES_SHOWN else ""
            shown_names = f"{', '.join(opened[:_NAMES_SHOWN])}{more}"
            EVENTS.info("reads", self._name, "source %(source)s reads %(names)s", source=self._name, names=shown_names)

    def close(self, partition: str) -> None:
        """Stop reading a partition."""
        if self.epochs.pop(partition, None) is not None:
            self._source.close(partition)

    def close_all(self) -> None:
        """Stop reading without renewing the leases, so that another instance may try; the next refresh is due now."""
        self._last_progress_s = None
        for name in list(self.epochs):
            try:
                self.close(name)
            except Exception as error:  # noqa: BLE001 - it is released in any case
                _log.warning("source %s: partition %s: %s", self._name, name, error)
        self._next_refresh_s = 0.0

    def release_all(self) -> None:
        """Release all partitions, so that other instances need not wait for the end of the leases."""
        self._ending.set()
        lags = self._try_call(self._lags) or {}
        done = self._try_call(self._finished_names) or set()
        epochs = dict(self.epochs)
        if self._thread is not None:
            self._thread.join()
        self.close_all()
        self._try_call(self._source.shutdown)

        def release_leases(store: SqlStore, _now_ms: int) -> None:
            self._mark_finished(store.sources, done, epochs)
            for row in store.sources.unfinished(self._name):
                if row.owner == self._instance:  # also one that could not be opened
                    store.sources.save(self._name, row._replace(owner=None, lag=lags.get(row.name)))
            store.sources.remove_instance(self._name, self._instance)

        try:
            self._transact(release_leases)
        except InturnError as error:  # the leases expire
            _log.warning("source %s: %s", self._name, error)

    # --- renewing ---

    def _renew_loop(self) -> None:
        while not self._ending.wait(self._lease_s / 3):
            progress_s = self._last_progress_s
            if progress_s is None or time.monotonic() - progress_s > source_limits.INGEST_CALL_S:
                continue
            try:
                self._transact(self.renew)
            except Exception as error:  # noqa: BLE001 - the polling thread meets it too, and retries
                _log.debug("source %s: %s", self._name, error)

    def renew(self, store: SqlStore, now_ms: int) -> None:
        """Extend the leases of all our partitions."""
        until_ms = now_ms + round(self._lease_s * 1000)
        store.sources.instances(self._name, self._instance, until_ms, now_ms, self._problem())
        store.sources.renew(self._name, self._instance, until_ms)

    # --- looking ---

    def _lags(self) -> dict[str, int | None]:
        """Return the number of unread records of each open partition."""
        return {name: self._source.lag(name) for name in self.epochs}

    def _finished_names(self) -> set[str]:
        return {name for name in self.epochs if self._source.is_finished(name)}

    def _try_call(self, call: Callable[[], T]) -> T | None:
        """Return the result of a call to the source; None if it fails, since the leases are released in any case."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the positions are what counts
            _log.warning("source %s: %s", self._name, error)
            return None

    def _claim_share(
        self, store: SqlStore, incarnations: dict[str, str], lags: dict[str, int | None], done: set[str], now_ms: int
    ) -> dict[str, SourcePartition]:
        sources, until_ms = store.sources, now_ms + round(self._lease_s * 1000)
        sources.lock(self._name)
        instances = sources.instances(self._name, self._instance, until_ms, now_ms, self._problem())
        self._mark_finished(sources, done, self.epochs)
        readable = self._readable(sources, incarnations, now_ms)
        plan = share(list(readable.values()), instances, self._instance, now_ms)
        sources.renew(self._name, self._instance, until_ms)
        assigned = {name: readable[name]._replace(until_ms=until_ms, lag=lags.get(name)) for name in plan.kept}
        for name in plan.claimed:
            claimed = readable[name]._replace(owner=self._instance, epoch=readable[name].epoch + 1, until_ms=until_ms)
            assigned[name] = claimed._replace(position_form=self._source.position_form)
        for name, partition in assigned.items():
            if self.epochs.get(name) != partition.epoch or partition.lag != readable[name].lag:  # else unchanged
                sources.save(self._name, partition)
        self.has_all = len(assigned) == len(readable)
        for name in plan.given_up:
            sources.save(self._name, readable[name]._replace(owner=None, epoch=readable[name].epoch + 1))
        return assigned

    def _mark_finished(self, sources: SourceStore, done: set[str], epochs: Mapping[str, int]) -> None:
        """Mark which of our partitions were read to their end."""
        for name in done:
            row = sources.partition(self._name, name)
            if row is not None and row.owner == self._instance and row.epoch == epochs[name]:
                sources.save(self._name, row._replace(is_finished=True, owner=None, lag=0))

    def _readable(self, sources: SourceStore, incarnations: dict[str, str], now_ms: int) -> dict[str, SourcePartition]:
        """Return the partitions that may be read, with their updated state."""
        unfinished = {row.name: row for row in sources.unfinished(self._name)}
        finished = sources.finished(self._name)
        returned = {name for name, row in unfinished.items() if row.is_missing and name in incarnations}
        waiting = {
            name for name, row in unfinished.items() if row.is_paused or (row.note is not None and name not in returned)
        }
        known = finished | {name: row.incarnation for name, row in unfinished.items()}
        if all(name in waiting or known.get(name) == new for name, new in incarnations.items()):  # as nearly always
            self._removed.mark_removed(sources, finished, incarnations, now_ms)
            self._removed.note_losses(sources, self._unlisted(unfinished.values(), incarnations, now_ms))
            readable_rows = {
                name: row for name, row in unfinished.items() if name in incarnations and name not in waiting
            }
            return {name: row._replace(note=None) for name, row in readable_rows.items()}
        rows = {row.name: row for row in sources.locked_partitions(self._name)}
        if not rows and sources.rejected_total(self._name).records:
            raise InputError(
                f"the database stores rejected requests of a webhook {self._name!r}, which the source would share: "
                "rename the webhook or the source, or resend or purge the requests if the webhook no longer exists"
            )
        current = self._source.compare(
            {name: self._known_partition(row, now_ms) for name, row in rows.items()}, incarnations
        )
        self._rename(sources, rows, current)
        sources.add(self._name, current.keys() - rows.keys())
        self._removed.mark_removed(sources, finished.keys() & rows.keys(), current, now_ms)
        self._removed.forget(sources, rows.values(), current, now_ms)
        self._removed.note_losses(sources, self._unlisted(rows.values(), current, now_ms))
        readable = {}
        for name in sorted(current):
            row = self._updated_row(sources, rows.get(name) or SourcePartition(name), current[name], now_ms)
            if row is not None:
                readable[name] = row
        return readable

    def _unlisted(
        self, rows: Iterable[SourcePartition], listed: Collection[str], now_ms: int
    ) -> Iterator[SourcePartition]:
        """Yield the partitions that are not listed, not read to their end, and not read by another instance."""
        for row in rows:
            if (
                row.name not in listed
                and not row.is_finished
                and not (row.owner != self._instance and row.is_owned(now_ms))
            ):
                yield row

    def _known_partition(self, row: SourcePartition, now_ms: int) -> KnownPartition:
        return KnownPartition(
            row.incarnation.removeprefix(DECIDED),
            row.position is not None,
            row.is_finished,
            row.incarnation.startswith(DECIDED),
            row.owner == self._instance and self.epochs.get(row.name) == row.epoch,
            row.owner != self._instance and row.is_owned(now_ms),
        )

    def _rename(
        self, sources: SourceStore, rows: dict[str, SourcePartition], current: Mapping[str, PartitionComparison]
    ) -> None:
        """Move stored state to the current partition names; the fencing epoch of a name never decreases."""
        names = {comparison.stored_name: name for name, comparison in current.items() if comparison.stored_name != name}
        names |= {
            name: comparison.displaced_name
            for name, comparison in current.items()
            if comparison.displaced_name is not None and name not in names
        }
        affected = {name: rows.pop(name) for name in {*names, *names.values()} & rows.keys()}
        epoch = 1 + max((row.epoch for row in affected.values()), default=0)
        for name in affected:
            sources.remove(self._name, name)
        for earlier, name in names.items():
            text = "source %(source)s: partition %(partition)s was previously named %(earlier)s"
            EVENTS.info("renamed", self._name, text, source=self._name, partition=name, earlier=earlier)
            rows[name] = affected[earlier]._replace(name=name, owner=None, epoch=epoch)
        for name in affected.keys() & current.keys() - rows.keys():
            rows[name] = SourcePartition(name, epoch=epoch)
        changed = sorted({*names.values(), *affected} & rows.keys())
        sources.add(self._name, changed)
        for name in changed:
            sources.save(self._name, rows[name])

    def _updated_row(
        self, sources: SourceStore, row: SourcePartition, comparison: PartitionComparison, now_ms: int
    ) -> SourcePartition | None:
        """Return the updated state of a partition; None: it is not read."""
        before = row
        if row.is_missing:
            row = row._replace(note=None)
        if row.is_paused or row.note is not None:
            return None
        if row.owner != self._instance and row.is_owned(now_ms):
            return row
        if comparison.refusal is not None:
            EVENTS.warning(
                "refused", self._name, _REFUSED, source=self._name, partition=row.name, reason=comparison.refusal
            )
            sources.save(self._name, row._replace(note=comparison.refusal, owner=None, epoch=row.epoch + 1))
            return None
        if comparison.change == "new":  # claimed anew
            row = row._replace(position=None, owner=None)
        if comparison.change != "none" or row.incarnation.startswith(DECIDED):
            row = row._replace(is_finished=False)
        changed = row._replace(incarnation=comparison.incarnation, gone_ms=None)
        if changed.is_finished:
            if changed != before:
                sources.save(self._name, changed)
            return None
        return changed

    def _open(self, partition: SourcePartition) -> None:
        self.note_progress()
        position = None if partition.position is None else msgspec.json.decode(partition.position)
        try:
            self._source.open(partition.name, position)
        except PositionGone as error:
            self.refuse(partition.name, partition.epoch, str(error))
            return
        self.epochs[partition.name] = partition.epoch

    def refuse(self, partition: str, epoch: int, note: str) -> None:
        """Leave a partition unread until an operator sets its position, if this instance still owns it."""
        EVENTS.warning("refused", self._name, _REFUSED, source=self._name, partition=partition, reason=note)
        self.close(partition)

        def save_refusal(store: SqlStore, _now_ms: int) -> None:
            row = store.sources.partition(self._name, partition)
            if row is not None and row.owner == self._instance and row.epoch == epoch:
                store.sources.save(self._name, row._replace(note=note, owner=None, epoch=epoch + 1))

        self._transact(save_refusal)
