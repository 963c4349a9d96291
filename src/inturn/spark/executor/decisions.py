"""The decisions about a task's groups. Each is applied when its group is opened, before the group's messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inturn.core.errors import InputError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.columns.hashing import group_hash
from inturn.spark.columns.message_codec import MessageCodec


class Decisions:
    """The decisions, by name, about groups in the hash range from ``low`` to ``high``.

    Attributes:
        groups: the groups of the decisions.
        hashes: the sorted hashes of these groups.
        verdicts: for each processed decision, the reason why it is void; None if it was carried out.
    """

    def __init__(self, decisions: Mapping[str, Decision], low: int, high: int) -> None:
        self._by_group: dict[str, list[tuple[str, Decision]]] = {}
        hashes = set()
        for name, decision in sorted(decisions.items()):
            if low <= (hash_ := group_hash(decision.group)) <= high:
                hashes.add(hash_)
                self._by_group.setdefault(decision.group, []).append((name, decision))
        self.groups = list(self._by_group)
        self.hashes = np.array(sorted(hashes), dtype=np.int64)
        self.verdicts: dict[str, str | None] = {}

    def has_decision(self, groups: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return, for each group, whether there is a decision about it."""
        if not self._by_group:
            return np.zeros(len(groups), dtype=np.bool_)
        return np.array([group in self._by_group for group in groups], dtype=np.bool_)

    def pop(self, group: str) -> list[tuple[str, Decision]]:
        """Remove and return the decisions about one group."""
        return self._by_group.pop(group, []) if self._by_group else []


def held_content(entry: TimelineEntry) -> dict[str, Any]:
    """Return the content of a held message in the form that users see."""
    content: dict[str, Any] = entry.ref[0].slice(entry.ref[1], 1).to_pylist(maps_as_pydicts="strict")[0]
    return content


def with_content(pipeline: Pipeline, entry: TimelineEntry, content: dict[str, Any]) -> TimelineEntry:
    """Return a held message with these fields changed; its place, id and digest stay, so its copies are recognised.

    Raises:
        InputError: if the content does not fit the message type or the message's columns.
    """
    schema = entry.ref[0].schema
    unknown = sorted(content.keys() - set(schema.names))
    if unknown:
        raise InputError(f"the message has no field {unknown[0]!r}; it has {', '.join(schema.names)}")
    try:
        row = entry.ref[0].slice(entry.ref[1], 1)
        for name, value in content.items():
            index = schema.get_field_index(name)
            row = row.set_column(index, schema.field(index), _array(value, schema.field(index).type))
        table = row.combine_chunks()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the content does not fit the message's columns: {error}") from error
    messages, bad = MessageCodec(pipeline, schema.names).from_table(table)
    if bad:
        raise InputError(bad[0])
    return replace(entry, message=messages[0], ref=(table, 0))


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    """Return one value as a column; JSON has no times and dates, so text is cast to the column's type."""
    try:
        return pa.array([value], kind)
    except (pa.ArrowException, TypeError):
        return pa.array([value]).cast(kind)
