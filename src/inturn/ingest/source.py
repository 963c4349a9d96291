"""The interface of a source: partitions, each a sequence of records with positions.

A source only reads. What becomes of a record, where a partition goes on after a restart, and who reads it is decided by
:class:`inturn.ingest.Ingest`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec

from inturn.ingest import limits as source_limits
from inturn.ingest.positions import PositionForm

Change: TypeAlias = Literal["none", "more", "new"]
"""The difference of two incarnations: none, more records after those that were there, or a new history."""

_MADE_AGAIN: Final = "the partition was made again: its positions are of another history; seek says where to go on"


class KnownPartition(NamedTuple):
    """A partition as it is stored.

    Attributes:
        incarnation: what it was when its position was written; empty: it was never claimed.
        is_begun: whether records of it are committed.
        is_finished: whether it was read to its end.
        is_decided: whether a person said where to go on, whatever it is now.
        is_open: whether this instance reads it.
        is_elsewhere: whether another instance reads it.
    """

    incarnation: str
    is_begun: bool = False
    is_finished: bool = False
    is_decided: bool = False
    is_open: bool = False
    is_elsewhere: bool = False


class PartitionNow(NamedTuple):
    """A partition that exists, and what became of it since it was read.

    Attributes:
        incarnation: what it is.
        was: the name under which it is known.
        change: what is there besides what was read.
        kept_as: the name under which to keep what was known under this name, which is another partition now; None: it
            is forgotten.
        refusal: why a person must decide where to go on; None: nobody need.
    """

    incarnation: str
    was: str
    change: Change = "none"
    kept_as: str | None = None
    refusal: str | None = None


class UnreadableHeader(bytes):
    """A header that the source received and cannot read, as bytes; a mapping that reads it rejects the record.

    Attributes:
        why: why it cannot be read.
    """

    why: str

    def __new__(cls, data: bytes, why: str) -> Self:
        """Make one of its bytes and the reason."""
        made = super().__new__(cls, data)
        made.why = why
        return made


def header_value(value: Any) -> bytes | str:
    """Return a header as it is, or as JSON if it is neither text nor bytes; what is unreadable within makes it so."""
    if isinstance(value, str | bytes):
        return value
    reasons: list[str] = []

    def within(each: Any) -> str:
        if not isinstance(each, UnreadableHeader):
            raise TypeError(f"{type(each).__name__} is no type of JSON")
        reasons.append(each.why)
        return str(each)

    try:
        encoded = msgspec.json.encode(value, enc_hook=within)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the fault of this one header
        return UnreadableHeader(b"", str(error) or type(error).__name__)
    return UnreadableHeader(encoded, reasons[0]) if reasons else encoded.decode()


class SourceRecord(NamedTuple):
    """A record of a source.

    Attributes:
        partition: the partition that it comes from.
        position: where the partition goes on after this record, as a JSON value.
        body: its content; None: a record without one, such as a tombstone.
        key: its key.
        headers: its headers, texts or bytes; another value is read as JSON. A source may read them when they are first
            used, and raise :class:`inturn.ingest.Unmappable` then.
        time_ms: its time, in milliseconds since 1970; None: it has none, or one that is the header ``timestamp`` and
            cannot be read.
    """

    partition: str
    position: Any
    body: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes | str] = {}
    time_ms: int | None = None

    @property
    def size(self) -> int:
        """The size of its key, body and headers, in bytes; headers that are read when they are first used count 0."""
        size = len(self.key or b"") + len(self.body or b"")
        if isinstance(self.headers, dict):
            size += sum(len(name) + len(header_value(value)) for name, value in self.headers.items())
        return size


class PollBatch:
    """The records of one poll, within the bounds of the poll.

    Args:
        limit: the maximum number of records.
        most: the maximum size of the records, in bytes; one that is larger is taken alone.

    Attributes:
        records: the records, in their order.
        size: their size, in bytes.
        is_full: whether no more is taken.
    """

    def __init__(self, limit: int, most: int) -> None:
        self.records: list[SourceRecord] = []
        self.size, self.is_full = 0, limit < 1
        self._limit, self._most = limit, most

    def add(self, record: SourceRecord) -> bool:
        """Add a record if there is room for it; return whether it was added. If not, the next poll begins with it."""
        size = self.size + record.size
        if self.is_full or (self.records and size > self._most):
            self.is_full = True
            return False
        self.records.append(record)
        self.size, self.is_full = size, len(self.records) == self._limit or size >= self._most
        return True


class Decoder(ABC):
    """A step between a source and its mapping: it makes of a record one that the mapping can read."""

    @abstractmethod
    def __call__(self, record: SourceRecord) -> SourceRecord:
        """Return the record with its key and body decoded.

        Raises:
            inturn.ingest.Unmappable: if it cannot be decoded; the record is rejected, as it came.
            Exception: any other error, such as of a registry that cannot be asked; the source waits and tries again.
        """


class Source(ABC):
    """A source of records. All methods are called by one thread at a time.

    Records of a partition come in its order. The same position gives the same records again, unless the source has
    forgotten them.

    Attributes:
        has_positions: whether that is so. A source without positions, such as a queue of a broker, gives again what was
            not confirmed; the host knows it by its id.
        usual_id: the path of the id if the mapping has none, where every record of the source has one.
        position_form: the form of its positions, in which a person may seek: ``number`` from 0 on, ``transaction`` (a
            transaction's id and a row's, as texts), ``none``, or empty: any JSON value.
        batch_bytes: the maximum size of the records of a poll, in bytes, unless one record is larger; the host sets it.
    """

    has_positions: ClassVar[bool] = True
    usual_id: ClassVar[str | None] = None
    position_form: PositionForm = ""
    batch_bytes: int = source_limits.INGEST_BYTES

    @property
    def forgets_confirmed(self) -> bool:
        """True if the source no longer has a record once it is confirmed: the kept rejected record is the only copy."""
        return not self.has_positions

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions that exist now."""

    @abstractmethod
    def open(self, partition: str, position: Any) -> None:
        """Read a partition from a position on; None: from its start.

        Raises:
            inturn.core.errors.PositionGone: if the source has no such position any more; the partition is not read
                until a person decides.
        """

    @abstractmethod
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        """Return the next records of the open partitions, at most ``batch_bytes``; wait if there are none.

        Raises:
            inturn.core.errors.PositionGone: if one partition, which it names, cannot be read on until a person decides;
                the others are not affected.
            Exception: any other error; all partitions are closed, and opened again after a pause.
        """

    @abstractmethod
    def close(self, partition: str) -> None:
        """Stop reading a partition; what was read of it and not confirmed is read again by whoever opens it next."""

    def confirm(self, partition: str, position: Any) -> None:
        """Note that everything up to a position is committed, such as by an acknowledgement to a broker."""

    def incarnation(self, partition: str) -> str:  # noqa: ARG002 - a hook
        """Return the identity of a partition's history, such as a topic's id; positions are valid within one only.

        It is asked after each :meth:`partitions`. A history that ends in between is the source's to notice:
        :meth:`poll` raises an error instead of records that may be of another one than the partition was opened in.
        """
        return ""

    def compared(
        self, known: Mapping[str, KnownPartition], incarnations: Mapping[str, str]
    ) -> Mapping[str, PartitionNow]:
        """Return what became of the partitions since they were read, within the transaction that acts on it.

        Args:
            known: the partitions that are known, by name.
            incarnations: those that exist, by name, as they were asked for just before.

        Returns:
            The partitions that exist, by name.
        """
        found = {}
        for name, incarnation in incarnations.items():
            was = known.get(name)
            if was is None or was.incarnation == incarnation or was.is_decided or was.is_elsewhere:
                found[name] = PartitionNow(incarnation, name)
            elif not was.is_begun:
                found[name] = PartitionNow(incarnation, name, "new")
            else:
                found[name] = PartitionNow(incarnation, name, refusal=_MADE_AGAIN)
        return found

    def is_gone(self, partition: str) -> bool:  # noqa: ARG002 - a hook
        """Return whether a partition that is not listed was removed, rather than out of reach.

        One that was read to its end is then forgotten after a time; of another one a person is told.
        """
        return False

    def is_finished(self, partition: str) -> bool:  # noqa: ARG002 - a hook
        """Return whether all records of an open partition are confirmed, and none come unless it changes."""
        return False

    def lag(self, partition: str) -> int | None:  # noqa: ARG002 - a hook
        """Return how many records of an open partition are not read yet; None: unknown."""
        return None

    def shut(self) -> None:
        """Release connections and files."""
