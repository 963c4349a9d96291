"""The pipeline in this process as an engine: a worker over a queue in memory, stopped and started in between."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

from inturn.core.pipeline.definition import Pipeline
from inturn.core.queue.messages import Draft
from inturn.core.texts import name_fault
from inturn.database import open as open_database
from inturn.queue import draft
from inturn.results.inspection import DatabaseInspector
from inturn.results.stored_place import stored_place
from inturn.store.writer.settings import wall_clock_ms
from inturn.testing.engine_input import TIME_STEP, EngineInput, group_of, values_of
from inturn.testing.outcome import EngineResult, plain, record
from inturn.worker import Worker
from inturn.worker.codec import WorkerStateCodec

_FEW, _TIMES = 50, 10
"""Limits of a send: at most 50 messages, or, if that is more, a tenth of the part."""
_AS_THEY_ARE = (Decimal, dt.timedelta)
_TIME_STEP_MS = TIME_STEP.days * 86_400_000


def run_worker(history: EngineInput, seed: int) -> EngineResult:
    """Return the result of a worker.

    Args:
        history: the messages.
        seed: seed of the number of messages sent at a time, the number of threads, and the stops.
    """
    chance = random.Random(seed)  # noqa: S311 - chance for a test
    pipeline, ahead_ms = history.pipeline, 0
    with open_database(":memory:", clock=lambda: wall_clock_ms() + ahead_ms) as db:
        queue = db.queue("messages")
        for part in history.parts:
            rest = list(part)
            while rest:
                size = chance.randint(1, max(_FEW, len(part) // _TIMES))
                now, rest = rest[:size], rest[size:]
                queue.send_many([_draft(pipeline, message) for message in now])
                with Worker(pipeline, queue, concurrency=chance.randint(1, 4)) as worker:
                    if chance.random() < 0.5 or not rest:
                        worker.drain()
            ahead_ms += _TIME_STEP_MS if history.time_passes else 0
            with Worker(pipeline, queue) as worker:
                worker.drain()
        return _result(pipeline, DatabaseInspector(db, pipeline.name))


def _result(pipeline: Pipeline, inspector: DatabaseInspector) -> EngineResult:
    result, states = EngineResult(counts=inspector.counts()), WorkerStateCodec(pipeline)
    for group_record in inspector.records():
        place = stored_place(group_record)
        progress = (
            states.decode(group_record.state),
            str(group_record.status),
            place.epoch,
            place.reached,
            place.skipped,
        )
        record(result, group_record.group, *progress, parked=bool(place.parked), error=place.error)
        held = [
            (message.epoch, message.position, message.id or "", message.digest)
            for message in inspector.held(group_record.group)
        ]
        if held:
            result.held[group_record.group] = held
    for output in inspector.outputs():
        result.outputs.setdefault(output.group, {})[output.effect_id] = output.output
    for rejected in inspector.rejected():
        result.reject(rejected.group, rejected.reason)
    return result


def _draft(pipeline: Pipeline, message: Any) -> Draft:
    """Return a message to send; if a queue does not accept its group as a name, the group is only in the body."""
    group = group_of(pipeline, message)
    is_name = group is None or not name_fault("group", group)
    return draft(_body(pipeline, message), group=group if is_name else None)


def _body(pipeline: Pipeline, message: Any) -> dict[str, Any]:
    """Return a message as a queue stores it; decimals keep their scale in JSON, and durations their unit."""
    values = values_of(pipeline, message)
    return {name: value if isinstance(value, _AS_THEY_ARE) else plain(value) for name, value in values.items()}
