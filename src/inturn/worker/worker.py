"""The worker: it runs messages of a durable queue through a pipeline, groups in parallel, in order within each group.

The worker's own thread executes all transactions, one after the other; see unit_of_work.py. A pool of threads runs
tasks, since handlers are plain functions that may take long; see group_task.py. The two exchange plain values. The
result of a task is stored together with the acknowledgement of its messages, or not at all.

The states of a task are those of tasks.py. What never happens:

- A part of a task is stored: result, outputs and acknowledgements are in one transaction.
- A result is stored that another worker has overtaken, or whose lease has expired: the transaction raises LeaseLost or
  Overtaken, stores nothing, and is repeated without these tasks.
- An output is delivered before the result that it belongs to is stored.
- A transaction waits for a handler.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import partial
from typing import TypeVar

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, QueueFull
from inturn.core.override import override
from inturn.core.pipeline.definition import Pipeline, check_pipeline
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.policies import Retry
from inturn.core.queue.lapsed import LapsedRule
from inturn.core.queue.messages import Delivery, ReceiveRequest
from inturn.faults import reach
from inturn.queue.queue import Queue, check_queue
from inturn.store.commands import Receive
from inturn.store.pipeline_store import PipelineStore
from inturn.worker.background import BackgroundLoop, OnError
from inturn.worker.chain import ToQueue, chain_of
from inturn.worker.codec import MessageDecoder
from inturn.worker.group_task import GroupRunner, GroupTask
from inturn.worker.outbox import DELIVER_RETRY, Deliver, Outbox
from inturn.worker.report import WorkerReport
from inturn.worker.suspects import RecentWork, WorkStarter
from inturn.worker.table_rows import table_rows_of
from inturn.worker.tasks import WorkerTasks
from inturn.worker.thread_pool import PoolStopped, ThreadPool, Throughput, receives
from inturn.worker.unit_of_work import UnitOfWork
from inturn.worker.work_items import (
    ChainRefused,
    DeliveryAttempt,
    LeaseLost,
    Overtaken,
    WorkRequest,
    WorkResult,
    ending,
)

T = TypeVar("T")


class Worker(BackgroundLoop):
    """A worker in its own thread, for ``with``; see :func:`inturn.work` for the arguments.

    An error that ends it is logged; ``on_error`` is called with it in the worker's thread, and ``check()`` raises it.

    Attributes:
        counts: the counts of the messages that it processed.
        is_final: whether the input is complete, so that the next :meth:`drain` also releases messages that wait for a
            later one.
    """

    _report: WorkerReport

    def __init__(
        self,
        pipeline: Pipeline,
        queue: Queue,
        *,
        concurrency: int = limits.WORKER_CONCURRENCY,
        deliver: Deliver | Queue | ToQueue | None = None,
        retry: Retry = DELIVER_RETRY,
        grace_s: float = limits.WORKER_GRACE_S,
        on_error: OnError | None = None,
    ) -> None:
        if not isinstance(concurrency, int) or not 1 <= concurrency <= limits.RECEIVE_MESSAGES:
            raise InputError(
                f"concurrency is {concurrency!r}; expected a whole number from 1 to {limits.RECEIVE_MESSAGES}"
            )
        check_pipeline(pipeline)
        check_queue(queue)
        check_type("retry", retry, Retry, "a Retry(…)")
        super().__init__("worker", queue.name, grace_s, on_error)
        pipeline.first_state()  # for its checks, before anything is written
        self.counts, self.is_final = Counts(), False
        self._queue, self._concurrency = queue, concurrency
        self._pool: ThreadPool[GroupTask] = ThreadPool(concurrency, self._run_task, "inturn-worker")
        chain = chain_of(deliver, queue)
        rows = table_rows_of(deliver, queue)
        self._unit = UnitOfWork(pipeline, queue.name, queue.writer, MessageDecoder(pipeline), chain, rows)
        self._report = WorkerReport(pipeline.name, queue.name, queue.writer.database, chain.queue if chain else "")
        check = chain.check if chain else None
        self._runner = GroupRunner(pipeline, self._read_store, self._pool.sleep, check, self._report.retried)
        self._delivers = deliver is not None
        self._sender = (
            Outbox(deliver, retry, concurrency, self._delivery_finished, pipeline.name) if callable(deliver) else None
        )
        self._tasks = WorkerTasks()
        self._sendings: set[DeliveryAttempt] = set()
        self._sent: deque[DeliveryAttempt] = deque()  # from the threads
        self._adopted: list[Delivery] = []
        self._starter = WorkStarter(self._put)
        self._undone_begins: dict[str, int] = {}  # tasks without messages that gave way
        self._throughput = Throughput()
        self._was_full = False

    # --- the threads ---

    def _read_store(self, function: Callable[[PipelineStore, int], T]) -> T:
        return self._in_store(lambda: self._unit.read(function))

    def _run_task(self, task: GroupTask) -> None:
        """Run a task in a thread of the pool."""
        try:
            task.result = self._report.run(task, self._runner.run)
            reach("handled")
        except PoolStopped:
            pass  # without a result it is nacked
        except BaseException as error:  # noqa: BLE001 - it ends the worker, which reports it
            task.error = error
        self._tasks.end(task)
        self._ended()

    def _delivery_finished(self, sending: DeliveryAttempt) -> None:
        self._sent.append(sending)
        self._news.set()

    # --- the worker's own thread ---

    @override
    def _running(self) -> Sized:
        return self._tasks.busy

    @override
    def _iterate(self) -> bool:
        outcome = self._transact(is_taking=True)
        self._start_work(outcome)
        if self._starter.waiting:
            self._starter.begin(self._recent_work(self._tasks.next.values()))
        return not (self._tasks or self._sendings or outcome.depth or outcome.is_unsent or outcome.is_unfinished)

    def _transact(self, *, is_taking: bool, back: Sequence[GroupTask] = ()) -> WorkResult:
        """Run one transaction: store finished tasks and receive new work."""
        is_stopping = self._stopping.is_set()
        done, given_up, failure = self._tasks.collect(is_stopping=is_stopping, is_proved=self._unit.is_proved)
        if failure is not None:
            self._fail(failure)
        sent = [self._sent.popleft() for _ in range(len(self._sent))]
        now_ms = self._queue.writer.clock()
        while True:
            is_taking = is_taking and not self._stopping.is_set()  # an error may have stopped the worker
            company = self._recent_work(done, given_up, sent)
            is_free = is_taking and not company.is_alone
            claims = 2 * self._concurrency - len(self._sendings) if is_free and not company.delivers_alone else 0
            done_groups = {task.group for task in done}
            busy = frozenset(group for group in self._tasks.busy if group not in done_groups)
            request = WorkRequest(
                done=done,
                nacked=[*back, *given_up],
                extended=ending(self._tasks.except_for(done, back, given_up), now_ms, self._unit.lease_of),
                busy=busy,
                queued_groups=[group for group in self._tasks.next if group not in busy],
                adopted=self._adopted,
                receives=self._receive_requests(len(done_groups), is_busy=company.is_busy) if is_free else (),
                undone_begins=self._undone_begins,
                is_receiving=is_taking,
                is_final=self.is_final and bool(self._drains),
                is_alone=company.is_alone,
                is_busy=company.delivers_alone,
                finished_deliveries=sent,
                renewed_claims=ending(self._sendings, now_ms, lambda _: round(limits.OUTBOX_LEASE_S * 1000)),
                claim_limit=claims if self._delivers else 0,
                asks_unsent=bool(self._drains) and self._delivers,
            )
            try:
                outcome = self._in_store(partial(self._unit.run, request))
                break
            except (LeaseLost, Overtaken, ChainRefused) as error:
                done, more = self._without_refused(done, error)
                given_up += more
        for task in (*done, *request.nacked):
            self._tasks.drop(task)
            if task.result is not None:
                self.counts.add(task.result.journal.counts)
        self._report.stored(done, sent, outcome.chained_count)
        self._throughput.done(sum(len(task.deliveries) for task in done))
        self._sendings.difference_update(sent)
        for task in request.extended:
            task.until_ms = None if task in outcome.lost else outcome.now_ms + self._unit.lease_of(task)
        for sending in request.renewed_claims:
            sending.until_ms = outcome.now_ms + round(limits.OUTBOX_LEASE_S * 1000)
        self._adopted, self._undone_begins = [], {}
        requested = sum(receive.limit for receive in request.receives)
        self._was_full = 0 < requested <= len(outcome.deliveries) or outcome.drained_count > 0
        return outcome

    def _without_refused(
        self, done: list[GroupTask], error: LeaseLost | Overtaken | ChainRefused
    ) -> tuple[list[GroupTask], list[GroupTask]]:
        """Return the tasks that can be stored, without those that cannot, and the tasks that are to be nacked."""
        given_up: list[GroupTask] = []
        tasks = [task for task in done if task.group in error.groups] if isinstance(error, Overtaken) else error.tasks
        if isinstance(error, LeaseLost):
            self._report.lost_leases(error.tasks)
        elif isinstance(error, Overtaken):
            self._report.overtaken(error.groups)
        for task in tasks:
            if task.begin_count and not isinstance(error, ChainRefused):
                self._undone_begins[task.group or ""], task.begin_count = task.begin_count - 1, 0
            if isinstance(error, LeaseLost):  # another receiver may have the messages now
                self._tasks.drop(task)
            elif isinstance(error, Overtaken):
                self._tasks.queue_again(task)
            elif self._stopping.is_set() or not isinstance(error.reason, QueueFull):
                task.result = None
                given_up.append(task)
            else:
                self._tasks.refuse(task)
        if isinstance(error, ChainRefused) and not isinstance(error.reason, QueueFull):
            self._fail(error.reason)
        return [task for task in done if task not in tasks], given_up

    def _receive_requests(self, done_count: int, *, is_busy: bool) -> list[ReceiveRequest]:
        """Return the receives to make: a few messages per free place or, with short tasks, enough for some time."""
        if self._adopted or len(self._tasks.next) > limits.RECEIVE_MESSAGES:
            return []
        if self._tasks.doubtful_count >= limits.WORKER_DOUBTFUL:
            return []
        busy = len(self._tasks.busy) - self._pool.asleep - self._tasks.doubtful_count
        free, ahead = self._concurrency - (busy - done_count), self._throughput.ahead
        if free <= 0 and (ahead <= self._concurrency or self._pool.backlog > ahead // 4):
            return []
        template = ReceiveRequest(0, self._unit.lease_ms, lapsed=LapsedRule.NONE if is_busy else LapsedRule.ALONE)
        return [template._replace(limit=most) for most in receives(ahead, self._concurrency, busy, free)]

    def _start_work(self, outcome: WorkResult) -> None:
        """Pass new work to the threads."""
        if outcome.deliveries:
            reach("received")
            self._report.received(outcome)
        claimed_until_ms = outcome.now_ms + round(limits.OUTBOX_LEASE_S * 1000)
        sendings = [DeliveryAttempt(claim, claimed_until_ms) for claim in outcome.claims]
        self._sendings.update(sendings)
        work: deque[GroupTask | DeliveryAttempt] = deque([*self._tasks.begin(outcome, self._unit.lease_of), *sendings])
        try:
            while work:
                self._starter.put(work.popleft())
        finally:
            self._starter.waiting += work  # if no thread can be started, stop() returns the rest

    def _put(self, work: GroupTask | DeliveryAttempt) -> None:
        if isinstance(work, GroupTask):
            self._pool.put(work)
        elif self._sender is not None:
            self._sender.put(work)

    def _recent_work(self, *ended: Iterable[GroupTask | DeliveryAttempt]) -> RecentWork:
        """Return the work that runs or waits to run alone, without work that has ended or waits for something else."""
        tasks = self._tasks.started_except_for(*ended)
        return RecentWork.of(tasks, self._sendings.difference(*ended))

    @override
    def _rest(self) -> None:
        if self._was_full or self._news.is_set():
            return
        if self._tasks or self._sendings or self._drains:
            self._gather(min(limits.POLL_S, self._unit.lease_ms / 4000))
            return
        request = ReceiveRequest(self._concurrency, self._unit.lease_ms, lapsed=LapsedRule.ALONE)
        wait = Receive[list[Delivery]](
            self._queue.name, lambda received: received, request, wait_s=limits.WORKER_IDLE_S
        )
        self._adopted = self._in_store(lambda: self._queue.writer.run(wait))

    @override
    def _wind_up(self) -> None:
        self._stopping.set()
        remaining = self._pool.stop()
        waiting = self._starter.stop()
        remaining += [item for item in waiting if isinstance(item, GroupTask)]
        self._sent.extend(item for item in waiting if isinstance(item, DeliveryAttempt))
        remaining += self._tasks.take_next()
        self._sent.extend(self._sender.stop() if self._sender else ())
        adopted = GroupTask(None)
        for delivery in self._adopted:
            adopted.add(delivery)
        self._adopted = []
        self._begin_grace()
        if adopted.deliveries or self._tasks or self._sendings:
            self._transact(is_taking=False, back=[*remaining, adopted])
        while (self._tasks or self._sendings) and self._is_in_grace():
            self._news.wait(min(limits.POLL_S, self._unit.lease_ms / 4000))
            self._news.clear()
            overtaken = self._tasks.take_next()
            self._transact(is_taking=False, back=overtaken)
        if self._sender:
            self._sender.close()
