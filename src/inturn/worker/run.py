"""A pipeline in this process until it is stopped: the function ``inturn.work``."""

from typing import Literal

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.policies import Retry
from inturn.core.pipeline.replay import check_final
from inturn.queue import Queue
from inturn.serving.signals import stop_on_signals
from inturn.worker.chain import ToQueue
from inturn.worker.outbox import DELIVER_RETRY, Deliver
from inturn.worker.worker import Worker


def work(
    pipeline: Pipeline,
    queue: Queue,
    *,
    concurrency: int = limits.WORKER_CONCURRENCY,
    deliver: Deliver | Queue | ToQueue | None = None,
    retry: Retry = DELIVER_RETRY,
    until: Literal["stopped", "empty"] = "stopped",
    final: bool = False,
    grace_s: float = limits.WORKER_GRACE_S,
) -> Counts:
    """Run a pipeline over a queue in this process, until SIGTERM or Ctrl-C stops it.

    Each group's state, timeline, held messages, and outputs with effect ids are kept in the queue's database, in one
    transaction with the acknowledgements. Any number of processes may work on the same queue.

    Args:
        pipeline: the pipeline.
        queue: the source of messages. Bodies are JSON objects with the message's fields; missing fields are filled from
            the envelope.
        concurrency: the number of groups processed at once.
        deliver: a plain or async function, called with each output, as JSON values, and its effect id after the commit:
            at least once, in order within a group. Or a queue of the same database, or :class:`To`: outputs become its
            messages in the same commit, exactly once. If None, outputs stay in the database.
        retry: the pauses between attempts of ``deliver``; the last one repeats. (The pipeline sets the retries of a
            *handler*.)
        until: ``empty`` returns once the queue is empty and everything is delivered.
        final: with ``until="empty"``, for ``Timestamp``: the input is complete, so messages that wait for a later time
            are released once the queue is empty.
        grace_s: how long a stop waits for running tasks, in seconds.

    Returns:
        The counts of the messages that this call processed.

    Raises:
        HandlerError: if the handler returned something that is not (state, outputs), and has not applied a
            message yet. Later on such a result parks the group.
        InvalidMessage: if a message is invalid, and the pipeline has ``on_invalid="fail"``.
        GapError: if the wait for a gap has expired under ``then="fail"``.
        StateError: if a state cannot be stored.
        StoreError: if the database cannot be used. While it is unavailable, the worker waits; after a stop it waits for
            at most ``grace_s``.
        StoreMismatch: if the database has another pipeline of this name.
        NoSuchQueue: if the queue that ``deliver`` names does not exist, or is deleted.
    """
    if until not in ("stopped", "empty"):
        raise InputError(f"until is {until!r}; expected 'stopped' or 'empty'")
    check_final(pipeline, final=final)
    if final and until != "empty":
        raise InputError("final=True releases waiting messages once the queue is empty; add until='empty'")
    worker = Worker(pipeline, queue, concurrency=concurrency, deliver=deliver, retry=retry, grace_s=grace_s)
    worker.is_final = final
    with stop_on_signals(worker.stop_soon):
        worker.run(until_empty=until == "empty")
    return worker.counts
