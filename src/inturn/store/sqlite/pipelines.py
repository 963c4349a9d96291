"""Pipelines in the file; store/sql/pipelines.py has the part that PostgreSQL shares."""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from inturn.core.override import override
from inturn.json_form import of_message_pack, of_value
from inturn.store.records import (
    AppliedMark,
    GroupRecord,
    GroupUpdate,
    HeldRecord,
    OutboxClaim,
    OutputRecord,
    PipelineInfo,
)
from inturn.store.sql.pipelines import Row, SqlPipelines
from inturn.store.sqlite.statements import NamedStatements, as_list


class SqlitePipelines(SqlPipelines):
    """The pipelines of one file.

    Args:
        connection: to the file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        statements = self._statements = NamedStatements(connection)
        super().__init__(statements.read, statements.do, statements.do_each, as_list)

    @override
    def info(self, name: str) -> PipelineInfo | None:
        row = self._statements.one("pipeline", name)
        if row is None:
            return None
        number, name, about, counts, outputs, tokens = row
        decode = msgspec.json.decode
        return PipelineInfo(number, name, decode(about), decode(counts), outputs, tokens)

    @override
    def save(self, info: PipelineInfo) -> None:
        if info.number == 0:
            (last,) = self._statements.one("last_pipeline")
            info.number = last + 1
        about, counts = (msgspec.json.encode(value).decode() for value in (info.about, info.counts))
        self._do("save_pipeline", info.number, info.name, about, counts, info.outputs, info.tokens)

    @override
    def records(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        selected = list(groups)
        rare = {name for name in selected if "\0" in name}  # json_each would cut the name at NUL
        records = super().records(pipeline, [name for name in selected if name not in rare] if rare else selected)
        for name in rare:
            records += map(GroupRecord._make, self._read("group_record", pipeline, name))
        return records

    @override
    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldRecord]:
        rows = {name: self._statements.one("held_head", pipeline, name) for name in groups}
        return {name: HeldRecord._make(row) for name, row in rows.items() if row is not None}

    @override
    def _versions(self, pipeline: int, groups: Sequence[str]) -> dict[str, int]:
        if any("\0" in name for name in groups):
            return {record.group: record.version for record in self.records(pipeline, groups)}
        return super()._versions(pipeline, groups)

    @override
    def _extra_columns(self, update: GroupUpdate) -> Row:
        return (of_message_pack(update.record.state) if update.state is None else of_value(update.state),)

    @override
    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        if not marks:
            return []
        size = len(marks[0])
        places = as_list(range(1, 1 + size * len(marks), size))
        return [*map(AppliedMark._make, self._read("marks", b"".join(marks), places, size, pipeline, group))]

    @override
    def _save_outputs(self, info: PipelineInfo, rows: Sequence[Row]) -> None:
        numbered = [
            (number, output_number, *more) for output_number, (number, *more) in enumerate(rows, info.outputs + 1)
        ]
        self._write("add_outputs", numbered)
        info.outputs += len(rows)
        self.save(info)

    @override
    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[OutboxClaim]:
        suspect = self._read("suspect", info.number, now_ms)
        rows = suspect or self._read("unclaimed", info.number, now_ms, groups)
        if not rows:
            return []
        info.tokens += 1
        claims, changes = [], []
        for group, attempts, token, lapses, lapsed_to in rows:
            first = self._read("group_outputs", info.number, group, 1 if lapses else outputs)
            pending = [*map(OutputRecord._make, first)]
            if token:
                lapsed_to = lapsed_to if lapses or not pending else pending[-1].number  # noqa: PLW2901 - of this lapse
                lapses, pending = lapses + 1, pending[:1]  # noqa: PLW2901 - with this one
            claims.append(OutboxClaim(group, info.tokens, attempts, pending, lapses, is_alone=bool(suspect)))
            changes.append((info.tokens, until_ms, lapses, lapsed_to, info.number, group))
        self._statements.do_each("claim", changes)
        self.save(info)
        return claims

    @override
    def delivered(self, pipeline: int, claim: OutboxClaim, count: int, until_ms: int, error: str | None) -> bool:
        row = self._statements.one("claimed", pipeline, claim.group, claim.token)
        if row is None:
            return False
        self._write("remove_output", [(pipeline, output.number) for output in claim.outputs[:count]])
        if self._statements.one("has_outputs", pipeline, claim.group) is None:
            self._do("remove_from_outbox", pipeline, claim.group)
        else:
            attempts, lapses, lapsed_to = row
            attempts = 0 if error is None else 1 if count else attempts + 1
            if count or error is not None:
                lapses = 0 if count and claim.outputs[count - 1].number >= lapsed_to else min(lapses, 1)
            self._do("reschedule_delivery", until_ms, attempts, error, lapses, pipeline, claim.group)
        return True
