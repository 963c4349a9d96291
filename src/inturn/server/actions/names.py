"""How messages and receipts are named to clients: message ids, sequence numbers, receipt handles.

A message id is made of the sequence number of the message's first send alone, so it needs no place of its own, a
duplicate is answered with the first message's, and a message that is moved keeps it, though its first queue may be gone
by then. Ids look random, and no two messages of a database have the same; messages of two databases may.
"""

import base64
import struct
from binascii import crc32
from typing import Final, NamedTuple

from inturn.core.envelope import QueueInfo
from inturn.server import errors

_BITS: Final = 122  # what a UUID has beside its version and its variant
_MASK: Final = (1 << _BITS) - 1
_ODD: Final = 0x2C5_9F1B_BF58_476D_1CE4_E5B9_94D0_49B1 | 1


def message_id(number: int) -> str:
    """The id of the message that was first sent with this sequence number, as a UUID.

    Times an odd number modulo 2^122, then an exclusive-or with its own upper half: each step can be undone, so no two
    numbers come to the same. It says version 4, as the service's ids do, since clients' libraries look at that.
    """
    mixed = number * _ODD & _MASK
    mixed = (mixed ^ mixed >> 61) * _ODD & _MASK
    digits = f"{mixed ^ mixed >> 61:031x}"
    variant = "89ab"[int(digits[0])]
    return f"{digits[1:9]}-{digits[9:13]}-4{digits[13:16]}-{variant}{digits[16:19]}-{digits[19:]}"


def sequence_number(number: int) -> str:
    """A sequence number as SQS shows it: twenty digits, so that their order as texts is theirs as numbers."""
    return str(10**19 + number)


_PACKED: Final = struct.Struct(">HQQQ")  # with its checksum 30 bytes, and so 40 characters
_SUM: Final = struct.Struct(">I")
_VERSION: Final = 1
_LENGTH: Final = 40


class Receipt(NamedTuple):
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
    return base64.urlsafe_b64encode(packed + _SUM.pack(crc32(packed))).decode()


def receipt(queue: QueueInfo, text: str) -> Receipt:
    """What a receipt handle of a queue says.

    Raises:
        SqsError: if it is none, or another queue's.
    """
    try:
        packed = base64.urlsafe_b64decode(text) if len(text) == _LENGTH else b""
        version, *lease = _PACKED.unpack(packed[: _PACKED.size])
        (checksum,) = _SUM.unpack(packed[_PACKED.size :])
    except (ValueError, struct.error):
        raise errors.receipt_handle_is_invalid(text) from None
    made = Receipt(*lease)
    is_whole = version == _VERSION and checksum == crc32(packed[: _PACKED.size])
    if not is_whole or not queue.has_given(made.sequence_number):
        raise errors.receipt_handle_is_invalid(text)
    return made
