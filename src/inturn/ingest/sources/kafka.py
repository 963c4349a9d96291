"""A topic of Kafka: its partitions are the partitions, an offset is a position.

Partitions are assigned by inturn's leases, and offsets are stored in inturn's database with the messages. Kafka's
consumer groups are not used; offsets are committed to one, for tools that show a lag, only if it is named.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, PositionGone, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.mapping import MappingError
from inturn.ingest.positions import PositionForm
from inturn.ingest.source import PollBatch, Source, SourceRecord

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

_OURS: Final = {"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "enable.partition.eof"}
_FETCHED_BYTES: Final = source_limits.INGEST_BYTES
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers without topic ids
_read_headers: Final = methodcaller("headers")
_SILENT: Final = {"log_level": 0, "logger": logging.getLogger("inturn.ingest.kafka")}


class KafkaSource(Source):
    """A topic of Kafka, or of a broker that speaks its protocol.

    Records of a transaction are read once it is committed. A record's position is the offset after it.

    Args:
        servers: the addresses of brokers, such as ``kafka-1:9092,kafka-2:9092``.
        topic: the topic.
        group_id: the consumer group that receives the offsets after each commit; None: none. inturn never reads
            them back.
        options: further settings of librdkafka, such as ``security.protocol``.

    Raises:
        InputError: if an option is one that inturn sets itself.
        SetupError: if confluent-kafka is not installed.
    """

    position_form: PositionForm = "number"

    def __init__(
        self, servers: str, topic: str, group_id: str | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise SetupError(f"Kafka needs confluent-kafka: pip install 'inturn[kafka]' ({error})") from error
        check_type("options", options, Mapping | None, "a dict of librdkafka's options")
        if own_options := sorted(_OURS & set(options or ())):
            raise InputError(f"inturn sets the option {own_options[0]!r} itself; remove it")
        self._kafka = confluent_kafka
        self._topic, self._group_id = topic, group_id
        self._settings = {"bootstrap.servers": servers, **(options or {}), **_SILENT, "error_cb": self._on_error}
        self._open_consumer: Consumer | None = None
        self._open_admin: AdminClient | None = None
        self._id = ""  # of the topic when its partitions were last asked for; empty: unknown
        self._last_error = ""  # the last error that librdkafka reported
        self._names: dict[int, str] = {}  # the open partitions
        self._opened_topic_ids: dict[int, str] = {}  # the topic's id as it was when each of them was opened
        self._buffered: deque[Any] = deque()  # messages for which a poll had no room
        self._not_at_end: set[int] = set()  # open partitions not known to be read to the end
        self._unread: set[int] = set()  # read from their start, and without a record so far
        self._missing_offsets: dict[str, tuple[int, str]] = {}  # missing offsets of partitions, with the error text

    def _on_error(self, error: "KafkaError") -> None:
        if error.code() != self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error.str()

    def _create_client(self, kind: Any, settings: dict[str, Any]) -> Any:
        try:
            return kind(settings)
        except self._kafka.KafkaException as error:
            raise InputError(f"invalid options for the Kafka client: {error.args[0].str()}") from error

    @property
    def _consumer(self) -> "Consumer":
        if self._open_consumer is None:
            own_settings = {
                "group.id": self._group_id or "inturn",  # asked for by librdkafka, not used
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a gap is reported, not skipped
                "enable.partition.eof": True,  # moves the position past the markers of transactions
            }
            usual = {
                "isolation.level": "read_committed",
                "fetch.max.bytes": _FETCHED_BYTES,  # at least a record, whatever its size
                "queued.max.messages.kbytes": _FETCHED_BYTES // 1024,
            }
            self._open_consumer = self._create_client(self._kafka.Consumer, usual | self._settings | own_settings)
        return self._open_consumer

    @property
    def _admin(self) -> "AdminClient":
        if self._open_admin is None:
            from confluent_kafka.admin import AdminClient

            self._open_admin = self._create_client(AdminClient, self._settings)
        return self._open_admin

    @override
    def partitions(self) -> Sequence[str]:
        self._id, names = self._describe_topic()
        return names

    def _describe_topic(self) -> tuple[str, list[str]]:
        """Return the id and the partitions that the topic has now."""
        timeout_s = source_limits.INGEST_REQUEST_S
        try:
            futures = self._admin.describe_topics(self._kafka.TopicCollection([self._topic]), request_timeout=timeout_s)
            description = futures[self._topic].result()
        except self._kafka.KafkaException as error:
            self._admin.poll(0)  # so that _note receives the cause
            raise SourceError(f"topic {self._topic!r}: {self._error_reason(error.args[0])}") from error
        id_ = "" if str(description.topic_id) == _NO_ID else str(description.topic_id)
        return id_, [str(partition.id) for partition in description.partitions]

    def _error_reason(self, error: "KafkaError") -> str:
        """Return the cause of an error, as far as it is known, and the remedy."""
        kinds = self._kafka.KafkaError
        if error.code() == kinds.UNKNOWN_TOPIC_OR_PART:
            return f"{error.str()}; create it, or check its name and the servers"
        if error.code() != kinds._TIMED_OUT:
            return error.str()
        return self._last_error or f"no answer ({error.str()}); check the servers and security.protocol"

    @override
    def incarnation(self, partition: str) -> str:  # noqa: ARG002 - all are of one topic
        return self._id

    @override
    def open(self, partition: str, position: Any) -> None:
        missing, reason = self._missing_offsets.pop(partition, (None, ""))
        if missing is not None and missing == position:  # otherwise an operator has set the position since
            raise PositionGone(reason)
        if position is not None and (not isinstance(position, int) or position < 0):
            raise PositionGone(
                f"position {position!r} is not an offset; seek to a whole number from 0 on, or to the start"
            )
        start = self._kafka.OFFSET_BEGINNING if position is None else position
        self._consumer.incremental_assign([self._topic_partition(partition, start)])
        self._names[int(partition)], self._opened_topic_ids[int(partition)] = partition, self._id
        self._not_at_end.add(int(partition))
        if position is None:
            self._unread.add(int(partition))

    def _topic_partition(self, partition: str, *offset: int) -> Any:
        partition_type: Any = self._kafka.TopicPartition
        return partition_type(self._topic, int(partition), *offset)

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        until = time.monotonic() + source_limits.INGEST_REQUEST_S
        while not (records := self._poll_client(limit, timeout_s)) and self._not_at_end:
            # An empty poll does not mean that a partition is exhausted; only its end offset does.
            if time.monotonic() > until:
                raise SourceError(
                    f"topic {self._topic!r}, partition {min(self._not_at_end)}: no answer. {self._last_error}"
                )
        self._check_topic({self._opened_topic_ids[int(record.partition)] for record in records})
        return records

    def _check_topic(self, ids: set[str]) -> None:
        """Check that the topic still has the id with which the partitions of new records were opened.

        The id is read after the records: if it is the same before and after, they belong to this topic, and not to one
        that was recreated in between, with other records at the same offsets.
        """
        if any(ids) and ids != {self._describe_topic()[0]}:
            raise SourceError(f"topic {self._topic!r} was recreated while it was read")

    def _poll_client(self, limit: int, timeout_s: float) -> list[SourceRecord]:
        # consume() with a time-out would wait for the whole limit; poll() returns the first record on arrival.
        batch, count = PollBatch(limit, self.batch_bytes), 1
        self._move_buffered(batch)
        if not batch.records and (first := self._consumer.poll(timeout_s)) is not None:
            self._buffered.append(first)
            self._move_buffered(batch)
        while not batch.is_full:  # doubled each time, so that few large records without room are held
            messages = self._consumer.consume(min(count, limit - len(batch.records)), 0)
            if not messages:
                break
            self._buffered.extend(messages)
            self._move_buffered(batch)
            count *= 2
        if self._unread:
            self._unread -= {int(record.partition) for record in batch.records}
        return batch.records

    def _move_buffered(self, batch: PollBatch) -> None:
        """Move messages of the client that are not returned yet to the records of a poll, as far as there is room."""
        while self._buffered and not batch.is_full:
            message = self._buffered[0]
            number = message.partition()
            name = self._names.get(number)
            if name is not None and message.error() is None:
                if not batch.add(_record(name, message)):
                    return
                self._not_at_end.add(number)
            self._buffered.popleft()
            if message.error() is not None and (name is not None or number < 0):  # of a partition, or of the topic
                self._handle_error(number, message)

    def _handle_error(self, partition: int, message: Any) -> None:
        """Note the end of a partition, or raise the error received in place of a record."""
        error, kinds = message.error(), self._kafka.KafkaError
        if error.code() == kinds._PARTITION_EOF:
            self._not_at_end.discard(partition)
            return
        if error.code() == kinds._AUTO_OFFSET_RESET:
            self._note_missing_offsets(str(partition), message.offset())
        raise SourceError(f"topic {self._topic!r}, partition {partition}: {error.str()}")

    def _note_missing_offsets(self, partition: str, offset: int) -> None:
        """Note the missing offsets, to be reported when the partition is next opened."""
        first, end = self._consumer.get_watermark_offsets(
            self._topic_partition(partition), timeout=source_limits.INGEST_REQUEST_S
        )
        if offset < first:
            gap_text = (
                f"{first - offset:,} offsets are gone: the log begins at {first:,}, the next one to read was {offset:,}"
            )
        elif offset > end:
            gap_text = (
                f"the log ends at {end:,}, before the next offset to read, {offset:,}: it was truncated or recreated"
            )
        else:
            return
        self._missing_offsets[partition] = offset, f"{gap_text}; set an offset with `inturn ingest seek`"

    @override
    def close(self, partition: str) -> None:
        self._names.pop(int(partition), None)
        self._opened_topic_ids.pop(int(partition), None)
        self._not_at_end.discard(int(partition))
        self._unread.discard(int(partition))
        self._buffered = deque(message for message in self._buffered if message.partition() != int(partition))
        self._consumer.incremental_unassign([self._topic_partition(partition)])

    @override
    def confirm(self, partition: str, position: Any) -> None:
        if self._group_id is not None:
            self._consumer.commit(offsets=[self._topic_partition(partition, position)], asynchronous=True)

    @override
    def lag(self, partition: str) -> int | None:
        target = self._topic_partition(partition)
        ends = self._consumer.get_watermark_offsets(target, cached=True)
        (now,) = self._consumer.position([target])
        # Both are negative until the first answer of the broker.
        if ends is None or min(ends[1], now.offset) < 0:
            return None
        offsets = (
            message.offset()
            for message in self._buffered
            if message.partition() == target.partition and message.error() is None
        )
        return max(0, ends[1] - next(offsets, now.offset))

    @override
    def shutdown(self) -> None:
        if self._open_consumer is not None:
            self._open_consumer.close()
        self._open_consumer = self._open_admin = None
        self._buffered.clear()
        self._names.clear()
        self._opened_topic_ids.clear()
        self._not_at_end.clear()
        self._unread.clear()


def _record(partition: str, message: Any) -> SourceRecord:
    kind, time_ms = message.timestamp()
    headers = _Headers(message)
    return SourceRecord(
        partition, message.offset() + 1, message.value(), message.key(), headers, time_ms if kind else None
    )


class _Headers(Mapping[str, bytes]):
    """The headers of a record, decoded at first use: most mappings never use them.

    For repeated headers the last value wins; headers without a value are dropped.

    Raises:
        MappingError: on each use, if the name of a header is not UTF-8.
    """

    __slots__ = ("_found", "_message")

    def __init__(self, message: Any) -> None:
        self._message: Any = message  # None: it was read
        self._found: dict[str, bytes] | None = None

    def _all(self) -> dict[str, bytes]:
        if self._message is not None:
            message, self._message = self._message, None  # a second call would return the broken list without an error
            try:
                # Not message.headers(): for a name that is not UTF-8 the client returns a list with null pointers and
                # sets an error. Bytecode that CPython has specialized does not look for the error, and crashes on the
                # list. A call from C, such as this one, does look.
                pairs = _read_headers(message)
            except (SystemError, UnicodeError):
                pass
            else:
                self._found = {name: value for name, value in pairs or () if value is not None}
        if self._found is None:
            raise MappingError("a header name is not UTF-8, so the client can read none of the record's headers")
        return self._found

    @override
    def __getitem__(self, name: str) -> bytes:
        return self._all()[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    @override
    def __len__(self) -> int:
        return len(self._all())
