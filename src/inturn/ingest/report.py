"""The report of a host on its progress, for its health, its metric and the log."""

import time

from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.telemetry import measures


class IngestReport:
    """The report of one host, which its own thread writes and any thread reads.

    Args:
        source: the name of the source.
        queue: the name of the queue.
        database: the name of the queue's database, for the metric.

    Attributes:
        error: the current error that is being retried, or the one that ended the host; empty: none.
    """

    def __init__(self, source: str, queue: str, database: str) -> None:
        self._source, self._queue = source, queue
        self._measures = measures.IngestMeasures(database, queue, source)
        self.error = ""
        self._queue_full_text = ""  # the text about a full queue, while it is full
        self._full_logged_s: float | None = None  # when it was last logged
        self._last_progress_s: float | None = None  # None: nothing was done yet, or it has ended

    def note_started(self) -> None:
        """Note that the host has started; the source counts as read after the first round."""
        self._measures = measures.register(self._measures)
        self._measures.is_ready = lambda: self.is_ready

    def note_progress(self) -> None:
        """Note progress: a round has committed records, or found none."""
        self.error = self._queue_full_text = ""
        self._last_progress_s = time.monotonic()

    def note_retry(self, error: Exception, pause_s: float) -> None:
        """Note an error after which the host tries again."""
        self.error, self._queue_full_text = str(error), ""
        text = "source %(source)s: %(error)s; next attempt in %(pause_s).1f s"
        EVENTS.warning("retry", self._source, text, source=self._source, error=self.error, pause_s=pause_s)

    def note_rejected_full(self, error: Exception) -> None:
        """Note that the source waits until there is room for rejected records."""
        self._queue_full_text = ""
        if self.error != str(error):
            self.error = str(error)
            text = "source %(source)s waits: %(error)s"
            EVENTS.warning("waits", self._source, text, source=self._source, error=self.error)

    def note_queue_full(self, bound: int | None) -> None:
        """Note that the source waits until there is room in the queue.

        A queue with a slow worker is full again and again: this is not an error, and is logged once a minute. An
        earlier error has ended: the source was read and the database answered.
        """
        self.error = ""
        self._queue_full_text = (
            f"queue {self._queue!r} is full (max_depth={bound}) and the source waits for room: run a worker or "
            f"consumer that acknowledges its messages, or raise max_depth with 'inturn queue configure'"
        )
        now_s = time.monotonic()
        if self._full_logged_s is None or now_s - self._full_logged_s > source_limits.INGEST_STALL_S:
            self._full_logged_s = now_s
            text = "source %(source)s: %(error)s"
            EVENTS.warning("waits", self._source, text, source=self._source, error=self._queue_full_text)

    def note_failure(self, error: Exception) -> None:
        """Note the error that ends the host."""
        self.error = str(error)
        text = "source %(source)s stopped: %(error)s"
        EVENTS.error("ended", self._source, text, source=self._source, error=self.error)

    def note_stopped(self) -> None:
        """Note that the source is no longer read."""
        self._measures.up, self._last_progress_s, self._queue_full_text = False, None, ""

    @property
    def is_queue_full(self) -> bool:
        """True while the source waits for room in the queue."""
        return bool(self._queue_full_text)

    @property
    def is_ready(self) -> bool:
        """True while the source is read without errors; a full queue counts only after a minute."""
        return self._last_progress_s is not None and not self.error and not self._stuck_s()

    @property
    def problem(self) -> str:
        """The current error, or a full queue, or a standstill; empty: none."""
        if error := self.error or self._queue_full_text:
            return error
        stuck_s = self._stuck_s()
        return f"no progress for {stuck_s:.0f} s: the source or the database does not answer" if stuck_s else ""

    def _stuck_s(self) -> float:
        """Return the time since the last progress, in seconds; 0 if it is short."""
        stuck_s = time.monotonic() - (self._last_progress_s or time.monotonic())
        return stuck_s if stuck_s >= source_limits.INGEST_STALL_S else 0.0
