"""The events of sources, as log records."""

from typing import Final

from inturn.telemetry.events import EventLogger

EVENTS: Final = EventLogger("ingest")
