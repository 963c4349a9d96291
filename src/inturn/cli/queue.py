"""The commands about queues: make, configure, list, show, empty, remove; redrive.

Only ``create`` makes a queue or a database.
"""

import datetime as dt
from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from inturn.cli.errors import Commands
from inturn.cli.options import AsJson, DatabaseAt
from inturn.cli.places import opened, parts, queue_at, split
from inturn.cli.texts import cell, confirm_loss, line, lines, plain_console, say, say_json
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.queue.messages import QueueInfo, QueueSettings, first_number
from inturn.core.words import counted

queue = Commands(help="Queues in a database: create, configure, list, show, purge, delete.", no_args_is_help=True)

QueueAt = Annotated[str, typer.Argument(metavar="DATABASE#QUEUE", help="The queue, such as shop.db#payments.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option(help="How many at most.", min=1, max=limits.READ_MESSAGES)]


@queue.command()
def create(
    at: QueueAt,
    visibility_timeout_s: Annotated[
        float | None, typer.Option(help="How long a received message stays with its receiver; default: 30.")
    ] = None,
    delay_s: Annotated[float | None, typer.Option(help="How long a sent message is hidden at first.")] = None,
    retention_s: Annotated[
        float | None, typer.Option(help="How long a message is kept; default: until it is acknowledged.")
    ] = None,
    keep_for: Annotated[
        str | None,
        typer.Option(help="Keep acknowledged messages in the log so long after their send, such as '30 days'."),
    ] = None,
    keep_bytes: Annotated[
        int | None,
        typer.Option(help="Keep so many bytes of the log's bodies, the newest; of both limits the first counts."),
    ] = None,
    dedup_window_s: Annotated[
        float | None, typer.Option(help="How long a deduplication id is remembered; default: 300.")
    ] = None,
    dedup_for_ever: Annotated[bool, typer.Option("--dedup-for-ever", help="Remember them for ever.")] = False,
    dedup_scope: Annotated[
        Literal["queue", "group"] | None,
        typer.Option(help="Whether the same id in another group is the same message; default: queue, it is."),
    ] = None,
    content_dedup: Annotated[
        bool, typer.Option("--content-dedup", help="Know a message without an id by the SHA-256 of its body.")
    ] = False,
    dead_letter: Annotated[
        str | None, typer.Option(help="The queue of the same database that takes what was received too often.")
    ] = None,
    max_receives: Annotated[int | None, typer.Option(help="How often a message is received before that.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="The most messages that it takes; default: any number.")] = None,
    retry_delay_s: Annotated[
        float | None, typer.Option(help="How long a message is hidden after its first failed attempt; default: 0.")
    ] = None,
    retry_growth: Annotated[
        float | None, typer.Option(help="Multiply that by this for each further attempt; default: 2.")
    ] = None,
    retry_max_s: Annotated[float | None, typer.Option(help="The longest such delay; default: 60.")] = None,
    retry_jitter: Annotated[
        float | None, typer.Option(help="Shorten it by chance, by up to this part of it; default: 0.2.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a queue, and the database if it is not there; one that is there stays as it is."""
    given = {
        "visibility_timeout_s": visibility_timeout_s,
        "delay_s": delay_s,
        "retention_s": retention_s,
        "keep_for": None if keep_for is None else _duration(keep_for),
        "keep_bytes": keep_bytes,
        "dedup_window_s": dedup_window_s,
        "dedup_scope": dedup_scope,
        "content_dedup": content_dedup or None,
        "dead_letter": dead_letter,
        "max_receives": max_receives,
        "max_depth": max_depth,
        "retry_delay_s": retry_delay_s,
        "retry_growth": retry_growth,
        "retry_max_s": retry_max_s,
        "retry_jitter": retry_jitter,
    }
    meant: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if dedup_for_ever:
        if dedup_window_s is not None:
            raise InputError("--dedup-window-s and --dedup-for-ever contradict each other; give one")
        meant["dedup_window_s"] = None
    settings = QueueSettings(**meant) if meant else None
    path, name = split(at)
    with opened(path, create=True) as db:
        was_there = name in db.queues()
        info = db.queue(name, settings).info()
    if as_json:
        say_json(_document(info) | {"created": not was_there})
    else:
        say(f"{shown(at)} is there already; nothing was changed." if was_there else f"{shown(at)} was made.")


@queue.command()
def configure(
    at: QueueAt,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="SETTING=VALUE…",
            help="Such as max_depth=10000, keep_for='30 days' or retention_s=null; 'queue show' lists all.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change the named settings of a queue; the others stay."""
    with queue_at(at) as there:
        there.configure(**dict(map(_change, changes)))
        info = there.info()
    if as_json:
        say_json(_document(info))
    else:
        _say_settings(info.settings)


@queue.command("list")
def list_(database: DatabaseAt, as_json: AsJson = False) -> None:
    """All queues of a database: how much is in them, how many groups are parked, and who reads them."""
    path, name = parts(database)
    if name:
        raise InputError(
            f"{shown(database)!r} names a queue: 'inturn queue list {shown(path)}' lists all, "
            "'inturn queue show' shows one"
        )
    with opened(path) as db:
        queues = [db.queue(each, create=False) for each in db.queues()]
        found = [(each.info(), each.depth().parked) for each in queues]
    if as_json:
        say_json([_document(info) | {"parked_groups": parked} for info, parked in found])
        return
    table = Table(
        "queue", "messages", "parked groups", "dead letter", "readers and their lag", box=None, pad_edge=False
    )
    table.columns[1].justify = table.columns[2].justify = "right"
    for info, parked in found:
        dead = info.settings.dead_letter
        after = f"{dead} after {info.settings.max_receives} receives" if dead else ""
        lags = ", ".join(f"{reader} {lag(info, at):,}" for reader, at in sorted(info.readers.items()))
        table.add_row(cell(info.name), f"{info.depth:,}", f"{parked:,}", cell(after), Text(lines(lags)))
    plain_console().print(table if found else f"{shown(path)} has no queues.")


@queue.command()
def show(at: QueueAt, as_json: AsJson = False) -> None:
    """Show a queue's settings, how much is in it, and its readers."""
    with queue_at(at) as there:
        info, parked, count = there.info(), there.parked(), there.depth().parked
    if as_json:
        held = [{"group": group, "note": note, "parked_at": iso(ms)} for group, note, ms in parked]
        about = {"parked_groups": count, "parked": held}
        say_json(_document(info) | about | {"unmatched_resources": _unmatched_resources(info.settings)})
        return
    say(f"{shown(at)}: {counted(info.depth, 'message')}, made at {clock_time(info.created_ms)}")
    _say_settings(info.settings)
    for resource in _unmatched_resources(info.settings):
        say(f"  policy: the resource '{line(resource)}' is no ARN and matches nothing")
    for group, note, parked_ms in parked:
        say(f"  parked {line(group)} since {clock_time(parked_ms)}: {line(note)}")
    if count > len(parked):
        say(f"  These are the first {len(parked):,} of {count:,} parked groups.")
    for reader, position in sorted(info.readers.items()):
        say(f"  reader {reader} has read up to {position}, {counted(lag(info, position), 'message')} behind")


@queue.command()
def purge(at: QueueAt, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove all messages of a queue, received ones too, and forget its deduplication ids."""
    with queue_at(at) as there:
        count = counted(there.depth().messages, "message")
        confirm_loss(
            f"Remove {count} from {shown(at)}, with those that are in flight, for good?", yes=yes, as_json=as_json
        )
        removed = there.purge()
        if as_json:
            say_json({"removed": removed})
        else:
            say(f"{counted(removed, 'message')} removed from {shown(at)}.")


@queue.command()
def delete(at: QueueAt, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a queue with its messages, readers and settings."""
    path, name = split(at)
    with opened(path) as db:
        there = db.queue(name, create=False)
        info = there.info()
        served = [each for each in db.queues() if db.queue(each, create=False).info().settings.dead_letter == name]
        what = f"{counted(info.depth, 'message')} and {counted(len(info.readers), 'reader')}"
        fails = f" What fails in {', '.join(served)} has nowhere to go then." if served else ""
        confirm_loss(f"Remove {shown(at)} with {what}, for good?{fails}", yes=yes, as_json=as_json)
        there.delete()
    if as_json:
        say_json({"queue": name, "messages": info.depth, "readers": sorted(info.readers)})
    else:
        say(f"{shown(at)} was removed, with {what}.")


def redrive(
    at: QueueAt,
    to: Annotated[
        str | None, typer.Option(help="A queue of the same database; default: each to where it came from.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="How many at most, the oldest first; default: all.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Move messages out of a dead-letter queue: each back to its old place where it came from, or all to one queue.

    What somebody has received and not yet acknowledged stays, and so does what came from no other queue.
    """
    moved = 0
    with queue_at(at) as there:
        while limit is None or moved < limit:
            wanted = limits.READ_MESSAGES if limit is None else min(limits.READ_MESSAGES, limit - moved)
            part = there.redrive(wanted, to=to)
            moved += part
            if part < wanted:
                break
        left = there.depth().messages
    if as_json:
        say_json({"moved": moved, "left": left})
    else:
        say(f"{counted(moved, 'message')} moved {f'to {to}' if to else 'back'}; {left:,} left in {shown(at)}.")


def clock_time(ms: int) -> str:
    """Format a time of the store in local time; without the date, if it is today."""
    there = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).astimezone()
    is_today = there.date() == dt.datetime.now(dt.UTC).astimezone().date()
    return f"{there:%H:%M:%S}" if is_today else f"{there:%Y-%m-%d %H:%M:%S}"


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
    known = QueueSettings.__dataclass_fields__.get(name)
    if not equals or known is None or name == "extra":
        names = ", ".join(each for each in QueueSettings.__dataclass_fields__ if each != "extra")
        raise InputError(f"{text!r} is no setting; expected is SETTING=VALUE, where SETTING is one of {names}")
    if name == "keep_for":
        return name, None if value == "null" else _duration(value)
    try:
        return name, msgspec.convert(value, type=known.type, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name} is {value!r}: {error}; null is none") from error


def _duration(text: str) -> float | str:
    """Return a number of seconds, or a duration such as ``30 days`` as it is."""
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def _say_settings(settings: QueueSettings) -> None:
    for name, value in asdict(settings).items():
        say(f"  {name:21} {_setting(name, value)}")


def _unmatched_resources(settings: QueueSettings) -> list[str]:
    """Return the resources in the policy for the SQS endpoint that match nothing."""
    from inturn.server.auth.policy import unmatched_resources

    return unmatched_resources(str(settings.extra.get("policy", "")))


def _setting(name: str, value: object) -> str:
    meanings = {"retention_s": "until acknowledged", "dedup_window_s": "for ever"}
    return meanings.get(name, "none") if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def _document(info: QueueInfo) -> dict[str, Any]:
    readers = {name: {"position": at, "lag": lag(info, at)} for name, at in sorted(info.readers.items())}
    return {
        "queue": info.name,
        "messages": info.depth,
        "last_sequence_number": info.last,
        "created_at": iso(info.created_ms),
        "settings": asdict(info.settings),
        "readers": readers,
    }
