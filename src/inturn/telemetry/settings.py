"""The settings of health, log and traces that all commands have that run until they are stopped."""

from typing import Literal

import msgspec


class TelemetrySettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The settings, at the top of a command's TOML file.

    Attributes:
        health: the address of ``/health``, ``/ready`` and ``/metrics``; None: none.
        log_level: the least level of the log, on standard error.
        log_json: whether the log has lines of JSON.
        telemetry: whether OpenTelemetry is set up, by the variables ``OTEL_…``.
    """

    health: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    telemetry: bool = False
