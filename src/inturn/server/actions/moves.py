"""Move tasks: StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask.

A task is kept with the queue that it moves from, so a restart goes on with it. It moves what was in the queue when it
began, the oldest first, each message to where it came from or all to one queue; what a receiver has at that moment
stays. :class:`Mover` does the work, in small transactions, so that nobody else waits for it.
"""

import asyncio
import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from inturn.core import limits
from inturn.core.delivery import Act, Change, Verdict
from inturn.core.envelope import Entry, QueueInfo
from inturn.core.errors import StoreError
from inturn.server import errors
from inturn.server.context import Context, asking, is_arn, is_fifo, kept
from inturn.server.failures import Failures
from inturn.server.model import (
    CancelMessageMoveTask,
    CancelMessageMoveTaskAnswer,
    ListMessageMoveTasks,
    ListMessageMoveTasksAnswer,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTask,
    StartMessageMoveTaskAnswer,
)
from inturn.store.base import Store
from inturn.store.commands import Ask, Command
from inturn.store.writer import Writer

RUNNING: Final = "RUNNING"
_NO_TARGET: Final = "AWS.SimpleQueueService.NonExistentQueue"
_NO_SOURCE: Final = "CouldNotDetermineMessageSource"

# --- the actions ---


def start_message_move_task(context: Context, params: StartMessageMoveTask) -> Command[StartMessageMoveTaskAnswer]:
    """Begin to move dead letters to another queue, or to where each came from."""
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
            text = (
                "There is already a task running. Only one active task is allowed for a source queue arn "
                "at a given time."
            )
            raise errors.invalid_parameter_value(text)
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
        _save(store, source, [task, *tasks][: limits.MOVE_TASKS])
        return source.name

    def answer(name: str) -> StartMessageMoveTaskAnswer:
        context.on_move(name)
        return StartMessageMoveTaskAnswer(_handle(task_id, params.source_arn))

    return asking(begin, answer)


def list_message_move_tasks(context: Context, params: ListMessageMoveTasks) -> Command[ListMessageMoveTasksAnswer]:
    """The latest tasks of a queue, the last one first."""
    most = params.max_results

    def look(store: Store, _now_ms: int) -> ListMessageMoveTasksAnswer:
        source = _queue_of(context, store, params.source_arn, "SourceArn")
        if most is not None and not 1 <= most <= limits.MOVE_TASKS:
            reason = f"Must be between 1 and {limits.MOVE_TASKS}, if provided."
            raise errors.invalid_value(most, "MaxResults", reason)
        tasks = _tasks(source)[: most or 1]
        return ListMessageMoveTasksAnswer([_told(context, params.source_arn, task) for task in tasks])

    return asking(look)


def _told(context: Context, source_arn: str, task: Mapping[str, Any]) -> ListMessageMoveTasksResultEntry:
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
    """Stop a task; what it has moved stays where it is."""
    task_id, source_arn = _said(params.task_handle)

    def cancel(store: Store, _now_ms: int) -> CancelMessageMoveTaskAnswer:
        source = _queue_of(context, store, source_arn, "SourceArn")
        tasks = _tasks(source)
        task = next((each for each in tasks if each["id"] == task_id), None)
        if task is None:
            raise errors.no_such_task()
        if task["status"] != RUNNING:
            raise errors.unsupported_operation("Only active tasks can be cancelled.")
        _save(store, source, [{**each, "status": "CANCELLED"} if each is task else each for each in tasks])
        return CancelMessageMoveTaskAnswer(task["moved"])

    return asking(cancel)


def _queue_of(context: Context, store: Store, arn: str, parameter: str) -> QueueInfo:
    if not is_arn(arn):
        raise errors.invalid_arn(parameter)
    queue = store.queues.get(context.of_arn(arn) or "")
    if queue is None:
        raise errors.resource_not_found(parameter)
    return queue


def _handle(task_id: str, source_arn: str) -> str:
    said = json.dumps({"taskId": task_id, "sourceArn": source_arn}, separators=(",", ":"))
    return base64.b64encode(said.encode()).decode()


