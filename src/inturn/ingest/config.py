"""The configuration of sources: one TOML file, read and checked as a whole."""

import os
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import field

from inturn.core.errors import InputError
from inturn.ingest import limits as source_limits
from inturn.ingest.batches import check_batch_limits
from inturn.ingest.debezium import DebeziumMapping
from inturn.ingest.intake import IntakeRule
from inturn.ingest.mapping import MessageMapping
from inturn.ingest.moved_groups import OnMove
from inturn.ingest.rejections import RejectedLimits
from inturn.ingest.schema_registry import Encoding, SchemaRegistry
from inturn.ingest.source import Decoder, Source
from inturn.ingest.sources.folder import FolderSource
from inturn.ingest.sources.kafka import KafkaSource
from inturn.ingest.sources.outbox import OutboxSource
from inturn.ingest.sources.rabbitmq import RabbitSource
from inturn.ingest.sources.sqs import SqsSource
from inturn.serving import config_file
from inturn.serving.config_file import ConfigTable, resolved
from inturn.serving.settings import TelemetrySettings

_SERVER_SECTIONS: Final = frozenset({"server", "webhooks", "queues", "keys"})
"""The tables by which a server's configuration is recognized."""


class MappingTable(ConfigTable, frozen=True):
    """A ``[sources.mapping]``; the fields of :class:`MessageMapping`, or of :class:`DebeziumMapping`."""

    preset: Literal["debezium"] | None = None
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    revision: str | None = None
    id: str | None = None
    body: str = "body"
    format: Literal["json", "text", "bytes"] = "json"
    ignore_empty: bool = False
    flat: bool = False
    ranks: dict[str, int] | None = None
    attributes: dict[str, str] | None = None

    def check(self) -> None:
        """Check the paths."""
        self.message_mapping()

    def message_mapping(self, **defaults: Any) -> MessageMapping:
        """Return the mapping; ``defaults`` has other defaults than those of a source.

        Raises:
            InputError: if a path in it is not valid.
        """
        values = {name: getattr(self, name) for name in MappingTable.__struct_fields__}  # without those of a subclass
        values = defaults | {name: value for name, value in values.items() if value is not msgspec.UNSET}
        if values.pop("preset") == "debezium":
            return DebeziumMapping(**values)
        if values.pop("flat"):
            raise InputError('flat = true needs preset = "debezium"; set it, or remove flat')
        return MessageMapping(**values)


class SourceTable(ConfigTable, frozen=True, kw_only=True, tag_field="kind"):
    """A ``[[sources]]`` table: the settings of all kinds.

    Attributes:
        source_class: the class of its source.
        name: the name under which positions are stored.
        queue: ``shop.db#payments`` or ``postgresql://…#payments``.
        mapping: how a record becomes a message.
        batch: the maximum number of records in one transaction.
        batch_bytes: the maximum size of these records, in bytes; a larger record is sent alone.
        lease_s: how long other instances wait for one that died, in seconds.
        once: whether the records of a source without positions are recognized by an id.
        on_move: the treatment of a group that arrives from another partition than before; see :class:`Ingest`.
        max_rejected: the maximum number of stored rejected records; see :class:`Ingest`.
        max_rejected_bytes: their size, in bytes.
    """

    source_class: ClassVar[type[Source]]

    name: str
    queue: str
    mapping: MappingTable = MappingTable()
    batch: int = source_limits.INGEST_RECORDS
    batch_bytes: int = source_limits.INGEST_BYTES
    lease_s: float = source_limits.INGEST_LEASE_S
    once: bool = True
    on_move: OnMove | None = None
    max_rejected: int = source_limits.REJECTED_RECORDS
    max_rejected_bytes: int = source_limits.REJECTED_BYTES

    def check(self) -> None:
        """Check the bounds of its numbers."""
        check_batch_limits(self.batch, self.batch_bytes, self.lease_s)
        RejectedLimits(self.max_rejected, self.max_rejected_bytes).validated()

    def message_mapping(self) -> MessageMapping:
        """Return the mapping.

        Raises:
            InputError: if a path in it is not valid.
        """
        return self.mapping.message_mapping()

    def intake(self, folder: Path) -> IntakeRule:
        """Return the rule by which its records become messages; the source need not be available.

        Raises:
            InputError: if a value in the table is not valid.
        """
        return IntakeRule.for_source(
            self.source_class,
            self.message_mapping(),
            name=self.name,
            queue=self.queue.rpartition("#")[2],
            once=self.once,
            on_move=self.on_move,
            decode=self.decoder(folder),
        )

    def source(self, folder: Path) -> Source:
        """Return the source; relative paths start at the folder.

        Raises:
            InputError: if it cannot be opened as configured.
        """
        raise NotImplementedError

    def decoder(self, folder: Path) -> Decoder | None:  # noqa: ARG002 - for those that have one
        """Return the step between the source and the mapping; None: there is none.

        Raises:
            InputError: if it cannot be made as configured.
        """
        return None


