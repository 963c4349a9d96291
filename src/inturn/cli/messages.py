"""Commands about messages: send, receive, ack, nack, peek."""

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
import typer

from inturn.cli.lines import Fields, SendCounts, by_fields, envelope, send_lines
from inturn.cli.option_groups import given_options, spelling
from inturn.cli.options import AsJson, AsLines, Limit, QueueAt
from inturn.cli.output import one_line, plain_console, print_json, print_text
from inturn.cli.targets import queue_at
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError, InturnError, LeaseExpired
from inturn.core.texts import visible
from inturn.core.words import counted

if TYPE_CHECKING:
    from inturn.core.queue.messages import Sent
    from inturn.queue import Message, Peeked, Queue, Receipt
    from inturn.queue.log import LoggedMessage

ContentIs: TypeAlias = Literal["json", "text", "bytes"]

Group = Annotated[str | None, "Message group; omit it for an ungrouped message."]
Receipts = Annotated[
    list[str], typer.Argument(metavar="RECEIPT…", help="Receipts NUMBER:TOKEN, as printed by 'inturn receive --keep'.")
]


@dataclass(frozen=True, kw_only=True)
class MessageOptions:
    """The envelope and the type of the body of one message."""

    content: Annotated[
        ContentIs | None,
        "Type of the body (default: json if it begins with { or [, else text, or bytes if it is not UTF-8).",
    ] = None
    group: Group = None
    revision: Annotated[str | None, "Revision of the message in its group; next lets the queue assign it."] = None
    expected_revision: Annotated[
        int | None, "With --revision next: send only if this is the last revision of the group."
    ] = None
    dedup_id: Annotated[str | None, "Deduplication id; a second message with the same id is not added."] = None
    delay_s: Annotated[float | None, "Seconds for which a sent message is hidden (default: the queue's setting)."] = (
        None
    )
    attributes: Annotated[str | None, "Message attributes, a JSON object."] = None


def send(
    at: QueueAt,
    body: Annotated[str | None, typer.Argument(help="Message body; - reads standard input.")] = None,
    *,
    file: Annotated[Path | None, "File whose content is the message body."] = None,
    message: MessageOptions,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="Send many messages: a file of JSON lines with body, group, …; - reads standard input."
        ),
    ] = None,
    fields: Fields,
    start_line: Annotated[int, typer.Option(help="With --from: number of the first line to send.", min=1)] = 1,
    wait_s: Annotated[float, typer.Option(help="Seconds to wait for room in a queue with max_depth.", min=0)] = 0,
    create: Annotated[bool, "Create the queue if it does not exist."] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message, or one for each line of a file.

    Lines are sent in order, up to 1,000 in one transaction. The command stops at the first bad line; earlier lines are
    already sent. Continue with --start-line, or rerun everything if the messages have deduplication ids.
    """
    send_options = given_options(message) | {"revision": _revision(message.revision)}
    if source is None:
        if given_options(fields) or start_line > 1:
            raise InputError("--group-field, --revision-field, --dedup-field and --start-line need --from")
        _send_one(at, _read(body, file), send_options, wait_s=wait_s, create=create, as_json=as_json)
        return
    wrong = next(iter(given_options(message)), None)
    if wrong or body is not None or file is not None:
        content = spelling(wrong) if wrong else "the body"
        raise InputError(f"with --from each line defines its whole message; omit {content}")
    _send_many(at, source, fields, SendCounts(start_line), wait_s=wait_s, create=create, as_json=as_json)


def receive(
    at: QueueAt,
    max_messages: Annotated[
        int, typer.Option(help="Maximum number of messages.", min=1, max=limits.RECEIVE_MESSAGES)
    ] = 1,
    wait_s: Annotated[float, typer.Option(help="Seconds to wait for a message if none is available.", min=0)] = 0,
    group: Annotated[str | None, "Only this group."] = None,
    visibility_timeout_s: Annotated[
        float | None, "Lease of a received message in seconds (default: the queue's setting)."
    ] = None,
    ack: Annotated[bool, "Acknowledge the messages once they are printed."] = False,
    keep: Annotated[bool, "Keep the lease, until 'inturn ack' or 'inturn nack' ends it."] = False,
    as_json: AsLines = False,
) -> None:
    """Receive and print messages, then return them to their positions unless --ack or --keep is set.

    Each receive counts as an attempt, and after too many attempts a message moves to the dead-letter queue: use
    'inturn peek' to look without receiving. --ack acknowledges each message once it is printed, even if the reader of
    the output fails. A script that must not lose messages uses --keep, does its work, and then runs 'inturn ack'.
    """
    with queue_at(at) as queue:
        if ack and keep:
            raise InputError("--ack and --keep exclude each other; pass one")
        messages = queue.receive(max_messages, wait_s=wait_s, visibility_timeout_s=visibility_timeout_s, group=group)
        if not messages:
            _print_empty(at, queue)
            return
        try:
            _print(messages, as_json=as_json, with_receipts=keep)
            sys.stdout.flush()
        except BaseException:  # a closed pipe or an interrupt: the messages were not shown
            with suppress(InturnError):
                queue.nack(messages, delay_s=0)
            raise
        if ack:
            queue.ack(messages)
        elif keep:
            first = messages[0]
            print_text(
                f"Leased until {first.leased_until.astimezone():%Y-%m-%d %H:%M:%S}; when done: "
                f"inturn ack {shown(at)} {_receipt(first)}{' …' if len(messages) > 1 else ''} "
                "(or inturn nack to return the messages at once)",
                err=True,
            )
        else:
            with suppress(LeaseExpired):  # returned already
                queue.nack(messages, delay_s=0)


def ack(at: QueueAt, receipts: Receipts, as_json: AsJson = False) -> None:
    """Acknowledge messages that were received with --keep; they are not delivered again."""
    with queue_at(at) as queue:
        queue.ack([_lease(receipt) for receipt in receipts])
        if as_json:
            print_json({"acknowledged": len(receipts)})


def nack(
    at: QueueAt,
    receipts: Receipts,
    delay_s: Annotated[
        float | None,
        typer.Option(help="Seconds for which the messages are hidden (default: the queue's retry delay).", min=0),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Return messages that were received with --keep; their groups move to the end of the ready queue."""
    with queue_at(at) as queue:
        queue.nack([_lease(receipt) for receipt in receipts], delay_s=delay_s)
        if as_json:
            print_json({"given_back": len(receipts)})


