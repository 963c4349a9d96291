"""Move tasks: StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask.

A task is stored with its source queue, so it survives a restart. It moves the messages that were in the queue when it
began, the oldest first, each back to its source queue or all to one queue. A message that is in flight when the task
reaches it stays. :class:`Mover` does the work in small transactions, so that other callers are not delayed.
"""

import asyncio
import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from inturn.core.errors import StoreError
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.messages import QueueInfo, StoredMessage
from inturn.serving.http.failures import FailureLog
from inturn.sqs import errors, limits
from inturn.sqs.context import Context, extra_setting, is_arn, is_fifo, save_extra, store_command
from inturn.sqs.model import (
    CancelMessageMoveTask,
    CancelMessageMoveTaskAnswer,
    ListMessageMoveTasks,
    ListMessageMoveTasksAnswer,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTask,
    StartMessageMoveTaskAnswer,
)
from inturn.store.commands import Command, StoreCall
from inturn.store.protocols import Store
from inturn.store.rooms import QueueCapacity
from inturn.store.writer.group_commit import Writer

RUNNING: Final = "RUNNING"
_NO_TARGET: Final = "AWS.SimpleQueueService.NonExistentQueue"
_NO_SOURCE: Final = "CouldNotDetermineMessageSource"

# --- the actions ---


def start_message_move_task(context: Context, params: StartMessageMoveTask) -> Command[StartMessageMoveTaskAnswer]:
    """Start a move of dead letters to another queue, or back to their source queues."""
    rate = params.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= limits.MOVES_PER_S:
        reason = f"Must be between 1 and {limits.MOVES_PER_S}, if provided."
        raise errors.invalid_value(rate, "MaxNumberOfMessagesPerSecond", reason)
    task_id = str(uuid.uuid4())

    def begin(store: Store, now_ms: int) -> str:
        source = _queue_of(context, store, params.source_arn, "SourceArn")
        if not any(queue.settings.dead_letter == source.name for queue in store.queues.values()):
            raise errors.invalid_parameter_value("Source queue must be configured as a Dead Letter Queue.")
        to = None
        if params.destination_arn:
            target = _queue_of(context, store, params.destination_arn, "DestinationArn")
            to = target.name
            if to == source.name:
                raise errors.invalid_parameter_value("Source queue arn and destination queue arn cannot be the same.")
            if is_fifo(target) != is_fifo(source):
                raise errors.invalid_parameter_value("Source and destination queues must be of the same type.")
        tasks = _tasks(source)
        if tasks and tasks[0]["status"] == RUNNING:
            raise errors.invalid_parameter_value(
                "There is already a task running. Only one active task is allowed for a source queue arn "
                "at a given time."
            )
        depth = store.depth(source, now_ms)
        task = {
            "id": task_id,
            "status": RUNNING,
            "to": to,
            "rate": rate,
            "moved": 0,
            "to_move": depth.messages,
            "after": 0,
            "until": depth.last,
            "started_ms": now_ms,
            "failure": None,
        }
        save_extra(store, source, move_tasks=[task, *tasks][: limits.MOVE_TASKS])
        return source.name

    def answer(name: str) -> StartMessageMoveTaskAnswer:
        context.on_move(name)
        return StartMessageMoveTaskAnswer(_handle(task_id, params.source_arn))

    return store_command(begin, answer)


def list_message_move_tasks(context: Context, params: ListMessageMoveTasks) -> Command[ListMessageMoveTasksAnswer]:
    """Return the latest move tasks of a queue, the last one first."""
    most = params.max_results

    def read(store: Store, _now_ms: int) -> ListMessageMoveTasksAnswer:
        source = _queue_of(context, store, params.source_arn, "SourceArn")
        if most is not None and not 1 <= most <= limits.MOVE_TASKS:
            raise errors.invalid_value(most, "MaxResults", f"Must be between 1 and {limits.MOVE_TASKS}, if provided.")
        tasks = _tasks(source)[: most or 1]
        return ListMessageMoveTasksAnswer([_task_entry(context, params.source_arn, task) for task in tasks])

    return store_command(read)


def _task_entry(context: Context, source_arn: str, task: Mapping[str, Any]) -> ListMessageMoveTasksResultEntry:
    return ListMessageMoveTasksResultEntry(
        status=task["status"],
        source_arn=source_arn,
        approximate_number_of_messages_moved=task["moved"],
        started_timestamp=task["started_ms"],
        task_handle=_handle(task["id"], source_arn) if task["status"] == RUNNING else None,
        destination_arn=None if task["to"] is None else context.arn(task["to"]),
        max_number_of_messages_per_second=task["rate"],
        approximate_number_of_messages_to_move=task["to_move"],
        failure_reason=task["failure"],
    )


def cancel_message_move_task(context: Context, params: CancelMessageMoveTask) -> Command[CancelMessageMoveTaskAnswer]:
    """Cancel a move task; the messages already moved stay where they are."""
    task_id, source_arn = _parse_handle(params.task_handle)

    def cancel(store: Store, _now_ms: int) -> CancelMessageMoveTaskAnswer:
        source = _queue_of(context, store, source_arn, "SourceArn")
        tasks = _tasks(source)
        task = next((candidate for candidate in tasks if candidate["id"] == task_id), None)
        if task is None:
            raise errors.no_such_task()
        if task["status"] != RUNNING:
            raise errors.unsupported_operation("Only active tasks can be cancelled.")
        save_extra(
            store,
            source,
            move_tasks=[
                {**candidate, "status": "CANCELLED"} if candidate is task else candidate for candidate in tasks
            ],
        )
        return CancelMessageMoveTaskAnswer(task["moved"])

    return store_command(cancel)


