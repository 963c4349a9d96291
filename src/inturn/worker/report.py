"""The report of a worker on its tasks and deliveries: log records, measurements, and spans if there is an observer."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from inturn.core.pipeline.timeline import Status
from inturn.core.texts import text_of
from inturn.telemetry import measures, observer
from inturn.telemetry.events import EventLogger
from inturn.worker.background import LoopReport
from inturn.worker.group_task import GroupResult, GroupTask
from inturn.worker.work_items import DeliveryAttempt, WorkResult

_LOG = EventLogger("worker")
_OUTBOX = EventLogger("outbox")
_RUNNING = frozenset((Status.OPEN, Status.WAITING))


class WorkerReport(LoopReport[measures.WorkerMeasures]):
    """The report of one worker; the threads of its pool call :meth:`run` and :meth:`retried`, its own all the others.

    Args:
        pipeline: the pipeline's name.
        queue: the queue's name.
        database: the name of the queue's database, for the metrics.
        to: the name of the queue that receives the outputs; empty: there is none.
    """

    def __init__(self, pipeline: str, queue: str, database: str, to: str = "") -> None:
        super().__init__(measures.WorkerMeasures(database, queue, pipeline))
        self._pipeline, self._queue, self._to = pipeline, queue, to

    def run(self, task: GroupTask, run: Callable[[GroupTask], GroupResult]) -> GroupResult:
        """Run a task and measure its duration."""
        began_s = time.perf_counter()
        try:
            watched = None
            if observer.active is not None:
                attributes = [delivery.message.attributes for delivery in task.deliveries]
                watched = observer.active.task(self._pipeline, self._queue, task.group, attributes)
            if watched is None:
                return run(task)
            with watched as observed:
                task.trace = observed.trace
                result = run(task)
                observed.failed(result.cause)
                return result
        finally:
            task.took_s = time.perf_counter() - began_s

    def received(self, outcome: WorkResult) -> None:
        """Report the messages that a transaction has received."""
        if observer.active is not None:
            attributes = [delivery.message.attributes for _, delivery in outcome.deliveries]
            observer.active.received(self._queue, attributes, outcome.now_ms * 1_000_000)

    def retried(self, task: GroupTask, cause: BaseException | None, pause_s: float) -> None:
        """Report that the handler is called again after a pause."""
        task.retries += 1
        text = (
            "the handler of %(pipeline)r failed on a message of group %(group)r with %(error)s; retry in %(pause_s)s s"
        )
        error = type(cause).__name__
        more = {"queue": self._queue, "group": task.group, "error": error, "pause_s": pause_s}
        payload = None if cause is None else text_of(cause)
        _LOG.info("retry", self._pipeline, text, payload=payload, pipeline=self._pipeline, **more)

    def stored(self, tasks: Iterable[GroupTask], sent: Iterable[DeliveryAttempt], chained: int) -> None:
        """Report the tasks and the deliveries of a committed transaction, and the outputs that became messages."""
        if chained and observer.active is not None:
            observer.active.forwarded(self._to, chained)
        for task in tasks:
            if measures.is_on and task.result is not None:
                self._measures.task_seconds.add(task.took_s)
                self._measures.task_messages.add(len(task.deliveries))
                self._measures.retries += task.retries
            if task.result is not None:
                self._log_status(task, task.result)
        for sending in sent:
            if measures.is_on:
                for seconds in sending.took_s[: sending.count]:
                    self._measures.deliver_seconds["ok"].add(seconds)
                for seconds in sending.took_s[sending.count :]:
                    self._measures.deliver_seconds["error"].add(seconds)
            if sending.error is not None:
                self._log_failed(sending, sending.error)

    def _log_status(self, task: GroupTask, result: GroupResult) -> None:
        """Log a change of a group's status, and its rejected messages."""
        before = Status.OPEN if task.record is None else task.record.status
        now = before if result.update is None else result.update.record.status
        about = {"pipeline": self._pipeline, "queue": self._queue, "group": task.group}
        if now != before and now not in _RUNNING:
            error = "none" if result.cause is None else type(result.cause).__name__
            text = "group %(group)r of %(pipeline)r is parked: %(status)s, error: %(error)s"
            cause = None if result.cause is None else text_of(result.cause)
            _LOG.warning("park", self._pipeline, text, payload=cause, status=str(now), error=error, **about)
        elif before not in _RUNNING and now in _RUNNING:
            text = "group %(group)r of %(pipeline)r continues; it was parked: %(status)s"
            _LOG.info("resume", self._pipeline, text, status=str(before), **about)
        for rejected in result.rejected:
            event = "conflict" if rejected.reason == "conflict" else "reject"
            text = "a message of group %(group)r of %(pipeline)r was rejected: %(reason)s"
            payload = f"{rejected.detail}: {rejected.message}"
            _LOG.warning(event, self._pipeline, text, payload=payload, reason=rejected.reason, **about)

    def _log_failed(self, sending: DeliveryAttempt, error: str) -> None:
        """Log that a delivery failed; as a warning once the pauses have their final length."""
        text = "an output of group %(group)r of %(pipeline)r was not delivered, attempt %(attempts)s: %(error)s; "
        claim = sending.claim
        about: dict[str, Any] = {
            "pipeline": self._pipeline,
            "group": claim.group,
            "effect_id": claim.outputs[sending.count].effect_id,
            "attempts": 1 if sending.count else claim.attempts + 1,
            "error": sending.error_type,
            "pause_s": sending.pause_s,
        }
        if sending.is_last_pause:
            _OUTBOX.warning(
                "exhausted", self._pipeline, f"{text}retries every %(pause_s)s s from now on", payload=error, **about
            )
        else:
            _OUTBOX.info("retry", self._pipeline, f"{text}retry in %(pause_s)s s", payload=error, **about)

    def lost_leases(self, tasks: Sequence[GroupTask]) -> None:
        """Report tasks whose results were discarded because their leases had expired."""
        self._measures.lost_leases += len(tasks)
        for task in tasks:
            text = "the lease of a task of group %(group)r of %(pipeline)r expired after %(took_s).3f s in its handler"
            about = {"pipeline": self._pipeline, "queue": self._queue, "group": task.group}
            _LOG.warning("lost_lease", self._pipeline, text, took_s=task.took_s, **about)

    def overtaken(self, groups: Collection[str]) -> None:
        """Report groups that another worker has changed during their tasks, which are run again."""
        for group in groups:
            text = "group %(group)r of %(pipeline)r was changed by another worker; its task is run again"
            _LOG.warning("overtaken", self._pipeline, text, pipeline=self._pipeline, queue=self._queue, group=group)
