"""The interface of a source: partitions, each a sequence of records with positions.

A source only reads. :class:`inturn.ingest.Ingest` decides which instance reads a partition, where reading continues
after a restart, and how a record becomes a message.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec

from inturn.ingest import limits as source_limits
from inturn.ingest.positions import PositionForm

Change: TypeAlias = Literal["none", "more", "new"]
"""The difference between two incarnations: none, more records after the known ones, or a new history."""

_RECREATED: Final = "the partition was recreated, so its position is no longer valid; set one with `inturn ingest seek`"


class KnownPartition(NamedTuple):
    """A partition as it is stored.

    Attributes:
        incarnation: its incarnation when its position was written; empty: it was never claimed.
        is_begun: whether records of it are committed.
        is_finished: whether it was read to its end.
        is_position_set: whether an operator set the position, which then holds for any incarnation.
        is_open: whether this instance reads it.
        is_open_elsewhere: whether another instance reads it.
    """

    incarnation: str
    is_begun: bool = False
    is_finished: bool = False
    is_position_set: bool = False
    is_open: bool = False
    is_open_elsewhere: bool = False


class PartitionComparison(NamedTuple):
    """A partition that exists, compared with its stored state.

    Attributes:
        incarnation: its current incarnation.
        stored_name: the name under which its state is stored.
        change: the difference from the part that was read.
        displaced_name: the new name for the state stored under this name, if that belongs to another partition; None:
            the state is deleted.
        refusal: the reason why an operator must set the position; None: reading may continue.
    """

    incarnation: str
    stored_name: str
    change: Change = "none"
    displaced_name: str | None = None
    refusal: str | None = None


class UnreadableHeader(bytes):
    """A header that the source received but could not decode, as bytes; a mapping that reads it rejects the record.

    Attributes:
        reason: the reason.
    """

    reason: str

    def __new__(cls, data: bytes, reason: str) -> Self:
        """Create a header from its bytes and the reason."""
        header = super().__new__(cls, data)
        header.reason = reason
        return header


def header_value(value: Any) -> bytes | str:
    """Return a text or bytes unchanged, another value as JSON; an unreadable part makes the whole unreadable."""
    if isinstance(value, str | bytes):
        return value
    reasons: list[str] = []

    def within(part: Any) -> str:
        if not isinstance(part, UnreadableHeader):
            raise TypeError(f"{type(part).__name__} is not a JSON type")
        reasons.append(part.reason)
        return str(part)

    try:
        encoded = msgspec.json.encode(value, enc_hook=within)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the fault of this one header
        return UnreadableHeader(b"", str(error) or type(error).__name__)
    return UnreadableHeader(encoded, reasons[0]) if reasons else encoded.decode()


class SourceRecord(NamedTuple):
    """A record of a source.

    Attributes:
        partition: its partition.
        position: the position from which reading continues after this record, as a JSON value.
        body: its content; None: no content, as in a tombstone.
        key: its key.
        headers: its headers, texts or bytes; another value is read as JSON. A source may decode them at first use, and
            raise :class:`inturn.ingest.MappingError` then.
        time_ms: its time, in milliseconds since 1970; None: no time, or an unreadable one, which is then in the header
            ``timestamp``.
    """

    partition: str
    position: Any
    body: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes | str] = {}
    time_ms: int | None = None

    @property
    def size(self) -> int:
        """The size of its key, body and headers, in bytes; headers that are decoded at first use count 0."""
        size = len(self.key or b"") + len(self.body or b"")
        if isinstance(self.headers, dict):
            size += sum(len(name) + len(header_value(value)) for name, value in self.headers.items())
        return size


class PollBatch:
    """The records of one poll, within the bounds of the poll.

    Args:
        limit: the maximum number of records.
        max_bytes: the maximum size of the records, in bytes; a larger record is returned alone.

    Attributes:
        records: the records, in order.
        size: their size, in bytes.
        is_full: whether no further record is accepted.
    """

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.records: list[SourceRecord] = []
        self.size, self.is_full = 0, limit < 1
        self._limit, self._max_bytes = limit, max_bytes

    def add(self, record: SourceRecord) -> bool:
        """Add a record if there is room; return whether it was added. If not, the next poll must begin with it."""
        size = self.size + record.size
        if self.is_full or (self.records and size > self._max_bytes):
            self.is_full = True
            return False
        self.records.append(record)
        self.size, self.is_full = size, len(self.records) == self._limit or size >= self._max_bytes
        return True


class Decoder(ABC):
    """A step between a source and its mapping, which decodes records."""

    @abstractmethod
    def __call__(self, record: SourceRecord) -> SourceRecord:
        """Return the record with its key and body decoded.

        Raises:
            inturn.ingest.MappingError: if it cannot be decoded; the original record is rejected.
            Exception: any other error, such as an unreachable registry; the source waits and tries again.
        """


class Source(ABC):
    """A source of records. All methods are called by one thread at a time.

    A partition returns its records in order. Opened again at a position, it returns the same records again, unless the
    source no longer has them.

    Attributes:
        has_positions: whether partitions can be opened at a position. A source without positions, such as a queue of a
            broker, redelivers unconfirmed records; the host recognizes them by id.
        default_id: the default path of the id, for sources whose records always have one.
        position_form: the form of positions that ``seek`` accepts: ``number`` from 0 on, ``transaction`` (the ids of a
            transaction and a row, as texts), ``none``, or empty: any JSON value.
        batch_bytes: the maximum size of the records of a poll, in bytes, unless one record is larger; the host sets it.
    """

    has_positions: ClassVar[bool] = True
    default_id: ClassVar[str | None] = None
    position_form: PositionForm = ""
    batch_bytes: int = source_limits.INGEST_BYTES

    @property
    def forgets_confirmed(self) -> bool:
        """True if the source drops confirmed records, so that a stored rejected record is the only copy."""
        return not self.has_positions

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions that exist now."""

    @abstractmethod
    def open(self, partition: str, position: Any) -> None:
        """Open a partition at a position; None: at its start.

        Raises:
            inturn.core.errors.PositionGone: if the source no longer has this position; the partition is not read until
                an operator sets another one.
        """

    @abstractmethod
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        """Return the next records of the open partitions, at most ``batch_bytes``; wait if there are none.

        Raises:
            inturn.core.errors.PositionGone: if one partition, named in the error, cannot be read further until an
                operator sets its position; the others are not affected.
            Exception: any other error; all partitions are closed, and reopened after a pause.
        """

    @abstractmethod
    def close(self, partition: str) -> None:
        """Stop reading a partition; its unconfirmed records are read again when it is next opened."""

    def confirm(self, partition: str, position: Any) -> None:
        """Note that everything up to a position is committed; a broker's source acknowledges here."""

    def incarnation(self, partition: str) -> str:  # noqa: ARG002 - a hook
        """Return the identity of a partition's history, such as a topic's id; positions are valid within one only.

        The host calls it after each :meth:`partitions`. If the history changes between two calls, :meth:`poll` must
        raise an error instead of returning records of another history than the one that was opened.
        """
        return ""

    def compare(
        self, known: Mapping[str, KnownPartition], incarnations: Mapping[str, str]
    ) -> Mapping[str, PartitionComparison]:
        """Compare the existing partitions with their stored state; called in the transaction that uses the result.

        Args:
            known: the stored partitions, by name.
            incarnations: the incarnations of the existing partitions, by name, read just before.

        Returns:
            The partitions that exist, by name.
        """
        comparisons = {}
        for name, incarnation in incarnations.items():
            stored = known.get(name)
            if (
                stored is None
                or stored.incarnation == incarnation
                or stored.is_position_set
                or stored.is_open_elsewhere
            ):
                comparisons[name] = PartitionComparison(incarnation, name)
            elif not stored.is_begun:
                comparisons[name] = PartitionComparison(incarnation, name, "new")
            else:
                comparisons[name] = PartitionComparison(incarnation, name, refusal=_RECREATED)
        return comparisons

    def is_removed(self, partition: str) -> bool:  # noqa: ARG002 - a hook
        """Return whether a partition that is not listed was removed, rather than unavailable.

        If it was read to its end, its state is deleted after a time; otherwise its status reports the loss.
        """
        return False

    def is_finished(self, partition: str) -> bool:  # noqa: ARG002 - a hook
        """Return whether all records of an open partition are confirmed and no more follow unless it changes."""
        return False

    def lag(self, partition: str) -> int | None:  # noqa: ARG002 - a hook
        """Return how many records of an open partition are not read yet; None: unknown."""
        return None

    def shutdown(self) -> None:
        """Release connections and files."""
