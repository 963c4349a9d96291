"""Inspection of a pipeline in a database without the user's code."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from inturn.core import limits
from inturn.core.errors import NoSuchGroup, StoreError
from inturn.core.override import override
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.decision_service import DecisionService
from inturn.core.pipeline.inspection import AppliedDecision, GroupBrief, GroupHistory, GroupStatus, HeldMessageStatus
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.results import FailingDelivery, Output, RejectedMessage
from inturn.core.pipeline.timeline import Status
from inturn.core.texts import checked_text, last_line
from inturn.core.words import counted, time_of, when
from inturn.json_form import of_message_pack
from inturn.results.stored_place import ERASED_STATE, PLACE_DECODER, counts_of, stored_place
from inturn.store.commands import Read, StoreCall
from inturn.store.pipeline_store import PipelineStore
from inturn.store.records import (
    GroupRecord,
    HeldRecord,
    OutputRecord,
    PendingDelivery,
    PipelineInfo,
    PipelineSummary,
    StoredDecision,
)
from inturn.store.writer.group_commit import Writer

if TYPE_CHECKING:
    from inturn.store.protocols import QueueAndPipelineStore

K = TypeVar("K", int, str)
T = TypeVar("T")


class OpenDatabase(Protocol):
    """The part of an open database that an inspection needs."""

    @property
    def writer(self) -> Writer:
        """Runs commands."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


