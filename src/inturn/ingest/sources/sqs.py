"""A queue of SQS, or of any server with its API: one partition, without positions; deleted after the commit."""

import math
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, SetupError, SourceError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.ingest.positions import PositionForm
from inturn.ingest.source import PollBatch, Source, SourceRecord, UnreadableHeader, header_value

_BATCH: Final = 10  # messages in a call, of the API
_VISIBILITY_AT_MOST_S: Final = 43_200  # of the API
_ATTEMPTS: Final = 3


class SqsSource(Source):
    """A queue of SQS, standard or FIFO.

    A record's headers are the message's attributes, and SQS's own by their names: ``MessageId``,
    ``MessageDeduplicationId``, ``SequenceNumber`` (a text: it has up to 128 bits), ``SentTimestamp``. The header
    ``dedup-id`` is the deduplication id, or else the message id; it is the record's id if the mapping has none. The key
    is the message group. The position counts the receives of one open source.

    Messages stay hidden for as long as their commit waits; a FIFO queue keeps the order of each group.

    Args:
        queue_url: the queue.
        region: its region; None: that of the URL, or of boto3's configuration.
        endpoint: the server; None: that of the URL.
        visibility_s: the time for which messages are hidden, and so their delay if this process dies, in seconds.
        client: a boto3 client for SQS with your own settings.

    Raises:
        InputError: if an argument is not valid.
        SetupError: if boto3 is not installed.
    """

    has_positions: ClassVar[bool] = False
    position_form: PositionForm = "none"
    default_id: ClassVar[str | None] = "headers.dedup-id"

    def __init__(
        self,
        queue_url: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        visibility_s: int = source_limits.SQS_VISIBILITY_S,
        client: Any = None,
    ) -> None:
        check_type("queue_url", queue_url, str, "a URL")
        url = urlsplit(queue_url)
        if url.scheme not in ("http", "https") or not url.path.strip("/"):
            raise InputError(
                f"queue_url is {queue_url!r}; expected a URL such as https://sqs.eu-west-1.amazonaws.com/123/payments"
            )
        if not isinstance(visibility_s, int) or not 1 <= visibility_s <= _VISIBILITY_AT_MOST_S:
            raise InputError(f"visibility_s is {visibility_s!r}; expected a number from 1 to {_VISIBILITY_AT_MOST_S:,}")
        self._url, self._visibility_s = queue_url, visibility_s
        self._client = client or _client(
            region or _region_in(url.hostname or ""), endpoint or f"{url.scheme}://{url.netloc}"
        )
        self._pool = ThreadPoolExecutor(source_limits.SQS_CALLS, thread_name_prefix="inturn-sqs")
        self._receipts: dict[str, int] = {}  # receipts of undeleted messages, with positions; 0: none yet
        self._buffered: deque[dict[str, Any]] = deque()  # received, and not returned: a poll had no room
        self._last_position = 0  # position
        self._closing = threading.Event()
        self._extender: threading.Thread | None = None

    @override
    def partitions(self) -> Sequence[str]:
        return [self._url.rpartition("/")[2]]

    @override
    def open(self, partition: str, position: Any) -> None:
        try:
            self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        except Exception as error:
            raise SourceError(f"the queue {self._url} cannot be read: {error}") from error
        self._closing = threading.Event()
        self._extender = threading.Thread(
            target=self._extend_visibility, args=(self._closing,), name="inturn-sqs-keeper", daemon=True
        )
        self._extender.start()

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        if self._extender is None:
            return []
        batch = PollBatch(limit, self.batch_bytes)
        if not self._buffered:
            self._buffered.extend(self._receive(min(limit, _BATCH), math.ceil(timeout_s)))
        self._move_buffered(batch)
        while batch.records and not batch.is_full:
            # Parallel receives preserve the order: a group is in only one answer until its messages are deleted.
            sizes = [min(_BATCH, limit - start) for start in range(len(batch.records), limit, _BATCH)][
                : self._parallel_calls(batch)
            ]
            for messages in self._pool.map(self._receive, sizes):
                self._buffered.extend(messages)
            received = len(self._buffered)
            self._move_buffered(batch)
            if received < sum(sizes):
                break
        return batch.records

    def _parallel_calls(self, batch: PollBatch) -> int:
        """Return the number of calls whose messages fit, if all are as large as the largest so far."""
        largest = max(record.size for record in batch.records) or 1
        return min(source_limits.SQS_CALLS, (self.batch_bytes - batch.size) // (_BATCH * largest)) or 1

    def _move_buffered(self, batch: PollBatch) -> None:
        """Move received messages that are not returned yet to the records of a poll, in order, while there is room."""
        while self._buffered and batch.add(self._record(self._buffered[0])):
            receipt = self._buffered.popleft()["ReceiptHandle"]
            self._last_position += 1
            self._receipts[receipt] = self._last_position

    def _receive(self, size: int, wait_s: int = 0) -> list[dict[str, Any]]:
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=size,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self._visibility_s,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        for message in messages:
            self._receipts[message["ReceiptHandle"]] = 0
        return messages

    def _record(self, message: Mapping[str, Any]) -> SourceRecord:
        known = message["Attributes"]
        headers = {name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()}
        headers |= known | {
            "MessageId": message["MessageId"],
            "dedup-id": known.get("MessageDeduplicationId") or message["MessageId"],
        }
        group, sent = known.get("MessageGroupId"), known.get("SentTimestamp")
        time_ms = None if sent is None else _whole_number(sent)
        if sent is not None and time_ms is None:
            headers["timestamp"] = UnreadableHeader(b"", f"SentTimestamp is {sent!r:.100}; expected milliseconds")
        return SourceRecord(
            partition=self.partitions()[0],
            position=self._last_position + 1,
            body=message["Body"].encode(),
            key=None if group is None else group.encode(),
            headers=headers,
            time_ms=time_ms,
        )

    @override
    def confirm(self, partition: str, position: Any) -> None:
        done = [receipt for receipt, place in list(self._receipts.items()) if 0 < place <= position]
        for receipt in done:
            del self._receipts[receipt]
        undeleted = done
        for _ in range(_ATTEMPTS):
            undeleted = self._in_batches(self._client.delete_message_batch, undeleted)
        if undeleted:  # recognized by their ids when redelivered
            text = "%(url)s: %(count)d messages could not be deleted, so SQS delivers them again"
            EVENTS.warning("unconfirmed", self._url, text, url=self._url, count=len(undeleted))

    @override
    def lag(self, partition: str) -> int | None:
        name = "ApproximateNumberOfMessages"
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    @override
    def close(self, partition: str) -> None:
        self._closing.set()
        if self._extender is not None:
            self._extender.join()
            self._extender = None
        self._buffered.clear()
        receipts, self._receipts = list(self._receipts), {}
        self._in_batches(self._client.change_message_visibility_batch, receipts, VisibilityTimeout=0)

    @override
    def shutdown(self) -> None:
        self.close("")
        self._pool.shutdown()

    def _extend_visibility(self, closing: threading.Event) -> None:
        """Extend the time for which the messages of a waiting commit are hidden, until the source is closed."""
        while not closing.wait(self._visibility_s / 3):
            try:
                self._in_batches(
                    self._client.change_message_visibility_batch,
                    list(self._receipts),
                    VisibilityTimeout=self._visibility_s,
                )
            except Exception as error:  # noqa: BLE001 - redelivered messages are recognized by id
                text = "%(url)s: messages could not be kept hidden: %(error)s"
                EVENTS.warning("unconfirmed", self._url, text, url=self._url, error=str(error))

    def _in_batches(self, call: Callable[..., Any], receipts: Sequence[str], **more: Any) -> list[str]:
        """Call with ten receipts at a time; return those that failed on the server's side."""

        def call_batch(batch: Sequence[str]) -> list[str]:
            entries = [{"Id": str(place), "ReceiptHandle": receipt, **more} for place, receipt in enumerate(batch)]
            answer = call(QueueUrl=self._url, Entries=entries)
            return [batch[int(failure["Id"])] for failure in answer.get("Failed", []) if not failure.get("SenderFault")]

        return [receipt for batch in self._pool.map(call_batch, _chunks(receipts)) for receipt in batch]


def _attribute(value: Mapping[str, Any]) -> bytes | str:
    """Return the value of a message's attribute; a form unknown to AWS becomes JSON."""
    return header_value(next((value[name] for name in ("BinaryValue", "StringValue") if name in value), value))


def _whole_number(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _chunks(receipts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (receipts[start : start + _BATCH] for start in range(0, len(receipts), _BATCH))


def _region_in(host: str) -> str | None:
    match_ = re.fullmatch(r"sqs(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?", host)
    return match_[1] if match_ else None


def _client(region: str | None, endpoint: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise SetupError(f"SQS needs boto3: pip install 'inturn[sqs]' ({error})") from error
    settings = Config(max_pool_connections=2 * source_limits.SQS_CALLS, retries={"mode": "standard"})
    try:
        return boto3.client("sqs", region_name=region, endpoint_url=endpoint, config=settings)
    except NoRegionError:
        raise InputError(f"the region of {endpoint} is unknown; set region") from None
