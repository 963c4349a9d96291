"""Options of the Spark source; they are text, and an unknown or malformed one is an error."""

import datetime as dt
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

from inturn.core import limits
from inturn.core.address import checked_target, is_address, shown
from inturn.core.errors import InputError
from inturn.core.queue.messages import checked_name

_BOTH: Final = ("path", "queue", "partitionBy", "partitions")
_STREAM: Final = (*_BOTH, "reader", "maxRowsPerBatch", "acknowledge", "failOnDataLoss")
_BATCH: Final = (*_BOTH, "after", "upTo", "since", "until")


class QueueLocation(NamedTuple):
    """The absolute path of a database file, or its address, and a queue in it; the text form hides the password."""

    path: str
    queue: str

    def __str__(self) -> str:
        return f"{shown(self.path)}#{self.queue}"

    def __repr__(self) -> str:
        return f"Place({str(self)!r})"

    @property
    def is_on_server(self) -> bool:
        """True if the database is on a server, False if it is a local file."""
        return is_address(self.path)


class Division(NamedTuple):
    """The division of messages among tasks.

    Attributes:
        by_group: whether all messages of a group are in one partition; else each partition is a range of the log.
        partitions: their number; None for as many as are worthwhile.
    """

    by_group: bool
    partitions: int | None


class BatchOptions(NamedTuple):
    """Options of ``spark.read``: the messages after a sequence number, up to another or to the end of the log.

    Attributes:
        since_ms: messages sent at this time or later; None: all.
        until_ms: messages sent before this time; None: all.
    """

    place: QueueLocation
    division: Division
    after: int
    up_to: int | None
    since_ms: int | None = None
    until_ms: int | None = None


class StreamOptions(NamedTuple):
    """Options of ``spark.readStream``.

    Attributes:
        reader: name of the reader that holds messages that Spark has not committed.
        acknowledge: whether messages that Spark has committed are acknowledged too.
        fail_on_loss: whether to fail if messages that Spark has not read may be lost.
    """

    place: QueueLocation
    division: Division
    reader: str
    max_rows: int
    acknowledge: bool
    fail_on_loss: bool


def queue_location(options: Mapping[str, str]) -> QueueLocation:
    """Return the queue that the options name: ``load("shop.db#payments")``, or the queue as a separate option.

    Raises:
        InputError: if they name none.
    """
    path, _, queue = checked_target(options.get("path", "")).partition("#")
    queue = options.get("queue") or queue
    if not path or not queue:
        msg = f'{shown(options.get("path", ""))!r} names no queue: write load("{shown(path) or "shop.db"}#payments")'
        raise InputError(msg)
    if is_address(path):
        return QueueLocation(path, queue)
    return QueueLocation(str(Path(path.removeprefix("file://")).absolute()), queue)


def batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Return the options of ``spark.read``.

    Raises:
        InputError: if one is unknown or invalid.
    """
    _check_known(options, _BATCH, "spark.read")
    up_to = None if options.get("upTo") is None else _number(options, "upTo", 0, 0)
    times = _time_ms(options, "since"), _time_ms(options, "until")
    return BatchOptions(queue_location(options), _division(options), _number(options, "after", 0, 0), up_to, *times)


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of ``spark.readStream``.

    Raises:
        InputError: if one is missing, unknown or invalid.
    """
    _check_known(options, _STREAM, "spark.readStream")
    place = queue_location(options)
    reader = options.get("reader")
    if not reader:
        raise InputError(
            f'no reader for {place}; set one with .option("reader", "ledger"), a different name for each query: it '
            "holds the messages that Spark has not committed"
        )
    return StreamOptions(
        place,
        _division(options),
        checked_name(reader),
        _number(options, "maxRowsPerBatch", limits.SOURCE_ROWS, 1),
        _flag(options, "acknowledge", usual=False),
        _flag(options, "failOnDataLoss", usual=True),
    )


def _division(options: Mapping[str, str]) -> Division:
    by = options.get("partitionBy", "range").lower()
    if by not in {"range", "group"}:
        raise InputError(f"partitionBy is {by!r}; expected 'range' or 'group'")
    return Division(by == "group", _number(options, "partitions", 0, 1) or None)


def _number(options: Mapping[str, str], name: str, usual: int, least: int) -> int:
    text = options.get(name)
    if text is None:
        return usual
    if not text.strip().isdecimal() or int(text) < least:
        raise InputError(f"{name} is {text!r}; expected a whole number of at least {least}")
    return int(text)


def _time_ms(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InputError(f"{name} is {text!r}; expected a time with its zone, such as 2026-03-29T12:00:00+00:00")
    return round(time.timestamp() * 1000)


def _flag(options: Mapping[str, str], name: str, *, usual: bool) -> bool:
    text = options.get(name, str(usual)).lower()
    if text not in {"true", "false"}:
        raise InputError(f"{name} is {text!r}; expected 'true' or 'false'")
    return text == "true"


def _check_known(options: Mapping[str, str], known: tuple[str, ...], reader: str) -> None:
    names = {name.lower(): name for name in known}
    for name in options:
        if name.lower() not in names:
            near = get_close_matches(name.lower(), names, 1)
            meant = f"did you mean {names[near[0]]!r}? Existing" if near else "existing"
            msg = f"{name!r} is not an option of {reader}.format('inturn'); {meant} options: {', '.join(known[1:])}"
            raise InputError(msg)
