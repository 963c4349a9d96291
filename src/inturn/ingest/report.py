"""The report of a host on what it does: whether it goes on, for its health, its metric and the log."""

import logging
import time

from inturn.ingest import limits as source_limits
from inturn.telemetry import measures

_log = logging.getLogger("inturn.ingest")


class IngestReport:
    """The report of one host, which its own thread writes and any thread reads.

    Args:
        source: the name of the source.
        queue: the name of the queue.
    """

    def __init__(self, source: str, queue: str) -> None:
        self._source = source
        self._measures = measures.IngestMeasures(source, queue)
        self._error = ""
        self._went_on_s: float | None = None  # None: nothing was done yet, or it has ended

    def begins(self) -> None:
        """Note that it runs; the source is read once a round is done."""
        self._measures = measures.begun(self._measures)
        self._measures.is_ready = lambda: self.is_ready

    def goes_on(self) -> None:
        """Note that a round is done: records were committed, or there were none."""
        self._error, self._went_on_s = "", time.monotonic()

    def waits(self, error: Exception, pause_s: float) -> None:
        """Note an error that is waited out."""
        self._error = str(error)
        _log.warning("source %s: %s; again in %.1f s", self._source, error, pause_s)

    def has_no_room(self, error: Exception) -> None:
        """Note that the source waits until there is room for rejected records."""
        if self._error != str(error):
            self._error = str(error)
            _log.warning("source %s waits: %s", self._source, error)

    def fails(self, error: Exception) -> None:
        """Note an error with which it ends."""
        self._error = str(error)
        _log.error("source %s: %s; it is read no more", self._source, error)

    def ends(self) -> None:
        """Note that the source is not read any more."""
        self._measures.up, self._went_on_s = False, None

    @property
    def is_ready(self) -> bool:
        """True while the source is read and nothing is in the way."""
        return self._went_on_s is not None and not self.trouble

    @property
    def trouble(self) -> str:
        """The error that is waited out now, or that nothing goes on; empty: none."""
        went_on_s = self._went_on_s
        if self._error or went_on_s is None:
            return self._error
        stuck_s = time.monotonic() - went_on_s
        if stuck_s < source_limits.INGEST_ROUND_S:
            return ""
        return f"nothing goes on for {stuck_s:.0f} s: the queue is full, or the source or the database does not answer"