def peek(
    at: QueueAt,
    after: Annotated[int, typer.Option(help="Begin after this sequence number.", min=0, max=2**63 - 1)] = 0,
    limit: Limit = 10,
    group: Annotated[str | None, "Only this group."] = None,
    log: Annotated[bool, "Show the log, which includes retained acknowledged messages."] = False,
    as_json: AsLines = False,
) -> None:
    """Show unacknowledged messages in order, including those in flight, without receiving them."""
    with queue_at(at) as queue:
        messages = (queue.log if log else queue.peek)(limit, after=after, group=group)
        _print(messages, as_json=as_json)
        if not messages:
            print_text(f"No messages in {shown(at)}{f' after {after}' if after else ''}.", err=True)
        elif len(messages) == limit and not as_json:
            print_text(f"There may be more; continue with --after {messages[-1].sequence_number}", err=True)


# --- sending ---


def _read(body: str | None, file: Path | None) -> str | bytes:
    if (body is None) == (file is None):
        raise InputError(
            "expected exactly one of BODY (- reads standard input), --file for one message, --from for many"
        )
    try:
        if file is not None:
            return file.read_bytes()
        return sys.stdin.buffer.read() if body == "-" else body or ""
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def _send_one(
    target: str, data: str | bytes, options: dict[str, Any], *, wait_s: float, create: bool, as_json: bool
) -> None:
    value = _body(data, options.pop("content", None))
    text = options.pop("attributes", None)
    more = None if text is None else _json(text, "--attributes")
    if text is not None and not isinstance(more, dict):
        raise InputError(f'--attributes {text!r} is not a JSON object; expected one such as \'{{"source": "shop"}}\'')
    with queue_at(target, create=create) as queue:
        sent = queue.send(value, attributes=more, wait_s=wait_s, **options)
    if as_json:
        print_json(sent._asdict())
    elif sent.duplicate:
        print_text(f"Message {sent.sequence_number} already has this deduplication id; nothing was added.")
    else:
        print_text(f"Sent as {sent.sequence_number}{_numbered(options, sent)}.")


def _numbered(options: dict[str, Any], sent: "Sent") -> str:
    return f", revision {sent.revision}" if options["revision"] == "next" else ""


def _revision(text: str | None) -> int | str | None:
    if text is None or text == "next":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--revision is {text!r}; expected a whole number, or next") from None


