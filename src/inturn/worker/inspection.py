"""Inspection of a pipeline in a database that is opened for it, and execution of decisions with the user's code."""

import time
from contextlib import suppress

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.inspection import Inspector
from inturn.database import open as open_database
from inturn.results.inspection import DatabaseInspector
from inturn.worker.codec import MessageDecoder
from inturn.worker.group_task import GroupRunner, GroupTask
from inturn.worker.unit_of_work import Overtaken, UnitOfWork, WorkRequest


def look(path: str, name: str) -> DatabaseInspector:
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


def settle(pipeline: Pipeline, at: Inspector) -> None:
    """Take pending decisions and end expired waits as a worker does, without receiving messages.

    Raises:
        StoreMismatch: if the database has another pipeline of this name.
    """
    assert isinstance(at, DatabaseInspector)  # noqa: S101 - that is how it is called
    unit = UnitOfWork(pipeline, None, at.db.writer, MessageDecoder(pipeline))
    runner = GroupRunner(pipeline, unit.look, time.sleep)
    while True:
        found = unit.run(WorkRequest())
        turns: dict[str, GroupTask] = {}
        for group in (*(each.group for each in found.decisions), *found.due):
            turns[group] = GroupTask(group, line=found.lines.get(group), now_us=found.now_ms * 1000)
        if not turns:
            return
        for each in found.decisions:
            turns[each.group].decisions.append(each)
        for turn in turns.values():
            turn.result = runner.run(turn)
            with suppress(Overtaken):  # a worker was faster; what is still pending is found again
                unit.run(WorkRequest(done=[turn], is_taking=False))
