"""Commands about queues: create, configure, list, show, purge, delete; redrive.

Only ``create`` creates a queue or a database.
"""

import datetime as dt
from dataclasses import asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from inturn.cli.errors import Commands
from inturn.cli.option_groups import given_options
from inturn.cli.options import AsJson, DatabaseAt, QueueAt, Yes
from inturn.cli.output import cell, confirm_loss, one_line, plain_console, print_json, print_text, visible_lines
from inturn.cli.targets import opened_database, queue_at, split_queue_target, split_target
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.queue.messages import QueueInfo, QueueSettings, first_number
from inturn.core.words import counted

queue = Commands(
    help="Create, configure, list, show, purge and delete queues of a database, and park and resume their groups.",
    no_args_is_help=True,
)


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """The settings of a new queue; None selects the default."""

    visibility_timeout_s: Annotated[float | None, "Lease of a received message in seconds (default: 30)."] = None
    delay_s: Annotated[float | None, "Seconds for which a sent message is hidden (default: 0)."] = None
    retention_s: Annotated[
        float | None,
        "Seconds after which a message is deleted, even if unacknowledged (default: kept until acknowledged).",
    ] = None
    keep_for: Annotated[
        str | None, "Keep acknowledged messages in the log for this time after their send, such as '30 days'."
    ] = None
    keep_bytes: Annotated[
        int | None, "Maximum size of the bodies in the log, in bytes; with --keep-for, the limit reached first applies."
    ] = None
    dedup_window_s: Annotated[float | None, "Seconds for which a deduplication id is remembered (default: 300)."] = None
    dedup_for_ever: Annotated[bool, "Remember deduplication ids for ever."] = False
    dedup_scope: Annotated[
        Literal["queue", "group"] | None, "Scope in which a deduplication id is unique (default: queue)."
    ] = None
    content_dedup: Annotated[bool, "Use the SHA-256 of the body as the deduplication id of messages without one."] = (
        False
    )
    dead_letter: Annotated[str | None, "Queue of the same database to which messages move after --max-receives."] = None
    max_receives: Annotated[int | None, "Number of receives before a message moves to the dead-letter queue."] = None
    max_depth: Annotated[int | None, "Maximum number of messages in the queue (default: unlimited)."] = None
    retry_delay_s: Annotated[
        float | None, "Seconds for which a message is hidden after its first failed attempt (default: 0)."
    ] = None
    retry_growth: Annotated[float | None, "Factor of the retry delay for each further attempt (default: 2)."] = None
    retry_max_s: Annotated[float | None, "Maximum retry delay in seconds (default: 60)."] = None
    retry_jitter: Annotated[
        float | None, "Maximum fraction by which the retry delay is randomly shortened (default: 0.2)."
    ] = None


@queue.command()
def create(at: QueueAt, *, options: QueueOptions, as_json: AsJson = False) -> None:
    """Create a queue, and its database if it does not exist; an existing queue is not changed."""
    meant = given_options(options)
    if meant.pop("dedup_for_ever", False):
        if options.dedup_window_s is not None:
            raise InputError("--dedup-window-s and --dedup-for-ever exclude each other; pass one")
        meant["dedup_window_s"] = None
    if options.keep_for is not None:
        meant["keep_for"] = _duration(options.keep_for)
    settings = QueueSettings(**meant) if meant else None
    path, name = split_queue_target(at)
    with opened_database(path, create=True) as db:
        was_there = name in db.queues()
        info = db.queue(name, settings).info()
    if as_json:
        print_json(_document(info) | {"created": not was_there})
    else:
        print_text(f"{shown(at)} exists already; nothing was changed." if was_there else f"{shown(at)} was created.")


