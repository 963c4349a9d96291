"""Message attributes: their stored form, and the attributes in a receiver's answer.

They are stored in the message's JSON object of attributes, which inturn's own API uses too: a String as a JSON string
under its name, any other type as an object with the API's names. Attributes of the endpoint have names that begin with
``AWS.``, which no attribute of a client can have.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from inturn.sqs import errors
from inturn.sqs.model import MessageAttributeValue

TRACE: Final = "AWS.TraceHeader"
GROUP: Final = "AWS.MessageGroupId"
SENDER: Final = "AWS.SenderId"
_OWN_PREFIX: Final = "AWS."
_ALL: Final = frozenset(("All", ".*", "*"))

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

_SYSTEM: Final = frozenset(
    (
        "AWSTraceHeader",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "DeadLetterQueueSourceArn",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
    )
)
_NOT_OF_MESSAGES: Final = "SqsManagedSseEnabled"  # documented as a message system attribute, and never answered


def stored_text(attributes: Mapping[str, MessageAttributeValue], own: Mapping[str, str]) -> str | None:
    """Return the stored form of a message's attributes and the endpoint's own; None if there are none."""
    stored: dict[str, Any] = {
        name: value.string_value if value.data_type == "String" else value for name, value in attributes.items()
    }
    stored.update(own)
    return _encode(stored).decode() if stored else None


def parse_stored(text: str | None) -> dict[str, Any]:
    """Return the attributes from their stored form."""
    return {} if text is None else _decode(text)


class AttributeSelection(NamedTuple):
    """The attributes that a receiver requests: names of system attributes, names and prefixes of the sender's own."""

    system: frozenset[str]
    names: frozenset[str]
    prefixes: tuple[str, ...]

    def select(self, stored: Mapping[str, Any]) -> dict[str, MessageAttributeValue]:
        """Return the requested ones of the sender's attributes."""
        return {
            name: _attribute(value)
            for name, value in stored.items()
            if (name in self.names or name.startswith(self.prefixes)) and not name.startswith(_OWN_PREFIX)
        }


def parse_selection(system: tuple[str, ...], names: tuple[str, ...]) -> AttributeSelection:
    """Parse a receiver's lists of names; refuse a system attribute that does not exist."""
    if len(system) + len(names) > 20:  # long lists are rare, and would make the cache large
        return _parse_selection.__wrapped__(system, names)
    return _parse_selection(system, names)


@lru_cache(maxsize=256)
def _parse_selection(system: tuple[str, ...], names: tuple[str, ...]) -> AttributeSelection:
    for name in system:
        if name not in _SYSTEM and name not in {"All", _NOT_OF_MESSAGES}:
            raise errors.invalid_attribute_name(name)
    if not _ALL.isdisjoint(names):
        prefixes: tuple[str, ...] = ("",)
    else:
        prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return AttributeSelection(_SYSTEM if "All" in system else frozenset(system) & _SYSTEM, frozenset(names), prefixes)


def _attribute(value: Any) -> MessageAttributeValue:
    """Return an attribute in SQS form; one sent with inturn's own API may be any JSON value."""
    if isinstance(value, str):
        return MessageAttributeValue("String", value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return MessageAttributeValue("Number", str(value))
    if isinstance(value, dict) and "DataType" in value:
        try:
            return msgspec.convert(value, MessageAttributeValue)
        except msgspec.ValidationError:
            pass  # it only looks like one
    return MessageAttributeValue("String", _encode(value).decode())
