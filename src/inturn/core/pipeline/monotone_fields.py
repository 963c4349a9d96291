"""The order by several fields: positions in a log that do not fit into one number, and the timeline that applies it.

A place is the list of the positions, and its text form is the id of the message. It does not fit into the 64-bit
position of other grades; so the position of every message is 0, and the tie orders them.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, Final

from inturn.core.errors import PipelineError
from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.grades import RisingTimeline
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.timeline import MARK_BYTES, Key, place_mark
from inturn.core.values.position import EXPECTED, LogPosition, position_of, shown_positions, sortable_positions

_LENGTH: Final = struct.Struct(">H")
_EPOCH_BYTES: Final = 8


class MonotoneFieldsTimeline(RisingTimeline):
    """A timeline of ``MonotoneFields``.

    ``memory`` begins with the tie of the greatest place seen, applied or held, and its length in two bytes.
    """

    __slots__ = ("_greatest", "_tops")

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._greatest = bytes(self.memory[_LENGTH.size : self.records_at()]).decode()
        self._tops: dict[int, str] = {}  # the greatest ties of the held messages, by epoch

    @override
    def records_at(self) -> int:
        return _LENGTH.size + _LENGTH.unpack_from(self.memory)[0] if self.memory else 0

    @override
    def mark(self, entry: TimelineEntry) -> bytes:
        return self.conflict_place(entry)

    @override
    def conflict_place(self, entry: TimelineEntry) -> bytes:
        # An epoch that begins forgets the conflicts of earlier ones by this beginning.
        return place_mark(entry.epoch, None)[:_EPOCH_BYTES] + hashlib.sha256(entry.tie.encode()).digest()[:MARK_BYTES]

    @override
    def key(self, entry: TimelineEntry) -> Key:
        return (entry.epoch, entry.tie)

    @override
    def is_above(self, entry: TimelineEntry) -> bool:
        return entry.tie > self._greatest

    @override
    def record_seen(self, entry: TimelineEntry) -> None:
        if entry.epoch == (self.epoch or 0):
            self._greatest = max(self._greatest, entry.tie)

    @override
    def begin_epoch(self, epoch: int) -> list[TimelineEntry]:
        lost = super().begin_epoch(epoch)
        self._greatest = self._tops.pop(epoch, "")
        return lost

    @override
    def restore(self, entry: TimelineEntry) -> None:
        super().restore(entry)
        self._tops[entry.epoch] = max(entry.tie, self._tops.get(entry.epoch, ""))

    @override
    def trim(self) -> None:
        super().trim()
        greatest = self._greatest.encode()
        self.memory = _LENGTH.pack(len(greatest)) + greatest + self.memory


@dataclass(frozen=True)
class MonotoneFields(Order):
    """An order in which a later message has a higher position, and the position is in several fields.

    The first field is the most significant, and fields are compared as :mod:`inturn.core.values.position` defines: LSNs
    and numeric texts as numbers. In all fields except the first, null is before everything else. The position is also
    the id of a message. As with ``Monotone``, messages that arrive too late are recognised as stale, and gaps are not
    detected.

    Attributes:
        fields: fields of the position, such as ``("commit_lsn", "change_lsn", "event_serial_no")`` of SQL Server.
        epoch: field with the epoch, an integer; a higher one starts the timeline again, and the state is kept.
    """

    fields: tuple[str, ...]
    epoch: str | None = None
    column = None
    timeline_type = MonotoneFieldsTimeline

    def __post_init__(self) -> None:
        if isinstance(self.fields, list):
            object.__setattr__(self, "fields", tuple(self.fields))

    @override
    def check(self) -> None:
        names = self.fields
        is_names = isinstance(names, tuple) and all(isinstance(name, str) and name for name in names)
        if not is_names or not names or len(set(names)) < len(names):
            raise PipelineError(
                f"MonotoneFields(fields={names!r}); expected the names of fields, each once, the most significant first"
            )

    @override
    def fault(self, value: Any) -> str | None:
        if value[0] is None:
            return f"{self.fields[0]} is null"
        for name, field_value in zip(self.fields, value, strict=True):
            if position_of(field_value) is None:
                return f"{name} is {field_value!r:.100}, which is not a valid position; expected {EXPECTED}"
        return None

    @override
    def position(self, value: Any) -> int:  # noqa: ARG002 - the tie says it
        return 0

    @override
    def tie(self, value: Any, arrival: Any, ident: str) -> str:  # noqa: ARG002 - the position says it
        return sortable_positions(_positions(value))

    @override
    def name(self, value: Any) -> str:
        return shown_positions(_positions(value))


def _positions(value: Any) -> list[LogPosition]:
    """Return the positions of a message; their values were checked before."""
    return [position_of(part) or () for part in value]
