"""Events as log records: the standard loggers ``inturn.*``, rate-limited, without the content of messages.

A record has the event's name and its fields as attributes, such as ``record.event``, ``record.pipeline`` and
``record.group``. At most ``limits.LOG_EVENTS`` records of one event of one pipeline or queue are logged in
``limits.LOG_WINDOW_S``; the next record states how many were suppressed.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from inturn.core import limits

logging.getLogger("inturn").addHandler(logging.NullHandler())  # an application decides where records go

_shows_payloads = False


def log_payloads(shows: bool = True) -> None:  # noqa: FBT001, FBT002 - log_payloads(True) is clear
    """Log the content of messages, and the texts of errors and rejections, which may quote it. Off by default."""
    global _shows_payloads  # noqa: PLW0603 - a switch of the process, as logging's own are
    _shows_payloads = shows


class EventLogger:
    """The events of one logger.

    Args:
        name: the logger's name, below ``inturn``.
        clock: returns the time in seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(f"inturn.{name}")
        self._clock = clock
        self._mutex = threading.Lock()
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}  # the end of each, and its number of events

    def forget(self) -> None:
        """Forget the logged events, so that all windows begin again."""
        with self._mutex:
            self._windows.clear()

    def info(self, event: str, of: str, text: str, *, payload: str | None = None, **fields: Any) -> None:
        """Log an event that needs no attention; see :meth:`warning`."""
        self._log(logging.INFO, event, of, text, payload, fields)

    def warning(self, event: str, of: str, text: str, *, payload: str | None = None, **fields: Any) -> None:
        """Log an event that an operator should know of.

        Args:
            event: the event's name; each has its own rate limit.
            of: the pipeline, queue or database of the event; each has its own rate limit.
            text: the sentence, with the fields as ``%(name)s`` and ``%(name)r``.
            payload: text that may quote a message; logged only after :func:`log_payloads`.
            fields: the record's attributes.
        """
        self._log(logging.WARNING, event, of, text, payload, fields)

    def error(self, event: str, of: str, text: str, *, payload: str | None = None, **fields: Any) -> None:
        """Log an event after which some work stops; see :meth:`warning`."""
        self._log(logging.ERROR, event, of, text, payload, fields)

    def _log(self, level: int, event: str, of: str, text: str, payload: str | None, fields: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        missed = self._missed(event, of)
        if missed is None:
            return
        text %= fields
        if payload is not None and _shows_payloads:
            text, fields = f"{text}: {payload}", {**fields, "payload": payload}
        if missed:
            text, fields = f"{text} ({missed} similar records were suppressed)", {**fields, "not_shown": missed}
        self._logger.log(level, "%s", text, extra={"event": event, **fields}, stacklevel=3)

    def _missed(self, event: str, of: str) -> int | None:
        """Count an event; return the number suppressed in the previous window, or None to suppress this one."""
        now, key = self._clock(), (event, of)
        with self._mutex:
            until, count = self._windows.get(key, (0.0, 0))
            if now < until:
                self._windows[key] = until, count + 1
                return None if count >= limits.LOG_EVENTS else 0
            if len(self._windows) >= limits.LOG_NAMES:
                self._windows.clear()
            self._windows[key] = now + limits.LOG_WINDOW_S, 1
        return max(0, count - limits.LOG_EVENTS)
