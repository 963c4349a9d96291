"""Pipelines in the file: groups, held messages, outputs to be delivered, rejected messages and decisions.

A separate module, since pipelines share only the transaction with queues.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import msgspec

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
from inturn.store.sqlite.statements import SqliteStatements, as_list


class SqlitePipelines(SqliteStatements):
    """The pipelines of one file; see :class:`inturn.store.protocols.PipelineStore`.

    Args:
        connection: to the file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)

    # --- pipelines and their groups ---

    def names(self) -> list[str]:
        """Return the names of all pipelines."""
        return [name for (name,) in self._all("pipelines")]

    def info(self, name: str) -> PipelineInfo | None:
        """Return the metadata of a pipeline."""
        row = self._one("pipeline", name)
        if row is None:
            return None
        number, name, about, counts, outputs, tokens = row
        decode = msgspec.json.decode
        return PipelineInfo(number, name, decode(about), decode(counts), outputs, tokens)

    def save(self, info: PipelineInfo) -> None:
        """Create or change a pipeline."""
        if info.number == 0:
            (last,) = self._one("last_pipeline")
            info.number = last + 1
        about, counts = (msgspec.json.encode(each).decode() for each in (info.about, info.counts))
        self._do("save_pipeline", info.number, info.name, about, counts, info.outputs, info.tokens)

    def lines(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of those groups that are known."""
        wanted = list(groups)
        rows = self._all("lines", pipeline, as_list(name for name in wanted if "\0" not in name))
        for name in (name for name in wanted if "\0" in name):
            rows += self._all("line", pipeline, name)  # from an older version: json_each would cut the name at NUL
        return [GroupRecord._make(row) for row in rows]

    def listed(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names."""
        return [
            GroupRecord._make(row)
            for row in self._all("parked_lines" if parked else "lines_after", pipeline, after, limit)
        ]

    def due(self, pipeline: int, now_us: int, limit: int) -> list[str]:
        """Return groups whose wait is over."""
        return [group for (group,) in self._all("due_groups", pipeline, now_us, limit)]

    def held(
        self, pipeline: int, group: str, turns: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldMessage]:
        """Return messages that a group holds."""
        if turns is None and ids is None:
            return [HeldMessage._make(row) for row in self._all("held_of", pipeline, group)]
        rows = self._all("held_turns", pipeline, group, as_list(turns)) if turns else []
        rows += self._all("held_ids", pipeline, group, as_list(ids)) if ids else []
        return [HeldMessage._make(row) for row in sorted(set(rows))]

    def held_from(self, pipeline: int, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """Return the messages that a group holds from a spot on."""
        return [HeldMessage._make(row) for row in self._all("held_from", pipeline, group, *spot, limit)]

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Return the messages that a group has held longest: since when, and where they lie."""
        rows = self._all("held_longest", pipeline, group, limit)
        return [(since_us, (epoch, turn, message_id)) for since_us, epoch, turn, message_id in rows]

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the remembered messages of a group that have these marks."""
        if not marks:
            return []
        size = len(marks[0])
        places = as_list(range(1, 1 + size * len(marks), size))
        return [AppliedMark._make(row) for row in self._all("marks", b"".join(marks), places, size, pipeline, group)]

    def keep(
        self, info: PipelineInfo, kept: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of turns; if others have changed any group, write nothing and return those groups."""
        number = info.number
        names = [each.line.group for each in kept]
        known = dict(self._all("versions", number, as_list(names))) if kept else {}
        if any("\0" in name for name in names):  # from an older version, see lines()
            known |= {line.group: line.version for line in self.lines(number, names)}
        overtaken = [each.line.group for each in kept if known.get(each.line.group, 0) != each.line.version]
        if overtaken:
            return overtaken
        self._do_each("save_line", [(number, line.group, line.version + 1, *line[2:]) for line, *_ in kept])
        self._do_each("release_message", [(number, each.line.group, *spot) for each in kept for spot in each.gone])
        self._do_each("hold_message", [(number, each.line.group, *held) for each in kept for held in each.held])
        self._do_each("add_mark", [(number, each.line.group, *mark) for each in kept for mark in each.marks])
        outputs = [output for each in kept for output in each.outputs]
        numbers = range(info.outputs + 1, info.outputs + 1 + len(outputs))
        self._do_each("add_output", [(number, at, *out[1:]) for at, out in zip(numbers, outputs, strict=True)])
        self._do_each("post", [(number, each.line.group, now_ms) for each in kept if each.outputs])
        self._do_each("reject_message", [(number, *each[:4], now_ms) for each in rejected])
        info.outputs += len(outputs)
        self.save(info)
        return []

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages with their numbers."""
        return [(at, RejectedMessage._make(row)) for at, *row in self._all("rejections", pipeline, after, limit)]

    # --- outputs ---

    def outputs(self, pipeline: int, after: int, limit: int) -> list[MadeOutput]:
        """Return outputs in the order in which they were made."""
        return [MadeOutput._make(row) for row in self._all("outputs", pipeline, after, limit)]

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[Claim]:
        """Claim the first outputs of groups that nobody has claimed."""
        rows = self._all("unclaimed", info.number, now_ms, groups)
        if not rows:
            return []
        info.tokens += 1
        self._do_each("claim", [(info.tokens, until_ms, info.number, group) for group, _ in rows])
        self.save(info)
        return [
            Claim(
                group,
                info.tokens,
                attempts,
                [MadeOutput._make(row) for row in self._all("group_outputs", info.number, group, outputs)],
            )
            for group, attempts in rows
        ]

    def renew(self, pipeline: int, claims: Sequence[Claim], until_ms: int) -> None:
        """Extend claims."""
        self._do_each("renew_claim", [(until_ms, pipeline, each.group, each.token) for each in claims])

    def delivered(self, pipeline: int, claim: Claim, count: int, until_ms: int, error: str | None) -> bool:
        """Remove the delivered outputs of a claim and release it; return whether the claim was still valid."""
        row = self._one("claimed", pipeline, claim.group, claim.token)
        if row is None:
            return False
        self._do_each("remove_output", [(pipeline, each.number) for each in claim.outputs[:count]])
        if self._one("has_outputs", pipeline, claim.group) is None:
            self._do("posted", pipeline, claim.group)
        else:
            attempts = 0 if error is None else 1 if count else row[0] + 1
            self._do("post_again", until_ms, attempts, error, pipeline, claim.group)
            self._do("claim", 0, until_ms, pipeline, claim.group)
        return True

    def outgoing(self, pipeline: int, groups: Sequence[str] | None, limit: int) -> list[Outgoing]:
        """Return groups with undelivered outputs."""
        rows = (
            self._all("failing", pipeline, limit)
            if groups is None
            else self._all("outgoing", pipeline, as_list(groups), limit)
        )
        return [Outgoing._make(row) for row in rows]

    # --- decisions ---

    def decide(self, pipeline: int, decided: Decided) -> None:
        """Append a decision."""
        self._do("decide", pipeline, decided.name, decided.group, decided.decision)

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[Decided]:
        """Return decisions that are not taken yet."""
        rows = (
            self._all("decisions", pipeline, limit)
            if group is None
            else self._all("decisions_of", pipeline, group, limit)
        )
        return [Decided._make(row) for row in rows]

    def take(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Write the verdicts of decisions that were taken."""
        self._do_each("take_decision", [(verdict, pipeline, name) for name, verdict in verdicts.items()])

    def verdict(self, pipeline: int, name: str) -> str | None:
        """Return the verdict on a decision."""
        verdict: str | None
        (verdict,) = self._one("verdict", pipeline, name) or (None,)
        return verdict
