"""The outbox: outputs are delivered after their commit, in order within a group, and retried until they succeed."""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

import msgspec

from inturn.core import limits
from inturn.core.errors import DeliveryError, DeliveryRefused
from inturn.core.pipeline.handler import refuse_generator
from inturn.core.pipeline.policies import Retry
from inturn.core.queue.lapsed import why_spent
from inturn.core.texts import kept_error, traceback_of
from inturn.faults import reach
from inturn.store.records import OutputRecord
from inturn.telemetry import observer
from inturn.worker.event_loop import EventLoop
from inturn.worker.thread_pool import ThreadPool
from inturn.worker.work_items import DeliveryAttempt

Deliver = Callable[[Any, str], Any]
"""A plain or async function of an output, as JSON values, and its effect id.

The output is delivered once the function has returned and, if it returns an awaitable, once that is done.
"""
_UNWATCHED = nullcontext()

DELIVER_RETRY: Final = Retry(10, "100 milliseconds")
"""The pauses between attempts of a delivery, by default; the last one repeats."""


class Outbox:
    """Delivery of claimed outputs, each claim in a thread.

    Args:
        deliver: delivers one output.
        retry: the pauses between attempts; the last one repeats.
        concurrency: the number of groups delivered at once.
        on_end: called when a claim is finished.
        pipeline: the name of the pipeline, for observers.

    Raises:
        InputError: if ``deliver`` is a generator.
    """

    def __init__(
        self,
        deliver: Deliver,
        retry: Retry,
        concurrency: int,
        on_end: Callable[[DeliveryAttempt], None],
        pipeline: str = "",
    ) -> None:
        refuse_generator("deliver", deliver)
        self._deliver, self._pipeline = deliver, pipeline
        pauses_s = Retry(max(retry.times, 1), retry.backoff).pauses_s()
        self._pauses_s = [max(pause_s, limits.DELIVER_PAUSE_S) for pause_s in pauses_s]
        self._on_end = on_end
        self._pool: ThreadPool[DeliveryAttempt] = ThreadPool(concurrency, self._send, "inturn-deliver")
        self._stopping = threading.Event()
        self._loop = EventLoop("inturn-deliver-loop")

    def put(self, sending: DeliveryAttempt) -> None:
        """Queue a claim for delivery."""
        self._pool.put(sending)

    def stop(self) -> list[DeliveryAttempt]:
        """Start no other output; return the claims that have not begun."""
        self._stopping.set()
        return self._pool.stop()

    def close(self) -> None:
        """Stop the event loop, once nothing is being delivered."""
        self._loop.close()

    def _send(self, sending: DeliveryAttempt) -> None:
        try:
            if reason := why_spent(sending.claim.lapses + 1, 0, "begun"):
                raise DeliveryRefused(reason)  # noqa: TRY301 - it is reported like an error of the user's function
            for output in sending.claim.outputs:
                if self._stopping.is_set():
                    break
                reach("delivering")
                self._timed(output, sending)
                reach("delivered")
                sending.count += 1
        except BaseException as error:  # noqa: BLE001 - whatever it raises, it is tried again
            sending.error = kept_error(traceback_of(error))
            sending.error_type = type(error).__name__
            attempts = 0 if sending.count else sending.claim.attempts
            sending.is_last_pause = attempts >= len(self._pauses_s) - 1
            sending.is_refused = isinstance(error, DeliveryRefused)
            asked_s = error.retry_after_s if isinstance(error, DeliveryError) else 0.0
            pause_s = self._pauses_s[min(attempts, len(self._pauses_s) - 1)]
            sending.pause_s = max(pause_s, min(asked_s, limits.DELIVER_RETRY_AFTER_S))
        self._on_end(sending)

    def _timed(self, output: OutputRecord, sending: DeliveryAttempt) -> None:
        """Deliver an output and measure the duration."""
        began_s = time.perf_counter()
        try:
            watched = None
            if observer.active is not None:
                watched = observer.active.delivery(self._pipeline, output.effect_id, output.trace)
            with watched or _UNWATCHED:
                self._loop.result_of(self._deliver(msgspec.json.decode(output.output), output.effect_id))
        finally:
            sending.took_s.append(time.perf_counter() - began_s)
