"""The endpoint's logging: one line for each event, as text or JSON, without secrets.

Client input is escaped, since a line feed or an escape sequence in it could otherwise forge log lines. Bodies, secrets
and the values of variables are never logged: tracebacks show source lines only.
"""

import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.types import EventDict, Processor


def configure(*, json_lines: bool, stream: TextIO | None = None) -> None:
    """Send the logs of this package and of its dependencies to a stream, replacing the root logger's handlers.

    Events are lines of JSON, or formatted for people; the stream is by default standard error.
    """
    stream = stream or sys.stderr
    last: list[Processor]
    if json_lines:
        last = [structlog.processors.EventRenamer("message"), structlog.processors.JSONRenderer(ensure_ascii=True)]
    else:
        plain = structlog.dev.plain_traceback
        last = [escaped, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def escaped(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Replace values that are not printable by their Python escapes, except for the line ends of a traceback."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = value.split("\n") if name == "exception" else [value]
            event[name] = "\n".join(each if each.isprintable() else repr(each)[1:-1] for each in lines)
    return event