class SchemaRegistryTable(ConfigTable, frozen=True, kw_only=True):
    """A ``[sources.schema_registry]``; the fields of :class:`SchemaRegistry`."""

    url: str
    value: Encoding | None = None
    key: Encoding | None = None
    message: str | None = None
    key_message: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def decoder(self, topic: str, folder: Path) -> SchemaRegistry:
        """Return the decoder; the modules that protoc has generated may be in the folder.

        Raises:
            InputError: if it cannot be made as configured.
        """
        has_modules = self.message is not None or self.key_message is not None
        return SchemaRegistry(
            topic=topic, **msgspec.structs.asdict(self), folder=folder.resolve() if has_modules else None
        )


class FolderTable(SourceTable, tag="folder", frozen=True, kw_only=True):
    """A source of ``kind = "folder"``; see :class:`FolderSource`."""

    source_class = FolderSource

    path: str
    pattern: str = "*"

    def source(self, folder: Path) -> Source:
        """Return the source."""
        return FolderSource(folder / self.path, self.pattern)


class KafkaTable(SourceTable, tag="kafka", frozen=True, kw_only=True):
    """A source of ``kind = "kafka"``; see :class:`KafkaSource`."""

    source_class = KafkaSource

    servers: str
    topic: str
    group_id: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    schema_registry: SchemaRegistryTable | None = None

    def decoder(self, folder: Path) -> Decoder | None:
        """Return the decoder of its schema registry."""
        return None if self.schema_registry is None else self.schema_registry.decoder(self.topic, folder)

    def source(self, folder: Path) -> Source:  # noqa: ARG002 - it has no files
        """Return the source."""
        return KafkaSource(self.servers, self.topic, self.group_id, self.options)


class OutboxSourceTable(SourceTable, tag="outbox", frozen=True, kw_only=True):
    """A source of ``kind = "outbox"``; see :class:`OutboxSource`."""

    source_class = OutboxSource

    database: str
    table: str
    delete: bool = False

    def source(self, folder: Path) -> Source:
        """Return the source."""
        return OutboxSource(resolved(folder, self.database), self.table, delete=self.delete)


class RabbitTable(SourceTable, tag="rabbitmq", frozen=True, kw_only=True):
    """A source of ``kind = "rabbitmq"``; see :class:`RabbitSource`.

    Attributes:
        url: the server; None: that of the environment variable ``INTURN_RABBITMQ_URL``.
    """

    source_class = RabbitSource

    from_queue: str
    url: str | None = None
    prefetch: int = source_limits.RABBITMQ_PREFETCH

    def source(self, folder: Path) -> Source:  # noqa: ARG002 - it has no files
        """Return the source."""
        url = self.url or os.environ.get("INTURN_RABBITMQ_URL")
        if url is None:
            raise InputError(
                f"source {self.name!r} has no url; set url or the environment variable INTURN_RABBITMQ_URL"
            )
        return RabbitSource(url, self.from_queue, prefetch=self.prefetch)


class SqsTable(SourceTable, tag="sqs", frozen=True, kw_only=True):
    """A source of ``kind = "sqs"``; see :class:`SqsSource`."""

    source_class = SqsSource

    queue_url: str
    region: str | None = None
    endpoint: str | None = None
    visibility_s: int = source_limits.SQS_VISIBILITY_S

    def source(self, folder: Path) -> Source:  # noqa: ARG002 - it has no files
        """Return the source."""
        return SqsSource(self.queue_url, region=self.region, endpoint=self.endpoint, visibility_s=self.visibility_s)


AnySource: TypeAlias = FolderTable | KafkaTable | OutboxSourceTable | RabbitTable | SqsTable


class IngestConfig(TelemetrySettings, frozen=True, kw_only=True):
    """The whole file.

    Attributes:
        sources: what to read.
    """

    sources: tuple[AnySource, ...]

    def check(self) -> None:
        """Check that no source of a database is defined twice."""
        names = [(source.name, source.queue.rpartition("#")[0]) for source in self.sources]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise InputError(f"source {duplicate[0]!r} is defined twice; give each source its own name")


def is_server_config(path: Path) -> bool:
    """Return whether a file is the configuration of a server, which has webhooks and no sources.

    Errors in the file are reported when it is read.
    """
    try:
        _, tables = config_file.parse_toml(path)
    except InputError:
        return False
    return "sources" not in tables and not _SERVER_SECTIONS.isdisjoint(tables)


def read(path: Path) -> IngestConfig:
    """Read a configuration.

    Raises:
        InputError: if the file cannot be read, is not TOML, names a source twice, or has an unknown name or a wrong
            value.
    """
    if is_server_config(path):
        raise InputError(
            f"{path} is a server configuration; run it with 'inturn serve --config', or define [[sources]] instead"
        )
    return config_file.read(path, IngestConfig).value
