"""Ingest: the records of a source become messages of a queue, each once, in order.

with inturn.open("shop.db") as db:
    Ingest(FolderSource("events/"), db.queue("payments"), MessageMapping(group="body.account"), name="events").run()
"""

from inturn.ingest.control import SourceControl, names_with_rejections, source_names
from inturn.ingest.debezium import DebeziumMapping
from inturn.ingest.host import Ingest, IngestCounts
from inturn.ingest.intake import IntakeRule
from inturn.ingest.mapping import MappingError, MessageMapping
from inturn.ingest.resending import ResendCounts, ResendPreview
from inturn.ingest.schema_registry import SchemaRegistry
from inturn.ingest.source import Decoder, Source, SourceRecord, UnreadableHeader
from inturn.ingest.sources.folder import FolderSource
from inturn.ingest.sources.kafka import KafkaSource
from inturn.ingest.sources.outbox import OutboxSource
from inturn.ingest.sources.rabbitmq import RabbitSource
from inturn.ingest.sources.sqs import SqsSource
from inturn.ingest.webhooks import Webhook, WebhookApp

__all__ = [
    "DebeziumMapping",
    "Decoder",
    "FolderSource",
    "Ingest",
    "IngestCounts",
    "IntakeRule",
    "KafkaSource",
    "MappingError",
    "MessageMapping",
    "OutboxSource",
    "RabbitSource",
    "ResendCounts",
    "ResendPreview",
    "SchemaRegistry",
    "Source",
    "SourceControl",
    "SourceRecord",
    "SqsSource",
    "UnreadableHeader",
    "Webhook",
    "WebhookApp",
    "names_with_rejections",
    "source_names",
]
