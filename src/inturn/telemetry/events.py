"""Events as log records: the standard loggers ``inturn.*``, rate-limited, without the content of messages.

A record has the event's name and its fields as attributes, such as ``record.event``, ``record.pipeline`` and
``record.group``; ``record.msg`` is the sentence with the names of fields. At most ``limits.LOG_EVENTS`` records of one
event of one pipeline or queue are logged in ``limits.LOG_WINDOW_S``; the next record states how many were suppressed.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from inturn.core import limits

logging.getLogger("inturn").addHandler(logging.NullHandler())  # an application decides where records go

_shows_payloads = False


def log_payloads(shows: bool = True) -> None:  # noqa: FBT001, FBT002 - log_payloads(True) is clear
    """Log the content of messages, and the texts of errors and rejections, which may quote it. Off by default."""
    global _shows_payloads  # noqa: PLW0603 - a switch of the process, as logging's own are
    _shows_payloads = shows


class _Record(NamedTuple):
    """A record, with the fields of its sentence."""

    level: int
    text: str
    fields: dict[str, Any]
    exception: BaseException | None


@dataclass(slots=True)
class _Window:
    """The records of one event since the first of them: the number of logged and of suppressed ones."""

    until: float
    logged: int = 1
    suppressed: int = 0
    last: _Record | None = None  # the last suppressed one


class EventLogger:
    """The events of one logger.

    Args:
        name: the logger's name, below ``inturn``.
        clock: returns the time in seconds.
        most: the maximum number of records of one event, of one pipeline or queue, in ``limits.LOG_WINDOW_S``.
    """

    def __init__(
        self, name: str, clock: Callable[[], float] = time.monotonic, *, most: int = limits.LOG_EVENTS
    ) -> None:
        self._logger = logging.getLogger(f"inturn.{name}")
        self._clock = clock
        self._most = most
        self._mutex = threading.Lock()
        self._windows: dict[tuple[str, str], _Window] = {}
        self._swept_until = 0.0

    def forget(self) -> None:
        """Forget the logged events, so that all windows begin again."""
        with self._mutex:
            self._windows.clear()

    def info(self, event: str, subject: str, text: str, *, payload: str | None = None, **fields: Any) -> None:
        """Log an event that needs no attention; see :meth:`warning`."""
        self._log(logging.INFO, event, subject, text, payload, fields)

    def warning(self, event: str, subject: str, text: str, *, payload: str | None = None, **fields: Any) -> None:
        """Log an event that an operator should know of.

        Args:
            event: the event's name; each has its own rate limit.
            subject: the pipeline, queue or database of the event; each has its own rate limit.
            text: the sentence, with the fields as ``%(name)s`` and ``%(name)r``.
            payload: text that may quote a message; logged only after :func:`log_payloads`.
            fields: the record's attributes.
        """
        self._log(logging.WARNING, event, subject, text, payload, fields)

    def error(
        self,
        event: str,
        subject: str,
        text: str,
        *,
        payload: str | None = None,
        exception: BaseException | None = None,
        **fields: Any,
    ) -> None:
        """Log an event after which some work stops, with the traceback of an exception; see :meth:`warning`."""
        self._log(logging.ERROR, event, subject, text, payload, fields, exception)

    def flush(self, *, is_last: bool = False) -> None:
        """Log the last suppressed record of each window that has ended, with the number of the others.

        A process that calls this regularly, and at its end with ``is_last``, leaves no suppressed record unmentioned.
        """
        now = self._clock()
        due: list[tuple[_Record, int]] = []
        with self._mutex:
            for key, window in tuple(self._windows.items()):
                if window.last is not None and (is_last or now >= window.until):
                    due.append((window.last, window.suppressed - 1))
                    self._windows[key] = _Window(now + limits.LOG_WINDOW_S)
                elif is_last or now >= window.until:
                    del self._windows[key]
        for record, missed in due:
            self._write(record, missed)

    def _log(
        self,
        level: int,
        event: str,
        subject: str,
        text: str,
        payload: str | None,
        fields: dict[str, Any],
        exception: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        fields = {"event": event, **fields}
        if payload is not None and _shows_payloads:
            text, fields = f"{text}: %(payload)s", {**fields, "payload": payload}
        record = _Record(level, text, fields, exception)
        missed = self._missed((event, subject), record)
        if missed is not None:
            self._write(record, missed)

    def _write(self, record: _Record, missed: int) -> None:
        text, fields = record.text, record.fields
        if missed:
            text, fields = f"{text} (%(not_shown)d similar records were suppressed)", {**fields, "not_shown": missed}
        self._logger.log(record.level, text, fields, exc_info=record.exception, extra=fields, stacklevel=4)

    def _missed(self, key: tuple[str, str], record: _Record) -> int | None:
        """Count a record; return the number suppressed in the previous window, or None to suppress this one."""
        now = self._clock()
        with self._mutex:
            if key not in self._windows and len(self._windows) >= limits.LOG_NAMES:
                if now >= self._swept_until:
                    self._swept_until = now + limits.LOG_WINDOW_S
                    self._windows = {key: window for key, window in self._windows.items() if now < window.until}
                if len(self._windows) >= limits.LOG_NAMES:
                    key = "", ""  # too many at once share one window
            window = self._windows.get(key)
            if window is None or now >= window.until:
                self._windows[key] = _Window(now + limits.LOG_WINDOW_S)
                return 0 if window is None else window.suppressed
            if window.logged < self._most:
                window.logged += 1
                return 0
            window.suppressed, window.last = window.suppressed + 1, record
            return None
