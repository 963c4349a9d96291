"""Decoding of AMQP that never fails, for the threads of RabbitMQ sources.

pamqp raises for a timestamp that no datetime holds (such as one in microseconds), for a short text or a header's name
that is not UTF-8, and for tables nested too deeply. aiormq then drops the connection, so one such message makes the
broker redeliver the queue for ever, and beyond the delivery limit of a quorum queue the broker drops all prefetched
messages.

aiormq has no hook for this. So :func:`make_total` wraps the entries of four types in the tables of ``pamqp.decode``,
once for the whole process. A wrapper calls the original decoder and passes on its result or error. Only in a thread
that has called ``make_total``, an error becomes an :class:`UnreadableHeader`; a mapping that reads it rejects the
record. All other connections of the process decode and fail as before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from inturn.ingest.source import UnreadableHeader

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMESTAMP_BYTES: Final = 8
_thread_state: Final = threading.local()
_wrapping: Final = threading.Lock()


def install_total_decoding() -> None:
    """Make decoding in this thread never raise, from now on."""
    from pamqp import decode

    with _wrapping:
        if not isinstance(decode.METHODS["timestamp"], _TotalDecoder):
            for name, letter, prefix, fallback in (
                ("timestamp", b"T", 0, None),
                ("shortstr", None, 1, None),
                ("array", b"A", 4, None),
                ("table", b"F", 4, _table_with_unreadable_names),
            ):
                decoder = _TotalDecoder(decode.METHODS[name], prefix, fallback)
                decode.METHODS[name] = decoder
                if letter is not None:
                    decode.TABLE_MAPPING[letter] = decoder
    _thread_state.is_on = True


class _TotalDecoder:
    """A decoder of pamqp, with the length of its value and a second decoder for values that the first cannot read.

    Args:
        decoder: the decoder; it returns the number of bytes used, and the value.
        prefix: the size of the length prefix of the value, in bytes; 0: it is a timestamp.
        fallback: a decoder of the value without the prefix.
    """

    def __init__(
        self,
        decoder: Callable[[bytes], tuple[int, Any]],
        prefix: int,
        fallback: Callable[[bytes], dict[str, Any]] | None,
    ) -> None:
        self._decoder, self._prefix, self._fallback = decoder, prefix, fallback

    def __call__(self, value: bytes) -> tuple[int, Any]:
        try:
            return self._decoder(value)
        except Exception as error:
            if not getattr(_thread_state, "is_on", False):
                raise
            end = self._prefix + (int.from_bytes(value[: self._prefix]) if self._prefix else _TIMESTAMP_BYTES)
            data = value[self._prefix : end]
            try:
                return end, self._fallback(data) if self._fallback is not None else UnreadableHeader(
                    data, _reason(error)
                )
            except Exception as second:  # noqa: BLE001 - whatever it is, it is the fault of this one value
                return end, UnreadableHeader(data, _reason(second))


def _table_with_unreadable_names(data: bytes) -> dict[str, Any]:
    """Decode a table; a name that is not UTF-8 is shown with escapes, and its value is unreadable."""
    from pamqp import decode

    fields: dict[str, Any] = {}
    offset = 0
    while offset < len(data):
        begin, offset = offset + 1, offset + 1 + data[offset]
        name = data[begin:offset]
        used, result = decode.embedded_value(data[offset:])
        offset += used
        try:
            fields[name.decode()] = result
        except UnicodeDecodeError as error:
            fields.setdefault(name.decode(errors="backslashreplace"), UnreadableHeader(name, f"its name: {error}"))
    return fields


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
