"""Pipelines in PostgreSQL; store/sql/pipelines.py has the part that SQLite shares.

Workers on several machines seldom wait for each other. A worker that writes the results of tasks locks the rows of
their groups. Counts are added to one of several rows. Outputs are numbered by a sequence: in order within a group,
roughly in order between groups, and with gaps.

A worker that produces outputs writes a note to `inturn_outbox_note`, and does not touch the outbox, which only
deliveries use. A claim of outputs, the last step of a worker's transaction, applies the notes first. A note about a
group with a row in the outbox is removed only by a transaction that has locked that row. The row is removed only by a
transaction that sees no output of the group. So a group with an output always has a note or a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import msgspec

from inturn.core import limits
from inturn.core.override import override
from inturn.core.pipeline.results import RejectedMessage
from inturn.store.failures import RunAgain
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.statements import Wire
from inturn.store.postgres.texts import read, written
from inturn.store.records import (
    AppliedMark,
    GroupUpdate,
    HeldRecord,
    OutboxClaim,
    OutputRecord,
    PipelineInfo,
)
from inturn.store.sql.pipelines import Row, SqlPipelines

_OUTPUTS: Final = "outputs"
"""The kind of count for outputs; messages are counted under other names."""
_ENCODED: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    **dict.fromkeys(
        ("group_records", "group_records_after", "parked_group_records", "parked_group_summaries", "due_groups"),
        ((0,), ()),
    ),
    **dict.fromkeys(("held_messages", "held_at_positions", "held_with_ids", "held_from"), ((3,), ())),
    **dict.fromkeys(("new_decisions", "new_group_decisions", "latest_group_decisions"), ((1,), (3,))),
    **dict.fromkeys(("group_deliveries", "failing_deliveries"), ((0,), (3,))),
    "pipelines": ((), (0,)),
    "verdicts": ((), (1,)),
    "decision_groups": ((1,), ()),
    "held_heads": ((0, 4), ()),
    "longest_held": ((4,), ()),
    "rejections": ((), (1, 3, 4)),
    "latest_group_rejections": ((), (0, 2, 3)),
    **dict.fromkeys(("outputs", "latest_group_outputs"), ((1,), (4,))),
    "claim": ((6,), (9,)),
    **dict.fromkeys(("begun_tasks", "begin_free_tasks"), ((0,), ())),
}
"""The columns of each statement's result that contain names, see names.py, and those with other encoded texts."""


@dataclass
class CountedPipelineInfo(PipelineInfo):
    """A pipeline's info with the counts that were read, so that only differences are written."""

    seen: dict[str, Any] = field(default_factory=dict)  # the counts that were read or written last


