"""The events of endpoints; their failures are in :mod:`inturn.serving.http.failures`."""

from typing import Final

from inturn.telemetry.events import EventLogger

EVENTS: Final = EventLogger("server")
