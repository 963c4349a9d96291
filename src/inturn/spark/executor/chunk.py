"""A chunk of sorted rows as columns: group boundaries, sort keys, digests, ties."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.content import differing_fields
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.timeline import TimelineVerdict
from inturn.spark.columns.message_codec import MessageCodec
from inturn.spark.columns.names import ARRIVED, HASH, OWN
from inturn.spark.columns.records import rows_of, values
from inturn.spark.executor.placement import TIE, column_of, id_column, position_column, sort_keys

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def numbers(column: pa.ChunkedArray) -> Ints:
    """Return a column of integers or times as int64; times in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
    return cast("Ints", column.cast(pa.int64()).to_numpy())


@dataclass
class Chunk:
    """Sorted rows, all valid, with the columns that the kernel needs.

    Attributes:
        content: the rows without the columns that inturn added.
        columns: the same as Python values, by field.
        hashes: the hash of each row's group.
        groups: the groups in the order of their rows; ``names`` are the same as Python strings.
        starts: the first row of each group, then the number of rows.
        positions: each row's place in its group's order; 0 under ``Arrival``.
        epochs: each row's epoch; None if the pipeline has no epoch column; ``ids`` and ``ties`` alike.
        digest: each row's digest; None until it is computed.
    """

    pipeline: Pipeline
    codec: MessageCodec
    content: pa.Table
    columns: dict[str, list[Any]]
    messages: list[Any]
    hashes: Ints
    groups: pa.Array
    names: list[str]
    starts: Ints
    positions: Ints
    epochs: Ints | None
    ids: list[str | None] | None
    ties: list[str] | None
    digest: list[bytes | None]

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        codec: MessageCodec,
        table: pa.Table,
        columns: dict[str, list[Any]],
        messages: list[Any],
        group: str,
    ) -> "Chunk":
        """Build a chunk of sorted rows (at least one), given as a table, as Python values and as messages."""
        order = _tie_order(pipeline, codec, table, columns, group)
        if order is not None:
            table = table.take(pa.array(order)).combine_chunks()
            columns = rows_of(columns, order)
            messages = [messages[row] for row in order]
        hashes = table[HASH].to_numpy()
        groups = table[group].combine_chunks()
        change = pc.not_equal(groups.slice(1), groups.slice(0, len(groups) - 1)).to_numpy(zero_copy_only=False)
        starts = np.concatenate([[0], np.flatnonzero(change) + 1])
        firsts, position, ident = groups.take(pa.array(starts)), position_column(pipeline), id_column(pipeline)
        return cls(
            pipeline=pipeline,
            codec=codec,
            content=table.drop_columns([name for name in table.column_names if name.startswith(OWN)]),
            columns=columns,
            messages=messages,
            hashes=hashes,
            groups=firsts,
            names=firsts.to_pylist(),
            starts=np.append(starts, len(table)),
            positions=np.zeros(len(table), np.int64) if position is None else numbers(table[position]),
            epochs=numbers(table[column_of(pipeline.epoch)]) if pipeline.epoch else None,
            ids=None if ident is None else _texts(table[ident]),
            ties=table[TIE].to_pylist() if TIE in table.column_names else None,
            digest=[None] * len(table),
        )

    def compute_digests(self, rows: Sequence[int]) -> None:
        """Compute the digests of these rows in one call."""
        if len(rows) * 2 > len(self.digest):
            self.digest = list(self.codec.digests(self.content, self.columns, range(len(self.digest))))
            return
        missing = sorted({row for row in rows if self.digest[row] is None})
        for row, digest in zip(
            missing, self.codec.digests(self.content, self.columns, missing) if missing else [], strict=True
        ):
            self.digest[row] = digest

    def digest_of(self, row: int) -> bytes:
        """Return the digest of one row."""
        known = self.digest[row]
        if known is None:
            known = self.digest[row] = self.codec.digests(self.content, self.columns, [row])[0]
        return known

    def entry(self, row: int) -> TimelineEntry:
        """Return one row as a timeline entry."""
        entry = self.applied_entry(row)
        entry.digest = self.digest_of(row)
        return entry

    def judge_repeated(
        self, row: int, digest: bytes, first: int | None, report: Callable[[TimelineEntry], bool]
    ) -> tuple[TimelineEntry, TimelineVerdict, Sequence[str]]:
        """Return a row whose place a message with this digest has already, the verdict on it, and what differs.

        ``first`` is the row of that message; None if it is of an earlier step. ``report`` is that of the group's
        timeline.
        """
        entry = self.entry(row)
        if entry.digest == digest or not report(entry):
            return entry, TimelineVerdict.DUPLICATE, ()
        known = () if first is None else differing_fields(self.pipeline, self.entry(first), entry)
        return entry, TimelineVerdict.CONFLICT, known

    def applied_entry(self, row: int) -> TimelineEntry:
        """Return an applied row as the entry that names its outputs; without the digest, which is costly and unused."""
        return TimelineEntry(
            position=self.positions.item(row),
            digest=b"",
            message=self.messages[row],
            epoch=0 if self.epochs is None else int(self.epochs[row]),
            id=None if self.ids is None else self.ids[row],
            ref=(self.content, row),
            tie="" if self.ties is None else self.ties[row],
        )


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else str(value) for value in values(column)]


def same_as_next(table: pa.Table, keys: Sequence[str]) -> Flags:
    """Return, for each row but the last, whether the next row equals it in all these columns."""
    same = np.ones(max(len(table) - 1, 0), dtype=np.bool_)
    for key in keys:
        column = table[key].combine_chunks()
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        both_null = pc.and_(before.is_null(), after.is_null())
        same &= pc.or_kleene(pc.fill_null(pc.equal(before, after), False), both_null).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return same


def start_of_last_tie(table: pa.Table, keys: Sequence[str]) -> int:
    """Return the first of the rows at the end that all equal the last row in these columns."""
    looked = 64  # nearly always enough
    while True:
        begin = max(0, len(table) - looked)
        differ = np.flatnonzero(~same_as_next(table.slice(begin), keys))
        if len(differ) or not begin:
            return begin + int(differ[-1]) + 1 if len(differ) else 0
        looked *= 8


def _tie_order(
    pipeline: Pipeline, codec: MessageCodec, table: pa.Table, columns: dict[str, list[Any]], group: str
) -> list[int] | None:
    """Return the order that sorts rows with equal keys by digest, so that every attempt decides the same.

    None if the rows are already in this order.
    """
    keys = sort_keys(pipeline, has_places=ARRIVED in table.column_names)
    same = same_as_next(table, [HASH, group, *keys])
    if not same.any():
        return None
    order = np.arange(len(table))
    moved = False
    tied = np.flatnonzero(same)
    in_tie = np.unique(np.concatenate([tied, tied + 1]))
    digest = dict(zip(in_tie.tolist(), codec.digests(table, columns, in_tie.tolist()), strict=True))
    for first, last in _blocks(same):
        rows = list(range(first, last + 1))
        ranked = sorted(rows, key=digest.__getitem__)
        if ranked != rows:
            order[first : last + 1] = ranked
            moved = True
    return order.tolist() if moved else None


def _blocks(same: Flags) -> Iterator[tuple[int, int]]:
    """Yield the first and last row of each block of equal rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
