"""The JSON form of stored values, for people and for SQL: a value that JSON lacks becomes a text, or null.

Bytes become base64, an instant its ISO text, NaN and infinities null; a key that is not a text becomes the text of its
JSON. The form is for display only: states are read from MessagePack. PostgreSQL's function ``inturn_json`` returns the
same form.
"""

from typing import Any, Final

import msgspec

from inturn.core.values.models import fields_of

_ENCODER: Final = msgspec.json.Encoder(enc_hook=fields_of)
_DECODER: Final = msgspec.msgpack.Decoder()
_RARE: Final = (TypeError, RecursionError, msgspec.DecodeError)
"""The errors for keys that JSON or a dict cannot have."""
_LENGTHS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
"""Number of bytes of the length of a text, an array or a map, by its first byte."""
_SIZES: Final = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
"""Number of bytes of a number, by its first byte."""
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def of_value(value: Any) -> str:
    """Return the JSON form of a value."""
    try:
        return _ENCODER.encode(value).decode()
    except _RARE:
        return of_message_pack(msgspec.msgpack.encode(value, enc_hook=fields_of))


def of_message_pack(data: bytes) -> str:
    """Return the JSON form of a value that is encoded as MessagePack."""
    try:
        return _ENCODER.encode(_DECODER.decode(data)).decode()
    except _RARE:
        return _MessagePack(data).text()


class _MessagePack:
    """Reads a value part by part, with keys of any kind, which msgspec cannot put into a dict or into JSON."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def text(self) -> str:
        """Return the JSON form of the next value."""
        begin, head = self._at, self._data[self._at]
        if head in (0xDE, 0xDF) or 0x80 <= head < 0x90:
            pairs = [f"{self._key()}:{self.text()}" for _ in range(self._length(head, 0x0F))]
            return f"{{{','.join(pairs)}}}"
        if head in (0xDC, 0xDD) or 0x90 <= head < 0xA0:
            return f"[{','.join([self.text() for _ in range(self._length(head, 0x0F))])}]"
        self._skip(head)
        return _ENCODER.encode(_DECODER.decode(self._data[begin : self._at])).decode()

    def _key(self) -> str:
        text = self.text()
        return text if text.startswith('"') else _ENCODER.encode(text).decode()

    def _skip(self, head: int) -> None:
        """Skip a value without parts."""
        if 0xA0 <= head < 0xC0 or head in _LENGTHS:
            size = self._length(head, 0x1F)
        elif head in _BYTES or head in _EXTENSIONS:
            self._at += 1
            size = self._number(_BYTES.get(head) or _EXTENSIONS[head]) + (head in _EXTENSIONS)
        else:
            fixed = _FIXED_EXTENSIONS.get(head)
            size = 1 + (_SIZES.get(head, 0) if fixed is None else fixed + 1)
        self._at += size

    def _length(self, head: int, mask: int) -> int:
        self._at += 1
        return self._number(_LENGTHS[head]) if head in _LENGTHS else head & mask

    def _number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at])
