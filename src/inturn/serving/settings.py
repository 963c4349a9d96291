"""The settings of health, log and traces of all commands that run until they are stopped."""

from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from inturn.serving.config_file import ConfigTable

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[str, ...]] = get_args(LogLevel)


class TelemetrySettings(ConfigTable, frozen=True, kw_only=True):
    """The settings, at the top of a command's TOML file; those of ``inturn serve`` are in ``[server]``.

    Attributes:
        health: the address of ``/health``, ``/ready`` and ``/metrics``; None: these pages are not served.
        log_level: the lowest level to log, on standard error.
        log_json: whether the log is JSON lines.
        telemetry: whether OpenTelemetry is set up from the variables ``OTEL_…``.
    """

    health: Annotated[str | None, Meta(description='an address, such as "127.0.0.1:8080"')] = None
    log_level: Annotated[LogLevel, Meta(description=f"one of {', '.join(LEVELS)}")] = "info"
    log_json: bool = False
    telemetry: bool = False
