"""Sending of messages from a file of JSON lines, in batches; an error names the line at which to continue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from inturn.core.errors import InputError
from inturn.queue.drafts import draft

if TYPE_CHECKING:
    from inturn.core.queue.messages import Draft
    from inturn.queue import Queue

ENVELOPE: Final = ("body", "group", "revision", "dedup_id", "delay_s", "attributes")
BATCH_MESSAGES: Final = 1_000
BATCH_BYTES: Final = 4_000_000

Shape: TypeAlias = "Callable[[Any], Draft]"
"""A function that makes a message of a line's value."""


class Fields(NamedTuple):
    """Paths of the fields of a body that describe its message; ``payload.account_id`` looks inside."""

    group: str | None = None
    revision: str | None = None
    dedup_id: str | None = None


@dataclass
class Tally:
    """The messages sent so far.

    Attributes:
        line: last line that was sent, or that was blank before one.
        duplicates: number of further messages that were known already.
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
            return "Nothing was sent before that."
        lines = f"Line {self.start} was" if self.line == self.start else f"Lines {self.start} to {self.line} were"
        known = f" and {self.duplicates:,} known already" if self.duplicates else ""
        return f"{lines} sent before that ({self.sent:,} new{known}); --start-line {self.line + 1} goes on there."


def envelope(value: Any) -> "Draft":
    """Return the message of a line that names the parts of its envelope.

    Raises:
        InputError: if the line does not.
    """
    expected = '{"body": …, "group": …, …}; where lines are bodies themselves, --group-field names their group'
    if not isinstance(value, dict):
        raise InputError(f"it is no JSON object; a line is {expected}")
    unknown = next((name for name in value if name not in ENVELOPE), None)
    if unknown is not None:
        near = get_close_matches(unknown, ENVELOPE, 1)
        meant = f"is {near[0]!r} meant? " if near else ""
        msg = f"{unknown!r} is no field of a message: {meant}There are {', '.join(ENVELOPE)}; a line is {expected}"
        raise InputError(msg)
    if "body" not in value:
        raise InputError(f"it has no body; a line is {expected}")
    return draft(**value)


def by_fields(fields: Fields) -> Shape:
    """Return a function that makes messages of lines that are bodies, and takes the envelope from the given fields."""
    named = {name: path for name, path in fields._asdict().items() if path is not None}

    def shape(value: Any) -> "Draft":
        meant = {name: _field(value, path, name) for name, path in named.items()}
        known_by = meant.get("dedup_id")
        if isinstance(known_by, int) and not isinstance(known_by, bool):
            meant["dedup_id"] = str(known_by)  # most tables number their rows
        return draft(value, **meant)

    return shape


def _field(value: Any, path: str, name: str) -> Any:
    if isinstance(value, dict) and path in value:
        found = value[path]
    else:
        found = value
        for part in path.split("."):
            if not isinstance(found, dict) or part not in found:
                has = f"; it has {', '.join(map(repr, value))}" if isinstance(value, dict) else ", it is no JSON object"
                raise InputError(f"it has no field {path!r} for the {name}{has}")
            found = found[part]
    if found is None:
        raise InputError(f"its {path!r} is null, where the {name} is expected")
    return found


def send_lines(
    queue: "Queue", lines: Iterable[bytes], shape: Shape, tally: Tally, seen: Callable[[int], None], wait_s: float = 0
) -> None:
    """Send a message for each line, in order, up to the first invalid one.

    Args:
        queue: target queue.
        lines: one JSON value each; blank lines are skipped.
        shape: function that makes a message of a value.
        tally: updated during the work, so that it is right when this raises.
        seen: called after each line with its number of bytes.
        wait_s: how long each batch waits for room, in seconds.

    Raises:
        InputError: if a line is no message; the lines before it are sent.
    """
    most = min(BATCH_MESSAGES, queue.info().settings.max_depth or BATCH_MESSAGES)
    batch: list[Draft] = []
    size, number = 0, 0

    def flush(line: int) -> None:
        answers = queue.send_many(batch, wait_s=wait_s) if batch else []
        new = [each.sequence_number for each in answers if not each.duplicate]
        tally.sent += len(new)
        tally.duplicates += len(answers) - len(new)
        tally.line = line
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
        msg = f"it is not JSON: {error}; it begins with {start!r}. Expected is one JSON value on each line"
        raise InputError(msg) from error
