"""A message on its way into a queue: what the caller says, checked and encoded."""

from collections.abc import Mapping
from types import UnionType
from typing import Any

import msgspec

from inturn.core import limits
from inturn.core.envelope import Content, Draft
from inturn.core.errors import InputError
from inturn.core.message import group_text
from inturn.core.texts import checked, text_fault
from inturn.core.values import check_json

# Until Python 3.12 each look at a member of an enumeration takes 0.15 µs, a tenth of a draft.
_TEXT, _BYTES, _JSON = Content.TEXT, Content.BYTES, Content.JSON


def draft(
    body: Any,
    *,
    group: object = None,
    revision: int | None = None,
    dedup_id: str | None = None,
    delay_s: float | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Draft:
    """A message to be sent.

    Args:
        body: text and bytes are sent as they are, any other value as JSON.
        group: whose timeline it is in: a str, int, date or UUID; None: nobody's, it waits for no other.
        revision: its place in the timeline, if the producer knows it.
        dedup_id: what it is known by: a second send with it is the same message.
        delay_s: how long it is hidden at first; None: as the queue says.
        attributes: more about it, as a JSON object.

    Raises:
        InputError: if something does not fit; the words say what.
    """
    content, data = _encoded(body)
    if attributes is not None and not isinstance(attributes, Mapping):
        msg = f"attributes is {attributes!r}; it is a dict, which is sent as a JSON object"
        raise InputError(msg)
    more = None if attributes is None else _json(dict(attributes), "attributes").decode()
    size = len(data) if more is None else len(data) + len(more)
    if size > limits.BODY_BYTES:
        msg = (
            f"the body with its attributes has {size:,} bytes; {limits.BODY_BYTES:,} fit: store it and send its address"
        )
        raise InputError(msg)
    if delay_s is not None and not (_is_number(delay_s, int | float) and 0 <= delay_s <= limits.DELAY_S):
        msg = f"delay_s is {delay_s!r}; it is a number of seconds from 0 to {limits.DELAY_S}"
        raise InputError(msg)
    if revision is not None and not (_is_number(revision, int) and abs(revision) <= limits.REVISION):
        msg = f"revision is {revision!r}; it is a whole number of at most 64 bits"
        raise InputError(msg)
    return Draft(
        data if content is _BYTES else data.decode(),
        content,
        None if group is None else checked("group", group_text(group)),
        revision,
        None if dedup_id is None else checked("dedup_id", dedup_id),
        None if delay_s is None else round(delay_s * 1000),
        more,
    )


def _encoded(body: Any) -> tuple[Content, bytes]:
    if isinstance(body, str):
        return _TEXT, _utf8("body", body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return _BYTES, bytes(body)
    return _JSON, _json(body, "body")


def _json(value: Any, what: str) -> bytes:
    check_json(value, what)
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the {what} {value!r} cannot be written as JSON: {error}"
        raise InputError(msg) from error


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(text_fault(what, text)) from error


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
