"""Inspection of a pipeline in a database opened for that purpose, and execution of decisions with the user's code."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from inturn.core import limits
from inturn.core.errors import InturnError, StoreMismatch
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.handler import check_result
from inturn.core.pipeline.inspection import Inspector
from inturn.database import open as open_database
from inturn.results.inspection import DatabaseInspector
from inturn.worker.codec import MessageDecoder
from inturn.worker.group_task import GroupRunner, GroupTask
from inturn.worker.unit_of_work import UnitOfWork
from inturn.worker.work_items import Overtaken, WorkRequest


def open_inspector(path: str, name: str) -> DatabaseInspector:
    """Open ``shop.db#ledger`` for inspection; the database is closed with it.

    Raises:
        StoreError: if the database does not exist, or has no such pipeline.
    """
    db = open_database(path, create=False)
    try:
        return DatabaseInspector(db, name, owns=True)
    except BaseException:
        db.close()
        raise


def apply_decisions(
    pipeline: Pipeline, inspector: Inspector, on_progress: Callable[[int], None] = lambda _count: None
) -> None:
    """Apply pending decisions and end expired waits as a worker does, without receiving messages.

    Args:
        pipeline: the pipeline.
        inspector: the stored pipeline.
        on_progress: called repeatedly with the number of decisions applied since the last call.

    Raises:
        StoreMismatch: if the database has another pipeline of this name, or ``inspector`` has another name.
        HandlerError: if a handler that has not applied a message yet returned something that is not (state, outputs).
    """
    assert isinstance(inspector, DatabaseInspector)  # noqa: S101 - that is how it is called
    if pipeline.name != (stored := inspector.info().name):
        raise StoreMismatch(f"the pipeline is {pipeline.name!r}; expected the stored pipeline {stored!r}")
    unit = UnitOfWork(pipeline, None, inspector.db.writer, MessageDecoder(pipeline))
    runner = GroupRunner(pipeline, unit.read, time.sleep)
    while True:
        outcome = unit.run(WorkRequest())
        by_group: dict[str, GroupTask] = {}
        for group, begun in outcome.begun.items():
            by_group[group] = GroupTask(
                group, record=outcome.records.get(group), now_us=outcome.now_ms * 1000, begin_count=begun
            )
            by_group[group].is_alone = outcome.is_alone
        if not by_group:
            return
        for decision in outcome.decisions:
            by_group[decision.group].decisions.append(decision)
        tasks = list(by_group.values())
        with _nacked_on_error(unit, tasks):
            _run(runner, unit, tasks)
        done = _save(unit, tasks)
        on_progress(sum(len(task.decisions) for task in done))


def _run(runner: GroupRunner, unit: UnitOfWork, tasks: list[GroupTask]) -> None:
    """Run tasks one after the other, and extend their leases regularly."""
    extended_s = time.monotonic()
    for task in tasks:
        task.result = runner.run(task)
        if time.monotonic() - extended_s > limits.TASK_LEASE_S / 3:
            unit.run(WorkRequest(extended=tasks, is_receiving=False))
            extended_s = time.monotonic()
    journals = [task.result.journal for task in tasks if task.result]
    wrong = next((journal.wrong for journal in journals if journal.wrong is not None), None)
    check_result(wrong, sum(journal.counts.applied for journal in journals), lambda: unit.is_proved)


@contextmanager
def _nacked_on_error(unit: UnitOfWork, tasks: list[GroupTask]) -> Iterator[None]:
    """Release the leases of the tasks if the block raises."""
    try:
        yield
    except BaseException:
        with suppress(InturnError):  # the leases expire anyway
            unit.run(WorkRequest(nacked=tasks, is_receiving=False))
        raise


def _save(unit: UnitOfWork, tasks: list[GroupTask]) -> list[GroupTask]:
    """Store the results of tasks; return the tasks whose groups no worker has changed. The others are found again."""
    back: list[GroupTask] = []
    while True:
        try:
            unit.run(WorkRequest(done=tasks, nacked=back, is_receiving=False))
        except Overtaken as overtaken:
            back += [task for task in tasks if task.group in overtaken.groups]
            tasks = [task for task in tasks if task.group not in overtaken.groups]
        else:
            return tasks
