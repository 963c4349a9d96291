"""Parameter checks with the service's own error texts, shared by the actions on messages and batches."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol

from inturn.sqs import errors, limits
from inturn.sqs.errors import SqsError
from inturn.sqs.model import BatchResultErrorEntry, MessageAttributeValue

_TOKEN: Final = re.compile(rf"[!-~]{{1,{limits.TOKEN_LENGTH}}}")
_BATCH_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.BATCH_ID_LENGTH}}}")
_BATCH_IDS: Final = re.compile(rf"{_BATCH_ID.pattern}(?: {_BATCH_ID.pattern})*")
_CONTROLS: Final = bytes(set(range(32)) - {9, 10, 13})
_ATTRIBUTE_NAME: Final = re.compile("[A-Za-z0-9_.\u00c0-\u017f-]+")  # the service accepts letters with accents too
_RESERVED: Final = re.compile(r"(aws|amazon)\.", re.IGNORECASE)
_NUMBER_DIGITS: Final = 38


class BatchEntry(Protocol):
    """An entry of a batch."""

    id: str


def check_batch(entries: Sequence[BatchEntry], kind: str) -> None:
    """Check a batch as a whole; ``kind`` is the API's name of the entry type."""
    if not entries:
        raise errors.empty_batch_request(kind)
    if len(entries) > limits.BATCH_ENTRIES:
        raise errors.too_many_entries_in_batch_request(len(entries))
    ids = [entry.id for entry in entries]
    together = " ".join(ids)
    if len(set(ids)) == len(ids) == together.count(" ") + 1 and _BATCH_IDS.fullmatch(together):
        return  # the usual case; the loop finds the faulty entry
    seen: set[str] = set()
    for entry in entries:
        if _BATCH_ID.fullmatch(entry.id) is None:
            raise errors.invalid_batch_entry_id()
        if entry.id in seen:
            raise errors.batch_entry_ids_not_distinct(entry.id)
        seen.add(entry.id)


def failed(entry: BatchEntry, error: SqsError) -> BatchResultErrorEntry:
    """Return the batch answer's entry for an error."""
    return BatchResultErrorEntry(entry.id, error.sender_fault, error.query_code, error.message)


def check_token(value: str, parameter: str) -> None:
    """Check that a group, deduplication or attempt id has 1 to 128 letters, digits and punctuation marks."""
    if _TOKEN.fullmatch(value) is None:
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise errors.invalid_value(value, parameter, reason)


def check_range(value: int, parameter: str, least: int, most: int, reason: str) -> None:
    """Check that a number is within its bounds; the reason is a sentence in the service's words."""
    if not least <= value <= most:
        raise errors.invalid_value(value, parameter, reason)


def not_for_this_type(value: object, parameter: str) -> SqsError:
    """Return the error for a parameter that this type of queue does not accept."""
    reason = "The request include parameter that is not valid for this queue type."
    return errors.invalid_value(value, parameter, reason)


def check_text(text: str, data: bytes) -> bool:
    """Return whether a text, given also as UTF-8, has only characters that XML can hold."""
    if text.isprintable():  # the usual case; line ends are not printable, but valid in XML
        return True
    if len(data.translate(None, _CONTROLS)) != len(data):
        return False
    return len(text) == len(data) or not ("\ufffe" in text or "\uffff" in text)


def utf8(text: str) -> bytes:
    """Return the UTF-8 bytes of a text; refuse an unpaired surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise errors.invalid_message_contents() from None


def attributes_size(attributes: Mapping[str, MessageAttributeValue]) -> int:
    """Check a message's attributes, and return the size of their names, types and values in bytes."""
    if len(attributes) > limits.MESSAGE_ATTRIBUTES:
        text = f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [10]."
        raise errors.invalid_parameter_value(text)
    size = 0
    for name, value in attributes.items():
        _check_name(name)
        size += len(name.encode()) + len(utf8(value.data_type)) + len(_value(name, value))
    return size


def _check_name(name: str) -> None:
    if _ATTRIBUTE_NAME.fullmatch(name) is None:
        raise errors.invalid_parameter_value(
            f"The message attribute name '{name}' is invalid. Attribute name can contain "
            "A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters."
        )
    if len(name) > limits.ATTRIBUTE_NAME_LENGTH:
        raise errors.invalid_parameter_value("Message (user) attribute names must be shorter than 256 Bytes")
    if _RESERVED.match(name) or name.startswith(".") or name.endswith("."):
        raise errors.invalid_parameter_value(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved "
            "for internal use. Additionally, they cannot start or end with '.'."
        )
    if ".." in name:
        text = f"The message attribute name '{name}' is invalid. Attribute name can't contain successive periods."
        raise errors.invalid_parameter_value(text)


def _value(name: str, value: MessageAttributeValue) -> bytes:
    """Return the bytes of an attribute's value, after checking it."""
    kind = value.data_type.partition(".")[0]
    if not value.data_type:
        text = f"The message attribute '{name}' must contain non-empty message attribute type."
        raise errors.invalid_parameter_value(text)
    if kind not in {"String", "Number", "Binary"}:
        raise errors.invalid_parameter_value(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
            "prefixes is Binary, Number, and String."
        )
    if len(value.data_type) > limits.ATTRIBUTE_NAME_LENGTH:
        raise errors.invalid_parameter_value("Message (user) attribute types must be shorter than 256 Bytes")
    if value.string_list_values or value.binary_list_values:
        raise errors.unsupported_operation("Message attribute list values in SendMessage operation are not supported.")
    data = value.binary_value if kind == "Binary" else utf8(value.string_value or "")
    if not data:
        text = f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
        raise errors.invalid_parameter_value(text)
    if kind != "Binary" and not check_text(value.string_value or "", data):
        raise errors.invalid_parameter_value(errors.invalid_message_contents().message)
    if kind == "Number" and not _is_number(value.string_value or ""):
        raise errors.invalid_parameter_value(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return data


def _is_number(text: str) -> bool:
    """Return whether a text is a decimal number of up to 38 digits."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return number.is_finite() and len(number.as_tuple().digits) <= _NUMBER_DIGITS
