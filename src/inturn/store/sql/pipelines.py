"""Pipelines in an SQL database: groups, held messages, undelivered outputs, rejected messages and decisions.

Both databases have the same tables and the same names of statements. A database adds how it keeps its counts, how it
gives outputs to deliverers, and how lists and texts are passed to its statements.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from inturn.core import limits
from inturn.core.identity import HeldKey
from inturn.core.override import override
from inturn.core.pipeline.results import RejectedMessage
from inturn.core.words import time_of
from inturn.store.pipeline_store import PipelineStore
from inturn.store.records import (
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

Row: TypeAlias = tuple[Any, ...]


class SqlPipelines(PipelineStore):
    """The pipelines of one database.

    Args:
        read: runs a statement by its name, with its parameters; returns its rows.
        do: runs a statement that has no result.
        write: runs a statement for each of some rows of one pipeline, whose columns are its parameters.
        as_list: returns values as one parameter.
    """

    def __init__(
        self,
        read: Callable[..., list[Row]],
        do: Callable[..., object],
        write: Callable[[str, Sequence[Row]], None],
        as_list: Callable[[Iterable[object]], object],
    ) -> None:
        self._read = read
        self._do = do
        self._write = write
        self._list = as_list

    # --- implemented by each database ---

    @abstractmethod
    def _save_outputs(self, info: PipelineInfo, rows: Sequence[Row]) -> None:
        """Write new outputs, whose rows have no numbers yet, and the counts of the pipeline."""

    def _text(self, text: str) -> str:
        """Return the stored form of a text."""
        return text

    def _key(self, name: str) -> str:
        """Return the stored form of a group or an id, for a lookup."""
        return name

    def _keys(self, names: Iterable[str]) -> object:
        """Return the stored forms of groups or ids as one parameter."""
        return self._list(names)

    def _short_name(self, name: str) -> str:
        """Return the stored form of a group or an id, for a write."""
        return name

    def _versions(self, pipeline: int, groups: Sequence[str]) -> dict[str, int]:
        """Return the versions of the groups that exist, by the stored form of their names."""
        return dict(self._read("group_versions", pipeline, self._list(groups)))

    def _save_records(self, rows: Sequence[Row]) -> None:
        self._write("save_group_records", rows)

    def _extra_columns(self, update: GroupUpdate) -> Row:  # noqa: ARG002 - a hook
        """Return further columns of a group's record."""
        return ()

    # --- groups ---

    @override
    def names(self) -> list[str]:
        return [name for (name,) in self._read("pipelines")]

    @override
    def records(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        return [*map(GroupRecord._make, self._read("group_records", pipeline, self._keys(groups)))]

    @override
    def list_groups(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        rows = self._read(
            "parked_group_records" if parked else "group_records_after", pipeline, self._key(after), limit
        )
        return [*map(GroupRecord._make, rows)]

    @override
    def briefs(self, pipeline: int, after: str, limit: int) -> list[tuple[str, str, bytes, int, int | None]]:
        return self._read("parked_group_summaries", pipeline, self._key(after), limit)

    @override
    def summary(self, pipeline: int) -> PipelineSummary:
        return PipelineSummary._make(self._read("summary", pipeline)[0])

    @override
    def due(self, pipeline: int, now_us: int, limit: int) -> dict[str, int]:
        return dict(self._read("due_groups", pipeline, now_us, limit))

    @override
    def set_due(self, pipeline: int, wait_us: int | None) -> None:
        self._do("set_due", pipeline, wait_us)

    @override
    def put_off(self, pipeline: int, groups: Sequence[str], now_us: int, until_us: int) -> None:
        self._do("postpone_due", pipeline, self._keys(groups), now_us, until_us)

    @override
    def begun_tasks(self, pipeline: int, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
        rows = self._read("begun_tasks", pipeline, self._keys(groups))
        return {group: (begun, until_ms) for group, begun, until_ms in rows}

    @override
    def save_begun(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> None:
        rows = [(pipeline, self._key(group), count, until_ms) for group, count in sorted(begun.items())]
        self._write("begin_tasks", rows)

    @override
    def save_begun_if_free(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> list[str]:
        self.save_begun(pipeline, begun, until_ms)
        return []

    @override
    def held(
        self, pipeline: int, group: str, positions: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldRecord]:
        key_columns = pipeline, self._key(group)
        if positions is None and ids is None:
            return [*map(HeldRecord._make, self._read("held_messages", *key_columns))]
        rows = self._read("held_at_positions", *key_columns, self._list(positions)) if positions else []
        rows += self._read("held_with_ids", *key_columns, self._keys(ids)) if ids else []
        return [*map(HeldRecord._make, sorted(set(rows)))]

    @override
    def held_from(self, pipeline: int, group: str, spot: HeldKey, limit: int) -> list[HeldRecord]:
        *place, message_id = spot
        rows = self._read("held_from", pipeline, self._key(group), *place, self._key(message_id), limit)
        return [*map(HeldRecord._make, rows)]

    @override
    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, HeldKey]]:
        rows = self._read("longest_held", pipeline, self._key(group), limit)
        return [(since_us, (epoch, position, tie, message_id)) for since_us, epoch, position, tie, message_id in rows]

    @override
    def save_updates(
        self, info: PipelineInfo, updates: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        number = info.number
        names = {update.record.group: self._short_name(update.record.group) for update in updates}
        known = self._versions(number, list(names.values())) if updates else {}
        overtaken = [record.group for record, *_ in updates if known.get(names[record.group], 0) != record.version]
        if overtaken:
            return overtaken
        lines, removed, held, marks, outputs, posts = [], [], [], [], [], []
        form = self._short_name
        for update in updates:
            record, its_held, its_gone, its_outputs, its_marks, _ = update
            group = names[record.group]
            lines.append((number, group, record.version + 1, *record[2:], *self._extra_columns(update)))
            for *place, message_id in its_gone:
                removed.append((number, group, *place, form(message_id)))
            for *place, message_id, since_us, digest, content in its_held:
                held.append((number, group, *place, form(message_id), since_us, digest, content))
            for mark, digest, position in its_marks:
                marks.append((number, group, mark, digest, position))
            for _, _, its_epoch, revision, output_id, *more in its_outputs:
                outputs.append((number, group, its_epoch, revision, output_id and self._text(output_id), *more, now_ms))
            if its_outputs:
                posts.append((number, group, now_ms))
        self._save_records(lines)
        self._write("remove_held", removed)
        self._write("add_held", held)
        self._write("add_marks", marks)
        self._save_outputs(info, outputs)
        self._write("add_to_outbox", posts)
        refused = [(rejection.group, rejection.reason, rejection.detail, rejection.message) for rejection in rejected]
        texts = [[None if text is None else self._text(text) for text in refusal] for refusal in refused]
        self._write("add_rejected", [(number, *columns, now_ms) for columns in texts])
        return []

    @override
    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        return [(number, _rejected(row)) for number, *row in self._read("rejections", pipeline, after, limit)]

    @override
    def rejections_of(self, pipeline: int, group: str, limit: int) -> list[RejectedMessage]:
        rows = self._read("latest_group_rejections", pipeline, self._text(group), limits.HISTORY_ROWS, limit)
        return [*map(_rejected, rows)]

    # --- outputs ---

    @override
    def outputs(self, pipeline: int, after: int, limit: int) -> list[OutputRecord]:
        return [*map(OutputRecord._make, self._read("outputs", pipeline, after, limit))]

    @override
    def outputs_of(self, pipeline: int, group: str, limit: int) -> list[OutputRecord]:
        return [*map(OutputRecord._make, self._read("latest_group_outputs", pipeline, self._key(group), limit))]

    @override
    def renew(self, pipeline: int, claims: Sequence[OutboxClaim], until_ms: int) -> None:
        self._write("renew_claims", [(pipeline, self._key(claim.group), claim.token, until_ms) for claim in claims])

    @override
    def pending_deliveries(
        self, pipeline: int, groups: Sequence[str] | None, limit: int, after: str = ""
    ) -> list[PendingDelivery]:
        if groups is None:
            return [*map(PendingDelivery._make, self._read("failing_deliveries", pipeline, self._key(after), limit))]
        rows = self._read("group_deliveries", pipeline, self._keys(groups), limit)
        return [*map(PendingDelivery._make, rows)]

    @override
    def has_unsent(self, pipeline: int) -> bool:
        return bool(self._read("has_undelivered", pipeline, limits.DELIVERY_REFUSED_MS))

    @override
    def redeliver(self, pipeline: int, groups: Sequence[str] | None) -> int:
        parameters = pipeline, limits.DELIVERY_REFUSED_MS
        if groups is None:
            return len(self._read("redeliver_all", *parameters))
        return len(self._read("redeliver", *parameters, self._keys(groups)))

    # --- decisions ---

    @override
    def append_decisions(self, pipeline: int, decided: Sequence[StoredDecision]) -> None:
        self._write(
            "add_decisions",
            [(pipeline, decision.name, self._short_name(decision.group), decision.decision) for decision in decided],
        )

    @override
    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[StoredDecision]:
        if group is None:
            return [*map(StoredDecision._make, self._read("new_decisions", pipeline, limit))]
        return [*map(StoredDecision._make, self._read("new_group_decisions", pipeline, self._key(group), limit))]

    @override
    def decisions_of(self, pipeline: int, group: str, limit: int) -> list[StoredDecision]:
        rows = self._read("latest_group_decisions", pipeline, self._key(group), limits.HISTORY_ROWS, limit)
        return [*map(StoredDecision._make, rows)]

    @override
    def save_verdicts(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        rows = [(pipeline, name, self._text(verdict)) for name, verdict in verdicts.items()]
        self._write("set_verdicts", rows)

    @override
    def verdicts(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        return dict(self._read("verdicts", pipeline, self._list(names)))

    @override
    def decided_groups(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        return dict(self._read("decision_groups", pipeline, self._list(names)))


def _rejected(row: Sequence[Any]) -> RejectedMessage:
    return RejectedMessage(*(*row[:-1], time_of(row[-1] * 1000)))
