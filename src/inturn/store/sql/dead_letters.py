"""The log record of a message that was received too often."""

from inturn.core.queue.messages import QueueInfo, StoredMessage
from inturn.telemetry.events import EventLogger

_LOG = EventLogger("queue")


def report_dead_letter(queue: QueueInfo, entry: StoredMessage, to: QueueInfo) -> None:
    """Log that a message leaves for a dead-letter queue."""
    text = "message %(sequence_number)s of %(queue)r, group %(group)r, was received too often: it is moved to %(to)r"
    about = {"queue": queue.name, "group": entry.group, "sequence_number": entry.sequence_number, "to": to.name}
    payload = entry.body if isinstance(entry.body, str) else entry.body.decode(errors="replace")
    _LOG.warning("exhausted", queue.name, text, payload=payload, **about)
