"""MD5 digests, by which clients check what arrived.

Source: the SQS developer's guide, "Calculating the MD5 message digest for message attributes". Digests of lists are as
in the SDKs, since the guide has none.
"""

import hashlib
from collections.abc import Iterator, Mapping

from inturn.server.model import MessageAttributeValue


def of_body(body: bytes) -> str:
    """Return the digest of a message's body, in hexadecimal."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, MessageAttributeValue]) -> str | None:
    """Return the digest of a message's attributes, or of its system attributes; None if there are none."""
    if not attributes:
        return None
    return of_body(b"".join(part for name in sorted(attributes) for part in _parts(name, attributes[name])))


def _parts(name: str, value: MessageAttributeValue) -> Iterator[bytes]:
    yield _sized(name.encode())
    yield _sized(value.data_type.encode())
    if value.string_value is not None:
        yield b"\x01" + _sized(value.string_value.encode())
    elif value.binary_value is not None:
        yield b"\x02" + _sized(value.binary_value)
    elif value.string_list_values:
        yield b"\x03" + b"".join(_sized(text.encode()) for text in value.string_list_values)
    elif value.binary_list_values:
        yield b"\x04" + b"".join(map(_sized, value.binary_list_values))


def _sized(data: bytes) -> bytes:
    """Return data with its length before it: four bytes, big-endian."""
    return len(data).to_bytes(4, "big") + data
