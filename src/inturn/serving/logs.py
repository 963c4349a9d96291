"""The log of ``inturn work``: one line for each record, as text or JSON, on standard error."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from inturn.core.override import override

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
LEVELS: Final = ("debug", "info", "warning", "error")
"""The levels that a user may choose."""


def configure(level: str, *, json_lines: bool) -> None:
    """Send records from a level upwards to standard error, replacing the root logger's handlers."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if json_lines else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """A line of text; data in it is escaped, so that it cannot forge lines or colours."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time(record)} {record.levelname.lower():7} {record.name}: {_escaped(record.getMessage())}"
        if not record.exc_info:
            return text
        return "\n".join((text, *map(_escaped, self.formatException(record.exc_info).splitlines())))


class JsonLines(logging.Formatter):
    """A JSON object with the event's fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _escaped(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]
