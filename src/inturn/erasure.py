"""Erasure: all content of a group is removed from a database or a store on Spark, and the decision is kept.

An erasure consists of steps, each in one transaction. An interrupted run is repeated from the beginning; it skips the
content that is already removed. The pipelines give the group up first, so that no worker restores removed content.
"""

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import msgspec

from inturn.core import limits
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.core.queue.kept_log import LogSpan
from inturn.core.texts import note
from inturn.faults import reach
from inturn.queue.message import group_name
from inturn.results.stored_place import counts_of, erased_record
from inturn.store.commands import StoreCall, queue_of
from inturn.store.records import GroupUpdate, StoredDecision

if TYPE_CHECKING:
    from inturn.database import Database
    from inturn.spark.tables.erasure import ErasedRows
    from inturn.store.protocols import SqlStore

T = TypeVar("T")

_REASON: Final = "forgotten"


class ErasureReport(NamedTuple):
    """The content that an erasure has removed.

    Attributes:
        messages: messages by queue, acknowledged or not.
        pipelines: pipelines that knew the group, and have given it up.
    """

    messages: dict[str, int]
    pipelines: list[str]


def forget(db: "Database", group: object, *, by: str, why: str = "") -> ErasureReport:
    """Remove all content of a group from a database, and from its files.

    It removes the group's messages in all queues and logs, its state, held and rejected messages, undelivered outputs,
    the contents in decisions about it, its session states, and its records in sources. It keeps the decision: who, when
    and why. A pipeline that knew the group gives it up, and rejects later messages for it. Applied messages are
    remembered as digests, so that a late copy is not applied again.

    An erasure may be repeated, and must be repeated if it was interrupted.

    Args:
        db: the database.
        group: the group.
        by: the person who decided.
        why: the reason; it is kept, so it should have no content.

    Raises:
        InputError: if the name of the group is invalid.
        StoreError: if the files cannot be rewritten now, such as while another process reads them; run it again.
    """
    name, by, why = group_name(group), note("by", by), note("why", why)
    reach("before results")
    known = [
        pipeline
        for pipeline in db.pipelines()
        if _run(db, partial(_give_up, pipeline=pipeline, group=name, by=by, why=why))
    ]
    reach("before messages")
    removed: dict[str, int] = {}
    for queue in db.queues():
        while count := _run(db, partial(_erase, queue=queue, group=name)):
            removed[queue] = removed.get(queue, 0) + count
            reach("between messages")
    _run(db, lambda store, _now_ms: store.erasure.sources(name))
    reach("before cleaning")
    db.store.clean()
    reach("cleaned")
    return ErasureReport(removed, known)


def forget_in_store(store: str | os.PathLike[str], group: object, *, by: str, why: str = "") -> "ErasedRows":
    """Remove all content of a group from a store on Spark, and from its files; the decision is kept.

    The group is given up in a separate step. Old steps are vacuumed, so ``read(…, step=n)`` returns only the last step,
    and files with rows of the group are rewritten. A concurrent writer fails with ``StoreConflict``. Streams that read
    the outputs must not run meanwhile. An erasure may be repeated, and must be repeated if it was interrupted.

    Args:
        store: the store.
        group: the group.
        by: the person who decided.
        why: the reason; it is kept, so it should have no content.

    Raises:
        InputError: if the name of the group is invalid, or the outputs are a Delta table.
        StoreConflict: if a writer commits a step meanwhile; run it again.
        StoreError: if the store cannot be read or written.
    """
    from inturn.spark.tables.erasure import erase_group  # it needs pyarrow

    return erase_group(store, group_name(group), by=note("by", by), why=note("why", why))


def _run(db: "Database", function: Callable[["SqlStore", int], T]) -> T:
    """Call a function with the store and the time, in its own transaction."""
    return db.writer.run(StoreCall("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))


def _give_up(store: "SqlStore", now_ms: int, *, pipeline: str, group: str, by: str, why: str) -> bool:
    """Remove the results of a group; return whether the pipeline knows it."""
    pipelines, erasure = store.pipelines, store.erasure
    info = pipelines.info(pipeline)
    if info is None:
        return False
    erasure.results(info.number, group)
    for name, text in erasure.decisions(info.number, group):
        decided = msgspec.json.decode(text, type=Decision)
        if decided.old is not None or decided.new is not None:
            erasure.rewrite(info.number, name, msgspec.json.encode(replace(decided, old=None, new=None)).decode())
    lines = pipelines.records(info.number, [group])
    if not lines:
        return False
    (record,) = lines
    error_text = f"{_REASON} by {by}" + (f": {why}" if why else "")
    erased = erased_record(record, error_text)
    if erased == record:  # an earlier run has done it
        return True
    counts = counts_of(info)
    counts.released += record.held
    if record.held:
        counts.rejected[_REASON] = counts.rejected.get(_REASON, 0) + record.held
    info.counts = msgspec.to_builtins(counts)
    pipelines.save_updates(info, [GroupUpdate(erased, (), (), ())], (), now_ms)
    why = _REASON + (f": {why}" if why else "")
    decision = Decision(
        id=uuid.uuid4().hex, action=DecisionAction.GIVE_UP, group=group, by=by, why=why, at_us=now_ms * 1_000
    )
    pipelines.append_decisions(
        info.number, [StoredDecision(decision.name, group, msgspec.json.encode(decision).decode())]
    )
    pipelines.save_verdicts(info.number, {decision.name: ""})
    return True


def _erase(store: "SqlStore", now_ms: int, *, queue: str, group: str) -> int:
    """Remove some messages of a group from a queue; return their number."""
    info = queue_of(store, queue)
    entries = store.log(info, LogSpan(group=group), limits.EXPIRE_AT_ONCE)
    done = [entry.message.sequence_number for entry in entries if entry.is_done]
    if done:
        store.erasure.done_messages(done)
    remaining = [entry.message.sequence_number for entry in entries if not entry.is_done]
    if remaining:
        changes = [Settlement(number, None, SettleAction.ERASE, any_holder=True) for number in remaining]
        store.settle(info, changes, now_ms)
    if not entries:
        store.erasure.session(info.number, group)
    return len(entries)