def _body(data: str | bytes, content: ContentIs | None) -> Any:
    """Return the body to send, of the given or the detected type."""
    raw = data if isinstance(data, bytes) else data.encode(errors="surrogateescape")
    looks_like_json = raw.lstrip()[:1] in {b"{", b"["}
    if content == "json" or (content is None and looks_like_json):
        hint = "" if content else "; it begins like JSON: correct it, or pass --content text"
        return _json(raw, "the body", hint)
    if content == "bytes":
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if content is None:
            return raw
        raise InputError(f"the body is not UTF-8 text: {error}; pass --content bytes") from error


def _json(text: str | bytes, name: str, hint: str = "") -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}{hint}") from error


def _send_many(
    target: str, source: str, fields: Fields, tally: SendCounts, *, wait_s: float, create: bool, as_json: bool
) -> None:
    shape = by_fields(fields) if given_options(fields) else envelope
    with _lines(source) as lines, queue_at(target, create=create) as queue, _progress(source, quiet=as_json) as seen:
        try:
            send_lines(queue, lines, shape, tally, seen, wait_s)
        except InturnError as error:
            raise type(error)(f"{source}, {error}. {tally.words()}") from error
        except KeyboardInterrupt:
            print_text(f"Interrupted. {tally.words()}", err=True)
            raise
    if as_json:
        names = ("sent", "duplicates", "first", "last")
        print_json({name: getattr(tally, name) for name in names})
    else:
        known = f", {counted(tally.duplicates, 'duplicate')}" if tally.duplicates else ""
        span = f" as {tally.first} to {tally.last}" if tally.sent else ""
        print_text(f"{tally.sent:,} sent{span}{known}.")


@contextmanager
def _lines(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115 - closed below; this error is only about opening it
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}") from error
    with file:
        yield file


@contextmanager
def _progress(source: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield a callback that shows the number of read bytes at a terminal."""
    console = plain_console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    total = None if source == "-" else Path(source).stat().st_size
    columns = BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(source, total=total)
        yield lambda size: progress.advance(task, size)


# --- showing ---


def _print_empty(target: str, queue: "Queue") -> None:
    depth = queue.depth().messages
    reason = (
        f"none of {depth:,} is available; for the reasons run 'inturn groups {shown(target)}'"
        if depth
        else "queue is empty"
    )
    print_text(f"No message received: {reason}.", err=True)


def _print(
    messages: "Sequence[Message | Peeked | LoggedMessage]", *, as_json: bool, with_receipts: bool = False
) -> None:
    for message in messages:
        if as_json:
            print_json(_document(message))
        else:
            print_text(_line(message, with_receipt=with_receipts))


def _receipt(message: "Message") -> str:
    return f"{message.sequence_number}:{message.fencing_token}"


def _lease(text: str) -> "Receipt":
    from inturn.queue import Receipt

    matched = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text)
    if matched is None:
        example = "two numbers, such as 17592186044417:2"
        msg = f"{text!r} is not a valid receipt; expected {example}, as printed by 'inturn receive --keep'"
        raise InputError(msg)
    return Receipt(int(matched[1]), int(matched[2]))


def _line(message: "Message | Peeked | LoggedMessage", *, with_receipt: bool) -> str:
    from inturn.queue import Message

    received = message if isinstance(message, Message) else None
    parts = [_receipt(received) if received and with_receipt else str(message.sequence_number)]
    parts += [] if message.group is None else [f"group {one_line(message.group)}"]
    parts += [] if message.revision is None else [f"revision {message.revision}"]
    parts += [f"attempt {received.attempts}"] if received and received.attempts > 1 else []
    parts += [f"from {message.came_from}: {one_line(message.note or '')}"] if message.came_from else []
    body = message.body
    if isinstance(body, bytes):
        text = f"base64:{base64.b64encode(body).decode()}"
    else:
        text = visible(body) if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"{', '.join(parts)}: {text}"


def _document(message: "Message | Peeked | LoggedMessage") -> dict[str, Any]:
    from inturn.queue import Message

    body = message.body
    is_bytes = isinstance(body, bytes)
    names = ("sequence_number", "id", "group", "revision", "dedup_id", "attributes", "sent_at", "came_from", "note")
    document = {name: getattr(message, name) for name in names} | {"sent_at": message.sent_at.isoformat()}
    document["body_base64" if is_bytes else "body"] = base64.b64encode(body).decode() if is_bytes else body
    if isinstance(message, Message):
        document |= {
            "attempts": message.attempts,
            "fencing_token": message.fencing_token,
            "leased_until": message.leased_until.isoformat(),
            "receipt": _receipt(message),
        }
    return document
