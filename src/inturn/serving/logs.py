"""The log of commands that run until they are stopped: a record is a line of text or JSON on standard error.

Data in a record is escaped, since a line end or an escape sequence of a client could otherwise forge lines or colours.
Tracebacks show source lines, without the values of variables.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from inturn.core.override import override

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(level: str, *, json_lines: bool) -> None:
    """Send records from a level upwards to standard error, replacing the root logger's handlers."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if json_lines else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """A line of text: the sentence, then the fields that it does not state. Lines of a traceback are indented."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        stated = re.findall(r"%\((\w+)\)", str(record.msg)) if isinstance(record.args, Mapping) else []
        more = (
            f" {name}={_quoted(str(value))}"
            for name, value in _fields(record).items()
            if name != "event" and name not in stated  # the sentence states the event
        )
        text = f"{_escaped(record.getMessage())}{''.join(more)}"
        text = f"{_time(record)} {record.levelname.lower():7} {record.name}: {text}"
        if not record.exc_info:
            return text
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join((text, *(f"  {_escaped(line)}" for line in trace)))


class JsonLines(logging.Formatter):
    """A JSON object: the time, the level, the logger, the message, the record's fields, and the traceback."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {name: value for name, value in _fields(record).items() if name not in document}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        text = json.dumps(document, default=str, skipkeys=True)
        return text.replace("\x7f", "\\u007f")  # the one control character left by dumps


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _USUAL}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _escaped(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _quoted(text: str) -> str:
    return text if text.isprintable() and text and not re.search("[ '\"=]", text) else repr(text)
