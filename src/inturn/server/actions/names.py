"""How messages and receipts are named to clients: message ids, sequence numbers, receipt handles.

A message id is made of the sequence number of the message's first send alone, so it needs no place of its own, a
duplicate is answered with the first message's, and a message that is moved keeps it, though its first queue may be gone
by then. Ids look random, and no two messages of a database have the same; messages of two databases may.
"""

import struct
from binascii import a2b_base64, b2a_base64, crc32
from functools import lru_cache
from typing import Final

from msgspec import Struct

from inturn.core.envelope import QueueInfo
from inturn.server import errors

_LOW: Final = (1 << 32) - 1  # the bits that a UUID has in its first part
_HIGH: Final = (1 << 90) - 1  # and in the others, beside its version and its variant
_ODD_LOW: Final = 0x94D0_49BB
_ODD_HIGH: Final = 0x1CE4_E5B9_BF58_476D_2C59_F1BB
_ALIKE_BITS: Final = 10
_VARIANTS: Final = "89ab"


def message_id(number: int) -> str:
    """The id of the message that was first sent with this sequence number, as a UUID.

    A number times an odd one modulo a power of two can be told from the product, and so can one from its exclusive-or
    with its own upper half; so no two numbers come to the same. The first part is made of the low bits; the others are
    made of the high ones, once for all that have the same. It says version 4, as the service's ids do, since clients'
    libraries look at that.
    """
    return f"{number * _ODD_LOW & _LOW:08x}{_rest(number >> _ALIKE_BITS)}"


@lru_cache(maxsize=256)
def _rest(high: int) -> str:
    mixed = high * _ODD_HIGH & _HIGH
    mixed ^= mixed >> 45
    digits = f"{mixed & _HIGH >> 2:022x}"
    return f"-{digits[:4]}-4{digits[4:7]}-{_VARIANTS[mixed >> 88]}{digits[7:10]}-{digits[10:]}"


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
