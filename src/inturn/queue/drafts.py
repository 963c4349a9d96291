"""Messages to be sent: validation and encoding of the caller's arguments."""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.identity import group_text
from inturn.core.queue.messages import Content, Draft, Numbering
from inturn.core.texts import checked, text_fault
from inturn.core.values.models import dumped
from inturn.core.values.plain import check_json
from inturn.telemetry import observer

# Before Python 3.12 each access to an enum member takes 0.15 µs, a tenth of the cost of a draft.
_TEXT, _BYTES, _JSON = Content.TEXT, Content.BYTES, Content.JSON
_NEXT = Numbering()


def draft(
    body: Any,
    *,
    group: object = None,
    revision: int | Literal["next"] | None = None,
    expected_revision: int | None = None,
    dedup_id: str | None = None,
    delay_s: float | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Draft:
    """Return a message to be sent.

    Args:
        body: the content. Text and bytes are sent as they are, any other value as JSON.
        group: the message's group, a str, int, date or UUID; None: no group, so the message waits for no other message.
        revision: the message's place in its group, if the producer knows it; ``next``: the queue numbers the group's
            messages, from 1 and without gaps.
        expected_revision: with ``next``, the last revision of the group; if the group's last revision differs, the send
            is refused.
        dedup_id: the deduplication id. A second send with the same id is a duplicate.
        delay_s: the delay before the message can be received, in seconds; None: the queue's default.
        attributes: metadata, sent as a JSON object.

    Raises:
        InputError: if an argument is invalid; the message names it and the reason.
    """
    content, data = _encoded(body)
    if attributes is not None and not isinstance(attributes, Mapping):
        raise InputError(f"attributes is {attributes!r}; expected a dict, which is sent as a JSON object")
    more = None if attributes is None else _json(dict(attributes), "attributes").decode()
    size = len(data) if more is None else len(data) + len(more)
    if size > limits.BODY_BYTES:
        raise InputError(
            f"body and attributes have {size:,} bytes; at most {limits.BODY_BYTES:,} are allowed: store the content "
            "elsewhere and send its address"
        )
    if observer.active is not None:
        more = observer.active.with_trace(more, limits.BODY_BYTES - size)
    if delay_s is not None and not (_is_number(delay_s, int | float) and 0 <= delay_s <= limits.DELAY_S):
        raise InputError(f"delay_s is {delay_s!r}; expected a number of seconds from 0 to {limits.DELAY_S}")
    place: int | None = None
    numbering: Numbering | None = None
    if revision is not None or expected_revision is not None:
        place, numbering = _place(revision, expected_revision, group)
    return Draft(
        data if content is _BYTES else data.decode(),
        content,
        None if group is None else checked("group", group if isinstance(group, str) else group_text(group)),
        place,
        None if dedup_id is None else checked("dedup_id", dedup_id),
        None if delay_s is None else round(delay_s * 1000),
        more,
        numbering,
    )


def traced(message: Draft) -> Draft:
    """Return a draft with the current trace context in its attributes, if tracing is on, and it fits and has none."""
    if observer.active is None:
        return message
    size = len(message.body if isinstance(message.body, bytes) else message.body.encode()) + len(
        (message.attributes or "").encode()
    )
    return message._replace(attributes=observer.active.with_trace(message.attributes, limits.BODY_BYTES - size))


def drafts_of(drafts: Iterable[Draft]) -> list[Draft]:
    """Return drafts to be sent, each with the current trace context, after checking them.

    Raises:
        InputError: if one was not made by :func:`draft`.
    """
    check_type("drafts", drafts, Iterable, "a list of messages made by draft(…)")
    messages = [*drafts]
    for message in messages:
        if message.__class__ is not Draft:
            check_type("a message to send", message, Draft, "a message made by draft(…)")
    return messages if observer.active is None else [*map(traced, messages)]


def _encoded(body: Any) -> tuple[Content, bytes]:
    if isinstance(body, str):
        return _TEXT, _utf8("body", body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return _BYTES, bytes(body)
    return _JSON, _json(body, "body")


def _json(value: Any, label: str) -> bytes:
    check_json(value, label)
    try:
        return msgspec.json.encode(value, enc_hook=dumped)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"the {label} {value!r} cannot be written as JSON: {error}") from error


def _utf8(label: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(text_fault(label, text)) from error


def _place(revision: object, expected: int | None, group: object) -> tuple[int | None, Numbering | None]:
    """Return the revision that the producer assigned to a message, or the way in which the queue numbers it."""
    if revision != "next":
        if expected is not None:
            msg = f"expected_revision is {expected!r}, but revision is {revision!r}; it needs revision='next'"
            raise InputError(msg)
        if not isinstance(revision, int) or isinstance(revision, bool) or abs(revision) > limits.REVISION:
            raise InputError(f"revision is {revision!r}; expected a whole number of at most 64 bits, or 'next'")
        return revision, None
    if group is None:
        raise InputError("revision is 'next', but the message has no group; pass group=")
    if expected is None:  # the usual case
        return None, _NEXT
    if not (_is_number(expected, int) and 0 <= expected <= limits.REVISION):
        raise InputError(f"expected_revision is {expected!r}; expected the group's last revision, 0 if it has none")
    return None, Numbering(expected)


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