def _said(handle: str) -> tuple[str, str]:
    """The task and the queue's ARN that a handle names."""
    try:
        said = json.loads(base64.b64decode(handle, validate=True))
        return str(said["taskId"]), str(said["sourceArn"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise errors.invalid_parameter_value("Value for parameter TaskHandle is invalid.") from None


# --- the tasks of a queue ---


def _tasks(queue: QueueInfo) -> list[dict[str, Any]]:
    return list(kept(queue.settings, "move_tasks", []))


def _save(store: Store, queue: QueueInfo, tasks: Sequence[Mapping[str, Any]]) -> None:
    queue.settings = replace(queue.settings, extra={**queue.settings.extra, "move_tasks": list(tasks)})
    store.save(queue.name, queue)


def _is_done_by_another(task: Mapping[str, Any], mover: str, now_ms: int) -> bool:
    """Whether another server moves a task's messages, as it said not long ago."""
    return bool(mover) and task.get("by", mover) != mover and now_ms < task["by_until_ms"]


def _step(store: Store, name: str, mover: str, now_ms: int) -> float | None:
    """Move the next messages of a queue's task; after how many seconds it goes on, None if it does not here."""
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
    changes: list[Change] = []
    for entry in entries:
        if task["to"] is None and entry.came_from == name:  # a dead letter of the queue's own is where it came from
            continue
        to, failure = _target(store, name, task["to"], entry)
        if failure is not None:
            task.update(status="FAILED", failure=failure)
            break
        changes.append(Change(entry.sequence_number, None, Act.MOVE, to=to))
    task["moved"] += store.settle(queue, changes, now_ms).count(Verdict.DONE)
    if not entries:
        task["status"] = "COMPLETED"
    else:
        task["after"] = entries[-1].sequence_number
    _save(store, queue, [task, *tasks[1:]])
    return len(entries) / rate if task["status"] == RUNNING else None


def _target(store: Store, name: str, to: str | None, entry: Entry) -> tuple[str | None, str | None]:
    """Where a message goes, or why it cannot."""
    target = to or entry.came_from
    if target is None:
        return None, _NO_SOURCE
    return (target, None) if target in store.queues and target != name else (None, _NO_TARGET)


class Mover:
    """Does the move tasks, one task of the event loop for each queue that messages are moved from.

    Of several servers over one database one does a task; it says so with every step, and when it has not for
    ``limits.MOVER_S`` the next that looks goes on. Every step reads where the task is, so nothing is moved twice.

    Args:
        writer: who runs the steps.
        failures: what is told of a task that cannot go on.
        is_alone: whether there are no other servers that could go on; those of a file are no concern of each other.
    """

    def __init__(self, writer: Writer, failures: Failures, *, is_alone: bool) -> None:
        self._writer = writer
        self._failures = failures
        self._id = "" if is_alone else uuid.uuid4().hex
        self._running: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()  # since the last step

    async def resume(self) -> None:
        """Go on with the tasks that nobody does, since their server has stopped."""

        def left(store: Store, now_ms: int) -> list[str]:
            return [
                name
                for name, queue in store.queues.items()
                if any(
                    task["status"] == RUNNING and not _is_done_by_another(task, self._id, now_ms)
                    for task in _tasks(queue)[:1]
                )
            ]

        for name in await self._writer.arun(Ask("", left)):
            self.begin(name)

    def begin(self, name: str) -> None:
        """See to a queue's task; called in the event loop."""
        self._begun.add(name)
        if name not in self._running:
            self._running[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def stop(self) -> None:
        """Stop between two steps; a later start goes on."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, name: str) -> None:
        step = Ask("", lambda store, now_ms: _step(store, name, self._id, now_ms))
        try:
            while name in self._begun:
                self._begun.discard(name)
                while (wait_s := await self._writer.arun(step)) is not None:
                    await asyncio.sleep(wait_s)
        except StoreError as error:
            self._failures.failed("the move task of a queue stopped, until the database can be used again", error)
        finally:
            del self._running[name]
