"""A topic of Kafka as the source of a command: its address, its configuration, and its messages as a DataFrame."""

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import field

from inturn.core.errors import InputError, SourceError
from inturn.core.pipeline.definition import Pipeline
from inturn.ingest.config import MappingTable, SchemaRegistryTable
from inturn.serving import config_file
from inturn.spark.local.connector import missing_connector
from inturn.spark.source.kafka import from_kafka
from inturn.spark.source.messages import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEME: Final = "kafka://"
_CONNECT_S: Final = 5.0
_OWN_OPTIONS: Final = {"bootstrap.servers", "subscribe", "maxOffsetsPerTrigger", "includeHeaders"}


class TopicConfig(MappingTable, frozen=True):
    """The configuration of a topic: the fields of ``[sources.mapping]``, and three tables.

    Attributes:
        schema_registry: its schema registry, as in a source of ingest.
        kafka: settings of Kafka's Java client, such as ``security.protocol``.
        connector: options of Spark's connector, such as ``startingOffsets``.
    """

    schema_registry: SchemaRegistryTable | None = None
    kafka: dict[str, str | int | bool] = field(default_factory=dict)
    connector: dict[str, str | int | bool] = field(default_factory=dict)

    def check(self) -> None:
        """Check the paths and the options."""
        super().check()
        if own := sorted(_OWN_OPTIONS & {*self.kafka, *self.connector}):
            raise InputError(f"{own[0]} is set; remove it: the address of the topic and --rows set such options")

    def options(self) -> dict[str, str]:
        """Return the options for Spark's reader; a stream begins with the first records, too."""
        options = {"startingOffsets": "earliest", **self.connector}
        options |= {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


@dataclass(frozen=True)
class KafkaTopic:
    """A topic, with the configuration of its mapping.

    Args:
        servers: the addresses of brokers, such as ``kafka-1:9092,kafka-2:9092``.
        name: the topic.
        config: how its records become messages.
        folder: the folder of the configuration.
    """

    servers: str
    name: str
    config: TopicConfig
    folder: Path

    @classmethod
    def parsed(cls, source: str, mapping: Path | None) -> "KafkaTopic | None":
        """Return the topic that an address names, with the configuration in a file; None for another source.

        Raises:
            InputError: if the address or the file is not valid, or there is a file for another source.
        """
        if not source.startswith(_SCHEME):
            if mapping is not None:
                raise InputError(
                    f"mapping is {str(mapping)!r}, but the source is not a topic; expected kafka://HOST:PORT/…"
                )
            return None
        match = re.fullmatch(r"([^\s/@,]+:\d+(?:,[^\s/@,]+:\d+)*)/([\w.-]+)", source.removeprefix(_SCHEME), re.ASCII)
        if match is None:
            msg = f"the topic is {source!r}; expected kafka://HOST:PORT[,HOST:PORT]/TOPIC"
            raise InputError(f"{msg}, with credentials in the table [kafka] of the file of --mapping")
        if mapping is None:
            return cls(match[1], match[2], TopicConfig(), Path())
        return cls(match[1], match[2], config_file.read(mapping, TopicConfig).value, mapping.parent)

    def check_reachable(self) -> None:
        """Check that one of the brokers accepts connections; Spark's connector would try for minutes, silently.

        Raises:
            SourceError: if none does.
        """
        reason: OSError | None = None
        for server in self.servers.split(","):
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host, int(port)), _CONNECT_S).close()
            except (OSError, OverflowError) as error:
                reason = reason or OSError(error)
            else:
                return
        raise SourceError(f"cannot connect to Kafka at {self.servers}: {reason}; check the address and the network")

    def messages(
        self, spark: "SparkSession", pipeline: Pipeline, *, streaming: bool = False, rows: int | None = None
    ) -> "DataFrame":
        """Return the messages of the topic as a DataFrame.

        Args:
            spark: the session, with Spark's connector of Kafka.
            pipeline: the pipeline whose columns are wanted.
            streaming: whether to continue with records that arrive later; otherwise those that exist now are read.
            rows: maximum number of records in a micro-batch of a stream.

        Raises:
            InputError: if the pipeline does not define the fields of the bodies.
            SetupError: if the session does not have the connector.
        """
        registry, mapping = self.config.schema_registry, self.config.message_mapping()
        decode = None if registry is None else registry.decoder(self.name, self.folder)
        reader = (spark.readStream if streaming else spark.read).format("kafka").options(**self.config.options())
        reader = reader.option("kafka.bootstrap.servers", self.servers).option("subscribe", self.name)
        if mapping.needs_headers or decode is not None:
            reader = reader.option("includeHeaders", "true")
        try:
            records = (reader.option("maxOffsetsPerTrigger", rows) if rows else reader).load()
        except Exception as error:
            if (absent := missing_connector(error)) is None:
                raise
            raise absent from error
        return messages(pipeline, from_kafka(records, mapping, decode=decode))