class PostgresPipelines(SqlPipelines):
    """The pipelines of one database.

    Args:
        wire: wire to the database.
        names: the long names of groups and ids.
    """

    def __init__(self, wire: Wire, names: LongNames) -> None:
        super().__init__(self._decoded, wire.queue, self._write_columns, list)
        self._wire = wire
        self._names = names

    def _decoded(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement; return its rows with names and texts as they were before they were encoded."""
        rows = self._wire.all(statement, *values)
        names, texts = _ENCODED.get(statement, ((), ()))
        if not any(
            row[column] and "\1" in row[column] for row in rows for column in (*names, *texts)
        ):  # the usual case
            return rows
        name = self._names.reader(row[column] for row in rows for column in names)
        decoded = []
        for row in map(list, rows):
            for column in names:
                row[column] = row[column] and read(name(row[column]))
            for column in texts:
                row[column] = row[column] and read(row[column])
            decoded.append(tuple(row))
        return decoded

    @override
    def _text(self, text: str) -> str:
        return written(text)

    @override
    def _key(self, name: str) -> str:
        return short(written(name))

    @override
    def _keys(self, names: Iterable[str]) -> list[str]:
        return [*map(self._key, names)]

    @override
    def _short_name(self, name: str) -> str:
        return self._names.short_name(written(name))

    def _write_columns(self, statement: str, rows: Sequence[Row]) -> None:
        if rows:
            (pipeline, *_), *columns = zip(*rows, strict=True)
            self._do(statement, pipeline, *map(list, columns))

    @override
    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline; ``tokens`` is not set, since a sequence gives them."""
        rows = self._read("pipeline", written(name))
        if not rows:
            return None
        number, about = rows[0][:2]
        counts: dict[str, Any] = {}
        for *_, kind, reason, count in rows:
            if reason:
                counts.setdefault(kind, {})[reason] = count
            elif kind is not None:
                counts[kind] = count
        outputs = counts.pop(_OUTPUTS, 0)
        return CountedPipelineInfo(number, name, msgspec.json.decode(about), counts, outputs, seen=deepcopy(counts))

    @override
    def save(self, info: PipelineInfo) -> None:
        """Create or change a pipeline.

        Raises:
            RunAgain: if another process has created it at the same time.
        """
        about = msgspec.json.encode(info.about).decode()
        if info.number:
            self._do("save_pipeline", info.number, about)
        else:
            row = self._wire.one("add_pipeline", written(info.name), about)
            if row is None:
                raise RunAgain(f"another process has created pipeline {info.name!r} concurrently")
            (info.number,) = row
        self._tally(info, 0)

    def _tally(self, info: PipelineInfo, output_count: int) -> None:
        """Add the changes of the counts to the counts in the database."""
        seen = info.seen if isinstance(info, CountedPipelineInfo) else {}
        before, now = _flat(seen), _flat(info.counts)
        if output_count:
            now[_OUTPUTS, ""] = before.get((_OUTPUTS, ""), 0) + output_count
        more = {key: count - before.get(key, 0) for key, count in now.items()}
        self._write("add_pipeline_counts", [(info.number, *key, count) for key, count in more.items() if count])
        if isinstance(info, CountedPipelineInfo):
            info.seen = deepcopy(info.counts)

    @override
    def save_begun_if_free(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> list[str]:
        groups = [self._key(group) for group in begun]
        rows = self._read("begin_free_tasks", pipeline, groups, [*begun.values()], [until_ms] * len(groups))
        return [group for (group,) in rows]

    @override
    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldRecord]:
        return {group: HeldRecord._make(row) for group, *row in self._read("held_heads", pipeline, self._keys(groups))}

    @override
    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        rows = self._read("marks", pipeline, self._key(group), sorted(marks)) if marks else []
        return [*map(AppliedMark._make, rows)]

    @override
    def _save_records(self, rows: Sequence[Row]) -> None:
        """Write the records of groups.

        Raises:
            RunAgain: if another process has created a group at the same time.
        """
        self._write("save_group_records", [row for row in rows if row[2] > 1])
        new = [row for row in rows if row[2] == 1]
        if not new:
            return
        (pipeline, *_), *columns = zip(*new, strict=True)
        if len(self._read("add_group_records", pipeline, *map(list, columns))) < len(new):
            raise RunAgain("another process has created a group concurrently")

    @override
    def _save_outputs(self, info: PipelineInfo, rows: Sequence[Row]) -> None:
        self._write("add_outputs", rows)
        info.outputs += len(rows)
        self._tally(info, len(rows))

    @override
    def save_updates(
        self, info: PipelineInfo, updates: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        self._wire.note_transaction()
        return super().save_updates(info, updates, rejected, now_ms)

    @override
    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[OutboxClaim]:
        self._do("apply_outbox_notes", info.number, limits.OUTBOX_NOTES)
        rows = self._read("claim", info.number, now_ms, groups, outputs, until_ms)
        claims, empty = [], []
        for (group, token, attempts, lapses, is_alone), part in groupby(rows, lambda row: row[:5]):
            pending = [OutputRecord._make(row[5:]) for row in part if row[5] is not None]
            if pending:
                claims.append(OutboxClaim(pending[0].group, token, attempts, pending, lapses, is_alone))
            else:
                empty.append(group)
        if empty:
            self._do("remove_from_outbox", info.number, empty)
        return claims

    @override
    def delivered(self, pipeline: int, claim: OutboxClaim, count: int, until_ms: int, error: str | None) -> bool:
        group, numbers = self._key(claim.group), [output.number for output in claim.outputs[:count]]
        error = None if error is None else written(error)
        is_ours = bool(self._read("end_delivery", pipeline, group, claim.token, until_ms, count, error, numbers))
        if is_ours:
            self._do("remove_from_outbox", pipeline, [group])
        return is_ours


def _flat(counts: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return counts by kind and reason; the reason is empty for a kind that has only one count."""
    flat = {}
    for kind, count in counts.items():
        by_reason = count if isinstance(count, Mapping) else {"": count}
        flat.update({(kind, reason): amount for reason, amount in by_reason.items()})
    return flat
