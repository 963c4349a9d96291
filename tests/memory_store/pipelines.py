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
    lines: dict[str, GroupRecord] = field(default_factory=dict)
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
        return sorted(each.info.name for each in self._pipelines)

    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline."""
        return next((deepcopy(each.info) for each in self._pipelines if each.info.name == name), None)

    def save(self, info: PipelineInfo) -> None:
        """Create or change a pipeline."""
        if info.number == 0:
            info.number = len(self._pipelines) + 1
            self._pipelines.append(_Pipeline(info))
        self._of(info.number).info = deepcopy(info)

    def records(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of the named groups that exist."""
        lines = self._of(pipeline).lines
        return [lines[group] for group in groups if group in lines]

    def list_groups(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names."""
        lines = [line for _, line in sorted(self._of(pipeline).lines.items())]
        return [line for line in lines if line.group > after and not (parked and line.status == "open")][:limit]

    def briefs(self, pipeline: int, after: str, limit: int) -> list[tuple[str, str, bytes, int, int | None]]:
        """Return groups that are not open, in brief."""
        lines = self.list_groups(pipeline, after, limit, parked=True)
        return [(line.group, line.status, line.timeline, line.held, line.oldest_us) for line in lines]

    def summary(self, pipeline: int) -> PipelineSummary:
        """Return the numbers of groups, held messages and undelivered outputs."""
        mine = self._of(pipeline)
        statuses = Counter(line.status for line in mine.lines.values())
        parked = statuses.total() - statuses[Status.OPEN] - statuses[Status.WAITING]
        held = sum(line.held for line in mine.lines.values())
        return PipelineSummary(statuses.total(), statuses[Status.WAITING], parked, held, len(mine.outputs))

    def due(self, pipeline: int, now_us: int, limit: int) -> dict[str, int]:
        """Return the groups whose wait has ended, with its end."""
        waits = sorted(
            (each.due_us, name) for name, each in self._of(pipeline).lines.items() if each.due_us is not None
        )
        return {name: due_us for due_us, name in waits[:limit] if due_us <= now_us}

    def put_off(self, pipeline: int, groups: Sequence[str], now_us: int, until_us: int) -> None:
        """Postpone the end of the waits of these groups, if they are due now."""
        lines = self._of(pipeline).lines
        for name in groups:
            line = lines.get(name)
            if line is not None and line.due_us is not None and line.due_us <= now_us:
                lines[name] = line._replace(due_us=until_us)

    def set_due(self, pipeline: int, wait_us: int | None) -> None:
        """Let the waits of all waiting groups end this time after their longest-held message."""
        lines = self._of(pipeline).lines
        for name, each in lines.items():
            if each.status == Status.WAITING:
                due_us = None if wait_us is None or each.oldest_us is None else each.oldest_us + wait_us
                lines[name] = each._replace(due_us=due_us)

    def begun_tasks(self, pipeline: int, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the number of begun turns without messages of these groups, and their deadline."""
        begun = self._of(pipeline).begun
        return {group: begun[group] for group in groups if group in begun}

    def save_begun(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> None:
        """Write the number of begun turns without messages of groups."""
        mine = self._of(pipeline)
        for group, count in begun.items():
            mine.begun.pop(group, None)
            if count and group in mine.lines:
                mine.begun[group] = (count, until_ms)

    def save_begun_if_free(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> list[str]:
        """Do the same; there is no other transaction."""
        self.save_begun(pipeline, begun, until_ms)
        return []

    def held(
        self, pipeline: int, group: str, turns: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldRecord]:
        """Return the held messages of a group."""
        every = self._all_held(pipeline, group)
        if turns is None and ids is None:
            return every
        return [each for each in every if each.turn in (turns or ()) or (each.id and each.id in (ids or ()))]

    def held_from(self, pipeline: int, group: str, spot: HeldKey, limit: int) -> list[HeldRecord]:
        """Return the held messages of a group from a spot on."""
        return [each for each in self._all_held(pipeline, group) if each.spot >= spot][:limit]

    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldRecord]:
        """Return the first held message of each of these groups."""
        held = {group: self._all_held(pipeline, group) for group in groups}
        return {group: each[0] for group, each in held.items() if each}

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, HeldKey]]:
        """Return the times and spots of the messages that a group has held longest."""
        return sorted((each.since_us, each.spot) for each in self._all_held(pipeline, group))[:limit]

    def _all_held(self, pipeline: int, group: str) -> list[HeldRecord]:
        return [message for _, message in sorted(self._of(pipeline).held.get(group, {}).items())]

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the stored marks of a group among these marks."""
        there = self._of(pipeline).marks
        return [there[group, mark] for mark in sorted(marks) if (group, mark) in there]

    def save_updates(
        self, info: PipelineInfo, kept: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of turns."""
        mine = self._of(info.number)
        known = {group: line.version for group, line in mine.lines.items()}
        overtaken = [each.record.group for each in kept if known.get(each.record.group, 0) != each.record.version]
        if overtaken:
            return overtaken
        for line, held, gone, outputs, marks, _ in kept:
            mine.marks.update({(line.group, each.mark): each for each in marks})
            mine.lines[line.group] = line._replace(version=line.version + 1)
            there = mine.held.setdefault(line.group, {})
            for spot in gone:
                there.pop(spot, None)
            there.update({message.spot: message for message in held})
            for output in outputs:
                info.outputs += 1
                mine.outputs.append(output._replace(number=info.outputs))
            if outputs:
                mine.posts.setdefault(line.group, _Post(now_ms))
        mine.rejected += [replace(each, at=time_of(now_ms * 1000)) for each in rejected]
        self.save(info)
        return []

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages with their numbers."""
        return list(enumerate(self._of(pipeline).rejected, 1))[after : after + limit]

    def rejections_of(self, pipeline: int, group: str, limit: int) -> list[RejectedMessage]:
        """Return the last rejected messages of a group, the last first."""
        latest = self._of(pipeline).rejected[-limits.HISTORY_ROWS :]
        return [each for each in reversed(latest) if each.group == group][:limit]

    def outputs(self, pipeline: int, after: int, limit: int) -> list[OutputRecord]:
        """Return outputs in the order in which they were produced."""
        return [each for each in self._of(pipeline).outputs if each.number > after][:limit]

    def outputs_of(self, pipeline: int, group: str, limit: int) -> list[OutputRecord]:
        """Return the undelivered outputs of a group, the last first."""
        return [each for each in reversed(self._of(pipeline).outputs) if each.group == group][:limit]

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[OutboxClaim]:
        """Claim the first outputs of unclaimed groups."""
        mine = self._of(info.number)
        free = sorted((post.until_ms, group) for group, post in mine.posts.items() if post.until_ms <= now_ms)
        suspect = [each for each in free if mine.posts[each[1]].token or mine.posts[each[1]].lapses > 1][:1]
        free = suspect or free[:groups]
        info.tokens += bool(free)
        claims = []
        for _, group in free:
            post = mine.posts[group]
            own = [each for each in mine.outputs if each.group == group][:outputs]
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
        mine = self._of(pipeline)
        post = mine.posts.get(claim.group)
        if post is None or post.token != claim.token:
            return False
        gone = {each.number for each in claim.outputs[:count]}
        mine.outputs = [each for each in mine.outputs if each.number not in gone]
        if any(each.group == claim.group for each in mine.outputs):
            attempts = 0 if error is None else 1 if count else post.attempts + 1
            lapses = post.lapses
            if count or error is not None:
                lapses = 0 if count and claim.outputs[count - 1].number >= post.lapsed_to else min(lapses, 1)
            mine.posts[claim.group] = _Post(until_ms, 0, attempts, error, lapses, post.lapsed_to)
        else:
            del mine.posts[claim.group]
        return True

    def pending_deliveries(
        self, pipeline: int, groups: Sequence[str] | None, limit: int, after: str = ""
    ) -> list[PendingDelivery]:
        """Return groups with undelivered outputs."""
        mine = self._of(pipeline)
        return [
            PendingDelivery(
                group, post.until_ms, post.attempts, post.error, sum(each.group == group for each in mine.outputs)
            )
            for group, post in sorted(mine.posts.items())
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
        self._of(pipeline).decisions.update((each.name, each) for each in decided)

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[StoredDecision]:
        """Return the decisions that are not applied yet."""
        every = [each for _, each in sorted(self._of(pipeline).decisions.items())]
        return [each for each in every if each.verdict is None and group in (None, each.group)][:limit]

    def decisions_of(self, pipeline: int, group: str, limit: int) -> list[StoredDecision]:
        """Return the last decisions about a group, applied or not, the last first."""
        latest = sorted(self._of(pipeline).decisions.items(), reverse=True)[: limits.HISTORY_ROWS]
        return [each for _, each in latest if each.group == group][:limit]

    def save_verdicts(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Mark decisions as applied."""
        decisions = self._of(pipeline).decisions
        for name, verdict in verdicts.items():
            if decisions[name].verdict is None:
                decisions[name] = decisions[name]._replace(verdict=verdict)

    def verdicts(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the verdicts on the named decisions that are applied."""
        decisions = self._of(pipeline).decisions
        found = {name: decisions[name].verdict for name in names if name in decisions}
        return {name: verdict for name, verdict in found.items() if verdict is not None}

    def decided_groups(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the groups of the named decisions that exist."""
        decisions = self._of(pipeline).decisions
        return {name: decisions[name].group for name in names if name in decisions}