class DatabaseInspector(DecisionService):
    """Inspection of a pipeline in a database, as of now.

    Args:
        db: the database.
        name: the pipeline.
        owns: whether the database is closed with this object.
        must_exist: whether a pipeline that has not run yet is an error; otherwise it has no groups.

    Raises:
        StoreError: if the pipeline does not exist, and ``must_exist``.
    """

    unit = "task"
    applied_when = "a worker applies it as soon as one runs"

    def __init__(self, db: OpenDatabase, name: str, *, owns: bool = False, must_exist: bool = True) -> None:
        self.db, self._name, self._owns, self._must_exist = db, name, owns, must_exist
        self.pipeline = name
        self.title = f"pipeline {name!r}"
        self._is_known = False
        self.order, self.policy, self.version = StoredOrder.of(""), "", 1
        self.info()

    @override
    def __exit__(self, *_: object) -> None:
        if self._owns:
            self.db.close()

    @override
    def counts(self) -> Counts:
        return counts_of(self.info())

    def summary(self) -> PipelineSummary:
        """Return the numbers of groups, held messages and undelivered outputs; reads all groups."""
        return self._read(lambda pipelines, info: pipelines.summary(info.number))

    @override
    def unsettled(self, names: Sequence[str] | None = None) -> Iterator[GroupStatus]:
        statuses = map(self._status, self.records(parked=True)) if names is None else self.statuses(names).values()
        yield from (status for status in statuses if status.status != Status.OPEN)

    @override
    def briefs(self) -> Iterator[GroupBrief]:
        after, size = "", limits.BRIEFS_AT_ONCE
        while page := self._read(lambda pipelines, info, after=after: pipelines.briefs(info.number, after, size)):  # type: ignore[misc]
            for name, status, timeline, held, oldest_us in page:
                yield GroupBrief(name, status, last_line(PLACE_DECODER.decode(timeline).error), held, oldest_us)
            after = page[-1][0]

    @override
    def group(self, name: str) -> GroupStatus:
        try:
            return super().group(name)
        except NoSuchGroup:
            if self._is_known:
                raise
            cause = self._read(lambda pipelines, _info: _no_pipeline(self._name, pipelines))
            raise NoSuchGroup(f"no group {name!r}: {cause}") from None

    @override
    def groups(self) -> Iterator[GroupStatus]:
        yield from map(self._status, self.records())

    def _status(self, record: GroupRecord) -> GroupStatus:
        return status_of(record, self.version)

    def records(self, *, parked: bool = False) -> Iterator[GroupRecord]:
        """Yield the stored records of all groups, or only of groups that are not open."""
        yield from self._pages(
            lambda pipelines, number, after: pipelines.list_groups(number, after, limits.RESULT_ROWS, parked=parked),
            lambda record: record.group,
            "",
        )

    @override
    def outputs(self) -> Iterator[Output]:
        """Yield undelivered outputs, in the order in which they were produced."""
        rows = self._pages(
            lambda pipelines, number, after: pipelines.outputs(number, after, limits.RESULT_ROWS),
            lambda row: row.number,
            0,
        )
        return map(_output, rows)

    @override
    def rejected(self) -> Iterator[RejectedMessage]:
        pages = self._pages(
            lambda pipelines, number, after: pipelines.rejections(number, after, limits.RESULT_ROWS),
            lambda row: row[0],
            0,
        )
        return (row for _, row in pages)

    @override
    def failing(self) -> Iterator[FailingDelivery]:
        deliveries = self._pages(
            lambda pipelines, number, after: pipelines.pending_deliveries(number, None, limits.RESULT_ROWS, after),
            lambda delivery: delivery.group,
            "",
        )
        return map(_failing, deliveries)

    @override
    def redeliver(self, groups: Sequence[str] | None) -> int:
        names = None if groups is None else [checked_text("group", group) for group in groups]
        return self._change(lambda pipelines, info: pipelines.redeliver(info.number, names))

    def _pages(self, read: Callable[[PipelineStore, int, K], list[T]], key: Callable[[T], K], after: K) -> Iterator[T]:
        """Yield the items that ``read`` returns page by page, each page after the key of the last item."""
        while page := self._read(lambda pipelines, info, after=after: read(pipelines, info.number, after)):  # type: ignore[misc]
            yield from page
            after = key(page[-1])

    @override
    def statuses(self, names: Sequence[str]) -> dict[str, GroupStatus]:
        records = self._read(lambda pipelines, info: pipelines.records(info.number, names))
        return {record.group: self._status(record) for record in records}

    @override
    def heads(self, names: Sequence[str]) -> dict[str, HeldMessageStatus]:
        heads = self._read(lambda pipelines, info: pipelines.heads(info.number, names))
        return {group: _held_status(head) for group, head in heads.items()}

    @override
    def held(self, name: str) -> list[HeldMessageStatus]:
        return [_held_status(head) for head in self._read(lambda pipelines, info: pipelines.held(info.number, name))]

    @override
    def pending_decisions(self, name: str) -> list[Decision]:
        rows = self._read(lambda pipelines, info: pipelines.decisions(info.number, limits.GROUPS_AT_ONCE, name))
        return [msgspec.json.decode(row.decision, type=Decision) for row in rows]

    @override
    def history(self, name: str, limit: int) -> GroupHistory:
        def read(pipelines: PipelineStore, number: int) -> GroupHistory:
            decided = [row for row in pipelines.decisions_of(number, name, limit) if row.verdict is not None]
            out = pipelines.pending_deliveries(number, [name], 1)
            return GroupHistory(
                [AppliedDecision(msgspec.json.decode(row[2], type=Decision), row.verdict or "") for row in decided],
                pipelines.rejections_of(number, name, limit),
                [_output(row) for row in pipelines.outputs_of(number, name, limit)],
                sum(delivery.depth for delivery in out),
                next((_failing(delivery) for delivery in out if delivery.attempts), None),
            )

        return self.read(read)

    @override
    def append(self, decisions: Sequence[Decision]) -> list[str]:
        decided = [
            StoredDecision(decision.name, decision.group, msgspec.json.encode(decision).decode())
            for decision in decisions
        ]
        self._change(lambda pipelines, info: pipelines.append_decisions(info.number, decided))
        return [decision.name for decision in decided]

    @override
    def verdicts(self, names: Sequence[str]) -> dict[str, str]:
        return self._read(lambda pipelines, info: pipelines.verdicts(info.number, names))

    @override
    def groups_of(self, names: Sequence[str]) -> dict[str, str]:
        return self._read(lambda pipelines, info: pipelines.decided_groups(info.number, names))

    @override
    def may_apply_automatically(self) -> bool:
        return True  # a worker may be running in any process

    @override
    def further_sentences(self, name: str) -> list[str]:
        rows = self._read(lambda pipelines, info: pipelines.pending_deliveries(info.number, [name], 1))
        if not rows:
            return []
        (pending,) = rows
        summary = (
            f"{counted(pending.depth, 'output')} of the group {'is' if pending.depth == 1 else 'are'} not delivered."
        )
        if not pending.attempts:
            return [summary]
        last_error = (pending.error or "").strip().splitlines()[-1:]
        if pending.until_ms >= limits.DELIVERY_REFUSED_MS:
            return [
                f"{summary} The first was refused: {''.join(last_error)}. Try again with `inturn parked redeliver`."
            ]
        retry_time = when(time_of(pending.until_ms * 1000), time_of(time.time_ns() // 1000))
        failed = f"deliver has failed {counted(pending.attempts, 'time')}: {''.join(last_error)}"
        return [f"{summary} {failed}. Next attempt: {retry_time}."]

    def read(self, function: Callable[[PipelineStore, int], T]) -> T:
        """Read in a separate transaction: call a function with the stored groups and the pipeline's number."""
        return self._read(lambda pipelines, info: function(pipelines, info.number))

    def info(self) -> PipelineInfo:
        """Return the stored definition and counts of the pipeline."""
        return self._read(lambda _kept, info: info)

    def now_ms(self) -> int:
        """Return the time of the database, in milliseconds since 1970."""
        return self.db.writer.clock()

    def _read(self, function: Callable[[PipelineStore, PipelineInfo], T]) -> T:
        """Read in a transaction."""
        return self.db.writer.run(Read("", partial(self._apply, function)))

    def _change(self, function: Callable[[PipelineStore, PipelineInfo], T]) -> T:
        """Read and write in a transaction."""
        return self.db.writer.run(StoreCall("", partial(self._apply, function)))

    def _apply(self, function: Callable[[PipelineStore, PipelineInfo], T], store: Any, _now_ms: int) -> T:
        pipelines = cast("QueueAndPipelineStore", store).pipelines
        return function(pipelines, self._info(pipelines))

    def _info(self, pipelines: PipelineStore) -> PipelineInfo:
        info = pipelines.info(self._name)
        if info is None and not self._must_exist:
            return PipelineInfo(0, self._name)  # of which nothing is stored
        if info is None:
            raise StoreError(_no_pipeline(self._name, pipelines))
        if not self._is_known:
            self.order, self.policy = StoredOrder.of(info.about["order"]), info.about["policy"]
            self._is_known = True
        self.version = int(info.about.get("version", 1))  # a worker may have raised it
        self.shape = info.about.get("state")
        return info


def _no_pipeline(name: str, pipelines: PipelineStore) -> str:
    return f"no pipeline {name!r}; existing pipelines: {', '.join(pipelines.names()) or 'none'}"


def status_of(record: GroupRecord, version: int | None = None) -> GroupStatus:
    """Return the status in a stored record of a group; ``version``: the version of the pipeline, if it matters."""
    place = stored_place(record)
    return GroupStatus(
        group=record.group,
        status=record.status,
        epoch=place.epoch,
        reached=place.reached,
        error=place.error,
        skipped=place.skipped,
        held=record.held,
        oldest=None if record.oldest_us is None else time_of(record.oldest_us),
        deadline=None if record.due_us is None else time_of(record.due_us),
        step=record.version,
        state=msgspec.json.decode(of_message_pack(record.state)),
        old_version=place.version
        if version is not None and place.version < version and record.state != ERASED_STATE
        else None,
    )


def _held_status(held: HeldRecord) -> HeldMessageStatus:
    content = msgspec.json.decode(held.content)
    return HeldMessageStatus(
        held.epoch, held.position, held.id or None, time_of(held.since_us), held.digest.hex(), content
    )


def _output(stored: OutputRecord) -> Output:
    return Output(*(*stored[1:7], msgspec.json.decode(stored.output)))


def _failing(out: PendingDelivery) -> FailingDelivery:
    row = FailingDelivery(out.group, out.depth, out.attempts, out.error or "", time_of(out.until_ms * 1000))
    return replace(row, next_try=None, status="refused") if out.until_ms >= limits.DELIVERY_REFUSED_MS else row
