"""The consumer: it runs a handler with side effects for messages of a queue, in order within each group.

The consumer's own thread runs all its transactions, one after the other; see unit_of_work.py. A pool of threads runs
the handler; see handler_call.py.

The states of a task, which is one message::

    active     in _active, by its ordering key: in the pool, or its handler runs
    ended      in _ended_tasks, from its thread: it has a result, or a fault that ends the consumer
    unstarted  in _unstarted: its handler was not called; the next transaction returns it to the queue
    settled    in none of them: a transaction has acknowledged, nacked or parked the message, or its lease was lost

Only the consumer's own thread changes ``_active`` and ``_unstarted``. What never happens:

- Two handlers for one group at a time, also if a lease was lost while the handler runs: the new task is unstarted.
- A handler is called for a message whose lease has expired.
- A message is received before its predecessor is settled.
- A stop loses a message: what has ended within ``grace_s`` is settled, the others return when their leases end.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sized
from typing import Literal, Self

from inturn.consumer.handler_call import HandlerCall, MessageHandler, OpenTransaction
from inturn.consumer.report import ConsumerReport
from inturn.consumer.transaction import AckRefused
from inturn.consumer.unit_of_work import (
    ConsumedCounts,
    ExhaustedAction,
    MessageTask,
    MessageUnitOfWork,
    MessageWorkRequest,
    MessageWorkResult,
    TaskResult,
)
from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import HandlerError, InputError
from inturn.core.override import override
from inturn.core.pipeline.policies import Retry
from inturn.core.queue.messages import Delivery
from inturn.core.rate import Rate, RateLimits
from inturn.core.source_lines import keep_source_lines
from inturn.core.texts import kept_error, traceback_of
from inturn.faults import reach
from inturn.queue.message import Message
from inturn.queue.queue import Queue, check_queue
from inturn.serving.signals import stop_on_signals
from inturn.worker.background import BackgroundLoop, OnError
from inturn.worker.thread_pool import ThreadPool, Throughput

_RETRY = Retry(5, "1 second")
_HANDLED = frozenset((TaskResult.DONE, TaskResult.COMMITTED))


def consume(  # noqa: PLR0913 - options by name, each with a default
    queue: Queue,
    handler: MessageHandler,
    *,
    concurrency: int = limits.WORKER_CONCURRENCY,
    retry: Retry = _RETRY,
    then: ExhaustedAction = "park",
    transaction: OpenTransaction | None = None,
    rate_limit: Rate | None = None,
    group_rate_limit: Rate | None = None,
    until: Literal["stopped", "empty"] = "stopped",
    grace_s: float = limits.WORKER_GRACE_S,
) -> ConsumedCounts:
    """Call a handler with each message of a queue in this process, until SIGTERM or Ctrl-C stops it.

    Within a group, a message begins once the previous message is acknowledged. Leases are extended while the handler
    runs. The handler runs at least once for each message; its writes in its transaction take effect exactly once. Any
    number of processes may consume the same queue.

    Args:
        queue: the queue.
        handler: a plain or async function, called as ``handler(message)`` or, if it requires a second argument,
            ``handler(message, tx)``. It returns nothing, or an awaitable, and does not settle the message. An
            exception is a failed attempt. ``tx`` begins at its first use and includes the acknowledgement.
        concurrency: the number of messages handled at once.
        retry: the further attempts and the longest pause before each; the actual pause is random, up to that ("full
            jitter"). Each receive of the message counts, also if its process was killed; after a process has died, a
            message is tried at least four times, while no other message is handled.
        then: the action when the attempts are used up: ``park`` parks the group with the error as the reason, and
            defers a message without a group; ``dead-letter`` moves the message to the queue's dead-letter queue.
        transaction: opens your own transaction for each message, as a context manager such as ``pool.connection``; the
            handler receives its value, and the message is acknowledged in it.
        rate_limit: the maximum rate of messages of this queue, stored in the database, over all processes.
        group_rate_limit: the maximum rate of messages of each group.
        until: ``empty`` returns once only parked groups and deferred messages are left.
        grace_s: the maximum time that a stop waits for running handlers, in seconds.

    Returns:
        The counts of the messages that this call handled.

    Raises:
        InputError: if an argument is invalid, or does not fit the queue's settings.
        HandlerError: if the handler returned a value, or the value of ``transaction=`` is not accepted as ``tx=``,
            before any message was handled. Later this is a failed attempt.
        NoSuchQueue: if the queue, or its dead-letter queue, does not exist.
        StoreError: if the database cannot be used. If it is unavailable, the consumer waits; only a stop ends the wait,
            after ``grace_s``.
    """
    if until not in ("stopped", "empty"):
        raise InputError(f"until is {until!r}; expected 'stopped' or 'empty'")
    consumer = Consumer(
        queue,
        handler,
        concurrency=concurrency,
        retry=retry,
        then=then,
        transaction=transaction,
        rate_limit=rate_limit,
        group_rate_limit=group_rate_limit,
        grace_s=grace_s,
    )
    with stop_on_signals(consumer.stop_soon):
        consumer.run(until_empty=until == "empty")
    return consumer.counts


class Consumer(BackgroundLoop):
    """A consumer in its own thread, for ``with`` and ``async with``; see :func:`consume` for the arguments.

    With ``async with``, async handlers run in the caller's event loop; otherwise in a separate loop. An error that ends
    the consumer is logged; ``on_error`` is called with it in the consumer's thread, and ``check()`` raises it.

    Attributes:
        counts: the counts of the messages that it handled.
    """

    _report: ConsumerReport

    def __init__(  # noqa: PLR0913 - as in consume
        self,
        queue: Queue,
        handler: MessageHandler,
        *,
        concurrency: int = limits.WORKER_CONCURRENCY,
        retry: Retry = _RETRY,
        then: ExhaustedAction = "park",
        transaction: OpenTransaction | None = None,
        rate_limit: Rate | None = None,
        group_rate_limit: Rate | None = None,
        grace_s: float = limits.WORKER_GRACE_S,
        on_error: OnError | None = None,
    ) -> None:
        if not isinstance(concurrency, int) or not 1 <= concurrency <= limits.RECEIVE_MESSAGES:
            raise InputError(f"concurrency is {concurrency!r}; expected a number from 1 to {limits.RECEIVE_MESSAGES}")
        check_queue(queue)
        check_type("handler", handler, Callable, "a function, called as handler(message)")
        check_type("transaction", transaction, Callable | None, "a function that opens a transaction")
        check_type("retry", retry, Retry, "a Retry(…)")
        check_type("rate_limit", rate_limit, Rate | None, "a Rate(…), such as Rate(10, '1 second')")
        check_type("group_rate_limit", group_rate_limit, Rate | None, "a Rate(…), such as Rate(10, '1 second')")
        super().__init__("consumer", queue.name, grace_s, on_error)
        self.counts = ConsumedCounts()
        self._queue, self._concurrency = queue, concurrency
        keep_source_lines(handler)
        self._call = HandlerCall(handler, transaction)
        rates = RateLimits(rate_limit, group_rate_limit)
        self._unit_of_work = MessageUnitOfWork(queue, retry, then, rates)
        self._report = ConsumerReport(queue.name, queue.writer.database)
        self._pool: ThreadPool[MessageTask] = ThreadPool(concurrency, self._handle, "inturn-consumer")
        self._is_limited = any(rates)
        self._active: dict[str | int, MessageTask] = {}  # received, by ordering key; in the pool
        self._ended_tasks: deque[MessageTask] = deque()  # from the threads
        self._unstarted: list[MessageTask] = []  # to be returned to the queue
        self._pace = Throughput()
        self._is_running = False
        self._has_handled = False  # once it has handled a message

    # --- what a caller does ---

    async def __aenter__(self) -> Self:
        """Start the consumer's thread; async handlers run in this event loop."""
        self._call.loop.use(asyncio.get_running_loop())
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop, and wait for running handlers."""
        self.stop_soon()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        if kind is None:
            self._notify()

    @property
    def is_receiving(self) -> bool:
        """True while it takes messages: it is not stopped, and its database is available."""
        return self._is_running and not self._stopping.is_set() and self.is_available

    # --- the threads ---

    def _handle(self, task: MessageTask) -> None:
        """Handle one message in a thread of the pool."""
        try:
            task.result = self._run_handler(task)
        except (KeyboardInterrupt, SystemExit) as error:  # it ends the consumer, which raises it
            task.fault = error
        except BaseException as error:  # noqa: BLE001 - any other error is a failed attempt
            task.result = TaskResult.FAILED
            task.error, task.error_type = kept_error(traceback_of(error)), type(error).__name__
            if isinstance(error, HandlerError):
                task.handler_error = error
        self._ended_tasks.append(task)
        self._ended()

    def _run_handler(self, task: MessageTask) -> TaskResult:
        """Call the handler, unless the lease has expired: another receiver may have the message."""
        if task.until_ms is None or task.until_ms <= self._queue.writer.clock():
            return TaskResult.LOST
        began_s = time.perf_counter()
        try:
            return TaskResult.COMMITTED if self._call.run(task.message) else TaskResult.DONE
        except AckRefused:
            return TaskResult.LOST
        finally:
            task.duration_s = time.perf_counter() - began_s

    # --- the consumer's own thread ---

    @override
    def _running(self) -> Sized:
        return self._active

    @override
    def _iterate(self) -> bool:
        self._is_running = True
        self._last_result = self._transact(is_receiving=True)
        return self._last_result.is_empty and not self._active

    def _transact(self, *, is_receiving: bool) -> MessageWorkResult:
        """Run one transaction: settle ended attempts, and receive new messages."""
        ended = self._collect()
        unstarted, self._unstarted = self._unstarted, []
        now_ms, lease_ms = self._queue.writer.clock(), self._unit_of_work.lease_ms
        request = MessageWorkRequest(
            ended,
            unstarted,
            [
                task
                for task in self._active.values()
                if task.until_ms is not None and task.until_ms - now_ms < lease_ms // 2
            ],
            self._receive_limit() if is_receiving and not self._stopping.is_set() else 0,
            is_busy=bool(self._active),
            checks_empty=bool(self._drains) and not self._active,
        )
        began_ns = time.time_ns()
        result = self._in_store(lambda: self._unit_of_work.run(request))
        for name, count in vars(result.counts).items():
            setattr(self.counts, name, getattr(self.counts, name) + count)
        self._report.committed(ended, result)
        self._pace.done(len(ended))
        self._start_tasks(result.received, began_ns)
        return result

    def _collect(self) -> list[MessageTask]:
        """Return the ended attempts. A fault ends the consumer once the others are settled.

        An invalid result of the handler does so too, if no message was handled before. Its attempt counts, so that a
        message that causes it does not end every consumer that begins with it.
        """
        ended = []
        for _ in range(len(self._ended_tasks)):
            task = self._ended_tasks.popleft()
            if self._active.get(task.ordering_key) is task:
                del self._active[task.ordering_key]
            if task.fault is None:
                ended.append(task)
            else:
                self._unstarted.append(task)
                self._fail(task.fault)
        self._has_handled = self._has_handled or any(task.result in _HANDLED for task in ended)
        handler_error = next((task.handler_error for task in ended if task.handler_error is not None), None)
        if handler_error is not None and not self._has_handled:
            self._fail(handler_error)
        return ended

    def _receive_limit(self) -> int:
        """Return the number of messages to receive: one per free place, or some in advance if handlers are short."""
        active, ahead = len(self._active), self._pace.ahead
        if any(task.is_alone for task in self._active.values()):
            return 0
        if self._is_limited or ahead <= self._concurrency:  # limited messages begin at once, so that the rate holds
            return max(0, self._concurrency - active)
        return max(0, ahead - active) if active <= max(2 * self._concurrency, ahead // 4) else 0

    def _start_tasks(self, received: list[Delivery], began_ns: int) -> None:
        """Pass new messages to the threads."""
        if received:
            reach("received")
            self._report.received(received, began_ns)
        for delivery in received:
            message = Message(delivery, self._queue.writer, self._queue.name)
            task = MessageTask(message, delivery.until_ms, is_alone=delivery.lapsed)
            if task.ordering_key in self._active:  # its lease was lost, and the handler still runs
                self._unstarted.append(task)
            elif reason := self._unit_of_work.exhausted_reason(delivery):
                task.result, task.error = TaskResult.FAILED, reason
                task.error_type = "ProcessEnded"
                self._ended_tasks.append(task)
                self._news.set()
            else:
                self._active[task.ordering_key] = task
                self._pool.put(task)

    @override
    def _rest(self) -> None:
        result = self._last_result
        if (result.is_more and self._receive_limit()) or self._news.is_set() or self._stopping.is_set():
            return
        if self._active or self._unstarted or self._drains:
            wait_s = min(limits.POLL_S, self._unit_of_work.lease_ms / 4000)
            if result.due_ms is not None and self._receive_limit():
                wait_s = min(wait_s, max(result.due_ms - self._queue.writer.clock(), 1) / 1000)
            self._gather(wait_s)
            return
        began_ns = time.time_ns()
        self._start_tasks(self._in_store(lambda: self._unit_of_work.wait(limits.WORKER_IDLE_S)), began_ns)

    @override
    def _wind_up(self) -> None:
        self._stopping.set()
        for task in self._pool.stop():
            del self._active[task.ordering_key]
            self._unstarted.append(task)
        self._begin_grace()
        while self._active or self._unstarted or self._ended_tasks:
            self._news.clear()
            self._transact(is_receiving=False)
            if not self._is_in_grace():
                break
            if self._active and not self._ended_tasks:
                self._news.wait(min(limits.POLL_S, self._unit_of_work.lease_ms / 4000))
        self._call.loop.close()
