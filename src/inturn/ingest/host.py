"""The host of a source: it makes its records messages of a queue, each once, in the order of its partition.

One transaction holds the messages of a batch and the new positions of their partitions, and is refused for partitions
that another instance has claimed. The source hears of it after the commit. So whatever dies, nothing is lost or sent
twice: an inbox with fencing, as in Kafka Connect's exactly-once sources (KIP-618).
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self, cast

import msgspec

from inturn.core.errors import InputError, InturnError, NoSuchQueue, PositionGone, QueueFull
from inturn.core.queue.messages import Draft, checked_name
from inturn.core.source_shares import SourcePartition, share
from inturn.core.texts import quoted
from inturn.faults import reach
from inturn.ingest import limits as source_limits
from inturn.ingest.batches import IngestBatch, batches_of, position_json, rejected_record
from inturn.ingest.known_ids import identified, sorted_out
from inturn.ingest.mapping import MessageMapping, decoding
from inturn.ingest.moved_groups import OnMove, checked_on_move, without_moved
from inturn.ingest.source import Decoder, Source
from inturn.queue import Queue
from inturn.store.commands import Ask, queue_of
from inturn.store.protocols import SqlStore

_log = logging.getLogger("inturn.ingest")


class IngestCounts(NamedTuple):
    """The counts of one run.

    Attributes:
        received: records that became messages.
        rejected: records that were rejected, and kept.
        ignored: records that the mapping passes over, and those that came again, known by their id.
        moved: messages that wait for a decision, since their group came from another partition before.
    """

    received: int = 0
    rejected: int = 0
    ignored: int = 0
    moved: int = 0


class Ingest:
    """A source whose records become messages of a queue.

    Any number of instances may run the same source, in any process; they share its partitions, and take over those of
    an instance that died when its lease ends.

    Args:
        source: the source.
        queue: the queue.
        mapping: how a record becomes a message.
        name: the name under which positions are kept; one source in one database.
        instance: the name of this instance, which no other has; None: made from host, process and a random id.
        batch: the maximum number of records in one transaction.
        lease_s: how long the others wait for this instance if it dies, in seconds.
        once: whether the records of a source without positions are known by an id, so that none is sent twice. False:
            records that come again after a crash are sent again, "at least once".
        on_move: what becomes of a group whose records come from another partition than before. ``park``: its messages
            wait until :meth:`SourceControl.accept`; ``follow``: it goes on there; ``ignore``: nobody looks, which costs
            nothing. None: ``park`` if the mapping's revision is the position, else ``ignore``.
        decode: the step that makes records readable for the mapping, such as :class:`SchemaRegistry`; None: none.

    Attributes:
        counts: the counts of the current run.
        trouble: the error of the source or the database that is waited out now; empty: none.

    Raises:
        InputError: if a name or number is not valid, or ``once`` is asked of a source without positions, and the
            mapping has neither an id nor a revision.
    """

    def __init__(  # noqa: PLR0913 - options by name, each with a default
        self,
        source: Source,
        queue: Queue,
        mapping: MessageMapping,
        *,
        name: str,
        instance: str | None = None,
        batch: int = source_limits.INGEST_RECORDS,
        lease_s: float = source_limits.INGEST_LEASE_S,
        once: bool = True,
        on_move: OnMove | None = None,
        decode: Decoder | None = None,
    ) -> None:
        if batch < 1 or lease_s <= 0:
            raise InputError(f"batch is {batch!r} and lease_s {lease_s!r}; both are above zero")
        self.counts = IngestCounts()
        self._source, self._queue, self._name = source, queue, checked_name(name)
        self._map = decoding(decode, identified(source, mapping, once=once).compiled())
        self._once: str | None = None  # what is kept in place of a position
        if not source.has_positions:
            self._once = "once, by id" if once else "at least once"
        self._knows_ids = once and not source.has_positions
        self._on_move = checked_on_move(on_move, mapping)
        self._me = instance or f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._batch, self._lease_s = batch, lease_s
        self._epochs: dict[str, int] = {}  # of the open partitions
        self._has_all = False  # no other instance has a partition
        self._room = self._batch  # records that a full queue has room for at a time
        self._next_look = 0.0
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.trouble = ""

    def __enter__(self) -> Self:
        """Start reading, in a thread of its own.

        Raises:
            SourceError: if the source cannot be reached now; once it is read, its errors are waited out.
        """
        self._thread = threading.Thread(target=self._guarded, name=f"inturn-ingest-{self._name}", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop, and commit what was read."""
        self.stop_soon()
        if self._thread is not None:
            self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def stop_soon(self) -> None:
        """Read no more; ``run`` returns once the current batch is committed."""
        self._stopping.set()

    def run(self, *, until: Literal["stopped", "caught up"] = "stopped") -> IngestCounts:
        """Read until stopped, or until the source has nothing more.

        Errors of the source and a full queue are waited out, with growing pauses. ``caught up`` waits for the lease of
        an instance that has partitions, in case it died, and takes them over.

        Raises:
            NoSuchQueue: if the queue was deleted.
            SourceError: if the source cannot be reached when it begins.
            StoreError: if the database cannot be used when it begins.
        """
        if until not in ("stopped", "caught up"):
            raise InputError(f"until is {until!r}; it is 'stopped' or 'caught up'")
        self.counts = IngestCounts()
        pause_s, idle_since = source_limits.INGEST_PAUSE_S, None
        try:
            self._look()
            self._begun.set()
            while not self._stopping.is_set():
                try:
                    is_idle = not self._round()
                    pause_s, self.trouble = source_limits.INGEST_PAUSE_S, ""
                    if not is_idle:
                        idle_since = None
                    elif until == "caught up":
                        idle_since = idle_since or time.monotonic()
                        if self._has_all or time.monotonic() > idle_since + self._lease_s:
                            break
                except NoSuchQueue:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a source or a lost database raises is waited out
                    self.trouble = str(error)
                    _log.warning("source %s: %s; again in %.1f s", self._name, error, pause_s)
                    self._close_all()
                    self._stopping.wait(pause_s)
                    pause_s = min(2 * pause_s, source_limits.INGEST_PAUSE_AT_MOST_S)
        finally:
            self._leave()
        return self.counts

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - told by who waits for this
            self._error = error
        finally:
            self._begun.set()

    # --- one round ---

    def _round(self) -> bool:
        """Read and commit once; return whether there was anything, or may be at once."""
        if time.monotonic() >= self._next_look:
            self._look()
        if not self._epochs:
            self._stopping.wait(min(source_limits.INGEST_POLL_S, self._lease_s / 3))
            return False
        records = self._source.poll(min(self._batch, self._room), source_limits.INGEST_POLL_S)
        if not records:
            return False
        reach("polled")
        batches = batches_of(records, self._epochs, self._map)
        committed = self._committed(batches)
        if committed is None:
            return False
        reach("ingested")
        for read in batches:
            batch = committed.get(read.partition)
            if batch is None:
                _log.warning("source %s: partition %s was taken over by another instance", self._name, read.partition)
                self._close(read.partition)
                continue
            self._source.confirm(batch.partition, batch.last.position)
            self.counts = IngestCounts(
                self.counts.received + len(batch.drafts),
                self.counts.rejected + len(batch.rejected),
                self.counts.ignored + batch.ignored,
                self.counts.moved + batch.moved,
            )
        return True

    def _committed(self, batches: Sequence[IngestBatch]) -> dict[str, IngestBatch] | None:
        """Commit; while the queue is full, wait and keep the leases. None: it was stopped before there was room."""
        while True:
            try:
                committed: dict[str, IngestBatch] = self._ask(
                    lambda store, now_ms: self._commit(store, batches, now_ms)
                )
            except QueueFull:
                if self._stopping.wait(source_limits.INGEST_PAUSE_S):
                    return None
                if time.monotonic() >= self._next_look:
                    self._look()
            else:
                return committed

    def _commit(self, store: SqlStore, batches: Sequence[IngestBatch], now_ms: int) -> dict[str, IngestBatch]:
        """Write the messages, the rejected records and the positions; return what was written, by partition.

        Partitions that are not ours are left out.
        """
        committed, drafts = dict[str, IngestBatch](), list[Draft]()
        for each in batches:
            row = store.sources.partition(self._name, each.partition)
            if row is None or row.owner != self._me or row.epoch != each.epoch or row.is_paused:
                continue
            batch = self._new(store, each) if self._knows_ids else each
            if self._on_move != "ignore":
                queue = self._queue.name
                batch = without_moved(store.sources, self._name, batch, queue, self._on_move, now_ms)
            committed[batch.partition] = batch
            drafts += batch.drafts
            store.sources.reject(self._name, batch.rejected, now_ms)
            moved = row._replace(
                position=position_json(batch.last.position if self._once is None else self._once),
                received=row.received + len(batch.drafts),
                rejected=row.rejected + len(batch.rejected),
                moved_ms=now_ms,
                record_ms=batch.last.time_ms if batch.last.time_ms is not None else row.record_ms,
            )
            store.sources.save(self._name, moved)
        if drafts:
            store.send(queue_of(store, self._queue.name), drafts, now_ms)
        return committed

    def _new(self, store: SqlStore, batch: IngestBatch) -> IngestBatch:
        """Leave out what was sent before; reject what has the id of another message."""
        new = sorted_out(store.sources, self._name, batch.drafts)
        conflicts = [
            rejected_record(batch.records[at], f"the id {quoted(id_)} was used before, for another message")
            for at, id_ in new.conflicts.items()
        ]
        return replace(
            batch,
            records=[batch.records[place] for place in new.places],
            drafts=[batch.drafts[place] for place in new.places],
            rejected=batch.rejected + conflicts,
            ignored=batch.ignored + new.repeated,
        )

    # --- partitions ---

    def _look(self) -> None:
        """Extend our leases, claim free partitions, give up those beyond our quota."""
        names = list(self._source.partitions())
        incarnations = {name: self._source.incarnation(name) for name in names}
        lags = self._lags()
        mine = self._ask(lambda store, now_ms: self._shared(store, incarnations, lags, now_ms))
        self._next_look = time.monotonic() + self._lease_s / 3
        for name in [name for name, epoch in self._epochs.items() if name not in mine or mine[name].epoch != epoch]:
            self._close(name)
        for name, partition in mine.items():
            if name not in self._epochs:
                self._open(partition)

    def _lags(self) -> dict[str, int | None]:
        """Return how many records of the open partitions are not read yet."""
        return {name: self._source.lag(name) for name in self._epochs}

    def _shared(
        self, store: SqlStore, incarnations: dict[str, str], lags: dict[str, int | None], now_ms: int
    ) -> dict[str, SourcePartition]:
        until_ms = now_ms + round(self._lease_s * 1000)
        self._room = max(1, (queue_of(store, self._queue.name).settings.max_depth or 4 * self._batch) // 4)
        instances = store.sources.instances(self._name, self._me, until_ms, now_ms)
        store.sources.add(self._name, incarnations)
        readable = {}
        for each in store.sources.partitions(self._name):
            if each.name not in incarnations or each.is_paused or each.note is not None:
                continue
            if each.position is not None and each.incarnation not in ("", incarnations[each.name]):
                note = "the partition was made again: its positions are of another history; seek says where to go on"
                store.sources.save(self._name, each._replace(note=note, owner=None, epoch=each.epoch + 1))
                continue
            readable[each.name] = each
        due = share(list(readable.values()), instances, self._me, now_ms)
        mine = {}
        for name in due.kept:
            mine[name] = readable[name]._replace(until_ms=until_ms, lag=lags.get(name))
        for name in due.claimed:
            mine[name] = readable[name]._replace(
                owner=self._me,
                epoch=readable[name].epoch + 1,
                until_ms=until_ms,
                incarnation=incarnations[name],
            )
        for partition in mine.values():
            store.sources.save(self._name, partition)
        self._has_all = len(mine) == len(readable)
        for name in due.given_up:
            store.sources.save(self._name, readable[name]._replace(owner=None, epoch=readable[name].epoch + 1))
        return mine

    def _open(self, partition: SourcePartition) -> None:
        position = None if partition.position is None else msgspec.json.decode(partition.position)
        try:
            self._source.open(partition.name, position)
        except PositionGone as error:
            note = str(error)
            _log.warning("source %s: partition %s: %s", self._name, partition.name, note)
            self._ask(
                lambda store, _now_ms: store.sources.save(
                    self._name, partition._replace(note=note, owner=None, epoch=partition.epoch + 1)
                )
            )
            return
        self._epochs[partition.name] = partition.epoch

    def _close(self, partition: str) -> None:
        if self._epochs.pop(partition, None) is not None:
            self._source.close(partition)

    def _close_all(self) -> None:
        for name in list(self._epochs):
            try:
                self._close(name)
            except Exception as error:  # noqa: BLE001 - it is given up in any case
                _log.warning("source %s: partition %s: %s", self._name, name, error)
        self._next_look = 0.0

    def _leave(self) -> None:
        """Give up all partitions, so that the others need not wait for the end of the leases."""
        lags = self._last_lags()
        self._close_all()
        self._source.shut()

        def left(store: SqlStore, _now_ms: int) -> None:
            for row in store.sources.partitions(self._name):
                if row.owner == self._me:  # also one that could not be opened
                    store.sources.save(self._name, row._replace(owner=None, lag=lags.get(row.name)))
            store.sources.leave(self._name, self._me)

        try:
            self._ask(left)
        except InturnError as error:  # the leases end by themselves
            _log.warning("source %s: %s", self._name, error)

    def _last_lags(self) -> dict[str, int | None]:
        """Return the lags, or none if the source is not there."""
        try:
            return self._lags()
        except Exception as error:  # noqa: BLE001 - the positions are what counts
            _log.warning("source %s: %s", self._name, error)
            return {}

    def _ask(self, function: Any) -> Any:
        """Run a function of the store and the time in one transaction."""
        return self._queue.writer.run(Ask("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))