@queue.command()
def configure(
    at: QueueAt,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="SETTING=VALUE…",
            help="Settings, such as max_depth=10000, keep_for='30 days' or retention_s=null; see 'inturn queue show'.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change settings of a queue."""
    with queue_at(at) as opened:
        opened.configure(**dict(map(_change, changes)))
        info = opened.info()
    if as_json:
        print_json(_document(info))
    else:
        _print_settings(info.settings)


@queue.command("list")
def list_(database: DatabaseAt, as_json: AsJson = False) -> None:
    """List the queues of a database, with the numbers of messages and parked groups, and their readers."""
    path, name = split_target(database)
    if name:
        raise InputError(
            f"{shown(database)!r} names a queue; use 'inturn queue show' for one queue, "
            f"or 'inturn queue list {shown(path)}' for all"
        )
    with opened_database(path) as db:
        queues = [db.queue(name, create=False) for name in db.queues()]
        rows = [(opened.info(), opened.depth().parked) for opened in queues]
    if as_json:
        print_json([_document(info) | {"parked_groups": parked} for info, parked in rows])
        return
    table = Table(
        "queue", "messages", "parked groups", "dead letter", "readers and their lag", box=None, pad_edge=False
    )
    table.columns[1].justify = table.columns[2].justify = "right"
    for info, parked in rows:
        dead = info.settings.dead_letter
        after = f"{dead} after {info.settings.max_receives} receives" if dead else ""
        lags = ", ".join(f"{reader} {lag(info, position):,}" for reader, position in sorted(info.readers.items()))
        table.add_row(cell(info.name), f"{info.depth:,}", f"{parked:,}", cell(after), Text(visible_lines(lags)))
    plain_console().print(table if rows else f"{shown(path)} has no queues.")


@queue.command()
def show(at: QueueAt, as_json: AsJson = False) -> None:
    """Show the settings, depth, parked groups and readers of a queue."""
    with queue_at(at) as opened:
        info, parked, count = opened.info(), opened.parked(), opened.depth().parked
    if as_json:
        held = [{"group": group, "note": note, "parked_at": iso(ms)} for group, note, ms in parked]
        about = {"parked_groups": count, "parked": held}
        print_json(_document(info) | about | {"unmatched_resources": _unmatched_resources(info.settings)})
        return
    print_text(f"{shown(at)}: {counted(info.depth, 'message')}, created at {clock_time(info.created_ms)}")
    _print_settings(info.settings)
    for resource in _unmatched_resources(info.settings):
        print_text(f"  policy: the resource '{one_line(resource)}' is not a valid ARN and matches no queue")
    for group, note, parked_ms in parked:
        print_text(f"  parked {one_line(group)} since {clock_time(parked_ms)}: {one_line(note)}")
    if count > len(parked):
        print_text(f"  Shown: the first {len(parked):,} of {count:,} parked groups.")
    for reader, position in sorted(info.readers.items()):
        print_text(f"  reader {reader} has read up to {position}, {counted(lag(info, position), 'message')} behind")


@queue.command()
def purge(at: QueueAt, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove all messages of a queue, including those in flight, and its deduplication ids."""
    with queue_at(at) as opened:
        count = counted(opened.depth().messages, "message")
        confirm_loss(
            f"Remove {count} from {shown(at)} permanently, including those in flight?", yes=yes, as_json=as_json
        )
        removed = opened.purge()
        if as_json:
            print_json({"removed": removed})
        else:
            print_text(f"{counted(removed, 'message')} removed from {shown(at)}.")


@queue.command()
def delete(at: QueueAt, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a queue with its messages, readers and settings."""
    path, name = split_queue_target(at)
    with opened_database(path) as db:
        deleted = db.queue(name, create=False)
        info = deleted.info()
        served = [
            queue_name
            for queue_name in db.queues()
            if db.queue(queue_name, create=False).info().settings.dead_letter == name
        ]
        content = f"{counted(info.depth, 'message')} and {counted(len(info.readers), 'reader')}"
        fails = ""
        if served:
            fails = f" It is the dead-letter queue of {', '.join(served)}, which then has none for messages that fail."
        confirm_loss(f"Remove {shown(at)} with {content} permanently?{fails}", yes=yes, as_json=as_json)
        deleted.delete()
    if as_json:
        print_json({"queue": name, "messages": info.depth, "readers": sorted(info.readers)})
    else:
        print_text(f"{shown(at)} was removed, with {content}.")


def redrive(
    at: QueueAt,
    to: Annotated[
        str | None, "Target queue of the same database (default: the original queue of each message)."
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of messages, oldest first (default: all).", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move messages from a dead-letter queue back to their original queues and positions, or to another queue.

    Messages in flight stay in the dead-letter queue, and so do messages that were sent to it directly.
    """
    moved = 0
    with queue_at(at) as opened:
        while limit is None or moved < limit:
            batch_size = limits.READ_MESSAGES if limit is None else min(limits.READ_MESSAGES, limit - moved)
            part = opened.redrive(batch_size, to=to)
            moved += part
            if part < batch_size:
                break
        remaining = opened.depth().messages
    if as_json:
        print_json({"moved": moved, "left": remaining})
    else:
        print_text(
            f"{counted(moved, 'message')} moved {f'to {to}' if to else 'back'}; {remaining:,} left in {shown(at)}."
        )


def clock_time(ms: int) -> str:
    """Format a time of the store in local time, without the date if it is today."""
    moment = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).astimezone()
    is_today = moment.date() == dt.datetime.now(dt.UTC).astimezone().date()
    return f"{moment:%H:%M:%S}" if is_today else f"{moment:%Y-%m-%d %H:%M:%S}"


def iso(ms: int) -> str:
    """Format a time of the store as ISO 8601."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat()


def duration(seconds: float) -> str:
    """Format a duration in one unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def lag(info: QueueInfo, position: int) -> int:
    """Return the number of messages sent after a position, including those removed since."""
    return info.last - max(position, first_number(info.number))


def _change(text: str) -> tuple[str, Any]:
    """Return the name and the value of a setting that is given as one text."""
    name, equals, value = text.partition("=")
    types = {field.name: field.type for field in fields(QueueSettings) if field.name != "extra"}
    if name not in types:
        raise InputError(f"no setting {name!r}; existing settings: {', '.join(types)}")
    if not equals:
        raise InputError(f"{name} has no value; expected SETTING=VALUE, such as {name}=null or max_depth=10000")
    if name == "keep_for":
        return name, None if value == "null" else _duration(value)
    try:
        return name, msgspec.convert(value, type=types[name], strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name} is {value!r}; expected {' or '.join(_type_names(types[name]))}") from error


def _type_names(hint: Any) -> list[str]:
    """Return the values of a type in words."""
    if isinstance(hint, UnionType):
        return [word for member in get_args(hint) for word in _type_names(member)]
    words = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
    return [words[hint]] if hint in words else [str(value) for value in get_args(hint)] or ["a text"]


def _duration(text: str) -> float | str:
    """Return a number of seconds; a duration such as ``30 days`` is returned unchanged."""
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def _print_settings(settings: QueueSettings) -> None:
    for name, value in asdict(settings).items():
        print_text(f"  {name:21} {_setting(name, value)}")


def _unmatched_resources(settings: QueueSettings) -> list[str]:
    """Return the resources in the policy for the SQS endpoint that match nothing."""
    from inturn.sqs.auth.policy import unmatched_resources

    return unmatched_resources(str(settings.extra.get("policy", "")))


def _setting(name: str, value: object) -> str:
    meanings = {"retention_s": "until acknowledged", "dedup_window_s": "for ever"}
    return meanings.get(name, "none") if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def _document(info: QueueInfo) -> dict[str, Any]:
    readers = {
        name: {"position": position, "lag": lag(info, position)} for name, position in sorted(info.readers.items())
    }
    return {
        "queue": info.name,
        "messages": info.depth,
        "last_sequence_number": info.last,
        "created_at": iso(info.created_ms),
        "settings": asdict(info.settings),
        "readers": readers,
    }
