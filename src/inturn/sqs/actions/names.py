"""The names of a message for clients: its id, its sequence number, its receipt handle, its MD5 digests.

A message id is computed from the sequence number of the message's first send and the database's lineage alone. So it
needs no storage, a duplicate is answered with the first message's id, and a moved message keeps its id, though its
first queue may have been deleted. No two messages of a database have the same id. Two databases have practically no
id in common; see :meth:`MessageNames.message_id`.

Source of the digests: the SQS developer's guide, "Calculating the MD5 message digest for message attributes"; for
lists, which the guide leaves out, the SDKs.
"""

import hashlib
import struct
from binascii import a2b_base64, b2a_base64, crc32
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from inturn.core.queue.messages import QueueInfo
from inturn.sqs import errors
from inturn.sqs.context import Context
from inturn.sqs.model import MessageAttributeValue

_LOW: Final = (1 << 32) - 1  # the bits of a UUID's first part
_HIGH: Final = (1 << 90) - 1  # the bits of its other parts, without version and variant
_ODD_LOW: Final = 0x94D0_49BB
_ODD_HIGH: Final = 0x1CE4_E5B9_BF58_476D_2C59_F1BB
_ALIKE_BITS: Final = 10
_VARIANTS: Final = "89ab"

_PACKED: Final = struct.Struct(">HQQQ")
_WITH_SUM: Final = struct.Struct(">HQQQI")  # 30 bytes, and so 40 characters
_LENGTH: Final = 40
_MARK: Final = 0x7FFF  # so a handle begins with a letter: a command line takes a text that begins with "-" as an option
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_+/", b"+/  ")


class ReceiptHandle(Struct, gc=False):
    """A receipt handle's content: the message's sequence number, its lease's token, and the time of the receive."""

    sequence_number: int
    token: int
    received_ms: int


class MessageNames:
    """The names that one database gives to its messages and receipts; see ``SqlStore.lineage``."""

    def __init__(self, lineage: bytes) -> None:
        mask = int.from_bytes(_derived(lineage, b"message id", 16))
        self._low = mask & _LOW
        self._high = mask >> 32 & _HIGH
        self._rest = lru_cache(256)(self._made_rest)
        key = _derived(lineage, b"receipt handle", 6)
        self._mark, self._start = int.from_bytes(key[:2]) & _MARK, int.from_bytes(key[2:])

    def message_id(self, number: int) -> str:
        """Return the id of the message that was first sent with this sequence number, as a UUID.

        Multiplication by an odd number modulo a power of two is invertible, and so is exclusive-or with the own upper
        half or with a mask; so no two numbers give the same id. The mask is random for each database: two databases
        with 2^40 messages each have an id in common with a probability of 2^-42. The first part holds the low bits. The
        others hold the high ones and are computed once for all numbers that share them. The version is 4, as in the
        service's ids, since client libraries check that.
        """
        return f"{number * _ODD_LOW & _LOW ^ self._low:08x}{self._rest(number >> _ALIKE_BITS)}"

    def _made_rest(self, high: int) -> str:
        mixed = high * _ODD_HIGH & _HIGH
        mixed ^= mixed >> 45 ^ self._high
        digits = f"{mixed & _HIGH >> 2:022x}"
        return f"-{digits[:4]}-4{digits[4:7]}-{_VARIANTS[mixed >> 88]}{digits[7:10]}-{digits[10:]}"

    def handle(self, number: int, token: int, received_ms: int) -> str:
        """Return the receipt handle of a lease.

        The checksum detects a damaged handle. With the mark, 47 bits in all, it detects a handle of another database,
        where the same numbers name another message. It does not prevent forgery.
        """
        packed = _PACKED.pack(self._mark, number, token, received_ms)
        packed += crc32(packed, self._start).to_bytes(4, "big")
        return b2a_base64(packed, newline=False).translate(_TO_URL).decode()

    def receipt(self, queue: QueueInfo, text: str) -> ReceiptHandle:
        """Return the content of a queue's receipt handle; one of another queue or database is refused."""
        try:
            packed = a2b_base64(text.encode().translate(_FROM_URL)) if len(text) == _LENGTH else b""
            mark, number, token, received_ms, checksum = _WITH_SUM.unpack(packed)
        except (ValueError, struct.error):
            raise errors.receipt_handle_is_invalid(text) from None
        is_own = mark == self._mark and checksum == crc32(packed[:-4], self._start)
        if not is_own or not queue.has_assigned(number):
            raise errors.receipt_handle_is_invalid(text)
        return ReceiptHandle(number, token, received_ms)


_of_lineage: Final = lru_cache(64)(MessageNames)


def names_of(context: Context) -> MessageNames:
    """Return the naming of the context's database."""
    return _of_lineage(context.db.store.lineage)


def _derived(lineage: bytes, purpose: bytes, size: int) -> bytes:
    return hashlib.blake2b(purpose, key=lineage, digest_size=size).digest()


def sequence_number(number: int) -> str:
    """Return a sequence number in SQS form: twenty digits, so that texts and numbers sort alike."""
    return str(10**19 + number)


def md5_of(body: bytes) -> str:
    """Return the digest of a message's body, in hexadecimal."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, MessageAttributeValue]) -> str | None:
    """Return the digest of a message's attributes, or of its system attributes; None if there are none."""
    if not attributes:
        return None
    return md5_of(b"".join(part for name in sorted(attributes) for part in _parts(name, attributes[name])))


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
