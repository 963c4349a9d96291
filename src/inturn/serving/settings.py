"""The settings of health, log and traces of all commands that run until they are stopped."""

from typing import Literal

from inturn.serving.config_file import Table


class TelemetrySettings(Table, frozen=True, kw_only=True):
    """The settings, at the top of a command's TOML file.

    Attributes:
        health: the address of ``/health``, ``/ready`` and ``/metrics``; None: these pages are not served.
        log_level: the lowest level to log, on standard error.
        log_json: whether the log is JSON lines.
        telemetry: whether OpenTelemetry is set up from the variables ``OTEL_…``.
    """

    health: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    telemetry: bool = False
