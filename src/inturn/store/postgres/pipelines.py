"""Pipelines in PostgreSQL: groups, held messages, undelivered outputs, rejected messages and decisions.

Workers on several machines seldom wait for each other. A worker that writes the results of turns locks the rows of
their groups. Counts are added to one of several rows. Outputs are numbered by a sequence: in order within a group,
roughly in order between groups, and with gaps.

A worker that makes outputs writes a note to `inturn_posted` and does not touch the outbox, which only deliveries use.
A claim of outputs, the last step of a worker's transaction, draws the notes first. A note about a group with a row in
the outbox is removed only by a transaction that has locked that row. The row is removed only by a transaction that sees
no output of the group. So, whatever runs concurrently, a group with an output has a note or a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from inturn.core import limits
from inturn.store.postgres.names import LongNames, short
from inturn.store.postgres.statements import PostgresStatements, Wire
from inturn.store.postgres.texts import read, written
from inturn.store.protocols import RunAgain
from inturn.store.records import (
    AppliedMark,
    Claim,
    Decided,
    GroupRecord,
    GroupUpdate,
    HeldMessage,
    MadeOutput,
    Outgoing,
    PipelineInfo,
    RejectedMessage,
    Spot,
)

_OUTPUTS = "outputs"
"""The kind of count for outputs; messages are counted under other names."""


@dataclass
class CountedPipelineInfo(PipelineInfo):
    """A pipeline's info with the counts that were read, so that only differences are written.

    Attributes:
        seen: the counts that were read or written last.
    """

    seen: dict[str, Any] = field(default_factory=dict)


class PostgresPipelines(PostgresStatements):
    """The pipelines of one database; see :class:`inturn.store.protocols.PipelineStore`."""

    def __init__(self, wire: Wire, names: LongNames) -> None:
        super().__init__(wire)
        self._names = names

    # --- pipelines and their groups ---

    def names(self) -> list[str]:
        """Return the names of all pipelines."""
        return [read(name) for (name,) in self._all("pipelines")]

    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline; ``tokens`` is not set, since a sequence gives them."""
        rows = self._all("pipeline", written(name))
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

    def save(self, info: PipelineInfo) -> None:
        """Create or change a pipeline.

        Raises:
            RunAgain: if another process has created it at the same time.
        """
        about = msgspec.json.encode(info.about).decode()
        if info.number:
            self._do("save_pipeline", info.number, about)
        else:
            row = self._one("add_pipeline", written(info.name), about)
            if row is None:
                raise RunAgain(f"another process has made the pipeline {info.name!r} at the same time")
            (info.number,) = row
        self._tally(info, 0)

    def _tally(self, info: PipelineInfo, outputs: int) -> None:
        """Add the changes of the counts to those in the database."""
        seen = info.seen if isinstance(info, CountedPipelineInfo) else {}
        before, now = _flat(seen), _flat(info.counts)
        more = [(*at, count - before.get(at, 0)) for at, count in now.items() if count != before.get(at, 0)]
        if outputs:
            more.append((_OUTPUTS, "", outputs))
        if more:
            self._do("tally", info.number, *map(list, zip(*more, strict=True)))
        if isinstance(info, CountedPipelineInfo):
            info.seen = deepcopy(info.counts)

    def lines(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of those of the groups that exist."""
        return self._lines(self._all("lines", pipeline, [*map(_key, groups)]))

    def listed(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names."""
        rows = self._all("parked_lines" if parked else "lines_after", pipeline, _key(after), limit)
        return self._lines(rows)

    def _lines(self, rows: Sequence[Any]) -> list[GroupRecord]:
        name = self._names.reader(row[0] for row in rows)
        return [GroupRecord(read(name(row[0])), *row[1:]) for row in rows]

    def due(self, pipeline: int, now_us: int, limit: int) -> list[str]:
        """Return the groups whose wait has ended."""
        groups = [group for (group,) in self._all("due_groups", pipeline, now_us, limit)]
        return [*map(read, map(self._names.reader(groups), groups))]

    def held(
        self, pipeline: int, group: str, turns: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldMessage]:
        """Return the held messages of a group."""
        group = _key(group)
        if turns is None and ids is None:
            return self._held(self._all("held_of", pipeline, group))
        rows = self._all("held_turns", pipeline, group, list(turns)) if turns else []
        rows += self._all("held_ids", pipeline, group, [*map(_key, ids)]) if ids else []
        return sorted(set(self._held(rows)))

    def held_from(self, pipeline: int, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """Return the held messages of a group from a spot on."""
        epoch, turn, message_id = spot
        return self._held(self._all("held_from", pipeline, _key(group), epoch, turn, _key(message_id), limit))

    def _held(self, rows: Sequence[Any]) -> list[HeldMessage]:
        name = self._names.reader(row[2] for row in rows)
        return [HeldMessage(epoch, turn, read(name(message_id)), *more) for epoch, turn, message_id, *more in rows]

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Return the times and spots of the messages that a group has held longest."""
        rows = self._all("held_longest", pipeline, _key(group), limit)
        name = self._names.reader(row[3] for row in rows)
        return [(since_us, (epoch, turn, read(name(message_id)))) for since_us, epoch, turn, message_id in rows]

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the stored marks of a group among these marks."""
        rows = self._all("marks", pipeline, _key(group), sorted(marks)) if marks else []
        return [AppliedMark._make(row) for row in rows]

    def keep(
        self, info: PipelineInfo, kept: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of turns.

        Raises:
            RunAgain: if another process has created a group at the same time.
        """
        number = info.number
        names = {each.line.group: self._names.kept(written(each.line.group)) for each in kept}
        known = dict(self._all("lock_lines", number, list(names.values()))) if kept else {}
        overtaken = [line.group for line, *_ in kept if known.get(names[line.group], 0) != line.version]
        if overtaken:
            return overtaken
        self._keep_lines(number, [(names[line.group], line.version + 1, *line[2:]) for line, *_ in kept])
        for statement, messages in (
            ("release_messages", [(each, spot) for each in kept for spot in each.gone]),
            ("hold_messages", [(each, held) for each in kept for held in each.held]),
        ):
            rows = [
                (names[each.line.group], *at[:2], self._names.kept(written(at[2])), *at[3:]) for each, at in messages
            ]
            self._do_all(statement, number, rows)
        marks = [(names[each.line.group], *mark) for each in kept for mark in each.marks]
        self._do_all("add_marks", number, sorted(marks))
        outputs = [
            (names[each.line.group], out.epoch, out.revision, out.id and written(out.id), *out[5:])
            for each in kept
            for out in each.outputs
        ]
        self._do_all("add_outputs", number, outputs)
        notes = [names[each.line.group] for each in kept if each.outputs]
        if notes:
            self._do("note_outputs", number, now_ms, notes)
        refused = [tuple(None if text is None else written(text) for text in each[:4]) for each in rejected]
        if refused:
            self._do("reject_messages", number, now_ms, *map(list, zip(*refused, strict=True)))
        info.outputs += len(outputs)
        self._tally(info, len(outputs))
        return []

    def _keep_lines(self, pipeline: int, rows: Sequence[tuple[Any, ...]]) -> None:
        new, old = [row for row in rows if row[1] == 1], [row for row in rows if row[1] > 1]
        self._do_all("save_lines", pipeline, old)
        if new and len(self._all("add_lines", pipeline, *map(list, zip(*new, strict=True)))) < len(new):
            raise RunAgain("another process has made a group at the same time")

    def _do_all(self, name: str, pipeline: int, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._do(name, pipeline, *map(list, zip(*rows, strict=True)))

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages with their numbers."""
        return [
            (number, RejectedMessage(group and read(group), reason, read(detail), read(message), at_ms))
            for number, group, reason, detail, message, at_ms in self._all("rejections", pipeline, after, limit)
        ]

    # --- outputs ---

    def outputs(self, pipeline: int, after: int, limit: int) -> list[MadeOutput]:
        """Return outputs, in order within a group and roughly in order between groups."""
        return self._outputs(self._all("outputs", pipeline, after, limit))

    def _outputs(self, rows: Sequence[Any]) -> list[MadeOutput]:
        name = self._names.reader(row[1] for row in rows)
        return [
            MadeOutput(number, read(name(group)), epoch, revision, message_id and read(message_id), *more)
            for number, group, epoch, revision, message_id, *more in rows
        ]

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[Claim]:
        """Claim the first outputs of unclaimed groups."""
        self._do("post", info.number, limits.OUTBOX_NOTES)
        rows = self._all("claim", info.number, now_ms, groups, outputs, until_ms)
        claims, empty = [], []
        for (group, token, attempts), part in groupby(rows, lambda row: row[:3]):
            made = self._outputs([row[3:] for row in part if row[3] is not None])
            if made:
                claims.append(Claim(made[0].group, token, attempts, made))
            else:
                empty.append(group)
        if empty:
            self._do("posted", info.number, empty)
        return claims

    def renew(self, pipeline: int, claims: Sequence[Claim], until_ms: int) -> None:
        """Extend claims."""
        groups, tokens = [_key(each.group) for each in claims], [each.token for each in claims]
        if groups:
            self._do("renew_claims", pipeline, until_ms, groups, tokens)

    def delivered(self, pipeline: int, claim: Claim, count: int, until_ms: int, error: str | None) -> bool:
        """End a claim and remove its delivered outputs."""
        group, gone = _key(claim.group), [each.number for each in claim.outputs[:count]]
        error = None if error is None else written(error)
        is_ours = bool(self._all("delivered", pipeline, group, claim.token, until_ms, count, error, gone))
        if is_ours:
            self._do("posted", pipeline, [group])
        return is_ours

    def outgoing(self, pipeline: int, groups: Sequence[str] | None, limit: int) -> list[Outgoing]:
        """Return groups with undelivered outputs."""
        rows = (
            self._all("failing", pipeline, limit)
            if groups is None
            else self._all("outgoing", pipeline, [*map(_key, groups)], limit)
        )
        name = self._names.reader(row[0] for row in rows)
        return [
            Outgoing(read(name(group)), until_ms, attempts, error and read(error), depth)
            for group, until_ms, attempts, error, depth in rows
        ]

    # --- decisions ---

    def decide(self, pipeline: int, decided: Decided) -> None:
        """Append a decision."""
        self._do("add_decision", pipeline, decided.name, self._names.kept(written(decided.group)), decided.decision)

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[Decided]:
        """Return the decisions that are not taken yet."""
        rows = (
            self._all("decisions", pipeline, limit)
            if group is None
            else self._all("decisions_of", pipeline, limit, _key(group))
        )
        of = self._names.reader(row[1] for row in rows)
        return [Decided(name, read(of(group)), *more) for name, group, *more in rows]

    def take(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Mark decisions as taken."""
        if verdicts:
            self._do("take_decisions", pipeline, list(verdicts), [*map(written, verdicts.values())])

    def verdict(self, pipeline: int, name: str) -> str | None:
        """Return the verdict on a decision."""
        row = self._one("verdict", pipeline, name)
        return None if row is None or row[0] is None else read(row[0])


def _flat(counts: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return counts by kind and reason; the reason is empty for a kind that has only one count."""
    flat = {}
    for kind, count in counts.items():
        of = count if isinstance(count, Mapping) else {"": count}
        flat.update({(kind, reason): each for reason, each in of.items()})
    return flat


def _key(name: str) -> str:
    """Return the stored form of a group or an id, for a lookup."""
    return short(written(name))
