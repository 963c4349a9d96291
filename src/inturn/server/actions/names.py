"""How messages and receipts are named to clients: message ids, sequence numbers, receipt handles.

A message id is made of the sequence number of the message's first send alone, so it needs no place of its own, a
duplicate is answered with the first message's, and a message that is moved keeps it, though its first queue may be gone
by then. Ids look random, and no two messages of a database have the same; messages of two databases may.
"""

import struct
from binascii import a2b_base64, b2a_base64, crc32
from typing import Final

from msgspec import Struct

from inturn.core.envelope import QueueInfo
from inturn.server import errors

_MASK: Final = (1 << 122) - 1  # the bits that a UUID has beside its version and its variant
_ODD: Final = 0x2C5_9F1B_BF58_476D_1CE4_E5B9_94D0_49B1
_VARIANTS: Final = dict(zip("0123", "89ab", strict=True))


def message_id(number: int) -> str:
    """The id of the message that was first sent with this sequence number, as a UUID.

    Times an odd number modulo 2^122, then an exclusive-or with its own upper half: each step can be undone, so no two
    numbers come to the same. It says version 4, as the service's ids do, since clients' libraries look at that.
    """
    mixed = number * _ODD & _MASK
    digits = (mixed ^ mixed >> 61).to_bytes(16).hex()  # 32, of which the first is 0
    return f"{digits[2:10]}-{digits[10:14]}-4{digits[14:17]}-{_VARIANTS[digits[1]]}{digits[17:20]}-{digits[20:]}"


def sequence_number(number: int) -> str:
    """A sequence number as SQS shows it: twenty digits, so that their order as texts is theirs as numbers."""
    return str(10**19 + number)


_PACKED: Final = struct.Struct(">HQQQ")
_WITH_SUM: Final = struct.Struct(">HQQQI")  # 30 bytes, and so 40 characters
_VERSION: Final = 1
_LENGTH: Final = 40
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_+/", b"+/  ")


class Receipt(Struct, gc=False):
    """What a receipt handle says.

    Attributes:
        sequence_number: which message.
        token: under which lease.
        received_ms: when it was received.
    """

    sequence_number: int
    token: int
    received_ms: int


def handle(number: int, token: int, received_ms: int) -> str:
    """The receipt handle of a lease. The checksum tells a damaged handle, and keeps nobody from making one."""
    packed = _PACKED.pack(_VERSION, number, token, received_ms)
    packed += crc32(packed).to_bytes(4, "big")
    return b2a_base64(packed, newline=False).translate(_TO_URL).decode()


def receipt(queue: QueueInfo, text: str) -> Receipt:
    """What a receipt handle of a queue says.

    Raises:
        SqsError: if it is none, or another queue's.
    """
    try:
        packed = a2b_base64(text.encode().translate(_FROM_URL)) if len(text) == _LENGTH else b""
        version, number, token, received_ms, checksum = _WITH_SUM.unpack(packed)
    except (ValueError, struct.error):
        raise errors.receipt_handle_is_invalid(text) from None
    is_whole = version == _VERSION and checksum == crc32(packed[:-4])
    if not is_whole or not queue.has_given(number):
        raise errors.receipt_handle_is_invalid(text)
    return Receipt(number, token, received_ms)
