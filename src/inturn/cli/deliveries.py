"""The tables ``[pipelines.deliver]`` of ``inturn work --config``: ready-made deliveries of :mod:`inturn.deliver`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import field

from inturn.core import limits
from inturn.serving.config_file import ConfigTable, resolved


class DeliveryTable(ConfigTable, frozen=True, kw_only=True, tag_field="kind"):
    """A ``[pipelines.deliver]``: ``kind`` names a function of :mod:`inturn.deliver`, the other keys its arguments."""

    def function(self) -> Callable[..., Any]:
        """Return the function that delivers.

        Raises:
            InputError: if a value is not valid.
            SetupError: if a package is missing.
        """
        from inturn import deliver

        values = msgspec.structs.asdict(self)
        options = values.pop("options", {}) if isinstance(self, SqsDelivery) else {}
        make = getattr(deliver, str(self.__struct_config__.tag))
        return make(**values, **options)  # type: ignore[no-any-return]

    def resolved(self, folder: Path) -> "DeliveryTable":  # noqa: ARG002 - a hook
        """Return the table with relative files resolved against the folder."""
        return self


class HttpDelivery(DeliveryTable, tag="http", frozen=True, kw_only=True):
    """``kind = "http"``."""

    url: str
    secret: str | tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float = limits.DELIVER_TIMEOUT_S
    denied_s: float = limits.DELIVER_DENIED_S


class KafkaDelivery(DeliveryTable, tag="kafka", frozen=True, kw_only=True):
    """``kind = "kafka"``."""

    servers: str
    topic: str
    key: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


class RabbitmqDelivery(DeliveryTable, tag="rabbitmq", frozen=True, kw_only=True):
    """``kind = "rabbitmq"``."""

    url: str
    exchange: str = ""
    routing_key: str = ""
    key: str | None = None


class SqsDelivery(DeliveryTable, tag="sqs", frozen=True, kw_only=True):
    """``kind = "sqs"``; ``options`` are those of ``boto3.client``."""

    queue_url: str
    group: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


class TableDelivery(DeliveryTable, tag="table", frozen=True, kw_only=True):
    """``kind = "table"``."""

    database: str
    name: str
    columns: dict[str, str] = field(default_factory=dict)

    def resolved(self, folder: Path) -> DeliveryTable:
        """Return the table with a relative file resolved against the folder."""
        return msgspec.structs.replace(self, database=resolved(folder, self.database))


AnyDelivery: TypeAlias = HttpDelivery | KafkaDelivery | RabbitmqDelivery | SqsDelivery | TableDelivery
