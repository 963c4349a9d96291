"""The worker: it runs messages of a durable queue through a pipeline, groups in parallel, in order within each group.

The worker's own thread executes all transactions, one after the other; see unit_of_work.py. A pool of threads runs
turns, since handlers are plain functions that may take long; see group_task.py. The two exchange plain values. The
result of a turn is stored together with the acknowledgement of its messages, or not at all.
"""

import time
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
    has_applied,
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
        self._tasks: set[GroupTask] = set()  # turns with leased messages, or in the pool
        self._busy: dict[str, GroupTask] = {}  # groups whose turn is in the pool
        self._next_tasks: dict[str, GroupTask] = {}  # the next turns of such groups
        self._sendings: set[DeliveryAttempt] = set()
        self._done: deque[GroupTask] = deque()  # from the threads
        self._sent: deque[DeliveryAttempt] = deque()
        self._refused: list[GroupTask] = []  # turns that wait for room in the queue of the chain
        self._refused_until = 0.0
        self._doubtful: list[GroupTask] = []  # turns that wait for another to show that the handler is right
        self._adopted: list[Delivery] = []
        self._starter = WorkStarter(self._put)
        self._undone_begins: dict[str, int] = {}  # turns without messages that gave way
        self._throughput = Throughput()
        self._was_full = False

    # --- the threads ---

    def _read_store(self, function: Callable[[PipelineStore, int], T]) -> T:
        return self._in_store(lambda: self._unit.read(function))

    def _run_task(self, turn: GroupTask) -> None:
        """Run a turn in a thread of the pool."""
        try:
            turn.result = self._report.run(turn, self._runner.run)
            reach("handled")
        except PoolStopped:
            turn.is_given_up = True
        except BaseException as error:  # noqa: BLE001 - it ends the worker, which reports it
            turn.error = error
        self._done.append(turn)
        self._ended()

    def _delivery_finished(self, sending: DeliveryAttempt) -> None:
        self._sent.append(sending)
        self._news.set()

    # --- the worker's own thread ---

    @override
    def _running(self) -> Sized:
        return self._busy

    @override
    def _iterate(self) -> bool:
        found = self._transact(is_taking=True)
        self._start_work(found)
        if self._starter.waiting:
            self._starter.begin(self._recent_work(self._next_tasks.values()))
        return not (self._tasks or self._sendings or found.depth or found.is_unsent or found.is_unfinished)

    def _transact(self, *, is_taking: bool, back: Sequence[GroupTask] = ()) -> WorkResult:
        """Run one transaction: store finished turns and receive new work."""
        done, given_up = self._collect()
        sent = [self._sent.popleft() for _ in range(len(self._sent))]
        now_ms = self._queue.writer.clock()
        while True:
            is_taking = is_taking and not self._stopping.is_set()  # an error may have stopped the worker
            company = self._recent_work(done, given_up, sent)
            is_free = is_taking and not company.is_alone
            claims = 2 * self._concurrency - len(self._sendings) if is_free and not company.delivers_alone else 0
            over = {turn.group for turn in done}
            busy = frozenset(group for group in self._busy if group not in over)
            request = WorkRequest(
                done=done,
                nacked=[*back, *given_up],
                extended=ending(self._tasks.difference(done, back, given_up), now_ms, self._unit.lease_of),
                busy=busy,
                queued_groups=[group for group in self._next_tasks if group not in busy],
                adopted=self._adopted,
                receives=self._receive_requests(len(over), is_busy=company.is_busy) if is_free else (),
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
                found = self._in_store(partial(self._unit.run, request))
                break
            except (LeaseLost, Overtaken, ChainRefused) as why:
                done, more = self._without_refused(done, why)
                given_up += more
        for turn in (*done, *request.nacked):
            self._forget(turn)
            if turn.result is not None:
                self.counts.add(turn.result.journal.counts)
        self._report.stored(done, sent, found.chained_count)
        self._throughput.done(sum(len(turn.deliveries) for turn in done))
        self._sendings.difference_update(sent)
        for turn in request.extended:
            turn.until_ms = None if turn in found.lost else found.now_ms + self._unit.lease_of(turn)
        for sending in request.renewed_claims:
            sending.until_ms = found.now_ms + round(limits.OUTBOX_LEASE_S * 1000)
        self._adopted, self._undone_begins = [], {}
        wanted = sum(want.limit for want in request.receives)
        self._was_full = 0 < wanted <= len(found.deliveries) or found.drained_count > 0
        return found

    def _without_refused(
        self, done: list[GroupTask], why: LeaseLost | Overtaken | ChainRefused
    ) -> tuple[list[GroupTask], list[GroupTask]]:
        """Return the turns that can be stored, without those that cannot, and the turns that are to be nacked."""
        given_up: list[GroupTask] = []
        turns = [turn for turn in done if turn.group in why.groups] if isinstance(why, Overtaken) else why.turns
        if isinstance(why, LeaseLost):
            self._report.lost_leases(why.turns)
        elif isinstance(why, Overtaken):
            self._report.overtaken(why.groups)
        for turn in turns:
            if turn.begin_count and not isinstance(why, ChainRefused):
                self._undone_begins[turn.group or ""], turn.begin_count = turn.begin_count - 1, 0
            if isinstance(why, LeaseLost):  # another receiver may have the messages now
                self._forget(turn)
            elif isinstance(why, Overtaken):
                self._queue_again(turn)
            elif self._stopping.is_set() or not isinstance(why.why, QueueFull):
                turn.result = None
                given_up.append(turn)
            else:
                self._refused.append(turn)
                self._refused_until = time.monotonic() + limits.POLL_S
        if isinstance(why, ChainRefused) and not isinstance(why.why, QueueFull):
            self._fail(why.why)
        return [turn for turn in done if turn not in turns], given_up

    def _collect(self) -> tuple[list[GroupTask], list[GroupTask]]:
        """Return the turns that have ended: those to be stored, and those to be nacked.

        An error of a turn ends the worker once all other turns are stored.
        """
        done, given_up = list[GroupTask](), list[GroupTask]()
        if self._stopping.is_set() or time.monotonic() >= self._refused_until:
            done, self._refused = self._refused, []
        for _ in range(len(self._done)):
            turn = self._done.popleft()
            if turn.result is not None:
                done.append(turn)
            else:
                given_up.append(turn)
                if turn.error is not None:
                    self._fail(turn.error)
        if not self._unit.is_proved:
            done = self._without_doubtful(done, given_up)
        return done, given_up

    def _without_doubtful(self, done: list[GroupTask], given_up: list[GroupTask]) -> list[GroupTask]:
        """Return the turns that can be stored of a handler which has not applied a message yet.

        If the handler applies another message, a result that is not (state, outputs) is the fault of its message, and
        parks the group. Until then such turns wait for the other present turns, and for further ones. If the handler
        applies none of their messages, it is wrong for each of them, and the worker ends with that error.
        """
        done, before, self._doubtful = [*self._doubtful, *done], len(self._doubtful), []
        if any(map(has_applied, (*done, *self._refused))):
            return done
        doubtful = [turn for turn in done if turn.result is not None and turn.result.journal.wrong is not None]
        if not doubtful:
            return done
        kept = [turn for turn in done if turn not in doubtful]
        if not self._stopping.is_set():
            is_new = before < len(doubtful) < limits.WORKER_DOUBTFUL
            if is_new or self._tasks.difference(done, given_up, self._refused, self._next_tasks.values()):
                self._doubtful = doubtful
                return kept
            wrongs = (turn.result.journal.wrong for turn in doubtful if turn.result)
            self._fail(next(wrong for wrong in wrongs if wrong))
        for turn in doubtful:
            turn.result = None
        given_up += doubtful
        return kept

    def _receive_requests(self, over: int, *, is_busy: bool) -> list[ReceiveRequest]:
        """Return the receives to make: a few messages per free place or, with short turns, enough for some time."""
        if self._adopted or len(self._next_tasks) > limits.RECEIVE_MESSAGES:
            return []
        if len(self._doubtful) >= limits.WORKER_DOUBTFUL:
            return []
        busy = len(self._busy) - self._pool.asleep - len(self._doubtful)
        free, ahead = self._concurrency - (busy - over), self._throughput.ahead
        if free <= 0 and (ahead <= self._concurrency or self._pool.backlog > ahead // 4):
            return []
        want = ReceiveRequest(0, self._unit.lease_ms, lapsed=LapsedRule.NONE if is_busy else LapsedRule.ALONE)
        return [want._replace(limit=most) for most in receives(ahead, self._concurrency, busy, free)]

    def _start_work(self, found: WorkResult) -> None:
        """Pass new work to the threads."""
        if found.deliveries:
            reach("received")
            self._report.received(found)
        fresh: dict[str, GroupTask] = {}
        for name in [name for name in self._next_tasks if name not in self._busy]:
            fresh[name] = self._next_tasks.pop(name)
        for group, delivery in found.deliveries:
            if group is None:
                turn = GroupTask(None, now_us=found.now_ms * 1000)
                turn.add(delivery)
                self._tasks.add(turn)
                self._starter.put(turn)
                continue
            turns = self._next_tasks if group in self._busy else fresh
            turn = turns.setdefault(group, GroupTask(group))
            turn.add(delivery)
            self._tasks.add(turn)
        for decided in found.decisions:
            fresh.setdefault(decided.group, GroupTask(decided.group)).decisions.append(decided)
        for due in found.due:
            fresh.setdefault(due, GroupTask(due))
        for free, turn in fresh.items():
            turn.record, turn.now_us = found.records.get(free), found.now_ms * 1000
            turn.is_quiet, turn.is_final = free in found.due, free in found.final
            if begun := found.begun.get(free):
                turn.begin_count, turn.is_alone = begun, turn.is_alone or found.is_alone
                until_ms = found.now_ms + self._unit.lease_of(turn)
                turn.until_ms = min(turn.until_ms or until_ms, until_ms)
            self._tasks.add(turn)
            self._busy[free] = turn
            self._starter.put(turn)
        for claim in found.claims:
            sending = DeliveryAttempt(claim, found.now_ms + round(limits.OUTBOX_LEASE_S * 1000))
            self._sendings.add(sending)
            self._starter.put(sending)

    def _put(self, work: GroupTask | DeliveryAttempt) -> None:
        if isinstance(work, GroupTask):
            self._pool.put(work)
        elif self._sender is not None:
            self._sender.put(work)

    def _recent_work(self, *over: Iterable[GroupTask | DeliveryAttempt]) -> RecentWork:
        """Return the work that runs or waits to run alone, without work that has ended or waits for something else."""
        turns = self._tasks.difference(*over, self._refused, self._doubtful)
        return RecentWork.of(turns, self._sendings.difference(*over))

    def _forget(self, turn: GroupTask) -> None:
        """Drop a turn that has ended, whatever its outcome."""
        self._tasks.discard(turn)
        if turn.group is not None and self._busy.get(turn.group) is turn:
            del self._busy[turn.group]

    def _queue_again(self, turn: GroupTask) -> None:
        """Queue a turn's messages, which are still leased, for another turn, after another worker changed the group."""
        self._forget(turn)
        turn.result, turn.decisions = None, []  # decisions that were not applied are found again
        if turn.group is None or not turn.deliveries:
            return
        behind = self._next_tasks.get(turn.group)
        for delivery in behind.deliveries if behind is not None else ():
            turn.add(delivery)
        if behind is not None:
            self._tasks.discard(behind)
        self._next_tasks[turn.group] = turn
        self._tasks.add(turn)

    @override
    def _rest(self) -> None:
        if self._was_full or self._news.is_set():
            return
        if self._tasks or self._sendings or self._drains:
            self._gather(min(limits.POLL_S, self._unit.lease_ms / 4000))
            return
        want = ReceiveRequest(self._concurrency, self._unit.lease_ms, lapsed=LapsedRule.ALONE)
        wait = Receive[list[Delivery]](self._queue.name, lambda given: given, want, wait_s=limits.WORKER_IDLE_S)
        self._adopted = self._in_store(lambda: self._queue.writer.run(wait))

    @override
    def _wind_up(self) -> None:
        self._stopping.set()
        left = self._pool.stop()
        waiting = self._starter.stop()
        left += [each for each in waiting if isinstance(each, GroupTask)]
        self._sent.extend(each for each in waiting if isinstance(each, DeliveryAttempt))
        left += [turn for turn in self._next_tasks.values() if turn not in left]
        self._next_tasks.clear()
        self._sent.extend(self._sender.stop() if self._sender else ())
        adopted = GroupTask(None)
        for delivery in self._adopted:
            adopted.add(delivery)
        self._adopted = []
        self._begin_grace()
        if adopted.deliveries or self._tasks or self._sendings:
            self._transact(is_taking=False, back=[*left, adopted])
        while (self._busy or self._tasks or self._sendings) and self._is_in_grace():
            self._news.wait(min(limits.POLL_S, self._unit.lease_ms / 4000))
            self._news.clear()
            back = [self._next_tasks.pop(name) for name in list(self._next_tasks)]  # overtaken during the stop
            self._transact(is_taking=False, back=back)
        if self._sender:
            self._sender.close()
