"""Delivery to a topic of Kafka by an idempotent producer; each output is acknowledged before the next."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from inturn.core import limits
from inturn.core.errors import DeliveryError, DeliveryRefused, SetupError
from inturn.deliver.fields import EFFECT_ID, body_of, text_at

if TYPE_CHECKING:
    from confluent_kafka import Producer

_FINAL: Final = (
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_MSG",
    "INVALID_RECORD",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "POLICY_VIOLATION",
)
"""Names of the errors that a retry does not change."""


class kafka:  # noqa: N801 - it is called as a function is
    """Deliver outputs as JSON records of a topic; the header ``effect-id`` has the effect id.

    The call returns once all replicas in sync have the record. A record that is too large, and a topic that does not
    exist or is forbidden, refuse the output for good.

    Args:
        servers: ``bootstrap.servers``.
        topic: the topic.
        key: path of the output's field that is the record's key; None: no key.
        options: further options of librdkafka, such as ``security.protocol``.

    Raises:
        SetupError: if confluent-kafka is not installed.
    """

    def __init__(
        self, servers: str, topic: str, *, key: str | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise SetupError(f"Kafka needs confluent-kafka: pip install 'inturn[kafka]' ({error})") from error
        self._library = confluent_kafka
        self._final = {getattr(confluent_kafka.KafkaError, name) for name in _FINAL}
        self._topic, self._key = topic, key
        self._options = {
            "bootstrap.servers": servers,
            "message.timeout.ms": round(limits.DELIVER_TIMEOUT_S * 1000),
            "linger.ms": 0,
            **(options or {}),
            "enable.idempotence": True,
        }
        self._producer: Producer | None = None
        self._mutex = threading.Lock()

    def __call__(self, output: Any, effect_id: str) -> None:
        """Deliver one output."""
        key = None if self._key is None else text_at(output, self._key, "key")
        producer, answers = self._open_producer(), list[Any]()
        try:
            producer.produce(
                self._topic,
                body_of(output),
                key,
                headers=[(EFFECT_ID, effect_id.encode())],
                on_delivery=lambda error, _message: answers.append(error),
            )
            while not answers:  # librdkafka answers within message.timeout.ms
                producer.poll(limits.DELIVER_POLL_S)
        except self._library.KafkaException as error:
            answers.append(error.args[0])
        except BufferError as error:
            raise DeliveryError(f"the producer for {self._topic!r} is full: {error}") from error
        if (failure := answers[0]) is not None:
            if failure.fatal():  # this producer can no longer be used
                self._producer = None
            kind = DeliveryRefused if failure.code() in self._final else DeliveryError
            raise kind(f"topic {self._topic!r}: {failure.str()} ({failure.name()})")

    def _open_producer(self) -> "Producer":
        """Return the producer; it is created in the process that uses it."""
        with self._mutex:
            if self._producer is None:
                self._producer = self._library.Producer(self._options)
            return self._producer
