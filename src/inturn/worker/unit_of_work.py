"""The worker's transactions: each does everything that is due, as one command of the writer.

A transaction stores the results of tasks with their acknowledgements and extends leases. It returns new messages,
decisions and expired waits, with their groups. So many groups share one commit, and a running task holds no lock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

import msgspec

from inturn.core import limits
from inturn.core.errors import NoSuchQueue, QueueFull
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.handler import fingerprint
from inturn.core.pipeline.timeline import Status
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.results.stored_place import counts_of
from inturn.store.commands import Read, StoreCall, queue_of
from inturn.store.pipeline_store import PipelineStore
from inturn.store.protocols import QueueAndPipelineStore, Store
from inturn.store.records import GroupUpdate, PipelineInfo
from inturn.store.writer.group_commit import Writer
from inturn.worker.chain import Chain
from inturn.worker.codec import MessageDecoder
from inturn.worker.definition import check_definition, definition_of
from inturn.worker.group_task import GroupResult, GroupTask
from inturn.worker.table_rows import TableRows
from inturn.worker.work_items import ChainRefused, LeaseLost, Overtaken, WorkRequest, WorkResult, has_applied

T = TypeVar("T")

TURN_LEASE_MS: Final = round(limits.TASK_LEASE_S * 1000)
_DONE: Final = SettleResult.DONE  # before Python 3.12 each access to an enum member takes 0.15 µs


class UnitOfWork:
    """The transactions of one pipeline over one queue.

    Args:
        pipeline: the pipeline.
        queue: the name of the queue; None: decisions and waits only.
        writer: the runner of commands.
        reader: finds the group of a message.
        chain: sends the outputs to a queue; None: they go to the outbox.
        rows: writes the outputs into a table of the same database; None: they go to the outbox.

    Attributes:
        lease_ms: the length of a message's lease.
        is_proved: whether this handler has applied a message, in this process or another.

    Raises:
        StoreMismatch: if the store has another pipeline of this name.
        NoSuchQueue: if the queue does not exist.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        queue: str | None,
        writer: Writer,
        reader: MessageDecoder,
        chain: Chain | None = None,
        rows: TableRows | None = None,
    ) -> None:
        self._pipeline, self._queue, self._writer, self._reader = pipeline, queue, writer, reader
        self._chain, self._rows = chain, rows
        self._fingerprint = fingerprint(pipeline.handler)
        self.is_proved = False
        self._put_off: dict[
            str, tuple[int, int]
        ] = {}  # idle groups: when they are looked at again, and their waits' end
        self._final_after = ""  # the group after which the next ones are that wait for a later message
        self.lease_ms: int = writer.run(StoreCall(queue or "", self._open))

    def lease_of(self, task: GroupTask) -> int:
        """Return the length of the shortest lease of a task, in milliseconds."""
        return min(self.lease_ms, TURN_LEASE_MS) if task.begin_count else self.lease_ms

    def run(self, request: WorkRequest) -> WorkResult:
        """Run one transaction.

        Raises:
            LeaseLost: if a task cannot be kept because its lease has expired; nothing is changed then.
            Overtaken: if another worker has changed a group in the meantime; nothing is changed then.
            ChainRefused: if the queue of the chain is full or was deleted; nothing is changed then.
        """
        outcome = self._writer.run(
            StoreCall(self._queue or "", lambda store, now_ms: self._run(_pipeline_store(store), now_ms, request))
        )
        self.is_proved = self.is_proved or any(map(has_applied, request.done))
        self._final_after = outcome.final_after
        return outcome

    def read(self, function: Callable[[PipelineStore, int], T]) -> T:
        """Read in a separate transaction: call a function with the stored groups and the pipeline's number."""

        def look(store: Store, _now_ms: int) -> T:
            keeper = _pipeline_store(store)
            return function(keeper.pipelines, self._info(keeper).number)

        return self._writer.run(Read("", look))

    def _open(self, store: Store, _now_ms: int) -> int:
        lease_ms = queue_of(store, self._queue).settings.visibility_ms if self._queue is not None else 0
        pipelines = _pipeline_store(store).pipelines
        info = pipelines.info(self._pipeline.name) or PipelineInfo(0, self._pipeline.name)
        if info.number:
            check_definition(self._pipeline, info)
        proved = info.about.get("handler")
        self.is_proved = proved == self._fingerprint
        definition = definition_of(self._pipeline) | ({"handler": proved} if proved else {})
        if info.about != definition:
            is_other = info.number and info.about.get("wait_us") != definition["wait_us"]
            info.about = definition
            pipelines.save(info)
            if is_other:
                pipelines.set_due(info.number, self._pipeline.wait_us)
        return max(lease_ms, limits.WORKER_LEASE_MS)

    def _info(self, store: QueueAndPipelineStore) -> PipelineInfo:
        info = store.pipelines.info(self._pipeline.name)
        assert info is not None  # noqa: S101 - created when this object was opened, and never removed
        return info

    def _run(self, store: QueueAndPipelineStore, now_ms: int, request: WorkRequest) -> WorkResult:
        info = self._info(store)
        outcome = WorkResult(now_ms, final_after=self._final_after)
        self._settle(store, info, request, outcome)
        for sending in request.finished_deliveries:
            pause_ms = round(sending.pause_s * 1000)
            until_ms = limits.DELIVERY_REFUSED_MS if sending.is_refused else now_ms + pause_ms
            store.pipelines.delivered(info.number, sending.claim, sending.count, until_ms, sending.error)
        lease_ms = round(limits.OUTBOX_LEASE_S * 1000)
        if request.renewed_claims:
            store.pipelines.renew(info.number, [attempt.claim for attempt in request.renewed_claims], now_ms + lease_ms)
        if request.is_receiving:
            self._receive(store, info, request, outcome)
        if request.claim_limit and self._chain is None and not outcome.is_alone:
            outcome.claims = store.pipelines.claim(
                info, request.claim_limit, limits.OUTBOX_OUTPUTS, now_ms + lease_ms, now_ms
            )
        outcome.depth = queue_of(store, self._queue).depth if self._queue is not None else 0
        outcome.is_unsent = request.asks_unsent and store.pipelines.has_unsent(info.number)
        return outcome

    def _settle(
        self, store: QueueAndPipelineStore, info: PipelineInfo, request: WorkRequest, outcome: WorkResult
    ) -> None:
        """Store the results of tasks and acknowledge their messages: all of the tasks, or none."""
        actions = [
            *((task, SettleAction.ACK) for task in request.done),
            *((task, SettleAction.NACK) for task in request.nacked),  # not begun, or tried again
            *((task, SettleAction.EXTEND) for task in request.extended),
        ]
        changes = [change for task, act in actions for change in self._changes(task, act)]
        if changes and self._queue is not None:
            verdicts = store.settle(queue_of(store, self._queue), changes, outcome.now_ms)
            if any(verdict is not _DONE for verdict in verdicts):
                owners = [action for action in actions for _ in action[0].deliveries]
                failed = [action for action, verdict in zip(owners, verdicts, strict=True) if verdict is not _DONE]
                lost = list(dict.fromkeys(task for task, act in failed if act is SettleAction.ACK))
                if lost:
                    raise LeaseLost(lost)
                outcome.lost = list(dict.fromkeys(task for task, act in failed if act is SettleAction.EXTEND))
        begun = {task.group or "": task.begin_count - 1 for task in request.nacked if task.begin_count}
        store.pipelines.save_begun(info.number, {**begun, **request.undone_begins}, outcome.now_ms)
        begun = {task.group or "": task.begin_count for task in request.extended if task.begin_count}
        store.pipelines.save_begun(info.number, begun, outcome.now_ms + TURN_LEASE_MS)
        results = [task.result for task in request.done if task.result is not None]
        updates = [result.update for result in results if result.update is not None]
        if self._chain is not None:
            try:
                sent = self._chain.send(store, info, updates, request.claim_limit, outcome.now_ms)
                updates, outcome.drained_count, outcome.chained_count = sent
            except (QueueFull, NoSuchQueue) as error:
                makers = [
                    task for task in request.done if task.result and task.result.update and task.result.update.outputs
                ]
                raise ChainRefused(makers, error) from error
        if self._rows is not None:
            updates = self._rows.write(store, info, updates)
        if results:
            self._save(store, info, results, updates, outcome)
            # The records are locked by now.
            ended = {task.group or "": 0 for task in request.done if task.begin_count}
            store.pipelines.save_begun(info.number, ended, outcome.now_ms)

    def _changes(self, task: GroupTask, act: SettleAction) -> list[Settlement]:
        """Return the change of each message of a task."""
        if act is SettleAction.NACK:
            return [
                Settlement(delivery.message.sequence_number, delivery.token, act, attempts=delivery.attempts - 1)
                for delivery in task.deliveries
            ]
        ms = self.lease_ms if act is SettleAction.EXTEND else 0
        return [Settlement(delivery.message.sequence_number, delivery.token, act, ms) for delivery in task.deliveries]

    def _save(
        self,
        store: QueueAndPipelineStore,
        info: PipelineInfo,
        results: Sequence[GroupResult],
        updates: list[GroupUpdate],
        outcome: WorkResult,
    ) -> None:
        """Store the groups and the counts of tasks, and the results of their decisions."""
        if not self.is_proved and any(result.journal.counts.applied for result in results):
            info.about["handler"] = self._fingerprint
            store.pipelines.save(info)
        counts = counts_of(info)
        for result in results:
            counts.add(result.journal.counts)
        info.counts = msgspec.to_builtins(counts)
        rejected = [message for result in results for message in result.rejected]
        overtaken = store.pipelines.save_updates(info, updates, rejected, outcome.now_ms)
        if overtaken:
            raise Overtaken(overtaken)
        verdicts_of = {name: void for result in results for name, void in result.verdicts.items()}
        if verdicts_of:
            store.pipelines.save_verdicts(info.number, verdicts_of)

    def _receive(
        self, store: QueueAndPipelineStore, info: PipelineInfo, request: WorkRequest, outcome: WorkResult
    ) -> None:
        """Receive new work, with its groups."""
        pipelines = store.pipelines
        deliveries = list(request.adopted)
        if request.receives and self._queue is not None:
            for part in store.receive(queue_of(store, self._queue), request.receives, outcome.now_ms):
                deliveries += part
        outcome.deliveries = [(self._reader.group_of(delivery.message), delivery) for delivery in deliveries]
        outcome.is_alone = request.is_alone or any(delivery.lapsed for delivery in deliveries)
        groups = {group for group, _ in outcome.deliveries if group is not None}
        groups.update(request.queued_groups)
        if not outcome.is_alone:
            self._add_decisions_and_waits(store, info, request, outcome)
            groups.update(outcome.due, (decision.group for decision in outcome.decisions))
        groups -= request.busy
        if groups:
            outcome.records = {record.group: record for record in pipelines.records(info.number, sorted(groups))}

    def _due(self, store: QueueAndPipelineStore, info: PipelineInfo, request: WorkRequest, now_ms: int) -> list[str]:
        """Return the groups whose wait has expired; of idle groups, only those without messages in the queue."""
        if self._pipeline.wait_us is None:
            return []
        has_times = self._pipeline.order.has_times
        if has_times and self._queue is None:  # without the queue this is unknown
            return []
        due = store.pipelines.due(info.number, now_ms * 1000, limits.GROUPS_AT_ONCE)
        due = {group: due_us for group, due_us in due.items() if group not in request.busy}
        return self._without_queued(store, info, due, now_ms) if due and has_times else [*due]

    def _without_queued(
        self, store: QueueAndPipelineStore, info: PipelineInfo, due: Mapping[str, int], now_ms: int
    ) -> list[str]:
        """Return the due groups of which no message in the queue was sent before their wait expired.

        After a stop, the messages sent in the meantime are in the queue, and would be late if they were not received
        first. A message without a group may belong to any group. The other due groups are checked again later, by the
        same end of the wait: otherwise such a group would wait as long as messages without a group arrive.
        """
        views = store.groups(queue_of(store, self._queue or ""), len(due) + 1, now_ms, [*due, None])
        busy = {view.group for view in views}
        sent_us = next((view.head_sent_ms * 1000 for view in views if view.group is None), None)
        again_us = now_ms * 1000 + round(limits.IDLE_AGAIN_S * 1e6)
        groups = []
        put_off: dict[str, tuple[int, int]] = {}
        for group, due_us in due.items():
            known_us, ended_us = self._put_off.pop(group, (None, due_us))
            ended_us = ended_us if known_us == due_us else due_us  # else a message has come since
            if group in busy or (sent_us is not None and sent_us <= ended_us):
                put_off[group] = again_us, ended_us
            else:
                groups.append(group)
        if put_off:
            store.pipelines.put_off(info.number, sorted(put_off), now_ms * 1000, again_us)
            self._put_off |= put_off
        return groups

    def _waiting(
        self, store: QueueAndPipelineStore, info: PipelineInfo, request: WorkRequest, outcome: WorkResult
    ) -> list[str]:
        """Return the next groups that wait for a later message, once the queue is empty."""
        if not request.is_final or request.busy or self._queue is None or queue_of(store, self._queue).depth:
            return []
        # Again from the beginning: released messages may have sent to groups that were checked before.
        for begin in dict.fromkeys((outcome.final_after, "")):
            after = begin
            while part := store.pipelines.briefs(info.number, after, limits.GROUPS_AT_ONCE):
                after = part[-1][0]
                if names := [name for name, status, *_ in part if status == Status.WAITING]:
                    outcome.final_after, outcome.is_unfinished = after, True
                    return names
        outcome.final_after = ""
        return []

    def _add_decisions_and_waits(
        self, store: QueueAndPipelineStore, info: PipelineInfo, request: WorkRequest, outcome: WorkResult
    ) -> None:
        """Receive decisions, and groups whose wait has expired."""
        pipelines = store.pipelines
        new = pipelines.decisions(info.number, limits.GROUPS_AT_ONCE)
        decisions = [decision for decision in new if decision.group not in request.busy]
        final = self._waiting(store, info, request, outcome)
        due = final or self._due(store, info, request, outcome.now_ms)
        groups = sorted({*due, *(decision.group for decision in decisions)})
        if not groups:
            return
        before = pipelines.begun_tasks(info.number, groups)
        lapsed = [group for group, (_, until_ms) in before.items() if until_ms <= outcome.now_ms]
        if lapsed and not request.is_busy:
            groups, outcome.is_alone = [min(lapsed)], True
        else:
            groups = [group for group in groups if group not in before]
        outcome.begun = {group: before.get(group, (0, 0))[0] + 1 for group in groups}
        for group in pipelines.save_begun_if_free(info.number, outcome.begun, outcome.now_ms + TURN_LEASE_MS):
            del outcome.begun[group]
        outcome.decisions = [decision for decision in decisions if decision.group in outcome.begun]
        outcome.due = [group for group in due if group in outcome.begun]
        outcome.final = frozenset(final).intersection(outcome.due)
        if len(outcome.final) < len(final):  # another worker has the others, or one of them must have killed it
            outcome.final_after = self._final_after


def _pipeline_store(store: Store) -> QueueAndPipelineStore:
    return cast("QueueAndPipelineStore", store)
