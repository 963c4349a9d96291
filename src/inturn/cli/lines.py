"""Sending of messages from a file of JSON lines, in batches; an error names the line at which to continue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from inturn.core.errors import InputError
from inturn.core.words import counted
from inturn.queue.drafts import draft

if TYPE_CHECKING:
    from inturn.core.queue.messages import Draft
    from inturn.queue import Queue

ENVELOPE: Final = ("body", "group", "revision", "dedup_id", "delay_s", "attributes")
BATCH_MESSAGES: Final = 1_000
BATCH_BYTES: Final = 4_000_000

Shape: TypeAlias = "Callable[[Any], Draft]"
"""A function that creates a message from the value of a line."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Paths of the fields of a body that describe its message; ``payload.account_id`` is a nested field."""

    group_field: Annotated[str | None, "With --from, if each line is a body: field with the group."] = None
    revision_field: Annotated[str | None, "With --from, if each line is a body: field with the revision."] = None
    dedup_field: Annotated[str | None, "With --from, if each line is a body: field with the deduplication id."] = None


@dataclass
class SendCounts:
    """The messages sent so far.

    Attributes:
        line: the last line that was sent or skipped as blank.
        duplicates: number of messages that were not added because their deduplication id was known.
    """

    start: int = 1
    line: int = 0
    sent: int = 0
    duplicates: int = 0
    first: int | None = None
    last: int | None = None

    def words(self) -> str:
        """Describe what was sent, and how to continue."""
        if self.line < self.start:
            return "No message was sent."
        lines = f"Line {self.start} was" if self.line == self.start else f"Lines {self.start} to {self.line} were"
        known = f", {counted(self.duplicates, 'duplicate')}" if self.duplicates else ""
        return f"{lines} sent ({self.sent:,} new{known}); continue with --start-line {self.line + 1}."


def envelope(value: Any) -> "Draft":
    """Return the message of a line that is an envelope, with the fields of :data:`ENVELOPE`.

    Raises:
        InputError: if the line is not.
    """
    expected = 'expected {"body": …, "group": …, …}; if each line is a body, pass --group-field'
    if not isinstance(value, dict):
        raise InputError(f"not a JSON object; {expected}")
    unknown = next((name for name in value if name not in ENVELOPE), None)
    if unknown is not None:
        near = get_close_matches(unknown, ENVELOPE, 1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        msg = f"unknown field {unknown!r}{meant} The fields of a message are {', '.join(ENVELOPE)}; {expected}"
        raise InputError(msg)
    if "body" not in value:
        raise InputError(f"no body; {expected}")
    return draft(**value)


def by_fields(fields: Fields) -> Shape:
    """Return a function that creates messages from lines that are bodies, with the envelope from the given fields."""
    paths = {"group": fields.group_field, "revision": fields.revision_field, "dedup_id": fields.dedup_field}
    named = {name: path for name, path in paths.items() if path is not None}

    def shape(value: Any) -> "Draft":
        meant = {name: _field(value, path, name) for name, path in named.items()}
        known_by = meant.get("dedup_id")
        if isinstance(known_by, int) and not isinstance(known_by, bool):
            meant["dedup_id"] = str(known_by)  # ids of database rows are often numbers
        return draft(value, **meant)

    return shape


def _field(value: Any, path: str, name: str) -> Any:
    if isinstance(value, dict) and path in value:
        field_value = value[path]
    else:
        field_value = value
        for part in path.split("."):
            if not isinstance(field_value, dict) or part not in field_value:
                has = (
                    f"; existing fields: {', '.join(map(repr, value))}"
                    if isinstance(value, dict)
                    else "; not a JSON object"
                )
                raise InputError(f"no field {path!r} for the {name}{has}")
            field_value = field_value[part]
    if field_value is None:
        raise InputError(f"{path!r} is null; expected the {name}")
    return field_value


def send_lines(
    queue: "Queue",
    lines: Iterable[bytes],
    shape: Shape,
    tally: SendCounts,
    seen: Callable[[int], None],
    wait_s: float = 0,
) -> None:
    """Send a message for each line, in order, up to the first invalid one.

    Args:
        queue: target queue.
        lines: one JSON value each; blank lines are skipped.
        shape: function that creates a message from a value.
        tally: updated after each batch, so that it is valid when this raises.
        seen: called after each line with its number of bytes.
        wait_s: maximum time for which each batch waits for room, in seconds.

    Raises:
        InputError: if a line is not a valid message; the lines before it are sent.
    """
    most = min(BATCH_MESSAGES, queue.info().settings.max_depth or BATCH_MESSAGES)
    batch: list[Draft] = []
    size, number = 0, 0

    def flush(last_line: int) -> None:
        answers = queue.send_many(batch, wait_s=wait_s) if batch else []
        new = [answer.sequence_number for answer in answers if not answer.duplicate]
        tally.sent += len(new)
        tally.duplicates += len(answers) - len(new)
        tally.line = last_line
        if new:
            tally.first = new[0] if tally.first is None else tally.first
            tally.last = new[-1]
        batch.clear()

    for number, line in enumerate(lines, 1):
        if number >= tally.start and line.strip():
            try:
                batch.append(shape(_value(line, is_first=number == 1)))
            except InputError as error:
                flush(number - 1)
                raise InputError(f"line {number}: {error}") from error
            size += len(line)
        if len(batch) >= most or size >= BATCH_BYTES:
            flush(number)
            size = 0
        seen(len(line))
    flush(number)


def _value(line: bytes, *, is_first: bool) -> Any:
    try:
        return msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf") if is_first else line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        start = line.strip()[:60].decode(errors="replace")
        msg = f"not JSON: {error}; the line begins with {start!r}. Expected one JSON value per line"
        raise InputError(msg) from error
