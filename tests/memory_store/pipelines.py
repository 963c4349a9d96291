"""Pipelines in memory: the reference implementation of :class:`inturn.store.protocols.PipelineStore`, for tests."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from inturn.core import limits
from inturn.core.identity import HeldKey
from inturn.core.pipeline.results import RejectedMessage
from inturn.core.pipeline.timeline import Status
from inturn.core.words import time_of
from inturn.store.records import (
    AppliedMark,
    GroupRecord,
    GroupUpdate,
    HeldRecord,
    OutboxClaim,
    OutputRecord,
    PendingDelivery,
    PipelineInfo,
    PipelineSummary,
    StoredDecision,
)


@dataclass
class _Post:
    """The outbox entry of a group with undelivered outputs."""

    until_ms: int
    token: int = 0
    attempts: int = 0
    error: str | None = None
    lapses: int = 0
    lapsed_to: int = 0


@dataclass
class _Pipeline:
    """A pipeline and all its stored data."""

    info: PipelineInfo
    records: dict[str, GroupRecord] = field(default_factory=dict)
    begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, dict[HeldKey, HeldRecord]] = field(default_factory=dict)
    marks: dict[tuple[str, bytes], AppliedMark] = field(default_factory=dict)
    outputs: list[OutputRecord] = field(default_factory=list)
    posts: dict[str, _Post] = field(default_factory=dict)
    rejected: list[RejectedMessage] = field(default_factory=list)
    decisions: dict[str, StoredDecision] = field(default_factory=dict)


class MemoryPipelines:
    """The pipelines of a memory store."""

    def __init__(self) -> None:
        self._pipelines: list[_Pipeline] = []

    def _of(self, number: int) -> _Pipeline:
        return self._pipelines[number - 1]

    def names(self) -> list[str]:
        """Return the names of all pipelines."""
        return sorted(pipeline.info.name for pipeline in self._pipelines)

    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline."""
        return next((deepcopy(pipeline.info) for pipeline in self._pipelines if pipeline.info.name == name), None)

    def save(self, info: PipelineInfo) -> None:
        """Create or change a pipeline."""
        if info.number == 0:
            info.number = len(self._pipelines) + 1
            self._pipelines.append(_Pipeline(info))
        self._of(info.number).info = deepcopy(info)

    def records(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of the named groups that exist."""
        records = self._of(pipeline).records
        return [records[group] for group in groups if group in records]

    def list_groups(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names."""
        records = [record for _, record in sorted(self._of(pipeline).records.items())]
        return [record for record in records if record.group > after and not (parked and record.status == "open")][
            :limit
        ]

    def briefs(self, pipeline: int, after: str, limit: int) -> list[tuple[str, str, bytes, int, int | None]]:
        """Return groups that are not open, in brief."""
        records = self.list_groups(pipeline, after, limit, parked=True)
        return [(record.group, record.status, record.timeline, record.held, record.oldest_us) for record in records]

    def summary(self, pipeline: int) -> PipelineSummary:
        """Return the numbers of groups, held messages and undelivered outputs."""
        stored = self._of(pipeline)
        statuses = Counter(record.status for record in stored.records.values())
        parked = statuses.total() - statuses[Status.OPEN] - statuses[Status.WAITING]
        held = sum(record.held for record in stored.records.values())
        return PipelineSummary(statuses.total(), statuses[Status.WAITING], parked, held, len(stored.outputs))

    def due(self, pipeline: int, now_us: int, limit: int) -> dict[str, int]:
        """Return the groups whose wait has ended, with its end."""
        waits = sorted(
            (record.due_us, name) for name, record in self._of(pipeline).records.items() if record.due_us is not None
        )
        return {name: due_us for due_us, name in waits[:limit] if due_us <= now_us}

    def put_off(self, pipeline: int, groups: Sequence[str], now_us: int, until_us: int) -> None:
        """Postpone the end of the waits of these groups, if they are due now."""
        records = self._of(pipeline).records
        for name in groups:
            record = records.get(name)
            if record is not None and record.due_us is not None and record.due_us <= now_us:
                records[name] = record._replace(due_us=until_us)

    def set_due(self, pipeline: int, wait_us: int | None) -> None:
        """Let the waits of all waiting groups end this time after their longest-held message."""
        records = self._of(pipeline).records
        for name, record in records.items():
            if record.status == Status.WAITING:
                due_us = None if wait_us is None or record.oldest_us is None else record.oldest_us + wait_us
                records[name] = record._replace(due_us=due_us)

    def begun_tasks(self, pipeline: int, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the number of begun turns without messages of these groups, and their deadline."""
        begun = self._of(pipeline).begun
        return {group: begun[group] for group in groups if group in begun}

    def save_begun(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> None:
        """Write the number of begun turns without messages of groups."""
        stored = self._of(pipeline)
        for group, count in begun.items():
            stored.begun.pop(group, None)
            if count and group in stored.records:
                stored.begun[group] = (count, until_ms)

    def save_begun_if_free(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> list[str]:
        """Do the same; there is no other transaction."""
        self.save_begun(pipeline, begun, until_ms)
        return []

    def held(
        self, pipeline: int, group: str, positions: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldRecord]:
        """Return the held messages of a group."""
        every = self._all_held(pipeline, group)
        if positions is None and ids is None:
            return every
        return [
            message
            for message in every
            if message.position in (positions or ()) or (message.id and message.id in (ids or ()))
        ]

    def held_from(self, pipeline: int, group: str, spot: HeldKey, limit: int) -> list[HeldRecord]:
        """Return the held messages of a group from a spot on."""
        return [message for message in self._all_held(pipeline, group) if message.spot >= spot][:limit]

    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldRecord]:
        """Return the first held message of each of these groups."""
        held = {group: self._all_held(pipeline, group) for group in groups}
        return {group: messages[0] for group, messages in held.items() if messages}

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, HeldKey]]:
        """Return the times and spots of the messages that a group has held longest."""
        return sorted((message.since_us, message.spot) for message in self._all_held(pipeline, group))[:limit]

    def _all_held(self, pipeline: int, group: str) -> list[HeldRecord]:
        return [message for _, message in sorted(self._of(pipeline).held.get(group, {}).items())]

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the stored marks of a group among these marks."""
        stored = self._of(pipeline).marks
        return [stored[group, mark] for mark in sorted(marks) if (group, mark) in stored]

    def save_updates(
        self, info: PipelineInfo, updates: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of turns."""
        stored = self._of(info.number)
        known = {group: record.version for group, record in stored.records.items()}
        overtaken = [
            update.record.group for update in updates if known.get(update.record.group, 0) != update.record.version
        ]
        if overtaken:
            return overtaken
        for record, held, removed, outputs, marks, _ in updates:
            stored.marks.update({(record.group, mark.mark): mark for mark in marks})
            stored.records[record.group] = record._replace(version=record.version + 1)
            group_held = stored.held.setdefault(record.group, {})
            for spot in removed:
                group_held.pop(spot, None)
            group_held.update({message.spot: message for message in held})
            for output in outputs:
                info.outputs += 1
                stored.outputs.append(output._replace(number=info.outputs))
            if outputs:
                stored.posts.setdefault(record.group, _Post(now_ms))
        stored.rejected += [replace(rejection, at=time_of(now_ms * 1000)) for rejection in rejected]
        self.save(info)
        return []

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages with their numbers."""
        return list(enumerate(self._of(pipeline).rejected, 1))[after : after + limit]

    def rejections_of(self, pipeline: int, group: str, limit: int) -> list[RejectedMessage]:
        """Return the last rejected messages of a group, the last first."""
        latest = self._of(pipeline).rejected[-limits.HISTORY_ROWS :]
        return [rejection for rejection in reversed(latest) if rejection.group == group][:limit]

    def outputs(self, pipeline: int, after: int, limit: int) -> list[OutputRecord]:
        """Return outputs in the order in which they were produced."""
        return [output for output in self._of(pipeline).outputs if output.number > after][:limit]

    def outputs_of(self, pipeline: int, group: str, limit: int) -> list[OutputRecord]:
        """Return the undelivered outputs of a group, the last first."""
        return [output for output in reversed(self._of(pipeline).outputs) if output.group == group][:limit]

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[OutboxClaim]:
        """Claim the first outputs of unclaimed groups."""
        stored = self._of(info.number)
        free = sorted((post.until_ms, group) for group, post in stored.posts.items() if post.until_ms <= now_ms)
        suspect = [entry for entry in free if stored.posts[entry[1]].token or stored.posts[entry[1]].lapses > 1][:1]
        free = suspect or free[:groups]
        info.tokens += bool(free)
        claims = []
        for _, group in free:
            post = stored.posts[group]
            own = [output for output in stored.outputs if output.group == group][:outputs]
            if post.token:
                post.lapsed_to = post.lapsed_to if post.lapses or not own else own[-1].number
                post.lapses += 1
            post.token, post.until_ms = info.tokens, until_ms
            own = own[: 1 if post.lapses else outputs]
            claims.append(OutboxClaim(group, post.token, post.attempts, own, post.lapses, bool(suspect)))
        self.save(info)
        return claims

    def renew(self, pipeline: int, claims: Sequence[OutboxClaim], until_ms: int) -> None:
        """Extend claims."""
        for claim in claims:
            post = self._of(pipeline).posts.get(claim.group)
            if post is not None and post.token == claim.token:
                post.until_ms = until_ms

    def delivered(self, pipeline: int, claim: OutboxClaim, count: int, until_ms: int, error: str | None) -> bool:
        """End a claim and remove its delivered outputs."""
        stored = self._of(pipeline)
        post = stored.posts.get(claim.group)
        if post is None or post.token != claim.token:
            return False
        delivered = {output.number for output in claim.outputs[:count]}
        stored.outputs = [output for output in stored.outputs if output.number not in delivered]
        if any(output.group == claim.group for output in stored.outputs):
            attempts = 0 if error is None else 1 if count else post.attempts + 1
            lapses = post.lapses
            if count or error is not None:
                lapses = 0 if count and claim.outputs[count - 1].number >= post.lapsed_to else min(lapses, 1)
            stored.posts[claim.group] = _Post(until_ms, 0, attempts, error, lapses, post.lapsed_to)
        else:
            del stored.posts[claim.group]
        return True

    def pending_deliveries(
        self, pipeline: int, groups: Sequence[str] | None, limit: int, after: str = ""
    ) -> list[PendingDelivery]:
        """Return groups with undelivered outputs."""
        stored = self._of(pipeline)
        return [
            PendingDelivery(
                group, post.until_ms, post.attempts, post.error, sum(output.group == group for output in stored.outputs)
            )
            for group, post in sorted(stored.posts.items())
            if (post.attempts and group > after if groups is None else group in groups)
        ][:limit]

    def has_unsent(self, pipeline: int) -> bool:
        """Return whether a group has undelivered outputs that were not refused."""
        return any(post.until_ms < limits.DELIVERY_REFUSED_MS for post in self._of(pipeline).posts.values())

    def redeliver(self, pipeline: int, groups: Sequence[str] | None) -> int:
        """Let refused outputs be claimed again; return the number of groups."""
        refused = [
            post
            for group, post in self._of(pipeline).posts.items()
            if post.until_ms >= limits.DELIVERY_REFUSED_MS and (groups is None or group in groups)
        ]
        for post in refused:
            post.until_ms = 0
        return len(refused)

    def append_decisions(self, pipeline: int, decided: Sequence[StoredDecision]) -> None:
        """Append decisions."""
        self._of(pipeline).decisions.update((decision.name, decision) for decision in decided)

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[StoredDecision]:
        """Return the decisions that are not applied yet."""
        every = [decision for _, decision in sorted(self._of(pipeline).decisions.items())]
        return [decision for decision in every if decision.verdict is None and group in (None, decision.group)][:limit]

    def decisions_of(self, pipeline: int, group: str, limit: int) -> list[StoredDecision]:
        """Return the last decisions about a group, applied or not, the last first."""
        latest = sorted(self._of(pipeline).decisions.items(), reverse=True)[: limits.HISTORY_ROWS]
        return [decision for _, decision in latest if decision.group == group][:limit]

    def save_verdicts(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Mark decisions as applied."""
        decisions = self._of(pipeline).decisions
        for name, verdict in verdicts.items():
            if decisions[name].verdict is None:
                decisions[name] = decisions[name]._replace(verdict=verdict)

    def verdicts(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the verdicts on the named decisions that are applied."""
        decisions = self._of(pipeline).decisions
        known = {name: decisions[name].verdict for name in names if name in decisions}
        return {name: verdict for name, verdict in known.items() if verdict is not None}

    def decided_groups(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the groups of the named decisions that exist."""
        decisions = self._of(pipeline).decisions
        return {name: decisions[name].group for name in names if name in decisions}
