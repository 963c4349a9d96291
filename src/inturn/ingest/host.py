"""The host of a source: it turns records into messages of a queue, each once, in the order of their partition.

One transaction writes the messages of a batch and the new positions of their partitions; partitions that another
instance has claimed are left out. The source is notified after the commit. So no crash loses a record or sends it
twice: an inbox with fencing, as in Kafka Connect's exactly-once sources (KIP-618).
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Self, cast

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, NoSuchQueue, PositionGone, QueueFull, RejectedFull, SetupError
from inturn.core.override import override
from inturn.core.queue.messages import Draft, checked_name
from inturn.faults import reach
from inturn.ingest import limits as source_limits
from inturn.ingest.batches import IngestBatch, check_batch_limits, map_batches
from inturn.ingest.events import EVENTS
from inturn.ingest.intake import IntakeRule
from inturn.ingest.leases import PartitionLeases
from inturn.ingest.mapping import MessageMapping
from inturn.ingest.moved_groups import OnMove
from inturn.ingest.positions import position_json
from inturn.ingest.rejections import RejectedLimits
from inturn.ingest.report import IngestReport
from inturn.ingest.source import Decoder, Source, SourceRecord
from inturn.queue.queue import Queue, check_queue
from inturn.store.commands import StoreCall
from inturn.store.protocols import SqlStore
from inturn.threads import ThreadLoop


class IngestCounts(NamedTuple):
    """The counts of one run.

    Attributes:
        received: records that became messages.
        rejected: records that were rejected.
        ignored: records that the mapping skips, and repeated records, recognized by their id.
        moved: messages that wait for a decision, since their group came from another partition before.
    """

    received: int = 0
    rejected: int = 0
    ignored: int = 0
    moved: int = 0


class Ingest(ThreadLoop):
    """A source whose records become messages of a queue.

    Any number of instances may run the same source, in any process; they share its partitions, and take over those of
    an instance that died when its lease ends.

    Args:
        source: the source.
        queue: the queue.
        mapping: how a record becomes a message.
        name: the name under which positions are stored, unique within the database.
        instance: a unique name of this instance; None: built from host, process and a random id.
        batch: the maximum number of records in one transaction.
        batch_bytes: the maximum size of these records, in bytes; a larger record is sent alone.
        lease_s: how long the other instances wait for this one if it dies, in seconds.
        once: whether the records of a source without positions are recognized by an id, so that none is sent twice.
            False: records that are redelivered after a crash are sent again, "at least once".
        on_move: the treatment of a group whose records arrive from another partition than before. ``park``: its
            messages wait until :meth:`SourceControl.accept`; ``follow``: it continues there; ``ignore``: no check, at
            no cost. None: ``park`` if the mapping's revision is the position, else ``ignore``.
        decode: the step that makes records readable for the mapping, such as :class:`SchemaRegistry`; None: none.
        max_rejected: the maximum number of stored rejected records. Beyond it, a source whose records have no other
            copy waits, as for a full queue; another source counts and drops further ones.
        max_rejected_bytes: the same for their size, in bytes.

    Attributes:
        intake: the rule by which records become messages, for :meth:`SourceControl.resend`.
        counts: the counts of the current run.
        report: whether the source is being read, and the current problem of the source, the queue or the database.

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
        batch_bytes: int = source_limits.INGEST_BYTES,
        lease_s: float = source_limits.INGEST_LEASE_S,
        once: bool = True,
        on_move: OnMove | None = None,
        decode: Decoder | None = None,
        max_rejected: int = source_limits.REJECTED_RECORDS,
        max_rejected_bytes: int = source_limits.REJECTED_BYTES,
    ) -> None:
        check_type("source", source, Source, "a source, such as KafkaSource(…)")
        check_queue(queue)
        check_type("mapping", mapping, MessageMapping, "a mapping of records, such as MessageMapping(…)")
        check_batch_limits(batch, batch_bytes, lease_s)
        super().__init__(f"inturn-ingest-{name}")
        self.counts = IngestCounts()
        self._source, self._queue, self._name = source, queue, checked_name(name)
        source.batch_bytes = batch_bytes
        self.intake = IntakeRule.for_source(
            source, mapping, name=name, queue=queue.name, once=once, on_move=on_move, decode=decode
        )
        self._rejected_limits = RejectedLimits(max_rejected, max_rejected_bytes).validated()
        self._position_marker: str | None = None  # what is stored in place of a position
        if not source.has_positions:
            self._position_marker = "once, by id" if once else "at least once"
        self._instance = instance or f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._batch, self._lease_s = batch, lease_s
        self.report = IngestReport(name, queue.name, queue.writer.database)
        self._leases = PartitionLeases(source, name, self._instance, lease_s, self._transact, lambda: self.problem)
        self._commit_size = batch  # number of records that the queue is tried with; fewer after it was full
        self._first_attempt = threading.Event()  # the first attempt has been made

    @override
    def __enter__(self) -> Self:
        """Start reading, in a thread of its own.

        Raises:
            NoSuchQueue, InputError, SetupError: as :meth:`run`, if the first attempt fails so.
        """
        super().__enter__()
        self._first_attempt.wait()
        if self._error is not None:
            self.__exit__(None)
        return self

    def run(self, *, until: Literal["stopped", "caught up"] = "stopped") -> IngestCounts:
        """Read until stopped, or until the source has no more records.

        Errors of the source, its decoder and the database are retried with growing pauses, also at the start. A run
        with ``caught up`` ends with the error if it cannot start, or if it makes no progress while the pauses grow to
        their longest, for about a minute: wrong credentials do not mend themselves. A full queue takes as many messages
        as it has room for; the rest waits, also with ``caught up``, since a worker may be running: the log and
        :attr:`problem` report it at once. ``caught up`` also waits for the leases of other instances, in case they
        died, and takes their partitions over.

        Raises:
            NoSuchQueue: if the queue was deleted.
            InputError, SetupError: if the source cannot work as configured, such as without an extra.
            Exception: with ``caught up``: SourceError or StoreError if the source or the database is unavailable at the
                start, and any error that lasts for a minute.
        """
        if until not in ("stopped", "caught up"):
            raise InputError(f"until is {until!r}; expected 'stopped' or 'caught up'")
        self.counts = IngestCounts()
        pause_s, idle_since = source_limits.INGEST_PAUSE_S, None
        self._first_attempt.clear()
        try:
            self.report.note_started()
            self._leases.begin()
            while not self._stopping.is_set():
                try:
                    is_idle = not self._poll_once()
                    pause_s = source_limits.INGEST_PAUSE_S
                    self.report.note_progress()
                    if not is_idle:
                        idle_since = None
                    elif until == "caught up":
                        idle_since = idle_since or time.monotonic()
                        if self._leases.has_all or time.monotonic() > idle_since + self._lease_s:
                            break
                except (NoSuchQueue, InputError, SetupError) as error:
                    self.report.note_failure(error)
                    raise
                except Exception as error:  # whatever a source or a lost database raises
                    is_lasting = pause_s >= source_limits.INGEST_PAUSE_MAX_S
                    if until == "caught up" and (is_lasting or not self._first_attempt.is_set()):
                        self.report.note_failure(error)
                        raise
                    self.report.note_retry(error, pause_s)
                    self._leases.close_all()
                    self._first_attempt.set()
                    self._stopping.wait(pause_s)
                    pause_s = min(2 * pause_s, source_limits.INGEST_PAUSE_MAX_S)
        finally:
            self.report.note_stopped()
            self._leases.release_all()
        return self.counts

    @property
    def problem(self) -> str:
        """The current error of the source or database, or a full queue, or a standstill; empty: none."""
        return self.report.problem

    @override
    def _run_alone(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this
            self._error = error
        finally:
            self._first_attempt.set()

    # --- one round ---

    def _poll_once(self) -> bool:
        """Read and commit once; return whether there were records, or may be some at once."""
        self._leases.refresh_if_due()
        self._first_attempt.set()
        if not self._leases.epochs:
            self._stopping.wait(min(source_limits.INGEST_POLL_S, self._lease_s / 3))
            return False
        try:
            records = self._source.poll(self._batch, source_limits.INGEST_POLL_S)
        except PositionGone as error:
            if error.partition is None:
                raise
            self._leases.refuse(error.partition, self._leases.epochs[error.partition], str(error))
            return True
        if not records:
            return False
        reach("polled")
        while records:
            count = self._commit_records(records)
            if not count:  # stopped
                return False
            reach("ingested")
            records = [record for record in records[count:] if record.partition in self._leases.epochs]
        return True

    def _commit_records(self, records: Sequence[SourceRecord]) -> int:
        """Commit as many of the records as the queue has room for; return how many, 0 if stopped before there was room.

        Partitions are not refreshed meanwhile: one that is closed and reopened would return these records again.
        """
        while True:
            count = min(self._commit_size, len(records))
            batches = map_batches(records[:count], self._leases.epochs, self.intake.draft_of)
            try:
                committed: dict[str, IngestBatch] = self._transact(partial(self._commit, batches))
            except (QueueFull, RejectedFull) as error:
                self._commit_size = count // 2 or 1
                self._leases.note_progress()
                if count == 1:
                    self._note_refusal(error)
                    if self._stopping.wait(source_limits.INGEST_PAUSE_S):
                        return 0
            else:
                self._commit_size = min(self._batch, 2 * self._commit_size)
                self._confirm(batches, committed)
                self._note_refusal(None)
                return count

    def _note_refusal(self, error: QueueFull | RejectedFull | None) -> None:
        """Note why nothing is committed; None: commits continue.

        An error is published to the other instances at once, a full queue with the next lease: it may change often.
        """
        before = self.report.error
        if error is None:
            self.report.note_progress()
        elif isinstance(error, RejectedFull):
            self.report.note_rejected_full(error)
        elif not self.report.is_queue_full:
            self.report.note_queue_full(self._queue.info().settings.max_depth)
        if self.report.error != before:
            self._transact(self._leases.renew)

    def _confirm(self, batches: Sequence[IngestBatch], committed: Mapping[str, IngestBatch]) -> None:
        for read in batches:
            batch = committed.get(read.partition)
            if batch is None:
                text = "source %(source)s: partition %(partition)s was taken over by another instance"
                EVENTS.warning("overtaken", self._name, text, source=self._name, partition=read.partition)
                self._leases.close(read.partition)
                continue
            self._source.confirm(batch.partition, batch.last.position)
            self.counts = IngestCounts(
                self.counts.received + len(batch.drafts),
                self.counts.rejected + len(batch.rejected),
                self.counts.ignored + batch.ignored,
                self.counts.moved + batch.moved,
            )

    def _commit(self, batches: Sequence[IngestBatch], store: SqlStore, now_ms: int) -> dict[str, IngestBatch]:
        """Write the messages, the rejected records and the positions; return what was written, by partition.

        Partitions that this instance does not own are left out.
        """
        committed, drafts = dict[str, IngestBatch](), list[Draft]()
        for read_batch in batches:
            row = store.sources.partition(self._name, read_batch.partition)
            if row is None or row.owner != self._instance or row.epoch != read_batch.epoch or row.is_paused:
                continue
            batch = self.intake.new_records(store.sources, read_batch, now_ms)
            committed[batch.partition] = batch
            drafts += batch.drafts
            may_drop = not self._source.forgets_confirmed
            dropped = self._rejected_limits.save(store.sources, self._name, batch.rejected, now_ms, may_drop=may_drop)
            moved = row._replace(
                position=position_json(batch.last.position if self._position_marker is None else self._position_marker),
                received=row.received + len(batch.drafts),
                rejected=row.rejected + len(batch.rejected),
                dropped=row.dropped + dropped,
                moved_ms=now_ms,
                record_ms=batch.last.time_ms if batch.last.time_ms is not None else row.record_ms,
            )
            store.sources.save(self._name, moved)
        if drafts:
            self.intake.send(store, drafts, now_ms)
        return committed

    def _transact(self, function: Callable[[SqlStore, int], Any]) -> Any:
        """Run a function of the store and the time in one transaction."""
        return self._queue.writer.run(StoreCall("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))