def _queue_of(context: Context, store: Store, arn: str, parameter: str) -> QueueInfo:
    if not is_arn(arn):
        raise errors.invalid_arn(parameter)
    queue = store.queues.get(context.of_arn(arn) or "")
    if queue is None:
        raise errors.resource_not_found(parameter)
    return queue


def _handle(task_id: str, source_arn: str) -> str:
    text = json.dumps({"taskId": task_id, "sourceArn": source_arn}, separators=(",", ":"))
    return base64.b64encode(text.encode()).decode()


def _parse_handle(handle: str) -> tuple[str, str]:
    """Return the task id and the source queue's ARN of a task handle."""
    try:
        fields = json.loads(base64.b64decode(handle, validate=True))
        return str(fields["taskId"]), str(fields["sourceArn"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise errors.invalid_parameter_value("Value for parameter TaskHandle is invalid.") from None


# --- the tasks of a queue ---


def _tasks(queue: QueueInfo) -> list[dict[str, Any]]:
    return list(extra_setting(queue.settings, "move_tasks", []))


def _is_done_by_another(task: Mapping[str, Any], mover: str, now_ms: int) -> bool:
    """Return whether another server runs a task: its claim has not expired."""
    return task.get("by", mover) != mover and bool(now_ms < task["by_until_ms"])


def _step(store: Store, name: str, mover: str, now_ms: int) -> float | None:
    """Move the next messages of a queue's task; return the seconds until the next step, None if there is none."""
    queue = store.queues.get(name)
    tasks = _tasks(queue) if queue is not None else []
    if queue is None or not tasks or tasks[0]["status"] != RUNNING:
        return None
    if _is_done_by_another(tasks[0], mover, now_ms):
        return None
    task = {**tasks[0], "by": mover, "by_until_ms": now_ms + limits.MOVER_S * 1000}
    rate = task["rate"] or limits.MOVES_PER_S
    count = min(limits.MOVES_AT_ONCE, rate)
    entries = [
        entry
        for entry in store.read(queue, task["after"], count, pending=True)
        if entry.sequence_number <= task["until"]
    ]
    if not entries:
        task["status"] = "COMPLETED"
    changes: list[Settlement] = []
    rooms = QueueCapacity(store)
    for entry in entries:
        if task["to"] is None and entry.came_from == name:  # already in its source queue
            task["after"] = entry.sequence_number
            continue
        to, failure = _target(store, name, task["to"], entry)
        if to is None:
            task.update(status="FAILED", failure=failure)
            break
        if not rooms.reserve(to):  # the next step tries again
            break
        task["after"] = entry.sequence_number
        changes.append(Settlement(entry.sequence_number, None, SettleAction.MOVE, to=to))
    task["moved"] += store.settle(queue, changes, now_ms).count(SettleResult.DONE)
    save_extra(store, queue, move_tasks=[task, *tasks[1:]])
    if task["status"] != RUNNING:
        return None
    is_full = task["after"] < entries[-1].sequence_number
    return limits.MOVE_FULL_S if is_full else len(entries) / rate


def _target(store: Store, name: str, to: str | None, entry: StoredMessage) -> tuple[str | None, str | None]:
    """Return the queue that a message goes to, or the failure reason."""
    target = to or entry.came_from
    if target is None:
        return None, _NO_SOURCE
    return (target, None) if target in store.queues and target != name else (None, _NO_TARGET)


def _give_back(names: Iterable[str], mover: str, store: Store, _now_ms: int) -> None:
    """End a server's claims of tasks."""
    for name in names:
        queue = store.queues.get(name)
        tasks = _tasks(queue) if queue is not None else []
        if queue is not None and tasks and tasks[0].get("by") == mover:
            save_extra(store, queue, move_tasks=[{**tasks[0], "by_until_ms": 0}, *tasks[1:]])


class Mover:
    """Runs the move tasks, one asyncio task for each source queue.

    Of several servers over one database, one runs a task. It renews its claim with every step; when the claim is older
    than ``limits.MOVER_S``, the next server that checks takes over. Every step reads the task's position, so nothing is
    moved twice. A server that stops releases its claims.
    """

    def __init__(self, writer: Writer, failures: FailureLog) -> None:
        self._writer = writer
        self._failures = failures
        self._id = uuid.uuid4().hex
        self._running: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()  # queues begun since their last step

    async def resume(self) -> None:
        """Resume the tasks whose server has stopped."""

        def left(store: Store, now_ms: int) -> list[str]:
            return [
                name
                for name, queue in store.queues.items()
                if any(
                    task["status"] == RUNNING and not _is_done_by_another(task, self._id, now_ms)
                    for task in _tasks(queue)[:1]
                )
            ]

        for name in await self._writer.arun(StoreCall("", left)):
            self.begin(name)

    def begin(self, name: str) -> None:
        """Run a queue's task; called in the event loop."""
        self._begun.add(name)
        if name not in self._running:
            self._running[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def stop(self) -> None:
        """Stop between two steps and release the tasks; another server, or a later start, resumes them."""
        running = dict(self._running)
        for task in running.values():
            task.cancel()
        for task in running.values():
            with suppress(asyncio.CancelledError):
                await task
        if running:
            with suppress(StoreError):  # the claims expire soon in any case
                await self._writer.arun(StoreCall("", partial(_give_back, running, self._id)))

    async def _run(self, name: str) -> None:
        step = StoreCall("", lambda store, now_ms: _step(store, name, self._id, now_ms))
        try:
            while name in self._begun:
                self._begun.discard(name)
                while (wait_s := await self._writer.arun(step)) is not None:
                    await asyncio.sleep(wait_s)
        except StoreError as error:
            self._failures.failed("a move task has stopped until the database is available again", error)
        finally:
            del self._running[name]
