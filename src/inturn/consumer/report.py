"""The report of a consumer on its commits: log records, measurements, and spans if an observer is set."""

from collections.abc import Iterable
from typing import Any

from inturn.consumer.unit_of_work import FailedTask, MessageTask, MessageWorkResult
from inturn.core.queue.messages import Delivery
from inturn.telemetry import measures, observer
from inturn.telemetry.events import EventLogger
from inturn.worker.background import LoopReport

_LOG = EventLogger("consumer")
_MESSAGE = "message %(sequence_number)s of group %(group)r of %(queue)r"
_GIVEN_UP = "after %(attempts)s attempts, last error: %(error)s"


class ConsumerReport(LoopReport[measures.ConsumerMeasures]):
    """The report of one consumer; only its own thread calls it, after the commit.

    Args:
        queue: the queue's name.
        database: the name of its database, for the metrics.
    """

    def __init__(self, queue: str, database: str) -> None:
        super().__init__(measures.ConsumerMeasures(database, queue))
        self._queue = queue

    def received(self, deliveries: Iterable[Delivery], began_ns: int) -> None:
        """Report the messages that a transaction has received."""
        if observer.active is not None:
            observer.active.received(self._queue, [delivery.message.attributes for delivery in deliveries], began_ns)

    def committed(self, ended: Iterable[MessageTask], result: MessageWorkResult) -> None:
        """Report the attempts of a committed transaction."""
        if measures.is_on:
            for name, count in vars(result.counts).items():
                self._measures.counts[name] += count
            for task in ended:
                if task.duration_s is not None:
                    self._measures.handler_seconds.add(task.duration_s)
        for attempt in result.failed:
            self._log_failed(attempt)

    def _log_failed(self, failed: FailedTask) -> None:
        task, outcome = failed.task, failed.outcome
        message = task.message
        fields: dict[str, Any] = {
            "queue": self._queue,
            "group": message.group,
            "sequence_number": message.sequence_number,
            "attempts": message.attempts,
            "error": task.error_type or "none",
        }
        error_text = task.error or None
        if outcome == "lost":
            text = f"the lease of {_MESSAGE} expired before the message was settled, error: %(error)s"
            _LOG.warning("lost_lease", self._queue, text, payload=error_text, **fields)
        elif outcome == "retried":
            text = (
                f"the handler failed on {_MESSAGE} with %(error)s, attempt %(attempts)s; next attempt in %(pause_s)s s"
            )
            _LOG.info("retry", self._queue, text, payload=error_text, pause_s=failed.pause_s, **fields)
        elif outcome == "parked":
            text = f"group %(group)r of %(queue)r is parked: its message %(sequence_number)s was given up {_GIVEN_UP}"
            _LOG.warning("park", self._queue, text, payload=error_text, **fields)
        else:
            text = f"{_MESSAGE} was given up {_GIVEN_UP}; outcome: %(outcome)s"
            _LOG.warning("exhausted", self._queue, text, payload=error_text, outcome=outcome, **fields)
